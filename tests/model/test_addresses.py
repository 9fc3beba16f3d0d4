"""Which hosts have one reading, which addresses are public, and what a grant covers."""

from __future__ import annotations

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plugbay.model.addresses import DENIED, clean_host, closed, covered, denied, is_address, pair, pair_problem
from plugbay.model.spec import Access
from tests.support.requirements import requirement

# Hosts.


@pytest.mark.parametrize(
    ("text", "host"),
    [
        ("example.org", "example.org"),
        ("Example.ORG", "example.org"),
        ("xn--mnchen-3ya.de", "xn--mnchen-3ya.de"),
        ("a-b.c1", "a-b.c1"),
        ("localhost", "localhost"),
        ("1.2.3.4", "1.2.3.4"),
        ("4.example", "4.example"),
        ("2001:DB8::1", "2001:db8::1"),
        ("0:0:0:0:0:0:0:1", "::1"),
        ("::ffff:1.2.3.4", "::ffff:1.2.3.4"),
        ("::FFFF:102:304", "::ffff:1.2.3.4"),
    ],
)
def test_a_host_has_one_form(text: str, host: str) -> None:
    assert clean_host(text) == host


@pytest.mark.parametrize(
    "text",
    [
        "",
        ".",
        "example.org.",
        ".example.org",
        "a..b",
        "-a.org",
        "a-.org",
        "a_b.org",
        "a b",
        "a\tb",
        "a\n",
        "evil.com\0.example.org",
        "user@example.org",
        "example.org#",
        "example.org\\",
        "example%2eorg",
        "münchen.de",
        "\N{FULLWIDTH LATIN SMALL LETTER E}xample.org",
        "1\N{FULLWIDTH FULL STOP}2.3.4",
        "127.1",
        "2130706433",
        "0x7f000001",
        "0x7f.1",
        "0177.0.0.1",
        "127.0.0.01",
        "127.0.0.1.",
        "1.2.3.4.5",
        "256.1.1.1",
        "a.1",
        "a.0x1",
        "a.0x",
        "[::1]",
        "fe80::1%eth0",
        ":::1",
        "1::2::3",
        "a" * 64 + ".org",
        ".".join(["a" * 60] * 5),
    ],
)
def test_what_has_two_readings_or_none_is_no_host(text: str) -> None:
    assert clean_host(text) is None


def test_an_address_is_told_from_a_name() -> None:
    assert [is_address(host) for host in ("1.2.3.4", "::1", "example.org", "localhost")] == [True, True, False, False]


# Addresses.

PUBLIC = [
    "8.8.8.8",
    "93.184.216.34",
    "1.1.1.1",
    "172.15.0.1",
    "172.32.0.1",
    "100.63.255.255",
    "100.128.0.1",
    "11.0.0.1",
]
PUBLIC += ["192.0.1.1", "198.17.255.255", "198.20.0.1", "223.255.255.255", "2606:4700::1111", "2a00:1450:4001::1"]
PUBLIC += ["::ffff:8.8.8.8", "64:ff9b::8.8.8.8", "2002:808:808::1", "2001:4860:4860::8888"]

CLOSED = {
    "loopback": ["127.0.0.1", "127.255.255.254", "::1", "::ffff:127.0.0.1", "64:ff9b::7f00:1", "2002:7f00:1::"],
    "private": [
        "10.0.0.1",
        "172.16.0.1",
        "172.31.255.255",
        "192.168.1.1",
        "fc00::1",
        "fd12:3456::1",
        "::ffff:10.1.2.3",
    ],
    "link-local": ["169.254.0.1", "169.254.169.254", "fe80::1", "febf::1", "::ffff:169.254.169.254"],
    "metadata": ["169.254.169.254", "168.63.129.16", "::ffff:a83f:8110"],
    "carrier": ["100.64.0.1", "100.100.100.200", "100.127.255.255", "::ffff:100.64.0.1"],
    "multicast": ["224.0.0.1", "239.255.255.255", "ff02::1"],
    "reserved": ["240.0.0.1", "255.255.255.255"],
    "this network": ["0.0.0.0", "0.1.2.3", "::ffff:0.0.0.0"],
    "documentation": ["192.0.2.1", "198.51.100.1", "203.0.113.1", "2001:db8::1", "3fff::1"],
    "not given out": ["200::1", "3ff:ffff::1", "4000::1", "1fff::1", "e000::1", "0:1::1", "200::5efe:8.8.8.8"],
    "benchmarks": ["198.18.0.1", "198.19.255.255"],
    "relays": ["192.88.99.1"],
    "protocol": ["192.0.0.1", "2001::1", "2001:0:4136:e378:8000:63bf:3fff:fdd2"],
    "out of use": ["::", "::7f00:1", "::8.8.8.8", "fec0::1"],
    "translation": ["64:ff9b:1::1", "64:ff9b:1:7f00::1", "::ffff:0:127.0.0.1"],
    "discarded": ["100::1"],
    "segment": ["5f00::1"],
    "127.0.0.1: loopback": ["2606:4700::5efe:127.0.0.1", "2606:4700::200:5efe:127.0.0.1"],
}


