"""One scenario, tried: as many conversations as it has targets and cases, each in a process of its own.

Owns how a process is started for it, what counts when its conversations end differently, and the words of a failure.
Refuses to know the order of scenarios and what a plugin offers.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from plugbay.conformance.conversation import Broken, Conversation, Untried
from plugbay.conformance.report import Status
from plugbay.conformance.scenario import Scenario
from plugbay.conformance.steps import verb_of
from plugbay.conformance.stored import Stored
from plugbay.conformance.subject import EXCERPT, Frame, Subject
from plugbay.conformance.surface import Surface, Target, with_string
from plugbay.conformance.template import PURE
from plugbay.model.spec import PluginSpec
from plugbay.process.child import Spawner
from plugbay.process.command import Launch, LaunchFailed, build_env, host_search_path, resolve

USUAL_VARIABLES = ("PATH", "HOME", "LANG", "TMPDIR")
"""Taken from our own environment, so that a plugin that needs one of them fails the one rule about that."""

PROJECT = "conformance"
"""The id of the project for which a plugin works that is told one."""

STDERR_LINES = 10
"""Of a plugin's stderr, in the report of a failure."""


class Verdict(NamedTuple):
    """How a trial ended, and the line the plugin said last."""

    status: Status
    detail: str = ""
    last: Frame | None = None


async def try_scenario(scenario: Scenario, surface: Surface, spawner: Spawner) -> Verdict:
    """Every conversation of a scenario, up to the first that breaks the rule."""
    targets = surface.targets(scenario)
    untried: list[str] = []
    verdict = Verdict(Status.PASSED)
    for target in targets:
        for case in scenario.cases:
            with TemporaryDirectory(prefix="plugbay-conform-", ignore_cleanup_errors=True) as place:
                verdict = await _try_one(scenario, surface, spawner, target, case, Path(place))
            if verdict.status is Status.FAILED:
                prefix = f"{target.name}: " if len(targets) > 1 else ""
                return verdict._replace(detail=prefix + verdict.detail)
            untried += [verdict.detail] if verdict.status is Status.SKIPPED else []
    every = len(targets) * len(scenario.cases)
    skipped = len(untried) == every if scenario.skip_when == "all" else bool(untried)
    return Verdict(Status.SKIPPED, untried[0]) if skipped and untried else Verdict(Status.PASSED, "", verdict.last)


async def _try_one(
    scenario: Scenario, surface: Surface, spawner: Spawner, target: Target, case: Mapping[str, Any], place: Path
) -> Verdict:
    spec, dialect = surface.spec, surface.dialect
    try:
        child = await spawner.spawn(launch_of(spec, scenario.environment, place), spec.timeouts.launch)
    except LaunchFailed as error:
        hint = f"\nhint: {error.hint}" if error.hint else ""
        return Verdict(Status.FAILED, f"it cannot be started: {error.message}{hint}")
    subject = Subject(child, dialect.max_line)
    named = {**surface.named(target), **case}
    generators = {**PURE, "input_with_string": with_string(target.tool), "stored": Stored()}
    conversation = Conversation(subject, named, generators, dialect.reactions(scenario.host))
    broken: Broken | None = None
    try:
        await conversation.carry_out(scenario.steps)
    except Untried as reason:
        return Verdict(Status.SKIPPED, str(reason))
    except Broken as reason:
        broken = reason
    finally:
        await subject.close()
        await child.wait(spec.timeouts.kill)
    if broken is None:
        return Verdict(Status.PASSED, "", conversation.last)
    return Verdict(Status.FAILED, _words(scenario, conversation.at, broken, _about(target, case), subject))


def launch_of(spec: PluginSpec, environment: str = "usual", place: Path | None = None) -> Launch:
    """How the plugin's process is started. What it writes where it is told to work, it writes in `place`."""
    usual = USUAL_VARIABLES if environment == "usual" else ()
    argv = resolve(spec.command, spec.root, host_search_path(os.environ))
    facts = {"project.id": PROJECT, "project.root": place, "config.root": place}
    told = {name: str(facts[fact]) for name, fact in spec.env_facts if facts[fact] is not None}
    env = build_env((*usual, *spec.env_inherit), os.environ, {**told, **dict(spec.env)}, {})
    return Launch(argv=argv, cwd=spec.cwd or spec.root, env=env, label=spec.id)


# The words of a failure.


def _about(target: Target, case: Mapping[str, Any]) -> str:
    """Which of several conversations it was; empty when there is only one."""
    parts = [str(target)] if target.kind else []
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
