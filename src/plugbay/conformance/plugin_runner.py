"""Every scenario of a contract against one plugin, in any language.

Owns the order of the scenarios, what is filled into them for this plugin, how its process is started, and the
words of a failure. Refuses to know steps (`conversation`) and what a contract says (the scenario files).

Each rule is tried in a process of its own, so one broken rule does not hide the next; rules that need a
broken one are skipped.
"""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from plugbay.conformance import inputs
from plugbay.conformance.conversation import Broken, Conversation, Untried
from plugbay.conformance.report import AxisResult, OnAxis, Report, Status
from plugbay.conformance.scenario import Scenario, load_all, verb_of
from plugbay.conformance.subject import EXCERPT, Subject
from plugbay.conformance.template import text
from plugbay.contracts.rune.messages import MAX_PLUGIN_LINE, PROTOCOL
from plugbay.model.errors import PlugbayError
from plugbay.model.spec import Export, PluginSpec
from plugbay.process.child import Spawner
from plugbay.process.command import Launch, LaunchFailed, build_env, host_search_path, resolve

__all__ = ["AxisResult", "Report", "Status", "run_conformance"]

USUAL_VARIABLES = ("PATH", "HOME", "LANG", "TMPDIR")
"""Taken from our own environment, so that a plugin that needs one of them fails the one rule about that."""

STDERR_LINES = 10
"""Of a plugin's stderr, in the report of a failure."""


@dataclass(frozen=True, slots=True)
class Dialect:
    """What the scenario files of a contract leave to be filled in."""

    protocol: str
    max_line: int


DIALECTS = {"rune": Dialect(PROTOCOL, MAX_PLUGIN_LINE)}


def run_conformance(spec: PluginSpec, on_axis: OnAxis | None = None, *, only: Iterable[str] | None = None) -> Report:
    """Try the rules of the plugin's contract on it: all, or only these axes and what they need.

    Blocks, in an event loop of its own.
    """
    if spec.contract not in DIALECTS:
        raise PlugbayError(f"there are no conformance scenarios for {spec.contract!r} yet")
    if _in_a_loop():
        raise RuntimeError("run_conformance blocks, so it cannot be called in a running event loop")
    scenarios = load_all(spec.contract)
    return asyncio.run(_run(spec, scenarios if only is None else _chosen(scenarios, only), on_axis))


def _in_a_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _chosen(scenarios: list[Scenario], only: Iterable[str]) -> list[Scenario]:
    wanted = set(only)
    unknown = wanted - {scenario.id for scenario in scenarios}
    if unknown:
        raise PlugbayError(f"there is no axis {min(unknown)!r}")
    for scenario in reversed(scenarios):  # what an axis comes after is in an earlier file
        wanted |= set(scenario.after) if scenario.id in wanted else set()
    return [scenario for scenario in scenarios if scenario.id in wanted]


async def _run(spec: PluginSpec, scenarios: list[Scenario], on_axis: OnAxis | None) -> Report:
    spawner = Spawner()
    results: dict[str, AxisResult] = {}
    try:
        for scenario in scenarios:
            results[scenario.id] = await _axis(scenario, spec, spawner, results)
            if on_axis is not None:
                on_axis(results[scenario.id])
    finally:
        await spawner.close()
    return Report(spec.contract, tuple(results.values()))


async def _axis(
    scenario: Scenario, spec: PluginSpec, spawner: Spawner, earlier: Mapping[str, AxisResult]
) -> AxisResult:
    began = time.monotonic()
    status, detail = Status.SKIPPED, _why_not(scenario, spec, earlier)
    if not detail:
        status, detail = await _try_all(scenario, spec, spawner)
    return AxisResult(scenario.id, scenario.title, status, detail, time.monotonic() - began)


def _why_not(scenario: Scenario, spec: PluginSpec, earlier: Mapping[str, AxisResult]) -> str:
    """Why the rule does not concern this plugin or cannot be tried on it; empty when it can."""
    missing = [name for name in scenario.after if earlier[name].status is not Status.PASSED]
    if missing:
        return f"not tried, because {missing[0]} did not pass"
    return next((reason for need in scenario.needs if (reason := _unmet(need, spec))), "")


def _unmet(need: str, spec: PluginSpec) -> str:
    if need == "capabilities":
        return "" if spec.capabilities else "the manifest requests no capabilities"
    if not tools_to_call(spec):
        return "every tool changes things, and none has an example of an input in its schema that may be used"
    if need == "string_input" and _tool_for(spec, need) is None:
        return "no tool takes a text of any kind"
    return ""


def tools_to_call(spec: PluginSpec) -> list[Export]:
    """The tools that may be called, those with an example of their input first."""
    tools = [export for export in spec.exports if export.kind == "tool" and inputs.may_be_called(export)]
    return sorted(tools, key=lambda tool: not inputs.has_example(tool))


