"""A peer that reads slowly is fine; one that reads nothing is reported once."""

from __future__ import annotations

import asyncio

import pytest

from plugbay.link import stall
from plugbay.link.deadlines import Deadlines
from plugbay.link.memory import memory_pair
from plugbay.link.stall import StallWatch
from plugbay.model.errors import Code, Failure
from tests.link.test_stream import Ear
from tests.support.loops import Run
from tests.support.patience import until


def test_silence_is_reported_and_movement_is_not(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stall, "WRITE_STALL", 0.04)

    async def main() -> None:
        loop = asyncio.get_running_loop()
        deadlines, reports = Deadlines(loop), list[Failure]()
        one, other = memory_pair(loop, capacity=1)
        one.open(Ear())
        one.write(b"x" * 20)
        StallWatch(one, deadlines, reports.append)
        for _ in range(4):
            await asyncio.sleep(0.02)
            other._inbox.clear()
            one._push()
        assert reports == []
        await until(lambda: bool(reports))
        assert (reports[0].code, reports[0].detail) == (Code.TIMEOUT, {"unread_bytes": one.buffered})
        assert len(deadlines) == 0

    run(main)


def test_a_stopped_watch_reports_nothing(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stall, "WRITE_STALL", 0.01)

    async def main() -> None:
        deadlines, reports = Deadlines(asyncio.get_running_loop()), list[Failure]()
        one, _ = memory_pair(asyncio.get_running_loop())
        StallWatch(one, deadlines, reports.append).stop()
        await asyncio.sleep(0.05)
        assert reports == []

    run(main)
