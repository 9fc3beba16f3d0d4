"""Calls that wait: one look for all of them, in time, and nothing left of a link that has ended."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from plugbay.link.deadlines import Deadlines
from plugbay.link.in_flight import MOST_ABANDONED, Grace, InFlight, Silence
from plugbay.model.events import CallFinished
from plugbay.model.operations import CheckHealth, InvokeTool
from tests.support.loops import Run, run_on
from tests.support.patience import until

if TYPE_CHECKING:
    from plugbay.link.in_flight import Call
    from plugbay.model.events import CallId
    from plugbay.model.operations import Operation


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


def test_at_the_end_all_waiting_calls_are_returned_and_nothing_is_left(run: Run) -> None:
    async def main() -> None:
        bench = Bench()
        futures = [bench.add(1, HOUR), bench.add(2, HOUR)]
        left = bench.in_flight.end()
        assert [(id, future) for id, future, _ in left] == [(1, futures[0]), (2, futures[1])]
        assert 0 < left[0][2] <= left[1][2], "when they were sent"
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


TOOL = InvokeTool("t", b"{}")


class SilenceBench:
    """Calls in flight, by hand."""

    def __init__(self) -> None:
        self.time = 0.0
        self.calls: dict[CallId, Call] = {}
        self.silence = Silence(self.calls, lambda: self.time - 1000, lambda: self.time)  # two clocks

    def send(self, seconds: float, op: Operation = TOOL) -> int:
        number = int(self.time * 1000) + len(self.calls)
        self.calls[number] = (asyncio.get_running_loop().create_future(), self.time - 1000 + seconds, op, self.time)
        return number

    def give_up(self, number: int) -> None:
        self.silence.gave_up(self.calls.pop(number))

    def hear(self) -> None:
        self.silence.heard = self.time

    def sent(self) -> list[float]:
        return [call.sent for call in self.silence.timed_out]


def with_bench(test: object) -> None:
    async def main() -> None:
        test(SilenceBench())  # type: ignore[operator]

    run_on("asyncio")(main)


def test_the_first_timeout_and_the_first_two_without_a_byte_are_remembered() -> None:
    def main(bench: SilenceBench) -> None:
        numbers = {}
        for at in (0, 1, 3, 4, 5):
            bench.time = at
            numbers[at] = bench.send(10)
            if at == 1:
                bench.time = 2
                bench.hear()
        for at in (0, 1, 3, 4, 5):
            bench.time = at + 10
            bench.give_up(numbers[at])
        assert bench.sent() == [0, 3, 4]

    with_bench(main)


def test_a_byte_after_a_timeout_forgives_it() -> None:
    def main(bench: SilenceBench) -> None:
        number = bench.send(10)
        bench.time = 10
        bench.give_up(number)
        assert bench.sent() == [0]
        bench.time = 11
        bench.hear()
        assert bench.sent() == []

    with_bench(main)


def test_the_oldest_call_within_its_time_counts_and_a_probe_is_no_call() -> None:
    def main(bench: SilenceBench) -> None:
        probe = bench.send(10, CheckHealth())
        assert bench.silence.working_since is None
        bench.time = 1
        first = bench.send(10)
        bench.time = 2
        bench.send(10)
        assert bench.silence.working_since == 1
        bench.time = 11
        bench.give_up(probe)
        bench.give_up(first)
        working: object = bench.silence.working_since
        assert (working, bench.sent()) == (2, [1])

    with_bench(main)


def test_an_abandoned_call_counts_until_its_time_is_over_or_something_is_heard() -> None:
    def main(bench: SilenceBench) -> None:
        for heard in (False, True):
            bench.time += 100
            begun = bench.time
            number = bench.send(10)
            bench.time += 1
            bench.hear()
            bench.give_up(number)
            assert (bench.silence.working_since, bench.sent()) == (begun, [])
            bench.time += 1
            if heard:
                bench.hear()
                assert bench.silence.working_since is None
            else:
                bench.time += 9
                assert (bench.silence.working_since, bench.sent()) == (None, [])

    with_bench(main)


def test_of_many_abandoned_calls_the_oldest_are_remembered() -> None:
    def main(bench: SilenceBench) -> None:
        for at in range(10 * MOST_ABANDONED):
            bench.time = at
            bench.give_up(bench.send(1e6))
        assert bench.silence.working_since == 0
        assert len(bench.silence._abandoned) == MOST_ABANDONED

    with_bench(main)


def test_a_call_that_was_not_asked_yet_cannot_be_called_off() -> None:
    grace = Grace(5)
    assert not grace.asked and not grace.cancel("user_cancelled")
    assert grace.reason == ""


def test_a_cancellation_is_sent_once() -> None:
    told: list[str] = []
    grace = Grace(5)
    grace.begin(lambda: told.append(grace.reason))
    assert grace.asked and grace.cancel("user_cancelled")
    assert not grace.cancel("deadline_exceeded")
    assert told == ["user_cancelled"] and grace.reason == "user_cancelled"


def test_no_cancellation_is_sent_after_the_answer() -> None:
    told: list[str] = []
    grace = Grace(5)
    grace.begin(lambda: told.append(grace.reason))
    grace.end()
    assert not grace.cancel("user_cancelled")
    assert told == [] and not grace.over
