"""Every scenario of a contract against one plugin, in any language.

Owns which of the scenarios are tried, and which axes they belong to. Refuses to know when (`rounds`) and how (`trial`)
one is tried, what a plugin offers (`surface`) and what a contract says (the scenario files).

Each rule is tried in processes of its own, so one broken rule does not hide the next; rules that need a
broken one are skipped.
"""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Coroutine, Iterable, Mapping
from functools import cache
from typing import Any, TypeVar

from plugbay.conformance.acquaintance import hello_of
from plugbay.conformance.axes import Axes, axis_of
from plugbay.conformance.dialects import Dialect, dialect
from plugbay.conformance.mcp_facts import introduced
from plugbay.conformance.report import NOT_TRIED, AxisResult, OnAxis, Report, Status
from plugbay.conformance.rounds import Rounds
from plugbay.conformance.scenario import Scenario, load_all
from plugbay.conformance.surface import Surface
from plugbay.conformance.template import at
from plugbay.conformance.trial import Verdict, try_scenario
from plugbay.model.errors import PlugbayError
from plugbay.model.spec import PluginSpec
from plugbay.process.child import Spawner

__all__ = ["AxisResult", "Report", "Status", "run_conformance"]

T = TypeVar("T")

_scenarios = cache(load_all)
"""They lie in the package, and reading those of a contract takes 20 ms: a tenth of a run of one check."""


def run_conformance(spec: PluginSpec, on_axis: OnAxis | None = None, *, only: Iterable[str] | None = None) -> Report:
    """Try the rules of the plugin's contract on it: all, or only these axes and what they need.

    Blocks, in an event loop of its own.
    """
    spoken = dialect(spec.contract)
    if spoken is None:
        raise PlugbayError(f"there are no conformance scenarios for {spec.contract!r} yet")
    scenarios = _scenarios(spec.contract)
    chosen = scenarios if only is None else _chosen(scenarios, only)
    return in_its_own_loop(_run(spec, spoken, chosen, on_axis))


def in_its_own_loop(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end; refuses to do so inside a loop that runs already.

    A SIGTERM that comes meanwhile cancels it. Once nothing of it is left, the signal goes to whoever dealt with it
    before: a handler that raises would do so wherever the loop is, also in a finalizer, where nobody hears of it.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return _run_to_its_end(work)
    work.close()
    raise RuntimeError("a conformance run blocks, so it cannot be called in a running event loop")


def _run_to_its_end(work: Coroutine[Any, Any, T]) -> T:
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


def _chosen(scenarios: list[Scenario], only: Iterable[str]) -> list[Scenario]:
    named = set(only)
    wanted = {scenario.id for scenario in scenarios if named & {scenario.id, axis_of(scenario.id)}}
    unknown = named - wanted - {axis_of(id) for id in wanted}
    if unknown:
        raise PlugbayError(f"there is no axis {min(unknown)!r}")
    for scenario in reversed(scenarios):  # what an axis comes after is in an earlier file
        wanted |= set(scenario.after) if scenario.id in wanted else set()
    return [scenario for scenario in scenarios if scenario.id in wanted]


async def _run(spec: PluginSpec, spoken: Dialect, scenarios: list[Scenario], on_axis: OnAxis | None) -> Report:
    spawner = Spawner()
    try:
        surface = await _surface(spec, spoken, spawner)
        return await _tried(surface, spawner, scenarios, on_axis)
    finally:
        await spawner.close()


async def _surface(spec: PluginSpec, spoken: Dialect, spawner: Spawner) -> Surface:
    hello = await hello_of(spec, spoken, spawner) if spoken.is_introduced else None
    if hello is None:
        return Surface(spec, spoken, facts=spoken.facts(spec))
    known, facts = introduced(spec, hello)
    return Surface(known, spoken, facts=facts)


async def _tried(surface: Surface, spawner: Spawner, scenarios: list[Scenario], on_axis: OnAxis | None) -> Report:

    async def attempt(scenario: Scenario, earlier: Mapping[str, AxisResult]) -> Verdict:
        nonlocal surface
        verdict = await _axis(scenario, surface, spawner, earlier)
        surface = _taught(surface, scenario, verdict)
        return verdict

    titles = surface.dialect.axes
    axes = Axes(titles, [scenario.id for scenario in scenarios], on_axis)
    results = await Rounds(scenarios, attempt, axes.take if titles else on_axis).run()
    return Report(surface.spec.contract, tuple(axes.results) if titles else results)


async def _axis(scenario: Scenario, surface: Surface, spawner: Spawner, earlier: Mapping[str, AxisResult]) -> Verdict:
    reason = _why_not(scenario, surface, earlier)
    return Verdict(Status.SKIPPED, reason) if reason else await try_scenario(scenario, surface, spawner)


def _why_not(scenario: Scenario, surface: Surface, earlier: Mapping[str, AxisResult]) -> str:
    """Why the rule does not concern this plugin or cannot be tried on it; empty when it can."""
    reason = next((reason for need in scenario.needs if (reason := surface.unmet(need))), "")
    missing = [name for name in scenario.after if earlier[name].status is not Status.PASSED]
    return reason or (f"{NOT_TRIED}{missing[0]} did not pass" if missing else "")


def _taught(surface: Surface, scenario: Scenario, verdict: Verdict) -> Surface:
    """The surface after what the plugin said in this scenario."""
    if verdict.last is None:
        return surface
    for kind, path in scenario.learn.items():
        surface = surface.learn(kind, at(verdict.last.value, path))
    return surface
