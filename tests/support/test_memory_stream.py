"""The in-memory double behaves like a pair of pipes."""

from __future__ import annotations

import asyncio

from tests.link.test_stream import Ear
from tests.support.loops import Run
from tests.support.memory_stream import memory_pair
from tests.support.patience import until


def test_what_one_end_writes_the_other_hears_and_the_end_comes_last(run: Run) -> None:
    async def main() -> None:
        one, other = memory_pair(asyncio.get_running_loop())
        ear, mouth = Ear(), Ear()
        other.open(ear)
        one.open(mouth)
        one.write(b"a")
        one.write(b"b")
        one.close_write()
        await until(lambda: ear.ended == 1)
        assert ear.heard == b"ab"

    run(main)


def test_a_full_pair_pushes_back_until_the_reader_goes_on(run: Run) -> None:
    async def main() -> None:
        one, other = memory_pair(asyncio.get_running_loop(), capacity=10)
        ear, mouth = Ear(), Ear()
        other.stalled = True
        other.open(ear)
        one.open(mouth)
        one.write(b"x" * 25)
        assert one.buffered == 25
        other.resume()
        await until(lambda: len(ear.heard) == 25)
        await until(lambda: mouth.drained == 1)
        assert (one.buffered, one.sent) == (0, 25)

    run(main)


def test_closing_an_end_ends_the_other(run: Run) -> None:
    async def main() -> None:
        one, other = memory_pair(asyncio.get_running_loop())
        ear = Ear()
        other.open(ear)
        one.open(Ear())
        one.close()
        await until(lambda: ear.ended == 1)

    run(main)
