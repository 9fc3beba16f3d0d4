"""Runs every scenario of a contract against one plugin, in any language.

Each rule is tried in processes of its own, so that one broken rule does not hide the next; a rule that depends on a
broken one is skipped. Several scenarios run at a time. A plugin may fail only because of that (it holds a port or a
file, or the machine is busy): every failure of that kind is tried again alone, and only the second result counts.

A contract may group scenarios into named axes: `ainb.framing.byte_by_byte` belongs to the axis `ainb.framing`. For
contracts whose manifest lists no exports, the plugin is greeted once before the run and lists them itself.
"""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from functools import cache
from typing import Any, TypeVar

from msgspec.structs import replace

from plugbay.conformance.engine.dialects import Dialect, load_dialect
from plugbay.conformance.engine.facts import apply_hello
from plugbay.conformance.engine.scenario import ExpectNoOrphans, ExpectRunning, Scenario, load_all
from plugbay.conformance.engine.subject import Frame, Subject
from plugbay.conformance.engine.surface import Surface
from plugbay.conformance.engine.template import at
from plugbay.conformance.engine.trial import Verdict, build_launch, try_scenario
from plugbay.conformance.reports.report import NOT_TRIED, AxisResult, Finding, OnAxis, Report, Status
from plugbay.contracts.contract import HostSide
from plugbay.contracts.registry import CONTRACTS
from plugbay.model.errors import PlugbayError
from plugbay.model.events import Ready
from plugbay.model.spec import PluginSpec
from plugbay.process.child import Spawner
from plugbay.process.command import LaunchFailed
from plugbay.wire.fast_json import MsgspecCodec


def axis_of(check_id: str) -> str:
    return check_id.rpartition(".")[0]


class Axes:
    """The axes of one run. An axis is reported when all of its checks, and all axes before it, have a result."""

    def __init__(self, titles: Mapping[str, str], check_ids: Iterable[str], on_axis: OnAxis | None) -> None:
        self._open = {axis: {id for id in check_ids if axis_of(id) == axis} for axis in titles}
        self._open = {axis: ids for axis, ids in self._open.items() if ids}
        self._titles = titles
        self._on_axis = on_axis
        self._checks: dict[str, list[AxisResult]] = {axis: [] for axis in self._open}
        self.results: list[AxisResult] = []

    def take(self, check: AxisResult) -> None:
        """The verdict on one check."""
        axis = axis_of(check.id)
        self._checks[axis].append(check)
        self._open[axis].discard(check.id)
        for each in list(self._open)[len(self.results) :]:
            if self._open[each]:
                break
            self.results.append(_merge_checks(each, self._titles[each], self._checks[each]))
            if self._on_axis is not None:
                self._on_axis(self.results[-1])


def _merge_checks(axis: str, title: str, checks: list[AxisResult]) -> AxisResult:
    seconds = sum(check.seconds for check in checks)
    failed = [check for check in checks if check.status is Status.FAILED]
    advised = [check for check in checks if check.status is Status.ADVICE]
    if failed or advised:
        status = Status.FAILED if failed else Status.ADVICE
        found = tuple(replace(each, title=check.title) for check in (*failed, *advised) for each in _findings(check))
        return AxisResult(axis, title, status, "\n".join(each.words() for each in found), seconds, found)
    if any(check.status is Status.PASSED for check in checks):
        return AxisResult(axis, title, Status.PASSED, "", seconds)
    return AxisResult(axis, title, Status.SKIPPED, checks[0].detail, seconds)


def _findings(check: AxisResult) -> tuple[Finding, ...]:
    return check.findings or (Finding(check.detail, check=check.id),)


AT_ONCE = min(8, max(4, os.cpu_count() or 1))
"""Trials at a time: one per core, because starting a program keeps one busy. At least four, because trials mostly wait;
at most eight, because a container may own only a part of the cores."""

UNMET = (Status.FAILED, Status.ADVICE)
"""Results that another trial at the same time may have caused."""

Attempt = Callable[[Scenario, Mapping[str, AxisResult]], Awaitable[Verdict]]
"""Tries a scenario, given the results so far."""


