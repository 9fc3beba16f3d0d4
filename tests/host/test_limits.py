"""Turns: bounded, fair, and nobody waits beyond their own time."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from plugbay.host.discovery.folders import inspect
from plugbay.host.limits import AT_LEAST, LONGEST, PER_CORE, Arrivals, Turns, usual_places
from plugbay.host.supervision.instance import Binding, Deadline, Runtime, Seat, open_seat
from plugbay.link.deadlines import Deadlines
from plugbay.model.errors import Code, Failure
from plugbay.process.child import Spawner
from tests.support.loops import Run
from tests.support.patience import PATIENCE, until
from tests.support.plugins import write_plugin
from tests.support.supervision import CODEC


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


FOREVER = 3600.0


def test_there_are_two_places_for_a_processor_and_never_fewer_than_four() -> None:
    assert usual_places() == max(AT_LEAST, PER_CORE * len(os.sched_getaffinity(0)))
    assert LONGEST < FOREVER


def test_who_asks_first_has_a_place_first_and_the_others_wait(run: Run) -> None:
    async def main() -> None:
        arrivals = Arrivals(2, FOREVER)
        come: list[int] = []

        async def arrive(number: int) -> None:
            place = await arrivals.place()
            come.append(number)
            await leave[number].wait()
            place.free()

        leave = [asyncio.Event() for _ in range(4)]
        tasks = [asyncio.ensure_future(arrive(number)) for number in range(4)]
        await until(lambda: len(come) == 2)
        await asyncio.sleep(0)
        assert come == [0, 1], "there are two places"
        leave[1].set()
        await until(lambda: len(come) == 3)
        assert come == [0, 1, 2]
        for event in leave:
            event.set()
        await asyncio.gather(*tasks)
        assert come == [0, 1, 2, 3]

    run(main)


def test_a_place_that_is_kept_too_long_is_given_to_the_next(run: Run) -> None:
    async def main() -> None:
        arrivals = Arrivals(1, 0.01)
        kept = await arrivals.place()
        other = await arrivals.place()
        kept.free()
        other.free()

    run(main)


def test_a_place_that_is_freed_twice_is_one_place(run: Run) -> None:
    async def main() -> None:
        arrivals = Arrivals(1, FOREVER)
        place = await arrivals.place()
        place.free()
        place.free()
        await arrivals.place()
        waits = asyncio.ensure_future(arrivals.place())
        await asyncio.sleep(0)
        assert not waits.done()
        waits.cancel()

    run(main)


def test_a_call_that_waits_for_its_plugins_turn_waits_no_longer_than_it_may(run: Run, tmp_path: Path) -> None:
    async def main() -> None:
        spec = inspect(write_plugin(tmp_path)).spec
        assert spec is not None
        spawner, arrivals = Spawner(), Arrivals(1, FOREVER)
        runtime = Runtime(spawner, Deadlines(asyncio.get_running_loop()), CODEC, arrivals=arrivals)
        place = await arrivals.place()
        refused = await open_seat(Binding(spec), runtime, Deadline(0.01))
        assert isinstance(refused, Failure)
        assert (refused.code, refused.plugin) == (Code.TIMEOUT, "p")
        assert not spawner.children, "nothing was started"
        place.free()
        seat = await open_seat(Binding(spec), runtime, Deadline(20))
        assert isinstance(seat, Seat)
        again = await open_seat(Binding(spec), runtime, Deadline(20))
        assert isinstance(again, Seat), "who has been greeted is no longer on its way"
        seat.leave()
        again.leave()
        await spawner.close()

    run(main)


def test_a_plugin_that_never_greets_keeps_the_others_waiting_for_a_while_only(run: Run, tmp_path: Path) -> None:
    async def main() -> None:
        silent = inspect(write_plugin(tmp_path, "silent", script="cat >/dev/null")).spec
        good = inspect(write_plugin(tmp_path, "good")).spec
        assert silent is not None and good is not None
        spawner = Spawner()
        deadlines = Deadlines(asyncio.get_running_loop())
        runtime = Runtime(spawner, deadlines, CODEC, arrivals=Arrivals(1, 0.05))
        hangs = asyncio.ensure_future(open_seat(Binding(silent), runtime, Deadline(FOREVER)))
        await until(lambda: len(spawner.children) == 1)
        seat = await open_seat(Binding(good), runtime, Deadline(20))
        assert isinstance(seat, Seat)
        seat.leave()
        hangs.cancel()
        await asyncio.wait({hangs})
        await spawner.close()

    run(main)
