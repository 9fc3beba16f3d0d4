"""A large body is cut into parts, waits for credits, and counts only as a whole."""

from __future__ import annotations

from hashlib import sha256
from typing import Any

import pytest

from plugbay.cluster.chunks import MAX_BODY, STALLED_SECONDS, WINDOW, Assemblies, Sending, TooMuch
from plugbay.cluster.envelope import Part
from plugbay.wire.json_gate import Malformed
from tests.cluster.test_envelope import ID
from tests.support.requirements import requirement


def part(seq: int, size: int, digest: str = "", call: str = ID) -> Part:
    return Part(kind="data", call=call, sender="n1", seq=seq, size=size, sha256=digest)


@pytest.mark.parametrize("size", [1, 9, 10, 11, 200, 205])
def test_a_body_arrives_as_it_was(size: int) -> None:
    body = bytes(number % 251 for number in range(size))
    sending, assemblies, whole = Sending(body, 10), Assemblies(), None
    assemblies.open("n1", ID, size, 0.0)
    while not sending.is_over:
        due = list(sending.due())
        assert due and sending.sent - sending.credited <= WINDOW
        for seq, data, digest in due:
            whole = assemblies.add(part(seq, size, digest), data, 0.0)
            sending.credit(seq + 1)
    assert whole == body and ID not in assemblies


def test_a_sender_waits_for_credits_and_ignores_impossible_ones() -> None:
    sending = Sending(bytes(1000), 10)
    assert [seq for seq, _, _ in sending.due()] == list(range(WINDOW))
    for count in (WINDOW + 1, 0, -1):
        sending.credit(count)
        assert list(sending.due()) == []
    sending.credit(2)
    sending.credit(1)
    assert [seq for seq, _, _ in sending.due()] == [WINDOW, WINDOW + 1]


GOOD = sha256(b"abcd").hexdigest()


@requirement("host:nodes-large")
@pytest.mark.parametrize(
    ("parts", "why"),
    [
        ([(1, 4, b"ab", "")], "instead of 0"),
        ([(0, 4, b"ab", ""), (0, 4, b"ab", "")], "instead of 1"),
        ([(0, 4, b"ab", ""), (2, 4, b"cd", GOOD)], "instead of 1"),
        ([(0, 5, b"ab", "")], "of 4"),
        ([(0, 4, b"", "")], "empty"),
        ([(0, 4, b"abcde", GOOD)], "larger"),
        ([(0, 4, b"ab", ""), (1, 4, b"cdx", GOOD)], "larger"),
        ([(0, 4, b"ab", ""), (1, 4, b"cX", GOOD)], "SHA-256"),
        ([(0, 4, b"abcd", "")], "SHA-256"),
    ],
)
def test_a_body_with_a_wrong_part_is_malformed(parts: list[Any], why: str) -> None:
    assemblies = Assemblies()
    assemblies.open("n1", ID, 4, 0.0)
    with pytest.raises(Malformed, match=why):
        for seq, size, data, digest in parts:
            assert assemblies.add(part(seq, size, digest), data, 0.0) is None


@pytest.mark.parametrize("size", [0, -1, MAX_BODY + 1])
def test_an_impossible_size_is_malformed(size: int) -> None:
    with pytest.raises(Malformed):
        Assemblies().open("n1", ID, size, 0.0)


@requirement("host:nodes-large")
def test_the_bodies_of_one_peer_are_bounded_together() -> None:
    assemblies = Assemblies(limit=10)
    assemblies.open("n1", "a" * 32, 6, 0.0)
    assemblies.open("n2", "b" * 32, 6, 0.0)
    with pytest.raises(TooMuch):
        assemblies.open("n1", "c" * 32, 5, 0.0)
    assemblies.open("n1", "a" * 32, 10, 0.0)  # from its beginning
    assemblies.drop("a" * 32)
    assemblies.open("n1", "c" * 32, 10, 0.0)
    assert len(assemblies) == 2


def test_a_body_without_a_further_part_is_stalled() -> None:
    assemblies = Assemblies()
    assemblies.open("n1", ID, 4, 0.0)
    assemblies.add(part(0, 4), b"ab", 10.0)
    assert assemblies.stalled(10.0 + STALLED_SECONDS) == []
    assert assemblies.stalled(10.1 + STALLED_SECONDS) == [ID]
