"""A frame has an end within its bytes and its time, or the peer is reported; a peer that is not read has no hurry."""

from __future__ import annotations

import asyncio

import pytest

from plugbay.link import incoming
from plugbay.link.deadlines import Deadlines
from plugbay.link.incoming import Incoming
from plugbay.model.errors import Code, Failure
from tests.link.test_stream import Ear
from tests.support.loops import Run
from tests.support.memory_stream import memory_pair
from tests.support.patience import until

SHORT = 0.02


class Bench:
    """The input of a link, and what was reported of it."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        self.deadlines = Deadlines(loop)
        self.failures: list[Failure] = []
        self.stream, _ = memory_pair(loop)
        self.stream.open(Ear())
        self.incoming = Incoming(self.stream, self.deadlines, self.failures.append)


def test_a_frame_that_trickles_meets_the_deadline_of_its_first_byte(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(incoming, "FRAME_SECONDS", SHORT)

    async def main() -> None:
        bench, size = Bench(), 0
        while not bench.failures:
            size += 1
            bench.incoming.read(1, size)
            await asyncio.sleep(0.001)
        assert bench.failures[0].code == Code.TIMEOUT
        assert "did not end a message" in bench.failures[0].message

    run(main)


def test_a_long_frame_that_keeps_coming_is_not_late(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(incoming, "FRAME_STEP", 100)

    async def main() -> None:
        bench = Bench()
        added: list[int] = []
        monkeypatch.setattr(Deadlines, "add", lambda *_: added.append(bench.incoming.pending))
        for size in (60, 90, 120, 190, 230):
            bench.incoming.read(size - bench.incoming.pending, size)
        assert added == [60, 120, 230], "the first byte, and each step, begins the time anew"

    run(main)


def test_a_frame_without_end_is_too_large_at_the_cap(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(incoming, "MAX_UNENDED", 100)

    async def main() -> None:
        bench = Bench()
        bench.incoming.read(60, 60)
        bench.incoming.read(40, 100)
        assert bench.failures == []
        bench.incoming.read(1, 101)
        assert [failure.code for failure in bench.failures] == [Code.FRAME_TOO_LARGE]

    run(main)


def test_between_two_frames_nothing_is_timed(run: Run) -> None:
    async def main() -> None:
        bench = Bench()
        bench.incoming.read(10, 10)
        assert len(bench.deadlines) == 1
        bench.incoming.read(5, 0)
        assert len(bench.deadlines) == 0

    run(main)


def test_a_peer_that_is_not_read_loses_no_time_and_one_that_is_over_is_never_read_again(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(incoming, "FRAME_SECONDS", SHORT)

    async def main() -> None:
        bench = Bench()
        bench.incoming.read(1, 1)
        bench.incoming.pause()
        assert (len(bench.deadlines), bench.stream._reading) == (0, False)
        bench.incoming.read_on()
        assert (len(bench.deadlines), bench.stream._reading) == (1, True)
        await until(lambda: bool(bench.failures))
        bench.incoming.end()
        bench.incoming.read_on()
        assert (len(bench.deadlines), bench.stream._reading) == (0, False)

    run(main)


def test_a_peer_that_rests_is_read_again_afterwards_unless_it_is_paused(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        bench = Bench()
        bench.incoming.rest(SHORT)
        assert not bench.stream._reading
        bench.incoming.read_on()
        assert not bench.stream._reading, "it rests"
        await until(lambda: bench.stream._reading)
        monkeypatch.setattr(incoming, "LONGEST_REST", 3600.0)
        bench.incoming.rest(1200.0)
        bench.incoming.pause()
        bench.incoming.wake()
        assert not bench.stream._reading, "it is paused"
        bench.incoming.read_on()
        assert bench.stream._reading and len(bench.deadlines) == 0

    run(main)


def test_a_rest_ends_in_time_and_with_its_link(run: Run) -> None:
    async def main() -> None:
        bench = Bench()
        began = bench.deadlines.now()
        bench.incoming.rest(3600.0)
        ((at, _),) = bench.deadlines._due.values()
        assert at - began <= 2 * incoming.LONGEST_REST
        bench.incoming.end()
        bench.incoming.wake()
        assert not bench.stream._reading and len(bench.deadlines) == 0

    run(main)
