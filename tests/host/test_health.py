"""Probes: any answer proves life, silence does not, and a busy child is left alone. No process, both loops."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from plugbay.host.health import MISSES, HealthWatch
from plugbay.link.link import Link
from plugbay.model.errors import Code, Failure
from plugbay.model.events import CallFinished
from plugbay.model.operations import CheckHealth
from tests.support.loops import Run
from tests.support.patience import until


class Patient:
    """As much of a link as a watch looks at."""

    def __init__(self, answer: Callable[[int], Failure | None]) -> None:
        self.fault: Failure | None = None
        self.waiting = 0
        self.asked = 0
        self._answer = answer

    async def call(self, op: Any, timeout: float) -> CallFinished:
        assert op == CheckHealth()
        self.asked += 1
        return CallFinished(self.asked, None, self._answer(self.asked))


def watch(patient: Patient, hung: Callable[[int], object]) -> HealthWatch:
    link: Link = patient  # type: ignore[assignment]
    return HealthWatch(link, 0.001, hung)


def silence(_: int) -> Failure:
    return Failure(Code.TIMEOUT, "no answer")


def test_any_answer_proves_life_even_an_error(run: Run) -> None:
    async def main() -> None:
        patient = Patient(lambda number: Failure(Code.PLUGIN_ERROR, "ouch") if number % 2 else None)
        hung: list[int] = []
        watching = watch(patient, hung.append)
        await until(lambda: watching.answered > 10)
        assert (watching.missed, hung) == (0, [])
        watching.stop()

    run(main)


def test_silence_several_times_in_a_row_is_reported_once(run: Run) -> None:
    async def main() -> None:
        hung: list[int] = []
        patient = Patient(silence)
        watch(patient, hung.append)
        await until(lambda: bool(hung))
        assert (hung, patient.asked) == ([MISSES], MISSES)

    run(main)


def test_one_answer_forgives_the_misses_before_it(run: Run) -> None:
    async def main() -> None:
        hung: list[int] = []
        patient = Patient(lambda number: None if number % MISSES == 0 else silence(number))
        watching = watch(patient, hung.append)
        await until(lambda: patient.asked > 5 * MISSES)
        assert hung == []
        watching.stop()

    run(main)


def test_nothing_is_asked_while_a_call_is_in_flight_or_after_the_end(run: Run) -> None:
    async def main() -> None:
        patient = Patient(silence)
        patient.waiting = 1
        watching = watch(patient, lambda _: None)
        await asyncio.sleep(0.02)
        assert patient.asked == 0
        patient.fault = Failure(Code.CRASHED, "gone")
        await until(lambda: watching._task.done())
        assert patient.asked == 0

    run(main)
