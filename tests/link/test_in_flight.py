"""Calls that wait: one look for all of them, in time, and nothing left of a link that has ended."""

from __future__ import annotations

import asyncio

from plugbay.link.deadlines import Deadlines
from plugbay.link.in_flight import InFlight
from plugbay.model.events import CallFinished
from tests.support.loops import Run
from tests.support.patience import until

HOUR = 3600.0


class Bench:
    """Calls in flight, and which of them were said to be due."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.deadlines = Deadlines(self.loop)
        self.in_flight = InFlight(self.deadlines, self._expired)
        self.expired: list[object] = []
        self.more: dict[object, float] = {}
        """Calls that get more time when they are due, and how much."""

    def add(self, id: int, seconds: float) -> asyncio.Future[CallFinished]:
        future: asyncio.Future[CallFinished] = self.loop.create_future()
        self.in_flight.add(id, future, seconds)
        return future

    def _expired(self, id: int | str) -> None:
        self.expired.append(id)
        if id in self.more:
            self.in_flight.extend(id, self.more.pop(id))
        else:
            self.in_flight.take(id)


def test_calls_expire_in_the_order_of_their_deadlines_and_the_others_go_on_waiting(run: Run) -> None:
    async def main() -> None:
        bench = Bench()
        for id, seconds in ((1, 0.03), (2, HOUR), (3, 0.01), (4, 0.02)):
            bench.add(id, seconds)
        await until(lambda: len(bench.in_flight) == 1)
        assert bench.expired == [3, 4, 1]
        assert 2 in bench.in_flight

    run(main)


def test_many_calls_are_one_entry_among_the_deadlines(run: Run) -> None:
    async def main() -> None:
        bench = Bench()
        futures = [bench.add(id, HOUR + id) for id in range(100)]
        assert len(bench.deadlines) == 1
        assert bench.in_flight.take(7) is futures[7]
        assert bench.in_flight.take(7) is None
        assert len(bench.in_flight) == 99

    run(main)


def test_a_call_that_was_answered_does_not_expire_and_the_next_one_does(run: Run) -> None:
    async def main() -> None:
        bench = Bench()
        bench.add(1, 0.01)
        bench.in_flight.take(1)
        bench.add(2, 0.03)
        await until(lambda: bool(bench.expired))
        assert bench.expired == [2]
        assert len(bench.deadlines) == 0

    run(main)


def test_a_call_that_gets_more_time_expires_later(run: Run) -> None:
    async def main() -> None:
        bench = Bench()
        bench.more[1] = 0.02
        bench.add(1, 0.01)
        await until(lambda: len(bench.in_flight) == 0)
        assert bench.expired == [1, 1]

    run(main)


def test_a_call_that_is_taken_while_another_expires_is_left_alone(run: Run) -> None:
    async def main() -> None:
        bench = Bench()
        told: list[object] = []

        def expired(id: int | str) -> None:
            told.append(id)
            bench.in_flight.take(1)
            bench.in_flight.take(2)

        bench.in_flight = InFlight(bench.deadlines, expired)
        bench.add(1, 0.01)
        bench.add(2, 0.01)
        await until(lambda: len(bench.deadlines) == 0)
        assert told == [1]

    run(main)


def test_at_the_end_everybody_who_waits_is_named_and_nothing_is_left(run: Run) -> None:
    async def main() -> None:
        bench = Bench()
        futures = [bench.add(1, HOUR), bench.add(2, HOUR)]
        assert bench.in_flight.end() == [(1, futures[0]), (2, futures[1])]
        assert (len(bench.in_flight), len(bench.deadlines)) == (0, 0)

    run(main)


def test_a_call_that_is_due_is_known_as_timed_out_and_one_that_is_taken_before_as_abandoned(run: Run) -> None:
    async def main() -> None:
        bench = Bench()
        silence, told = bench.in_flight.silence, list[int]()
        silence.on_timeout = lambda: told.append(len(silence.timed_out))
        bench.add(1, HOUR)
        bench.more[2] = 0.01
        bench.add(2, 0.01)
        sent = bench.in_flight.calls[1][3]
        bench.in_flight.take(1)
        await until(lambda: len(bench.in_flight) == 0)
        await until(lambda: told[-1:] == [1])
        assert bench.expired == [2, 2]
        assert silence.working_since == sent

    run(main)
