"""Turns: bounded, fair, and nobody waits beyond their own time."""

from __future__ import annotations

import asyncio

from plugbay.host.turns import Turns
from plugbay.model.errors import Code
from tests.support.loops import Run
from tests.support.patience import PATIENCE


def test_free_turns_are_taken_at_once_and_given_back() -> None:
    turns = Turns(2)
    assert turns.take() and turns.take()
    assert not turns.take()
    turns.give()
    assert turns.taken == 1
    assert turns.take()


def test_whoever_waits_longest_is_next_and_nobody_jumps_the_line(run: Run) -> None:
    async def main() -> None:
        turns, order = Turns(1), []
        assert turns.take()

        async def one(number: int) -> None:
            assert await turns.wait(PATIENCE) is None
            order.append(number)
            turns.give()

        waiting = [asyncio.ensure_future(one(number)) for number in range(5)]
        await asyncio.sleep(0)
        assert not turns.take()
        turns.give()
        await asyncio.gather(*waiting)
        assert order == [0, 1, 2, 3, 4]
        assert turns.taken == 0

    run(main)


def test_a_turn_that_is_not_free_in_time_is_overloaded(run: Run) -> None:
    async def main() -> None:
        turns = Turns(1)
        turns.take()
        failure = await turns.wait(0.01)
        assert failure is not None and (failure.code, failure.retryable) == (Code.OVERLOADED, True)
        turns.give()
        assert turns.take()

    run(main)


def test_a_turn_given_to_somebody_who_is_cancelled_in_the_same_moment_goes_on(run: Run) -> None:
    async def main() -> None:
        turns = Turns(1)
        turns.take()
        first = asyncio.ensure_future(turns.wait(PATIENCE))
        second = asyncio.ensure_future(turns.wait(PATIENCE))
        await asyncio.sleep(0)
        turns.give()
        first.cancel()
        await asyncio.wait({first})
        assert await second is None
        turns.give()
        assert turns.taken == 0

    run(main)


def test_somebody_cancelled_in_line_takes_no_turn(run: Run) -> None:
    async def main() -> None:
        turns = Turns(1)
        turns.take()
        waiting = asyncio.ensure_future(turns.wait(PATIENCE))
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.wait({waiting})
        turns.give()
        assert turns.taken == 0

    run(main)


def test_draining_waits_for_those_in_line_and_lets_nobody_in_afterwards(run: Run) -> None:
    async def main() -> None:
        turns = Turns(2)
        turns.take()
        turns.take()
        waiting = asyncio.ensure_future(turns.wait(PATIENCE))
        await asyncio.sleep(0)
        draining = asyncio.ensure_future(turns.drain())
        await asyncio.sleep(0)
        turns.give()
        assert await waiting is None
        turns.give()
        assert not draining.done()
        turns.give()
        await draining
        assert not turns.take()

    run(main)