def _tool_for(spec: PluginSpec, *needs: str) -> Export | None:
    fitting = (
        tool for tool in tools_to_call(spec) if "string_input" not in needs or inputs.free_string(tool) is not None
    )
    return next(fitting, None)


# One rule: as many conversations as it has cases.


async def _try_all(scenario: Scenario, spec: PluginSpec, spawner: Spawner) -> tuple[Status, str]:
    tools = [_tool_for(spec, *scenario.needs)] if scenario.for_each is None else tools_to_call(spec)
    skipped = ""
    for tool in tools:
        for case in scenario.cases:
            status, detail = await _try_one(scenario, spec, spawner, tool, case)
            if status is Status.FAILED:
                return status, f"{tool.name}: {detail}" if tool is not None and len(tools) > 1 else detail
            skipped = skipped or (detail if status is Status.SKIPPED else "")
    return (Status.SKIPPED, skipped) if skipped else (Status.PASSED, "")


async def _try_one(
    scenario: Scenario, spec: PluginSpec, spawner: Spawner, tool: Export | None, case: Mapping[str, Any]
) -> tuple[Status, str]:
    try:
        child = await spawner.spawn(_launch(spec, scenario), spec.timeouts.launch)
    except LaunchFailed as error:
        hint = f"\nhint: {error.hint}" if error.hint else ""
        return Status.FAILED, f"it cannot be started: {error.message}{hint}"
    subject = Subject(child, DIALECTS[spec.contract].max_line)
    named = {**_named(spec, tool), **case}
    conversation = Conversation(subject, named, {"text": text, "input_with_string": _with_string(tool)})
    broken: Broken | None = None
    try:
        await conversation.carry_out(scenario.steps)
    except Untried as reason:
        return Status.SKIPPED, str(reason)
    except Broken as reason:
        broken = reason
    finally:
        await subject.close()
        await child.wait(spec.timeouts.kill)
    if broken is None:
        return Status.PASSED, ""
    return Status.FAILED, _words(scenario, conversation.at, broken, _about(scenario, named, case), subject)


def _launch(spec: PluginSpec, scenario: Scenario) -> Launch:
    usual = USUAL_VARIABLES if scenario.environment == "usual" else ()
    argv = resolve(spec.command, spec.root, host_search_path(os.environ))
    env = build_env((*usual, *spec.env_inherit), os.environ, dict(spec.env), {})
    return Launch(argv=argv, cwd=spec.cwd or spec.root, env=env, label=spec.id)


def _named(spec: PluginSpec, tool: Export | None) -> dict[str, Any]:
    return {
        "plugin_id": spec.id,
        "plugin_version": spec.version,
        "protocol": DIALECTS[spec.contract].protocol,
        "tool": "" if tool is None else tool.name,
        "tools": [export.name for export in spec.exports if export.kind == "tool"],
        "capabilities": list(spec.capabilities),
        "request_id": f"plugin_req_{secrets.token_hex(8)}",
        "input": {} if tool is None else inputs.input_for(tool),
    }


def _with_string(tool: Export | None) -> Any:
    """The generator of inputs that carry a given text."""

    def generate(content: str) -> Any:
        assert tool is not None
        given, name = inputs.input_for(tool), inputs.free_string(tool)
        return {**(given if isinstance(given, dict) else {}), str(name): content}

    return generate


# The words of a failure.


def _about(scenario: Scenario, named: Mapping[str, Any], case: Mapping[str, Any]) -> str:
    """Which of several conversations it was; empty when there is only one."""
    parts = [f"tool {named['tool']}"] if scenario.for_each else []
    parts += [f"with {json.dumps(case)[:EXCERPT]}"] if case else []
    return ", ".join(parts)


def _words(scenario: Scenario, number: int, broken: Broken, about: str, subject: Subject) -> str:
    verb = verb_of(scenario.steps[number - 1])
    lines = [str(broken), f"rule: {scenario.clause}", f"step: {number} of {len(scenario.steps)} ({verb})"]
    if about:
        lines.append(f"case: {about}")
    if broken.frame is not None:
        lines.append(f"line: {_excerpt(broken.frame.line)}")
    if subject.left is not None:
        lines.append(f"exit: {subject.left.describe()}")
    lines += [f"stderr: {line}" for line in subject.child.stderr.tail(STDERR_LINES)]
    return "\n".join(lines)


def _excerpt(line: bytes) -> str:
    shown = line[:EXCERPT].decode("utf-8", "backslashreplace")
    printable = "".join(char if char.isprintable() else f"\\x{ord(char):02x}" for char in shown)
    return printable + ("…" if len(line) > EXCERPT else "")