class Schedule:
    """Decides when each scenario of a run is tried, and keeps the results."""

    def __init__(self, scenarios: Sequence[Scenario], attempt: Attempt, on_axis: OnAxis | None) -> None:
        self._scenarios = scenarios
        self._attempt = attempt
        self._on_axis = on_axis
        self._results: dict[str, AxisResult] = {}
        self._running: set[str] = set()
        self._overlapped: set[str] = set()
        self._reported = 0

    async def run(self) -> tuple[AxisResult, ...]:
        """Every result, in the order of the scenarios. A result is reported when it and all before it are final."""
        await self._run_together()
        if any(result.status in UNMET for result in self._results.values()):
            await self._run_alone()
        self._report(len(self._scenarios))
        return tuple(self._results[scenario.id] for scenario in self._scenarios)

    async def _run_together(self) -> None:
        crowd, others = self._split()
        first = _find_predecessors(crowd)
        turns, tasks = asyncio.Semaphore(AT_ONCE), dict[str, asyncio.Task[None]]()

        async def take_turn(scenario: Scenario) -> None:
            await asyncio.gather(*(tasks[id] for id in first[scenario.id]))
            async with turns:
                await self._try(scenario)

        try:
            async with asyncio.TaskGroup() as group:
                for scenario in sorted(crowd, key=_sum_waits, reverse=True):
                    tasks[scenario.id] = group.create_task(take_turn(scenario))
        except ExceptionGroup as several:
            raise several.exceptions[0] from None
        for scenario in others:
            await self._try(scenario)

    def _split(self) -> tuple[list[Scenario], list[Scenario]]:
        """Scenarios that may run together, and the others: a check for orphans blocks the event loop."""
        crowd: list[Scenario] = []
        others: dict[str, Scenario] = {}
        for scenario in self._scenarios:
            if others.keys() & scenario.after or any(isinstance(step, ExpectNoOrphans) for step in scenario.steps):
                others[scenario.id] = scenario
            else:
                crowd.append(scenario)
        return crowd, list(others.values())

    async def _run_alone(self) -> None:
        """Try again, alone, what failed beside others. A failure that ran alone is final, and so is a pass."""
        for position, scenario in enumerate(self._scenarios):
            status, crowded = self._results[scenario.id].status, scenario.id in self._overlapped
            if status is Status.SKIPPED or (status in UNMET and crowded):
                await self._try(scenario)
            self._report(position + 1)

    async def _try(self, scenario: Scenario) -> None:
        self._running.add(scenario.id)
        if len(self._running) > 1:
            self._overlapped |= self._running
        began = time.monotonic()
        try:
            verdict = await self._attempt(scenario, self._results)
        finally:
            self._running.discard(scenario.id)
        seconds = time.monotonic() - began
        self._results[scenario.id] = AxisResult(
            scenario.id, scenario.title, verdict.status, verdict.detail, seconds, verdict.findings
        )
        self._report(next((n for n, each in enumerate(self._scenarios) if not self._has_passed(each)), self._reported))

    def _has_passed(self, scenario: Scenario) -> bool:
        result = self._results.get(scenario.id)
        return result is not None and result.status is Status.PASSED

    def _report(self, until: int) -> None:
        """Report the results up to a position that were not reported yet."""
        for scenario in self._scenarios[self._reported : until]:
            self._reported += 1
            if self._on_axis is not None:
                self._on_axis(self._results[scenario.id])


def _find_predecessors(scenarios: Sequence[Scenario]) -> dict[str, list[str]]:
    """For each scenario those that it waits for: its `after`, and earlier scenarios that learn exports."""
    first: dict[str, list[str]] = {}
    teachers: list[str] = []
    for scenario in scenarios:
        first[scenario.id] = [*scenario.after, *teachers]
        teachers += [scenario.id] if scenario.learn else []
    return first


def _sum_waits(scenario: Scenario) -> float:
    """Seconds that a scenario spends waiting. The longest start first: started last, one would delay the run."""
    return sum(step.expect_running for step in scenario.steps if isinstance(step, ExpectRunning))


MAX_NOISE = 8
"""Lines that are no message, after which the greeting fails: enough for a program that prints a banner."""

ANSWER_SECONDS = 20.0
"""For each answer: some programs are installed or compiled first."""


async def fetch_hello(spec: PluginSpec, dialect: Dialect, spawner: Spawner) -> Mapping[str, Any] | None:
    """The plugin's answer to the greeting; None when the greeting fails."""
    try:
        child = await spawner.spawn(build_launch(spec), spec.timeouts.launch)
    except LaunchFailed:
        return None
    subject = Subject(child, dialect.framing())
    try:
        return await _greet(spec, subject)
    finally:
        await subject.close()
        await child.wait(spec.timeouts.kill)


async def _greet(spec: PluginSpec, subject: Subject) -> Mapping[str, Any] | None:
    machine = CONTRACTS[spec.contract].host_machine(spec, HostSide(), MsgspecCodec())
    machine.greet()
    subject.send(machine.outgoing())
    noise = 0
    while noise < MAX_NOISE and isinstance(frame := await subject.next_frame(ANSWER_SECONDS), Frame):
        noise += bool(frame.problem)
        for event in machine.receive(subject.framing.wrap(frame.line)):
            if isinstance(event, Ready):
                return event.hello
        subject.send(machine.outgoing())
    return None


__all__ = ["AxisResult", "Report", "Status", "run_conformance"]

T = TypeVar("T")

_scenarios = cache(load_all)
"""Cached: reading the scenarios of a contract takes 20 ms, a tenth of a run of one check."""


