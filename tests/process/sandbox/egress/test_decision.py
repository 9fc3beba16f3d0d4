"""Where a plugin may connect to; the server name in a TLS hello."""

from __future__ import annotations

import ssl

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plugbay.model import addresses
from plugbay.process.sandbox.egress.decision import (
    MAX_HELLO,
    Hello,
    Refusal,
    check_address,
    check_grant,
    check_server_name,
    read_hello,
)
from plugbay.process.sandbox.egress.request import HeadParser
from plugbay.process.sandbox.policy import Endpoint, Network, Reach
from tests.process.sandbox.egress.corpus import LISTED, NAMES, ROWS, Row


def outcome(row: Row) -> str:
    """What becomes of a request, and where it goes."""
    asked = HeadParser().feed(row.head)
    assert asked is not None, "the head is not complete"
    if isinstance(asked, Refusal):
        return str(asked.status)
    found = [asked.host] if addresses.is_address(asked.host) else NAMES.get(asked.host, [])
    refusal = check_grant(row.network, asked.host, asked.port)
    refusal = refusal or check_address(row.network, asked.host, asked.port, found, ())
    return str(refusal.status) if refusal else addresses.pair(asked.host, asked.port)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: ascii(row.head[:60]))
def test_each_request_of_the_corpus_gets_where_it_may_and_nowhere_else(row: Row) -> None:
    assert outcome(row) == row.outcome


def test_the_corpus_is_large_and_goes_both_ways() -> None:
    refused = [row for row in ROWS if row.outcome.isdigit()]
    assert len(refused) >= 120
    assert len(ROWS) - len(refused) >= 25


@pytest.mark.parametrize(
    ("closed", "advice"),
    [
        ((), 'add "a.test:2" to network in the plugin\'s sandbox settings in plugbay.toml'),
        (((Endpoint("a.test", 3), "net:a.test:3"),), 'add "a.test:2" to network'),
        (((Endpoint("a.test", 2), "net:a.test:2"), (None, "net:*")), "grant net:a.test:2"),
        (((Endpoint("a.test"), "network=a.test"),), "grant network=a.test"),
        (((Endpoint("b.test"), "network=b.test"), (None, "network")), "grant network"),
    ],
)
def test_what_would_open_a_host_is_named_in_the_words_of_the_plugins_own_contract(
    closed: tuple[tuple[Endpoint | None, str], ...], advice: str
) -> None:
    refusal = check_grant(Network(Reach.LISTED, (Endpoint("a.test", 1),), closed=closed), "a.test", 2)
    assert refusal is not None and refusal.status == 403
    assert refusal.why.startswith(f"the network is not granted for a.test, port 2; {advice}")


def test_an_address_that_the_operator_opened_is_open_on_that_port_alone() -> None:
    network = Network(Reach.LISTED, LISTED.endpoints, ("10.0.0.5:443", "[::1]:80"))
    found = ["10.0.0.5"]
    assert check_address(network, "inside.example.com", 443, found, ()) is None
    assert check_address(network, "inside.example.com", 444, found, ()) is not None
    assert check_address(network, "inside.example.com", 443, [*found, "10.0.0.6"], ()) is not None
    assert check_address(network, "localhost", 80, ["::1"], ()) is None


def test_an_address_of_this_machine_is_not_public_unless_the_operator_opened_it() -> None:
    found, ours = ["8.8.8.8", "8.8.4.4"], frozenset({"8.8.4.4"})
    assert check_address(Network(Reach.ANY), "a.test", 443, found, ()) is None
    refusal = check_address(Network(Reach.ANY), "a.test", 443, found, ours)
    assert refusal is not None and "(this machine)" in refusal.why
    assert check_address(Network(Reach.ANY, private=("8.8.4.4:443",)), "a.test", 443, found, ours) is None


@pytest.mark.parametrize("address", ["10.0.0.5", "64:ff9b::a00:5", "fd00:ec2::254", "::ffff:10.0.0.5"])
def test_the_operator_sees_a_private_address_and_the_plugin_does_not(address: str) -> None:
    refusal = check_address(LISTED, "inside.example.com", 443, [address], ())
    assert refusal is not None
    assert refusal.address == address
    assert address not in refusal.why and "10.0.0.5" not in refusal.why
    assert "allow_private" in refusal.why


@pytest.mark.parametrize(
    ("hello", "host", "allowed"),
    [
        (Hello("a.test"), "a.test", True),
        (Hello("b.test"), "a.test", False),
        (Hello("a.test."), "a.test", False),
        (Hello("x.a.test"), "a.test", False),
        (Hello(None), "a.test", False),
        (Hello("a.test", hidden=True), "a.test", False),
        (Hello(None), "8.8.8.8", True),
        (Hello("8.8.8.8"), "8.8.8.8", False),
        (Hello("a.test"), "8.8.8.8", False),
        (Hello(None, hidden=True), "2606:4700::1", False),
    ],
)
def test_a_tunnel_asks_by_tls_for_the_name_it_was_opened_for(hello: Hello, host: str, allowed: bool) -> None:
    refusal = check_server_name(hello, host)
    assert (refusal is None) is allowed
    assert refusal is None or "b.test" not in refusal.why  # a name that nobody has read strictly is not repeated


