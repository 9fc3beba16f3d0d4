"""Frames that are tapped are the frames that were sent, however the bytes came; and nothing secret is in them."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plugbay.contracts.base import Role
from plugbay.host.recording.frames import Redactor
from plugbay.host.recording.redaction import HIDDEN, Discretion
from plugbay.host.recording.wiretap import Wiretap
from plugbay.link.framings import framing_of
from plugbay.link.recording import Frame, Item, StderrLine
from tests.support.loops import Run
from tests.wire.chunks import cut, places

KEY = "correct horse"

CONTRACTS = ["rune", "nexo", "kaged", "ainb", "vai"]

bodies = st.lists(
    st.dictionaries(st.text("abc", max_size=3), st.integers(-(2**53), 2**53) | st.text("xyz"), max_size=3), max_size=5
)


class Tapped:
    """A wiretap, and what it passed on."""

    def __init__(self, contract: str = "kaged", secrets: dict[str, Any] | None = None) -> None:
        self.items: list[Item] = []
        self.now = 0.0
        redactor = Redactor(Discretion(secrets))
        self.tap = Wiretap(contract, 7, redactor, lambda: self.now, self.items.append)

    def frames(self, direction: str) -> list[Any]:
        return [item.value for item in self.items if isinstance(item, Frame) and item.direction == direction]


def wire(contract: str, direction: str, said: list[Any]) -> bytes:
    framing = framing_of(contract, direction)
    return b"".join(framing.marked(json.dumps(body).encode()) for body in said)


@pytest.mark.parametrize("contract", CONTRACTS)
@settings(max_examples=30)
@given(asked=bodies, answered=bodies, at=places)
def test_the_frames_are_those_that_were_sent(
    contract: str, asked: list[Any], answered: list[Any], at: list[int]
) -> None:
    async def main() -> None:
        tapped = Tapped(contract)
        for chunk in cut(wire(contract, Role.HOST, asked), at):
            tapped.tap.sent(chunk)
        for chunk in cut(wire(contract, Role.PLUGIN, answered), at):
            tapped.tap.received(chunk, 0)
        tapped.tap.ended()
        assert tapped.frames(Role.HOST) == asked
        assert tapped.frames(Role.PLUGIN) == answered

    asyncio.run(main())


def test_nothing_is_done_where_the_bytes_pass(run: Run) -> None:
    async def main() -> None:
        tapped = Tapped()
        tapped.now = 1.5
        tapped.tap.sent(b'{"a":1}\n{"b":')
        tapped.now = 2.5
        tapped.tap.sent(b"2}\n")
        assert tapped.items == []
        await asyncio.sleep(0)
        assert tapped.items == [Frame(1.5, 7, "host", 7, {"a": 1}), Frame(2.5, 7, "host", 7, {"b": 2})]

    run(main)


@pytest.mark.parametrize("contract", CONTRACTS)
def test_a_tap_that_begins_in_the_middle_of_a_message_waits_for_the_next(run: Run, contract: str) -> None:
    async def main() -> None:
        tapped = Tapped(contract)
        first, second = (wire(contract, Role.PLUGIN, [{"n": number}]) for number in (1, 2))
        tapped.tap.received(first[5:], 5)
        tapped.tap.received(second, 0)
        tapped.tap.flush()
        assert tapped.frames(Role.PLUGIN) == [{"n": 2}]

    run(main)


def test_secrets_are_gone_and_their_places_are_marked(run: Run) -> None:
    async def main() -> None:
        tapped = Tapped(secrets={"key": KEY})
        tapped.tap.sent(json.dumps({"params": {"text": f"my {KEY}"}}).encode() + b"\n")
        tapped.tap.received(f"noise {KEY}\n".encode(), 0)
        assert tapped.tap.line(f"using {KEY}".encode()) == b"using ***"
        tapped.tap.flush()
        frame, noise, line = tapped.items
        assert line == StderrLine(0.0, 7, f"using {HIDDEN}")
        assert isinstance(frame, Frame) and (frame.value, frame.redacted) == (
            {"params": {"text": f"my {HIDDEN}"}},
            ("/params/text",),
        )
        assert isinstance(noise, Frame) and (noise.raw, noise.redacted) == (b"noise ***", ("",))
        assert noise.problem.startswith("not JSON")

    run(main)


def test_what_is_no_message_is_shown_as_what_it_is(run: Run) -> None:
    async def main() -> None:
        tapped = Tapped()
        tapped.tap.received(b"\xff\xfe hello\nrest", 0)
        tapped.tap.ended()
        noise, rest = tapped.items
        assert isinstance(noise, Frame) and (noise.raw, noise.size, noise.redacted) == (b"\xff\xfe hello", 8, ())
        assert isinstance(rest, Frame) and rest.raw == b"rest"

    run(main)


def test_a_broken_header_is_told_with_its_reason(run: Run) -> None:
    async def main() -> None:
        tapped = Tapped("ainb")
        tapped.tap.received(b"hello world\r\n\r\n", 0)
        tapped.tap.flush()
        (fault,) = tapped.items
        assert isinstance(fault, Frame) and fault.problem == "a header line has no name and colon"

    run(main)
