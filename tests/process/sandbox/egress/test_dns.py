"""The name service inside: questions as resolvers send them, damaged ones, and the addresses that stand for names."""

from __future__ import annotations

import struct
from ipaddress import ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plugbay.model.addresses import denied
from plugbay.process.sandbox.egress.dns import (
    IPV4,
    MAX_NAMES,
    MAX_QUERY,
    NO_ERROR,
    NO_SUCH_NAME,
    Names,
    Query,
    read_query,
)

LABEL = st.text("abcdefghijklmnopqrstuvwxyz0123456789-_ABC", min_size=1, max_size=63)
NAMES = st.lists(LABEL, min_size=1, max_size=4).map(".".join).filter(lambda name: len(name) <= 253)


def question(name: str, kind: int = IPV4, scope: int = 1) -> bytes:
    labels = b"".join(bytes((len(label),)) + label.encode() for label in name.split("."))
    return labels + b"\0" + struct.pack(">HH", kind, scope)


def query(name: str, kind: int = IPV4, flags: int = 0x0100, number: int = 7, rest: bytes = b"") -> bytes:
    return struct.pack(">HHHHHH", number, flags, 1, 0, 0, int(bool(rest))) + question(name, kind) + rest


EDNS = b"\0" + struct.pack(">HHIH", 41, 1232, 0, 0)


@pytest.mark.parametrize("rest", [b"", EDNS])
@pytest.mark.parametrize("flags", [0x0000, 0x0100, 0x0120, 0x0110])
def test_a_question_of_a_resolver_is_read(flags: int, rest: bytes) -> None:
    assert read_query(query("Api.Example", flags=flags, rest=rest)) == Query(
        7, "Api.Example", IPV4, question("Api.Example")
    )


@pytest.mark.parametrize(
    "data",
    [
        b"",
        query("a.test")[:-1],
        query("a.test")[:12],
        query("a.test", flags=0x8100),
        query("a.test", flags=0x2800),
        query("a.test", flags=0x0300),
        struct.pack(">HHHHHH", 7, 0, 2, 0, 0, 0) + question("a.test") * 2,
        struct.pack(">HHHHHH", 7, 0, 1, 1, 0, 0) + question("a.test"),
        struct.pack(">HHHHHH", 7, 0, 1, 0, 0, 0) + b"\0" + struct.pack(">HH", 1, 1),
        struct.pack(">HHHHHH", 7, 0, 1, 0, 0, 0) + b"\xc0\x0c" + struct.pack(">HH", 1, 1),
        struct.pack(">HHHHHH", 7, 0, 1, 0, 0, 0) + question("a.test", scope=3),
        struct.pack(">HHHHHH", 7, 0, 1, 0, 0, 0) + question(".".join(["x" * 60] * 5)),
        struct.pack(">HHHHHH", 7, 0, 1, 0, 0, 0) + b"\2\xff\xfe\0" + struct.pack(">HH", 1, 1),
        query("a.test") + b"x" * MAX_QUERY,
    ],
)
def test_another_message_gets_no_answer(data: bytes) -> None:
    assert read_query(data) is None


@given(st.binary(max_size=400))
def test_no_bytes_break_the_reader(data: bytes) -> None:
    found = read_query(data)
    assert found is None or data[12:].startswith(found.question)


@given(NAMES, st.integers(0, 0xFFFF), st.integers(0, 0xFFFF))
def test_an_answer_repeats_the_question(name: str, number: int, kind: int) -> None:
    asked = read_query(query(name, kind, number=number))
    assert asked is not None and (asked.name, asked.kind) == (name, kind)
    refused = asked.answer(NO_SUCH_NAME)
    assert struct.unpack_from(">HHHHHH", refused) == (number, 0x8183, 1, 0, 0, 0)
    assert refused[12:] == asked.question
    found = asked.answer(NO_ERROR, "198.18.0.9")
    assert struct.unpack_from(">HHHHHH", found) == (number, 0x8180, 1, 1, 0, 0)
    assert found.endswith(bytes((198, 18, 0, 9)))


def test_a_name_keeps_its_address_and_the_last_addresses_that_were_found() -> None:
    names = Names()
    first = names.pin("a.test", ["192.0.2.1"])
    assert names.pin("b.test", ["192.0.2.2"]) != first
    assert names.pin("a.test", ["192.0.2.3"]) == first
    assert names.find(first) == ("a.test", ["192.0.2.3"])
    assert names.find("192.0.2.3") is None


def test_names_are_bounded_and_the_oldest_loses_its_address() -> None:
    names = Names()
    given_out = [names.pin(f"n{number}.test", []) for number in range(MAX_NAMES)]
    assert len(set(given_out)) == MAX_NAMES
    names.pin("n0.test", [])
    assert names.pin("new.test", []) == given_out[1]
    assert names.find(given_out[1]) == ("new.test", [])
    assert names.find(given_out[0]) == ("n0.test", [])


def test_an_address_that_stands_for_a_name_is_never_connected_to() -> None:
    names = Names()
    addresses = [names.pin(f"n{number}.test", []) for number in range(MAX_NAMES)]
    assert {denied(address) for address in addresses} == {"benchmarks"}
    assert all(ip_address(address).version == 4 for address in addresses)
