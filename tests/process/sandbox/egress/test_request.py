"""The head of a request: one reading or none, whatever pieces it comes in."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plugbay.process.sandbox.egress.decision import Refusal
from plugbay.process.sandbox.egress.request import (
    MAX_HEAD,
    MAX_LINE,
    MAX_TRAILERS,
    Body,
    Chunks,
    Counted,
    HeadParser,
    Request,
    parse_authority,
)
from tests.process.sandbox.egress.corpus import ROWS, Row, connect, get

WORDS = (
    b"CONNECT |GET |http://|example.com|:443| HTTP/1.1|Host: |Content-Length: 5|Transfer-Encoding: chunked|[::1]|X: y"
)
FRAGMENTS = st.sampled_from([*WORDS.split(b"|"), b"\r\n", b"\n", b"\r", b"\0", b"@", b"/", b" ", b"\t", b"\xff"])
WILD = st.lists(FRAGMENTS | st.binary(max_size=8), max_size=30).map(b"".join)


def read(data: bytes) -> Request | Refusal | None:
    return HeadParser().feed(data)


def asked(data: bytes) -> Request:
    request = read(data)
    assert isinstance(request, Request), request
    return request


@given(data=st.sampled_from([row.head for row in ROWS]) | WILD, cuts=st.lists(st.integers(0, 400), max_size=20))
def test_the_pieces_in_which_a_head_arrives_change_nothing(data: bytes, cuts: list[int]) -> None:
    pieces, parser, at = [], HeadParser(), 0
    for cut in sorted(cuts):
        pieces.append(data[at:cut])
        at = max(at, cut)
    for piece in (*pieces, data[at:]):
        result = parser.feed(piece)
    whole = HeadParser()
    assert result == whole.feed(data)
    if isinstance(result, Request):
        assert parser.rest == whole.rest


@given(data=WILD)
def test_no_bytes_make_the_parser_raise_and_its_text_is_printable(data: bytes) -> None:
    result = read(data)
    if isinstance(result, Refusal):
        assert result.why.isascii() and result.why.isprintable()
    if isinstance(result, Request):
        assert parse_authority(f"[{result.host}]:1" if ":" in result.host else f"{result.host}:1") == (result.host, 1)


@pytest.mark.parametrize("row", [row for row in ROWS if row.outcome in ("400", "431")])
def test_a_head_that_is_refused_is_refused_however_long_one_goes_on(row: Row) -> None:
    parser = HeadParser()
    first = parser.feed(row.head)
    assert isinstance(first, Refusal)
    assert parser.feed(connect("example.com:443")) is first


def test_every_byte_is_a_piece_and_the_rest_is_kept() -> None:
    parser, data = HeadParser(), connect("example.com:443") + b"\x16\x03\x01"
    results = [parser.feed(bytes((byte,))) for byte in data]
    assert results[-4] == results[-1] == Request("CONNECT", "example.com", 443, None)
    assert results[:-4] == [None] * (len(data) - 4)
    assert parser.rest == b"\x16\x03\x01"


def test_a_head_may_fill_its_bound_to_the_last_byte() -> None:
    fixed = len(get("http://example.com/", "X: "))
    assert isinstance(read(get("http://example.com/", "X: " + "a" * (MAX_HEAD - fixed))), Request)
    assert read(get("http://example.com/", "X: " + "a" * (MAX_HEAD - fixed + 1))) == Refusal(
        431, "the head of the request has more than 16,384 bytes"
    )


def test_a_request_is_written_anew_for_the_checked_host() -> None:
    request = asked(get("http://EXAMPLE.com:80?q", "hOST: example.com", "Accept: a", "Accept: b", "Cookie: \xe9"))
    assert request.encoded() == (
        b"GET /?q HTTP/1.1\r\nHost: example.com\r\nAccept: a\r\nAccept: b\r\nCookie: \xe9\r\nConnection: close\r\n\r\n"
    )
    assert b"\r\nHost: example.com:8080\r\n" in asked(get("http://example.com:8080/")).encoded()
    assert b"\r\nHost: [2606:4700::1]\r\n" in asked(get("http://[2606:4700:0::1]/")).encoded()
    assert asked(get("http://example.com/", version="1.0")).encoded().startswith(b"GET / HTTP/1.0\r\n")


def test_what_concerns_one_connection_stays_on_it() -> None:
    own = ("Proxy-Authorization: x", "Proxy-Connection: keep-alive", "Proxy-Foo: x", "Keep-Alive: x", "TE: trailers")
    more = ("Upgrade: h2c", "HTTP2-Settings: x", "Trailer: x", "Connection: Upgrade, X-Own ,host", "X-Own: x", "Y: y")
    encoded = asked(get("http://example.com/", *own, *more)).encoded()
    assert encoded == b"GET / HTTP/1.1\r\nHost: example.com\r\nY: y\r\nConnection: close\r\n\r\n"


def test_the_end_of_a_body_is_announced_in_one_form() -> None:
    counted = asked(get("http://example.com/", "content-LENGTH: 007", "Connection: content-length", method="POST"))
    assert (counted.length, counted.chunked) == (7, False)
    assert counted.encoded().endswith(b"\r\nContent-Length: 7\r\nConnection: close\r\n\r\n")
    chunked = asked(get("http://example.com/", "Transfer-Encoding: Chunked", method="POST"))
    assert (chunked.length, chunked.chunked) == (None, True)
    assert chunked.encoded().endswith(b"\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("example.com:1", ("example.com", 1)),
        ("[::1]:65535", ("::1", 65535)),
        ("example.com", None),
        ("example.com:01", None),
        ("[127.0.0.1]:1", None),
        ("::1:1", None),
    ],
)
def test_an_authority_has_one_reading(text: str, expected: tuple[str, int] | None) -> None:
    assert parse_authority(text) == expected


BODY_FRAGMENTS = st.sampled_from(
    [b"5\r\n", b"hello", b"\r\n", b"0\r\n", b"\n", b"a;x=y\r\n", b"X: y\r\n", b"ffffffff\r\n"]
)
WILD_BODIES = st.lists(BODY_FRAGMENTS | st.binary(max_size=6), max_size=20).map(b"".join)


def through(body: Body, data: bytes, size: int) -> tuple[bytes, bool, bool]:
    out = b""
    for at in range(0, len(data), size):
        if body.done or body.problem:
            break
        out += body.feed(data[at : at + size])
    return out, body.done, body.problem


@given(data=WILD_BODIES, size=st.integers(1, 40))
def test_the_pieces_in_which_chunks_arrive_change_nothing(data: bytes, size: int) -> None:
    assert through(Chunks(), data, size) == through(Chunks(), data, len(data) or 1)


@given(data=WILD_BODIES)
def test_what_is_sent_on_in_chunks_is_read_the_same_once_more(data: bytes) -> None:
    out, done, _ = through(Chunks(), data, 1000)
    assert through(Chunks(), out, 1000) == (out, done, False)


@given(parts=st.lists(st.binary(min_size=1, max_size=50), max_size=8), size=st.integers(1, 60))
def test_chunks_keep_their_content(parts: list[bytes], size: int) -> None:
    wire = b"".join(b"%X;ext=1\r\n%s\r\n" % (len(part), part) for part in parts) + b"0\r\nX-Trailer: a\r\n\r\n"
    plain = b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in parts) + b"0\r\n\r\n"
    assert through(Chunks(), wire, size) == (plain, True, False)


def test_what_comes_after_the_last_chunk_is_not_sent_on() -> None:
    assert through(Chunks(), b"0\r\n\r\nGET http://evil.test/ HTTP/1.1\r\n\r\n", 1000) == (b"0\r\n\r\n", True, False)


def test_a_counted_body_ends_where_it_says() -> None:
    assert through(Counted(5), b"helloGET / HTTP/1.1", 3) == (b"hello", True, False)
    assert through(Counted(5), b"hell", 3) == (b"hell", False, False)
    assert Counted().done


@pytest.mark.parametrize(
    "data",
    [
        b"5\nhello\r\n0\r\n\r\n",
        b"5\rhello\r\n0\r\n\r\n" + b"\n",
        b"0x5\r\nhello",
        b"+5\r\nhello",
        b"-1\r\n",
        b" 5\r\nhello",
        b"5 \r\nhello",
        b"\r\n",
        b"fffffffff\r\n",
        b"5\r\nhelloX\r\n",
        b"5\r\nhello\n0\r\n\r\n",
        b"5;\0\r\nhello",
        b"5;a\rb\r\nhello",
        b"0\r\nno trailer\r\n\r\n",
        b"0\r\n folded\r\n\r\n",
        b"0\r\n\n",
        b"0;" + b"a" * MAX_LINE,
        b"0\r\nX: " + b"a" * MAX_LINE,
        b"0\r\n" + b"X: y\r\n" * (MAX_TRAILERS + 1),
    ],
)
def test_chunks_that_another_parser_could_read_differently_are_not_sent_on(data: bytes) -> None:
    out, done, problem = through(Chunks(), data, 1)
    assert (done, problem) == (False, True)
    assert not out.endswith(b"0\r\n\r\n")


def test_as_many_trailers_as_there_may_be_are_left_out() -> None:
    assert through(Chunks(), b"0\r\n" + b"X: y\r\n" * MAX_TRAILERS + b"\r\n", 7) == (b"0\r\n\r\n", True, False)
