"""When each scenario of a run is tried: several at a time, in the order of the report where that matters.

Most of a trial goes by waiting, so company costs little. But a plugin may not like company, because it holds a port or
a file, and on a busy machine it may be late: if anything fails in company, whatever did not pass is tried again, alone,
and only that counts. Refuses to know how a scenario is tried.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence

from plugbay.conformance.report import AxisResult, OnAxis, Status
from plugbay.conformance.scenario import Scenario
from plugbay.conformance.steps import ExpectNoOrphans, ExpectRunning
from plugbay.conformance.trial import Verdict

AT_ONCE = min(8, max(4, os.cpu_count() or 1))
"""Trials at a time: one for each core, because starting a program is work for one. Four on the smallest machines, where
others wait meanwhile; eight on large ones, of which we may have been given a part."""

Attempt = Callable[[Scenario, Mapping[str, AxisResult]], Awaitable[Verdict]]
"""Try a scenario, with the results of those it comes after at hand."""


class Rounds:
    """The scenarios of one run, and what is known of them."""

    def __init__(self, scenarios: Sequence[Scenario], attempt: Attempt, on_axis: OnAxis | None) -> None:
        self._scenarios = scenarios
        self._attempt = attempt
        self._on_axis = on_axis
        self._results: dict[str, AxisResult] = {}
        self._running: set[str] = set()
        self._accompanied: set[str] = set()
        self._told = 0

    async def run(self) -> tuple[AxisResult, ...]:
        """Every result, in the order of the scenarios; each is told when it and all before it are certain."""
        await self._together()
        if any(result.status is Status.FAILED for result in self._results.values()):
            await self._alone()
        self._tell(len(self._scenarios))
        return tuple(self._results[scenario.id] for scenario in self._scenarios)

    async def _together(self) -> None:
        crowd, others = self._split()
        first = _first(crowd)
        turns, tasks = asyncio.Semaphore(AT_ONCE), dict[str, asyncio.Task[None]]()

        async def take_turn(scenario: Scenario) -> None:
            await asyncio.gather(*(tasks[id] for id in first[scenario.id]))
            async with turns:
                await self._try(scenario)

        try:
            async with asyncio.TaskGroup() as group:
                for scenario in sorted(crowd, key=_waits, reverse=True):
                    tasks[scenario.id] = group.create_task(take_turn(scenario))
        except ExceptionGroup as several:
            raise several.exceptions[0] from None
        for scenario in others:
            await self._try(scenario)

    def _split(self) -> tuple[list[Scenario], list[Scenario]]:
        """Those that may have company, and the others: looking for orphans lets nothing else happen meanwhile."""
        crowd: list[Scenario] = []
        others: dict[str, Scenario] = {}
        for scenario in self._scenarios:
            if others.keys() & scenario.after or any(isinstance(step, ExpectNoOrphans) for step in scenario.steps):
                others[scenario.id] = scenario
            else:
                crowd.append(scenario)
        return crowd, list(others.values())

    async def _alone(self) -> None:
        """The second round. A failure that had no company is certain, and so is what passed."""
        for position, scenario in enumerate(self._scenarios):
            status, crowded = self._results[scenario.id].status, scenario.id in self._accompanied
            if status is Status.SKIPPED or (status is Status.FAILED and crowded):
                await self._try(scenario)
            self._tell(position + 1)

    async def _try(self, scenario: Scenario) -> None:
        self._running.add(scenario.id)
        if len(self._running) > 1:
            self._accompanied |= self._running
        began = time.monotonic()
        try:
            verdict = await self._attempt(scenario, self._results)
        finally:
            self._running.discard(scenario.id)
        seconds = time.monotonic() - began
        self._results[scenario.id] = AxisResult(
            scenario.id, scenario.title, verdict.status, verdict.detail, seconds, verdict.findings
        )
        self._tell(next((n for n, each in enumerate(self._scenarios) if not self._has_passed(each)), self._told))

    def _has_passed(self, scenario: Scenario) -> bool:
        result = self._results.get(scenario.id)
        return result is not None and result.status is Status.PASSED

    def _tell(self, until: int) -> None:
        """The results that have not been told yet, up to a position."""
        for scenario in self._scenarios[self._told : until]:
            self._told += 1
            if self._on_axis is not None:
                self._on_axis(self._results[scenario.id])


def _first(scenarios: Sequence[Scenario]) -> dict[str, list[str]]:
    """For each scenario those that it waits for: what it comes after, and whatever was learned before."""
    first: dict[str, list[str]] = {}
    teachers: list[str] = []
    for scenario in scenarios:
        first[scenario.id] = [*scenario.after, *teachers]
        teachers += [scenario.id] if scenario.learn else []
    return first


def _waits(scenario: Scenario) -> float:
    """Seconds it watches a plugin do nothing. The longest go first: begun last, one of them holds up the whole run."""
    return sum(step.expect_running for step in scenario.steps if isinstance(step, ExpectRunning))
