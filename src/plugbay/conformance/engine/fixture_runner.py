"""Runs the scenarios for an SDK against its fixture: a program made with the SDK that does what a configuration says.

    FIXTURE --print-capabilities      prints a JSON array of names and exits
    FIXTURE --config JSON             is a plugin with this manifest and these handlers

The configurations are in the scenario files of `scenarios/<contract>/fixture`.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterable, Mapping

from msgspec.structs import replace

from plugbay.conformance.engine.dialects import Dialect, load_dialect
from plugbay.conformance.engine.plugin_runner import Schedule, run_in_own_loop
from plugbay.conformance.engine.scenario import Fixture, Scenario, load_all
from plugbay.conformance.engine.subject import Ended, Frame, Subject
from plugbay.conformance.engine.surface import Surface
from plugbay.conformance.engine.trial import Verdict, build_finding, build_launch, judge, try_scenario
from plugbay.conformance.reports.report import AxisResult, Finding, OnAxis, Report, Status
from plugbay.model.errors import PlugbayError
from plugbay.model.spec import PluginSpec
from plugbay.process.child import Spawner
from plugbay.process.command import LaunchFailed

CONTRACTS_WITH_FIXTURES = frozenset({"nexo"})

RULE = "--print-capabilities prints one JSON array of strings and exits with 0"
SECTION = "11.1 Conformance kit"

ANSWER_SECONDS = 20.0
"""For `--print-capabilities`: some languages compile first."""


def run_fixture(
    program: PluginSpec, on_axis: OnAxis | None = None, *, strict: bool = False, only: Iterable[str] | None = None
) -> Report:
    """Try every scenario for SDKs on a fixture; `program` says how it is started, its exports do not matter.

    A capability that the fixture does not have skips the scenarios that need it; when `strict`, it fails them.
    Blocks, in an event loop of its own.
    """
    dialect = load_dialect(program.contract)
    if dialect is None or program.contract not in CONTRACTS_WITH_FIXTURES:
        raise PlugbayError(f"there are no scenarios for fixtures of {program.contract!r}")
    chosen = [each for each in load_all(f"{program.contract}/fixture") if only is None or each.id in only]
    return run_in_own_loop(_run(program, replace(dialect, host=""), chosen, on_axis, strict))


async def _run(
    program: PluginSpec, dialect: Dialect, scenarios: list[Scenario], on_axis: OnAxis | None, strict: bool
) -> Report:
    spawner = Spawner()

    async def attempt(scenario: Scenario, earlier: Mapping[str, AxisResult]) -> Verdict:
        return await _axis(program, dialect, scenario, spawner, has, strict)

    try:
        has, problem = await _ask_capabilities(program, dialect, spawner)
        first = _result_of_capabilities(program.contract, dialect, problem)
        if on_axis is not None:
            on_axis(first)
        return Report(
            program.contract, (first, *await Schedule(scenarios if not problem else [], attempt, on_axis).run())
        )
    finally:
        await spawner.close()


async def _axis(
    program: PluginSpec, dialect: Dialect, scenario: Scenario, spawner: Spawner, has: frozenset[str], strict: bool
) -> Verdict:
    assert scenario.fixture is not None
    missing = [name for name in scenario.fixture.capabilities if name not in has]
    if missing:
        words = f"the fixture has no capability {missing[0]!r}"
        return (
            judge(build_finding(scenario, dialect.contract.title, words)) if strict else Verdict(Status.SKIPPED, words)
        )
    return await try_scenario(scenario, Surface(_set_up(program, scenario.fixture), dialect), spawner)


def _result_of_capabilities(contract: str, dialect: Dialect, problem: str) -> AxisResult:
    """The result of `--print-capabilities`; `problem` is empty when it was answered."""
    id, title = f"{contract}.fixture.capabilities", "lists the capabilities of the SDK"
    if not problem:
        return AxisResult(id, title, Status.PASSED)
    found = Finding(problem, rule=RULE, clause=f"{dialect.contract.title}, {SECTION}", check=id)
    return AxisResult(id, title, Status.FAILED, found.words(), findings=(found,))


def _set_up(program: PluginSpec, fixture: Fixture) -> PluginSpec:
    """The fixture, configured as the plugin of a scenario."""
    plugin = tomllib.loads(fixture.manifest)["plugin"]
    config = json.dumps({**fixture.config, "manifest": fixture.manifest})
    command = (*program.command, "--config", config)
    return replace(program, id=plugin["id"], version=plugin["version"], command=command)


async def _ask_capabilities(program: PluginSpec, dialect: Dialect, spawner: Spawner) -> tuple[frozenset[str], str]:
    """The capabilities of the fixture, or the problem with its answer."""
    asking = replace(program, command=(*program.command, "--print-capabilities"))
    try:
        child = await spawner.spawn(build_launch(asking), program.timeouts.launch)
    except LaunchFailed as error:
        return frozenset(), f"it cannot be started: {error.message}"
    subject = Subject(child, dialect.framing())
    try:
        frame = await subject.next_frame(ANSWER_SECONDS)
        status = await subject.exited(ANSWER_SECONDS) if isinstance(frame, Frame) else None
    finally:
        await subject.close()
        await child.wait(program.timeouts.kill)
    if not isinstance(frame, Frame):
        words = "exited without an answer" if isinstance(frame, Ended) else "did not answer"
        return frozenset(), f"it {words} when asked with --print-capabilities"
    if not isinstance(frame.value, list) or not all(isinstance(name, str) for name in frame.value):
        return frozenset(), "--print-capabilities must print one JSON array of strings on one line"
    if status is None or status.code != 0:
        return frozenset(), "it must exit with 0 after --print-capabilities"
    return frozenset(frame.value), ""
