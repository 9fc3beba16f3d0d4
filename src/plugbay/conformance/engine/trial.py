"""Tries one scenario: one turn for each of its targets and cases.

A scenario with an opening has several turns in one process, until a turn breaks the rule or the process exits; the next
turn then gets a fresh process. The plugin runs unconfined, whatever its manifest asks for: the trial is about its
conversation, and its author runs it. Also here: the storage and the files that a scenario gives to a plugin.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from msgspec.structs import replace

from plugbay.conformance.engine.conversation import Conversation
from plugbay.conformance.engine.scenario import Scenario, get_verb, list_templates
from plugbay.conformance.engine.subject import Frame, NotTried, RuleBroken, Subject
from plugbay.conformance.engine.surface import Surface, Target, with_string
from plugbay.conformance.engine.template import PURE
from plugbay.conformance.reports.report import EXCERPT, Finding, Status
from plugbay.contracts.kaged import storage
from plugbay.model.operations import DeleteStored, GetStored, ListStored, SetStored
from plugbay.model.spec import PluginSpec
from plugbay.process.child import Spawner
from plugbay.process.command import Launch, LaunchFailed, build_env, host_search_path, resolve


class KagedStorage:
    """A generator: `[method, params]` becomes the result of that request."""

    def __init__(self) -> None:
        self._values: dict[str, Any] = {}

    def __call__(self, asked: list[Any]) -> dict[str, Any]:
        method, params = asked
        op = storage.read_request(method, params)
        match op:
            case GetStored():
                found = {"found": op.key in self._values, "value": self._values.get(op.key)}
                return storage.build_result(GetStored, found)
            case SetStored():
                self._values[op.key] = op.value
            case DeleteStored():
                return storage.build_result(DeleteStored, self._values.pop(op.key, self) is not self)
            case ListStored():
                keys = sorted(key for key in self._values if key.startswith(op.prefix))
                return storage.build_result(ListStored, keys[: op.limit])
        return storage.build_result(SetStored, None)


class InputFiles:
    """A generator: `[name, media type, value]` becomes the reference to a file with the value as JSON."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def __call__(self, asked: list[Any]) -> dict[str, Any]:
        name, media_type, value = asked
        data = json.dumps(value, ensure_ascii=False).encode()
        (self._folder / name).write_bytes(data)
        digest = hashlib.sha256(data).hexdigest()
        return {"path": name, "media_type": media_type, "size_bytes": len(data), "sha256": digest}


USUAL_VARIABLES = ("PATH", "HOME", "LANG", "TMPDIR")
"""Taken from our own environment, so that a plugin that needs one of them fails only the rule about that."""

PROJECT = "conformance"
"""The project id, for contracts that pass one."""

STDERR_LINES = 10
"""Last lines of stderr in the report of a failure."""

FRAME_BYTES = 4096
"""Bytes of the message that broke a rule in its report: most messages whole, and enough of a picture."""

TALK = 10
"""Messages before a failure that its report keeps."""


ENOUGH = 3
"""Targets that broke a rule, after which no other is tried, so that the report stays readable. One that ran into its
time limit is enough, because the next may take as long, up to 30 s."""

NAMED = 5
"""Untried targets that the report names."""


class Verdict(NamedTuple):
    """The result of a trial, and the last frame of the plugin."""

    status: Status
    detail: str = ""
    last: Frame | None = None
    findings: tuple[Finding, ...] = ()
    """One for each target that broke the rule."""


def judge(*findings: Finding) -> Verdict:
    """The verdict on a scenario with these findings: all are advice, or none is."""
    status = Status.ADVICE if findings[0].is_advice else Status.FAILED
    return Verdict(status, "\n".join(found.words() for found in findings), findings=findings)


class Turn(NamedTuple):
    """One run of the steps of a scenario: for one target and one case."""

    target: Target
    case: Mapping[str, Any]

    def __str__(self) -> str:
        """Which of several it is; empty when there is only one."""
        parts = [str(self.target)] if self.target.kind else []
        parts += [f"with {json.dumps(self.case)[:EXCERPT]}"] if self.case else []
        return ", ".join(parts)


async def try_scenario(scenario: Scenario, surface: Surface, spawner: Spawner) -> Verdict:
    """Try every turn of a scenario; a target that broke the rule gets no further turn."""
    targets = surface.targets(scenario)
    turns = [Turn(target, case) for target in targets for case in scenario.cases]
    every, untried, findings, last, enough = len(turns), list[str](), list[Finding](), None, False
    while turns and not enough:
        with TemporaryDirectory(prefix="plugbay-conform-", ignore_cleanup_errors=True) as place:
            process = _Process(scenario, surface, spawner, Path(place))
            await process.have(turns)
        untried, last = untried + process.untried, process.last
        if process.finding is None:
            turns = turns[process.had :]
            continue
        broke = turns[0].target
        prefix = f"{broke.name}: " if len(targets) > 1 else ""
        findings.append(replace(process.finding, what=prefix + process.finding.what))
        turns = [turn for turn in turns if turn.target != broke]
        enough = process.is_hopeless or len(findings) == ENOUGH
    if findings:
        return judge(*findings[:-1], _add_untried_targets(findings[-1], turns))
    skipped = len(untried) == every if scenario.skip_when == "all" else bool(untried)
    return Verdict(Status.SKIPPED, untried[0]) if skipped and untried else Verdict(Status.PASSED, "", last)


