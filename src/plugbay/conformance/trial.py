"""One scenario, tried: as many conversations as it has targets and cases, each in a process of its own.

Owns how a process is started for it, what counts when its conversations end differently, and what is told of a failure.
Refuses to know the order of scenarios and what a plugin offers. A plugin on trial runs unconfined, whatever its
manifest asks for: what is tried is its conversation, and whoever tries it is its author.
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
from plugbay.conformance.report import EXCERPT, Finding, Status
from plugbay.conformance.scenario import Scenario
from plugbay.conformance.steps import verb_of
from plugbay.conformance.stored import Stored
from plugbay.conformance.subject import Frame, Subject
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

FRAME_BYTES = 4096
"""Of the message that broke a rule; the whole of most, and enough of a picture to see what is wrong with it."""

TALK = 10
"""Messages before a failure that its report keeps."""


class Verdict(NamedTuple):
    """How a trial ended, and the line the plugin said last."""

    status: Status
    detail: str = ""
    last: Frame | None = None
    finding: Finding | None = None


def failed(finding: Finding) -> Verdict:
    return Verdict(Status.FAILED, finding.words(), finding=finding)


async def try_scenario(scenario: Scenario, surface: Surface, spawner: Spawner) -> Verdict:
    """Every conversation of a scenario, up to the first that breaks the rule."""
    targets = surface.targets(scenario)
    untried: list[str] = []
    verdict = Verdict(Status.PASSED)
    for target in targets:
        for case in scenario.cases:
            with TemporaryDirectory(prefix="plugbay-conform-", ignore_cleanup_errors=True) as place:
                verdict = await _try_one(scenario, surface, spawner, target, case, Path(place))
            if verdict.finding is not None:
                prefix = f"{target.name}: " if len(targets) > 1 else ""
                return failed(replace(verdict.finding, what=prefix + verdict.finding.what))
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
        found = rule_of(scenario, dialect.text, f"it cannot be started: {error.message}")
        return failed(replace(found, hint=error.hint or ""))
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
    found = rule_of(scenario, dialect.text, str(broken))
    return failed(_finding(found, scenario, conversation, broken, _about(target, case)))


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


# What is said of a failure.


def _about(target: Target, case: Mapping[str, Any]) -> str:
    """Which of several conversations it was; empty when there is only one."""
    parts = [str(target)] if target.kind else []
    parts += [f"with {json.dumps(case)[:EXCERPT]}"] if case else []
    return ", ".join(parts)


def rule_of(scenario: Scenario, text: str, what: str) -> Finding:
    """A finding that names the rule, and so far nothing that shows it; `text` is what the contract is called."""
    return Finding(what, rule=scenario.clause, clause=f"{text}, {scenario.section}", check=scenario.id)


def _finding(found: Finding, scenario: Scenario, conversation: Conversation, broken: Broken, about: str) -> Finding:
    number, subject = conversation.at, conversation.subject
    return replace(
        found,
        step=f"{number} of {len(scenario.steps)} ({verb_of(scenario.steps[number - 1])})",
        case=about,
        frame=None if broken.frame is None else broken.frame.line[:FRAME_BYTES],
        talk=tuple(subject.transcript)[-TALK:],
        exit="" if subject.left is None else subject.left.describe(),
        stderr=tuple(subject.child.stderr.tail(STDERR_LINES)),
    )