def run_conformance(
    spec: PluginSpec, on_axis: OnAxis | None = None, *, only: Iterable[str] | None = None, strict: bool = False
) -> Report:
    """Try the rules of the plugin's contract on it: all, or only these axes and what they need.

    When `strict`, advice that is not followed counts as failed. Blocks, in an event loop of its own.
    """
    dialect = load_dialect(spec.contract)
    if dialect is None:
        raise PlugbayError(f"there are no conformance scenarios for {spec.contract!r} yet")
    scenarios = _scenarios(spec.contract)
    chosen = scenarios if only is None else _choose(scenarios, only)
    return run_in_own_loop(_run(spec, dialect, chosen, on_axis, strict))


def run_in_own_loop(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine in an event loop of its own; raises RuntimeError inside a running loop.

    A SIGTERM cancels it. After the clean-up, the signal is raised again for the previous handler: a handler that
    raises inside the loop might do so in a finalizer, where the exception is lost.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return _run_until_terminated(work)
    work.close()
    raise RuntimeError("a conformance run blocks, so it cannot be called in a running event loop")


def _run_until_terminated(work: Coroutine[Any, Any, T]) -> T:
    before = signal.getsignal(signal.SIGTERM)
    if threading.current_thread() is not threading.main_thread() or before in (None, signal.SIG_IGN):
        return asyncio.run(work)
    terminated = False

    async def until_terminated() -> T:
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task is not None

        def stop(number: int, frame: object) -> None:
            nonlocal terminated
            terminated = True
            loop.call_soon_threadsafe(task.cancel)

        signal.signal(signal.SIGTERM, stop)
        return await work

    try:
        return asyncio.run(until_terminated())
    finally:
        signal.signal(signal.SIGTERM, before)
        if terminated:
            signal.raise_signal(signal.SIGTERM)


def _choose(scenarios: list[Scenario], only: Iterable[str]) -> list[Scenario]:
    named = set(only)
    wanted = {scenario.id for scenario in scenarios if named & {scenario.id, axis_of(scenario.id)}}
    unknown = named - wanted - {axis_of(id) for id in wanted}
    if unknown:
        raise PlugbayError(f"there is no axis {min(unknown)!r}")
    for scenario in reversed(scenarios):  # what an axis comes after is in an earlier file
        wanted |= set(scenario.after) if scenario.id in wanted else set()
    return [scenario for scenario in scenarios if scenario.id in wanted]


async def _run(
    spec: PluginSpec, dialect: Dialect, scenarios: list[Scenario], on_axis: OnAxis | None, strict: bool
) -> Report:
    spawner = Spawner()
    try:
        surface = await _surface(spec, dialect, spawner)
        return await _try_all(surface, spawner, scenarios, on_axis, strict)
    finally:
        await spawner.close()


async def _surface(spec: PluginSpec, dialect: Dialect, spawner: Spawner) -> Surface:
    hello = await fetch_hello(spec, dialect, spawner) if dialect.contract.runtime_exports else None
    if hello is None:
        return Surface(spec, dialect, facts=dialect.facts(spec))
    known, facts = apply_hello(spec, hello)
    return Surface(known, dialect, facts=facts)


async def _try_all(
    surface: Surface, spawner: Spawner, scenarios: list[Scenario], on_axis: OnAxis | None, strict: bool
) -> Report:

    needs = {scenario.id: scenario.needs for scenario in scenarios}

    async def attempt(scenario: Scenario, earlier: Mapping[str, AxisResult]) -> Verdict:
        nonlocal surface
        # A rule does not depend on another one that does not concern the plugin.
        before = {id: earlier[id] for id in scenario.after if not any(map(surface.unmet, needs[id]))}
        verdict = await _axis(scenario, surface, spawner, before)
        surface = _learn(surface, scenario, verdict)
        return verdict._replace(status=Status.FAILED) if strict and verdict.status is Status.ADVICE else verdict

    titles = surface.dialect.axes
    axes = Axes(titles, [scenario.id for scenario in scenarios], on_axis)
    results = await Schedule(scenarios, attempt, axes.take if titles else on_axis).run()
    return Report(surface.spec.contract, tuple(axes.results) if titles else results)


async def _axis(scenario: Scenario, surface: Surface, spawner: Spawner, before: Mapping[str, AxisResult]) -> Verdict:
    reason = _why_not(scenario, surface, before)
    return Verdict(Status.SKIPPED, reason) if reason else await try_scenario(scenario, surface, spawner)


def _why_not(scenario: Scenario, surface: Surface, before: Mapping[str, AxisResult]) -> str:
    """Why the rule does not apply to this plugin or cannot be tried; empty when it can."""
    reason = next((reason for need in scenario.needs if (reason := surface.unmet(need))), "")
    missing = [id for id, result in before.items() if result.status is not Status.PASSED]
    return reason or (f"{NOT_TRIED}{missing[0]} did not pass" if missing else "")


def _learn(surface: Surface, scenario: Scenario, verdict: Verdict) -> Surface:
    """The surface with the exports that the plugin listed in this scenario."""
    if verdict.last is None:
        return surface
    for kind, path in scenario.learn.items():
        surface = surface.learn(kind, at(verdict.last.value, path))
    return surface
