"""Large bodies leave in parts, as fast as their receiver takes them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from plugbay.cluster import envelope, parts
from plugbay.cluster.chunks import CHUNK, WHOLE, WINDOW
from plugbay.cluster.envelope import Part
from plugbay.cluster.parts import AT_ONCE, HEAD_ROOM, Outbox
from tests.cluster.test_envelope import ID
from tests.support.loops import Run, run  # noqa: F401
from tests.support.patience import until

MAX_PAYLOAD = 1 << 20


class FakeWire:
    def __init__(self) -> None:
        self.is_up = True
        self.max_payload = MAX_PAYLOAD
        self.sent: list[Part] = []

    def post(self, subject: str, data: bytes) -> bool:
        assert len(data) <= self.max_payload
        if self.is_up:
            self.sent.append(envelope.unpack(Part, data)[0])
        return self.is_up


def made() -> tuple[Any, Outbox]:
    wire = FakeWire()
    return wire, Outbox(wire, "n1")  # type: ignore[arg-type]


def test_a_body_is_sent_within_its_window_and_ends_with_the_last_credit(run: Run) -> None:  # noqa: F811
    async def main() -> None:
        wire, outbox = made()
        sending = asyncio.create_task(outbox.send("s", ID, bytes(20 * CHUNK)))
        await until(lambda: len(wire.sent) == WINDOW)
        outbox.credit(ID, 3)
        await until(lambda: len(wire.sent) == WINDOW + 3)
        outbox.credit(ID, WINDOW + 3)
        await until(lambda: len(wire.sent) == 2 * WINDOW + 3)
        outbox.credit(ID, 2 * WINDOW + 3)
        await until(lambda: len(wire.sent) == 20)
        assert not sending.done()
        outbox.credit("other", 20)
        outbox.credit(ID, 20)
        assert await sending
        await outbox.wait_idle()
        assert [each.seq for each in wire.sent] == list(range(20))
        assert [bool(each.sha256) for each in wire.sent] == [False] * 19 + [True]

    run(main)


@pytest.mark.parametrize("why", ["stopped", "no connection", "no credit"])
def test_a_body_that_nobody_takes_is_given_up(
    why: str,
    monkeypatch: pytest.MonkeyPatch,
    run: Run,  # noqa: F811
) -> None:
    async def main() -> None:
        wire, outbox = made()
        wire.is_up = why != "no connection"
        if why == "no credit":
            monkeypatch.setattr(parts, "STALLED_SECONDS", 0.05)
        sending = asyncio.create_task(outbox.send("s", ID, bytes(20 * CHUNK)))
        if why == "stopped":
            await until(lambda: bool(wire.sent))
            outbox.stop(ID)
        assert not await sending
        await outbox.wait_idle()

    run(main)


def test_few_bodies_are_on_their_way_at_once(run: Run) -> None:  # noqa: F811
    async def main() -> None:
        wire, outbox = made()
        ids = [f"{number:032x}" for number in range(AT_ONCE + 1)]
        sending = [asyncio.create_task(outbox.send("s", id, bytes(CHUNK))) for id in ids]
        await until(lambda: len(wire.sent) == AT_ONCE)
        outbox.credit(ids[0], 1)
        await until(lambda: len(wire.sent) == AT_ONCE + 1)
        for id in ids[1:]:
            outbox.credit(id, 1)
        assert await asyncio.gather(*sending) == [True] * len(ids)

    run(main)


def test_parts_are_smaller_where_the_server_takes_less(run: Run) -> None:  # noqa: F811
    async def main() -> None:
        wire, outbox = made()
        assert outbox.is_large(WHOLE + 1) and not outbox.is_large(WHOLE)
        wire.max_payload = 64 << 10
        assert outbox.is_large((64 << 10) + 1)
        sending = asyncio.create_task(outbox.send("s", ID, bytes(2 * ((64 << 10) - HEAD_ROOM))))
        await until(lambda: len(wire.sent) == 2)
        outbox.credit(ID, 2)
        assert await sending

    run(main)


def test_a_credit_names_the_parts_that_have_come() -> None:
    wire, outbox = made()
    outbox.give_credit("s", Part(kind="data", call=ID, sender="gw", seq=4, size=9))
    assert [(each.kind, each.call, each.sender, each.seq) for each in wire.sent] == [("credit", ID, "n1", 5)]
