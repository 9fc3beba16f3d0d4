"""When a peer was last heard, and what it owes since. A clock that is set by hand; no link, no process."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from plugbay.link.silence import MOST_ABANDONED, Silence
from plugbay.model.operations import CheckHealth, InvokeTool
from tests.support.loops import run_on

if TYPE_CHECKING:
    from plugbay.link.silence import Call
    from plugbay.model.events import CallId
    from plugbay.model.operations import Operation

TOOL = InvokeTool("t", b"{}")


class Bench:
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
        test(Bench())  # type: ignore[operator]

    run_on("asyncio")(main)


def test_the_first_timeout_and_the_first_two_without_a_byte_are_remembered() -> None:
    def main(bench: Bench) -> None:
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
    def main(bench: Bench) -> None:
        number = bench.send(10)
        bench.time = 10
        bench.give_up(number)
        assert bench.sent() == [0]
        bench.time = 11
        bench.hear()
        assert bench.sent() == []

    with_bench(main)


def test_the_oldest_call_within_its_time_counts_and_a_probe_is_no_call() -> None:
    def main(bench: Bench) -> None:
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
    def main(bench: Bench) -> None:
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
    def main(bench: Bench) -> None:
        for at in range(10 * MOST_ABANDONED):
            bench.time = at
            bench.give_up(bench.send(1e6))
        assert bench.silence.working_since == 0
        assert len(bench.silence._abandoned) == MOST_ABANDONED

    with_bench(main)