@requirement("ainb:host-network-addresses")
@pytest.mark.parametrize("address", PUBLIC)
def test_a_public_address_is_open(address: str) -> None:
    assert denied(address) is None


@requirement("ainb:host-network-addresses")
@pytest.mark.parametrize(("word", "address"), [(word, each) for word, all in CLOSED.items() for each in all])
def test_an_address_that_is_not_public_is_closed_and_says_why(word: str, address: str) -> None:
    why = denied(address)
    assert why is not None and word in why


@pytest.mark.parametrize("text", ["", "localhost", "127.1", "fe80::1%eth0", "1.2.3.4%1", "0x7f.1", "8.8.8.8 "])
def test_what_is_no_address_is_closed(text: str) -> None:
    assert denied(text) == "not an address"


def test_every_range_of_the_table_closes_its_first_and_its_last_address() -> None:
    for network, _ in DENIED:
        assert denied(str(network[0])) is not None
        assert denied(str(network[-1])) is not None


@given(st.ip_addresses(v=4))
def test_an_ipv4_address_is_as_closed_inside_every_form_of_ipv6_as_it_is_by_itself(
    address: ipaddress.IPv4Address,
) -> None:
    number = int(address)
    forms = [f"::ffff:{address}", f"64:ff9b::{address}", f"2002:{number >> 16:x}:{number & 0xFFFF:x}::1"]
    assert {denied(form) is None for form in forms} == {denied(str(address)) is None}


@given(st.ip_addresses(v=4))
def test_the_table_closes_all_that_python_calls_private(address: ipaddress.IPv4Address) -> None:
    assert address.is_global or denied(str(address)) is not None


# Grants.


@requirement("ainb:host-network-allow-list")
@pytest.mark.parametrize(
    ("access", "host", "port", "open"),
    [
        ([], "a.org", 443, False),
        ([Access("read_path", "")], "a.org", 443, False),
        ([Access("network")], "a.org", 443, True),
        ([Access("network", "a.org")], "a.org", 443, True),
        ([Access("network", "a.org")], "a.org", 8443, True),
        ([Access("network", "A.org")], "a.org", 443, True),
        ([Access("network", "a.org", 443)], "a.org", 443, True),
        ([Access("network", "a.org", 443)], "a.org", 80, False),
        ([Access("network", "a.org")], "b.a.org", 443, False),
        ([Access("network", "a.org")], "evila.org", 443, False),
        ([Access("network", "a.org")], "a.org.evil.com", 443, False),
        ([Access("network", "*.a.org")], "b.a.org", 443, False),
        ([Access("network", "*")], "a.org", 443, False),
        ([Access("network", "a.org"), Access("network", "b.org", 1)], "b.org", 1, True),
    ],
)
def test_a_grant_covers_exactly_its_host_and_port(access: list[Access], host: str, port: int, open: bool) -> None:
    assert covered(access, host, port) is open


# Pairs that an operator opens.


@pytest.mark.parametrize("text", ["127.0.0.1:8080", "10.0.0.1:1", "[::1]:65535", "[fd00::1]:443"])
def test_a_pair_is_an_address_and_a_port(text: str) -> None:
    assert pair_problem(text) is None
    address, _, port = text.rpartition(":")
    assert pair(address.strip("[]"), int(port)) == text


@pytest.mark.parametrize(
    "text",
    [
        "127.0.0.1",
        "localhost:80",
        "127.1:80",
        "127.0.0.1:0",
        "127.0.0.1:65536",
        "127.0.0.1:080",
        "::1:80",
        "[::1]",
        "127.0.0.0/8:80",
        "127.0.0.1:*",
        ":80",
        "",
        "[127.0.0.1]:80",
        "[::1%lo]:80",
    ],
)
def test_anything_else_is_none(text: str) -> None:
    assert pair_problem(text) is not None


def test_another_form_of_the_same_address_is_told_the_usual_one() -> None:
    assert pair_problem("[0:0::1]:80") == "must be written [::1]:80"


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (["93.184.215.14", "2606:4700::1"], None),
        (["93.184.215.14", "10.0.0.5"], ("10.0.0.5", "private")),
        (["10.0.0.6"], None),
        (["10.0.0.6", "::1"], ("::1", "loopback")),
        (["93.184.215.15"], ("93.184.215.15", "this machine")),
        ([], None),
    ],
)
def test_one_address_that_is_closed_closes_the_host_unless_the_operator_opened_it(
    found: list[str], expected: tuple[str, str] | None
) -> None:
    assert closed(found, 443, {"10.0.0.6:443", "10.0.0.5:80"}, {"93.184.215.15"}) == expected