def real_hello(name: str | None, newest: ssl.TLSVersion = ssl.TLSVersion.TLSv1_3) -> bytes:
    """What the TLS library of this Python says first."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.maximum_version = newest
    said = ssl.MemoryBIO()
    with pytest.raises(ssl.SSLWantReadError):
        context.wrap_bio(ssl.MemoryBIO(), said, server_hostname=name).do_handshake()
    return said.read()


def block(data: bytes, width: int = 2) -> bytes:
    return len(data).to_bytes(width) + data


def server_name(*names: bytes, kind: int = 0) -> bytes:
    return b"\0\0" + block(block(b"".join(bytes((kind,)) + block(name) for name in names)))


def message(*extensions: bytes, end: bytes = b"") -> bytes:
    body = b"\3\3" + bytes(32) + block(b"", 1) + block(b"\x13\x01") + block(b"\0", 1)
    return b"\1" + block(body + block(b"".join(extensions)) + end, 3)


def records(data: bytes, size: int = 1 << 14) -> bytes:
    return b"".join(b"\x16\3\1" + block(data[at : at + size]) for at in range(0, len(data), size))


NAMED = records(message(server_name(b"A.test")))


@pytest.mark.parametrize("newest", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
@pytest.mark.parametrize("name", ["a.test", "very.long." + "x" * 60 + ".example.com", None])
def test_the_name_in_a_real_hello_is_found(name: str | None, newest: ssl.TLSVersion) -> None:
    assert read_hello(real_hello(name, newest)) == Hello(name)


@given(size=st.integers(1, 200), more=st.binary(max_size=20))
def test_a_hello_may_come_in_many_records_and_more_may_follow(size: int, more: bytes) -> None:
    assert read_hello(records(message(server_name(b"A.test")), size) + more) == Hello("a.test")


def test_an_incomplete_hello_needs_more_and_a_complete_one_does_not() -> None:
    data = records(message(server_name(b"a.test")), 20)
    assert {read_hello(data[:size]) for size in range(len(data))} == {None}
    assert read_hello(data) == Hello("a.test")


@given(
    data=st.binary(max_size=300) | st.binary(max_size=60).map(lambda tail: NAMED[:-9] + tail), cut=st.integers(0, 300)
)
def test_no_bytes_raise_and_more_bytes_never_change_an_answer(data: bytes, cut: int) -> None:
    early = read_hello(data[:cut])
    assert early is None or early == read_hello(data)


@given(place=st.integers(0, len(NAMED) - 1), value=st.integers(0, 255))
def test_a_changed_byte_never_turns_one_name_into_another_unseen(place: int, value: int) -> None:
    changed = NAMED[:place] + bytes((value,)) + NAMED[place + 1 :]
    found = read_hello(changed)
    if isinstance(found, Hello) and found.name is not None:
        assert found.name.encode() in changed.lower()


def test_a_hidden_hello_is_seen() -> None:
    assert read_hello(records(message(server_name(b"a.test"), b"\xfe\x0d" + block(b"x")))) == Hello("a.test", True)


def test_a_hello_without_extensions_has_no_name() -> None:
    body = b"\3\1" + bytes(32) + block(b"", 1) + block(b"\0\x2f") + block(b"\0", 1)
    assert read_hello(records(b"\1" + block(body, 3))) == Hello(None)


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\n",
        b"SSH-2.0-x\r\n",
        b"\x80\x2e\1\3\1",
        b"\x17\3\3\0\1x",
        b"\x16\2\0\0\1x",
        b"\x16\3\1\0\0",
        b"\x16\3\1\x40\1",
        records(b"\2" + block(b"x" * 40, 3)),
        records(b"\1" + block(b"x" * 40, 3)),
        records(message(server_name(b"a.test")) + b"\1"),
        records(message(server_name(b"a.test"), end=b"x")),
        records(message(server_name(b"a.test"), server_name(b"b.test"))),
        records(message(server_name(b"a.test", b"b.test"))),
        records(message(server_name())),
        records(message(server_name(b"a.test", kind=1))),
        records(message(server_name(b"\xff.test"))),
        records(message(b"\0\0" + block(block(b"\0" + block(b"a.test")) + b"x"))),
        records(message(b"\0\0" + block(b"\0\x50" + b"\0" + block(b"a.test")))),
        records(message(b"\0\0\0\x50")),
        records(message(b"\0")),
        b"\x16\3\1\x40\0\1\xff\xff\xff" + bytes(MAX_HELLO),
        records(message(b"\0\x15" + block(bytes(MAX_HELLO - 300)), server_name(b"a.test")), 100),
    ],
)
def test_what_is_no_hello_or_has_two_readings_is_none(data: bytes) -> None:
    found = read_hello(data)
    assert isinstance(found, str)
    assert found.isprintable()


def test_a_large_hello_is_read_up_to_the_bound() -> None:
    padding = b"\0\x15" + block(bytes(MAX_HELLO - 200))
    assert read_hello(records(message(padding, server_name(b"a.test")))) == Hello("a.test")


def test_a_nul_in_a_name_stays_in_it() -> None:
    assert read_hello(records(message(server_name(b"a.test\0.evil.test")))) == Hello("a.test\0.evil.test")