class _Process:
    """One process of the plugin, and the results of its turns."""

    def __init__(self, scenario: Scenario, surface: Surface, spawner: Spawner, place: Path) -> None:
        self._scenario = scenario
        self._surface = replace(surface, place=str(place))
        self._spawner = spawner
        self._place = place
        self._tours = any('"$tour"' in json.dumps(list_templates(step)) for step in scenario.steps)
        self._generators = {**PURE, "stored": KagedStorage(), "filed": InputFiles(place)}
        self._opened = False
        self.had = 0
        """Turns so far that did not break the rule."""
        self.untried: list[str] = []
        """Why some of these could not be completed."""
        self.last: Frame | None = None
        """The last frame of the last turn, if that was completed."""
        self.finding: Finding | None = None
        """How the first turn broke the rule."""
        self.is_hopeless = False
        """Whether further turns would fail as well, or take too long."""

    async def have(self, turns: Sequence[Turn]) -> None:
        """Run one or more of these turns, in order."""
        try:
            subject = await self._start()
        except LaunchFailed as error:
            found = self._rule(f"it cannot be started: {error.message}")
            self.finding, self.is_hopeless = replace(found, hint=error.hint or ""), True
            return
        broken: RuleBroken | None = None
        try:
            for turn in turns:
                conversation = self._conversation(subject, turn)
                try:
                    broken = await self._carry_out(conversation)
                finally:
                    subject = conversation.subject
                if broken is not None or self._scenario.opening is None or subject.child.has_ended():
                    break
        finally:
            await subject.close()
            await subject.child.wait(self._surface.spec.timeouts.kill)
        if broken is not None and not self.had:
            self.finding = _add_evidence(self._rule(str(broken)), self._scenario, conversation, broken, turn)
            self.is_hopeless = broken.late or not self._opened

    async def _start(self) -> Subject:
        spec = self._surface.spec
        launch = build_launch(spec, self._scenario.environment, self._place)
        return Subject(await self._spawner.spawn(launch, spec.timeouts.launch), self._surface.dialect.framing())

    def _conversation(self, subject: Subject, turn: Turn) -> Conversation:
        surface = replace(self._surface, turn=self.had)
        tour = {"tour": surface.tour()} if self._tours else {}
        named = {**surface.named(turn.target), **tour, **turn.case}
        generators = {**self._generators, "input_with_string": with_string(turn.target.tool)}
        reactions = self._surface.dialect.reactions(self._scenario.host)
        return Conversation(subject, named, generators, reactions, self._start)

    async def _carry_out(self, conversation: Conversation) -> RuleBroken | None:
        """Carry out a turn, after the opening if it is the first; returns how it broke the rule."""
        self.last = None
        try:
            if not self._opened:
                await conversation.carry_out(self._scenario.opening or ())
                self._opened = True
            await conversation.carry_out(self._scenario.steps)
            self.last = conversation.last
        except NotTried as reason:
            self.untried.append(str(reason))
        except RuleBroken as reason:
            return reason
        self.had += 1
        return None

    def _rule(self, what: str) -> Finding:
        return build_finding(self._scenario, self._surface.dialect.contract.title, what)


def build_launch(spec: PluginSpec, environment: str = "usual", place: Path | None = None) -> Launch:
    """How the plugin's process starts. `place` is its project folder and its folder for temporary files."""
    usual = USUAL_VARIABLES if environment == "usual" else ()
    search = host_search_path(os.environ)
    argv = resolve(spec.command, spec.root, search)
    facts = {"project.id": PROJECT, "project.root": place, "config.root": place, "search.path": search}
    told = {name: str(facts[fact]) for name, fact in spec.env_facts if facts[fact] is not None}
    inherited = (*usual, *spec.env_inherit)
    told |= {"TMPDIR": str(place)} if place is not None and "TMPDIR" in inherited else {}
    env = build_env(inherited, os.environ, {**told, **dict(spec.env)}, {})
    return Launch(argv=argv, cwd=spec.cwd or spec.root, env=env, label=spec.id)


# Reports of failures.


def build_finding(scenario: Scenario, text: str, what: str) -> Finding:
    """A finding that names the rule, without evidence yet; `text` is the title of the contract."""
    is_advice = scenario.level == "advice"
    clause = "" if is_advice else f"{text}, {scenario.section}"
    return Finding(what, rule=scenario.clause, clause=clause, check=scenario.id, is_advice=is_advice)


def _add_evidence(
    found: Finding, scenario: Scenario, conversation: Conversation, broken: RuleBroken, turn: Turn
) -> Finding:
    steps, subject = (*(scenario.opening or ()), *scenario.steps), conversation.subject
    return replace(
        found,
        step=f"{conversation.at} of {len(steps)} ({get_verb(steps[conversation.at - 1])})",
        case=str(turn),
        frame=None if broken.frame is None else broken.frame.line[:FRAME_BYTES],
        talk=tuple(subject.transcript)[-TALK:],
        exit="" if subject.left is None else subject.left.describe(),
        stderr=tuple(subject.child.stderr.tail(STDERR_LINES)),
    )


def _add_untried_targets(found: Finding, turns: Sequence[Turn]) -> Finding:
    """The last finding, with the names of the targets that were not tried after it."""
    names = list(dict.fromkeys(turn.target.name for turn in turns))
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    others = f"after that, not tried: {', '.join(names[:NAMED])}{more}" if names else ""
    return replace(found, hint=found.hint or others)
