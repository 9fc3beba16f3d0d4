"""URLs have one reading, and requests have limits."""

from __future__ import annotations

import pytest

from plugbay.model.fetch import MAX_BODY, MAX_HEADERS, Url, parse_url, read_url
from plugbay.model.operations import FetchUrl
from tests.support.requirements import requirement


@pytest.mark.parametrize(
    ("text", "url"),
    [
        ("http://a.org", Url("http", "a.org", 80, "/")),
        ("HTTPS://A.Org/x?y=%20#z", Url("https", "a.org", 443, "/x?y=%20")),
        ("https://a.org:8443?q", Url("https", "a.org", 8443, "/?q")),
        ("http://[::1]:80/", Url("http", "::1", 80, "/")),
        ("http://[2606:4700:0::1]", Url("http", "2606:4700::1", 80, "/")),
        ("http://a.org/@b", Url("http", "a.org", 80, "/@b")),
    ],
)
def test_a_url_has_one_reading(text: str, url: Url) -> None:
    assert parse_url(text) == url


@requirement("ainb:host-network-urls")
@pytest.mark.parametrize(
    "text",
    [
        "",
        "a.org",
        "//a.org",
        "ftp://a.org",
        "file:///etc/passwd",
        "gopher://a.org",
        "javascript:alert(1)",
        "data:text/plain,x",
        "unix:///run/x.sock",
        "http:/a.org",
        "http:a.org",
        "http://",
        "http:///x",
        "http://user@a.org",
        "http://user:pass@a.org",
        "http://a.org@b.org",
        "http://a.org:80@b.org/",
        "http://a.org\\@b.org",
        "http://a.org%00.b.org",
        "http://a.org%2eb.org",
        "http://a.org\t.b.org",
        "http://a.org\r\nHost: b.org",
        "http://a.org/\n",
        " http://a.org",
        "http://a.org/ b",
        "http://a.org/\N{LATIN SMALL LETTER E WITH ACUTE}",
        "http://\N{LATIN SMALL LETTER E WITH ACUTE}.org",
        "http://a.org.",
        "http://.a.org",
        "http://a..org",
        "http://a_b.org",
        "http://a.org:",
        "http://a.org:0",
        "http://a.org:65536",
        "http://a.org:8 0",
        "http://a.org:+80",
        "http://a.org:80:80",
        "http://127.1",
        "http://0x7f.0.0.1",
        "http://2130706433",
        "http://0177.0.0.1",
        "http://[::1",
        "http://::1",
        "http://[fe80::1%25eth0]",
        "http://[::1].a.org",
        "http://[a.org]",
        "http://a.org/" + "x" * 8192,
    ],
)
def test_a_url_with_two_readings_or_none_is_refused(text: str) -> None:
    assert isinstance(parse_url(text), str)


@requirement("ainb:host-network-urls")
@pytest.mark.parametrize(
    ("op", "words"),
    [
        (FetchUrl("ftp://a.org"), "the URL must begin with"),
        (FetchUrl("http://a.org", method="BREW"), "the method must be one of"),
        (FetchUrl("http://a.org", method="POST", body=bytes(MAX_BODY + 1)), "the body has 12,500,001 bytes"),
        (FetchUrl("http://a.org", headers=[("A", "1")] * (MAX_HEADERS + 1)), "at most 100 headers"),
        (FetchUrl("http://a.org", headers=[("A", "1" * 20_000)]), "of 16,384 characters"),
        (FetchUrl("http://a.org", headers=[("A B", "1")]), "characters that are not allowed in a header"),
        (FetchUrl("http://a.org", headers=[("Host", "b.org")]), "set by the host"),
    ],
)
def test_a_request_that_no_host_sends_is_refused_with_its_reason(op: FetchUrl, words: str) -> None:
    assert words in str(read_url(op))


def test_a_valid_request_has_a_url() -> None:
    assert read_url(FetchUrl("http://a.org/x", method="post", body=b"1")) == Url("http", "a.org", 80, "/x")
