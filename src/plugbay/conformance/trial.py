"""One scenario, tried: as many conversations as it has targets and cases, each in a process of its own.

Owns how a process is started for it, what counts when its conversations end differently, and the words of a failure.
Refuses to know the order of scenarios and what a plugin offers.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from plugbay.conformance.conversation import Conversation
from plugbay.conformance.endings import Broken, Untried
from plugbay.conformance.filed import Filed
from plugbay.conformance.report import Status
from plugbay.conformance.scenario import Scenario
from plugbay.conformance.steps import verb_of
from plugbay.conformance.stored import Stored
from plugbay.conformance.subject import EXCERPT, SENT, Frame, Subject
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

    async def start() -> Subject:
        child = await spawner.spawn(launch_of(spec, scenario.environment, place), spec.timeouts.launch)
        return Subject(child, dialect.framing())

    try:
        subject = await start()
    except LaunchFailed as error:
        hint = f"\nhint: {error.hint}" if error.hint else ""
        return Verdict(Status.FAILED, f"it cannot be started: {error.message}{hint}")
    named = {**replace(surface, place=str(place)).named(target), **case}
    generators = {**PURE, "input_with_string": with_string(target.tool), "stored": Stored(), "filed": Filed(place)}
    conversation = Conversation(subject, named, generators, dialect.reactions(scenario.host), start)
    broken: Broken | None = None
    try:
        await conversation.carry_out(scenario.steps)
    except Untried as reason:
        return Verdict(Status.SKIPPED, str(reason))
    except Broken as reason:
        broken = reason
    finally:
        await conversation.subject.close()
        await conversation.subject.child.wait(spec.timeouts.kill)
    if broken is None:
        return Verdict(Status.PASSED, "", conversation.last)
    return Verdict(Status.FAILED, _words(scenario, conversation.at, broken, _about(target, case), conversation.subject))


def launch_of(spec: PluginSpec, environment: str = "usual", place: Path | None = None) -> Launch:
    """How the plugin's process is started. Where it is told to work, and its place for temporary files, is `place`."""
    usual = USUAL_VARIABLES if environment == "usual" else ()
    search = host_search_path(os.environ)
    argv = resolve(spec.command, spec.root, search)
    facts = {"project.id": PROJECT, "project.root": place, "config.root": place, "search.path": search}
    told = {name: str(facts[fact]) for name, fact in spec.env_facts if facts[fact] is not None}
    inherited = (*usual, *spec.env_inherit)
    told |= {"TMPDIR": str(place)} if place is not None and "TMPDIR" in inherited else {}
    env = build_env(inherited, os.environ, {**told, **dict(spec.env)}, {})
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
    sent = [body for direction, body in subject.transcript if direction == SENT]
    if sent:
        lines.append(f"sent: {_excerpt(sent[-1])}")
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
