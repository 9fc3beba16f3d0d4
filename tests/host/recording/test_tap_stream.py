"""Whoever watches gets what passes in order; whoever does not keep up loses the oldest, and is told how much."""

from __future__ import annotations

import asyncio

from plugbay.host.recording.tap_stream import LINE_WEIGHT, TapStream
from plugbay.link.recording import Frame, Item, StderrLine
from tests.support.loops import Run


def line(number: int) -> StderrLine:
    return StderrLine(float(number), 1, str(number))


def stream(left: list[TapStream] | None = None, **limits: int) -> TapStream:
    gone: list[TapStream] = [] if left is None else left
    return TapStream(gone.append, **limits)


async def everything(stream: TapStream) -> list[Item]:
    return [item async for item in stream]


def test_what_passes_comes_in_order_until_it_is_closed(run: Run) -> None:
    async def main() -> None:
        left: list[TapStream] = []
        with stream(left) as watched:
            taking = asyncio.ensure_future(everything(watched))
            for number in range(3):
                watched.take(line(number))
                await asyncio.sleep(0)
        watched.close()
        assert await taking == [line(0), line(1), line(2)]
        assert left == [watched] and watched.dropped == 0

    run(main)


def test_the_oldest_give_way_when_too_many_wait(run: Run) -> None:
    async def main() -> None:
        watched = stream(items=2)
        for number in range(5):
            watched.take(line(number))
        watched.close()
        assert await everything(watched) == [line(3), line(4)]
        assert watched.dropped == 3

    run(main)


def test_the_oldest_give_way_when_they_are_too_large(run: Run) -> None:
    async def main() -> None:
        watched = stream(most=1000 + 2 * LINE_WEIGHT)
        large, small = Frame(0, 1, "host", 800, {}), Frame(1, 1, "host", 300, {})
        watched.take(large)
        watched.take(small)
        assert (watched.rest(), watched.dropped) == ([small], 1)
        watched.take(large)
        assert watched.rest() == [large]

    run(main)


def test_the_rest_can_be_taken_without_waiting(run: Run) -> None:
    async def main() -> None:
        watched = stream()
        watched.take(line(1))
        assert watched.rest() == [line(1)]
        assert watched.rest() == []

    run(main)
