"""Plays a recording to a real plugin: sends the frames of the host and compares the plugin's answers.

Each recorded process gets a process of its own. Values that a host changes in every run (paths, its process, times) are
replaced before they are sent.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec

from plugbay.conformance.engine.conversation import GONE_SECONDS
from plugbay.conformance.engine.subject import Ended, Frame, Late, Subject, Until
from plugbay.conformance.engine.trial import build_launch
from plugbay.conformance.replay.differences import Difference, IgnoredPaths, differences
from plugbay.conformance.replay.exchanges import RecordedFrame, UnusableFrame, check, contract_of
from plugbay.conformance.replay.volatile import RENEWALS, PlayContext, apply_swaps, find_swaps, renew_frame
from plugbay.contracts.base import Role
from plugbay.contracts.frames import ANSWER, GREETING, PIECE, REQUEST, FrameRules, Turn
from plugbay.contracts.registry import CONTRACTS
from plugbay.link.recording import EXIT, JOINED, Happening, Item, Recording
from plugbay.link.recording import Frame as Recorded
from plugbay.model.spec import PluginSpec
from plugbay.process.child import Spawner
from plugbay.process.command import LaunchFailed
from plugbay.wire.fast_json import MsgspecCodec

_Conversation = list[tuple[int, Item]]
"""The items of one conversation with their lines."""

FRAME_SECONDS = 10.0
"""How long to wait for a recorded frame."""

EXIT_SECONDS = 5.0
"""How long to wait for the exit of the process after the end of its input."""

STDERR_LINES = 5
"""Last lines of stderr in the report of a missing frame."""


class Finding(msgspec.Struct, frozen=True):
    """A difference from the recording."""

    line: int
    what: str
    differences: tuple[Difference, ...] = ()

    def to_json(self) -> dict[str, Any]:
        return {"line": self.line, "what": self.what, "differences": [str(each) for each in self.differences]}


class Outcome(msgspec.Struct):
    """The result of a replay."""

    conversations: int = 0
    sent: int = 0
    compared: int = 0
    findings: list[Finding] = msgspec.field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        counts = {"conversations": self.conversations, "sent": self.sent, "compared": self.compared}
        return {**counts, "findings": [finding.to_json() for finding in self.findings]}


class PlayOptions(msgspec.Struct, frozen=True):
    """How a recording is played."""

    seconds: float = FRAME_SECONDS
    speed: float = 0.0
    """1 is as it was, 2 twice as fast, 0 at once."""
    ignore: tuple[str, ...] = ()
    """Pointers into frames of the plugin that are not compared."""
    allow_redacted: bool = False
    complain: Callable[[str], None] = lambda text: None
    clock: Callable[[], float] = time.time


async def play(recording: Recording, spec: PluginSpec, options: PlayOptions) -> Outcome:
    """Play every recorded conversation, each with a process of its own; raise `UnusableFrame` before any starts."""
    rules, conversations = contract_of(recording).frame_rules, list(_conversations(recording))
    if not any(isinstance(item, Recorded) for item in recording.items):
        raise UnusableFrame("the recording has no messages, so there is nothing to replay")
    for conversation in conversations:
        _check(conversation, rules, options)
    outcome, spawner = Outcome(), Spawner()
    try:
        for conversation in conversations:
            with TemporaryDirectory(prefix="plugbay-replay-", ignore_cleanup_errors=True) as place:
                context = _build_context(recording, conversation, spec, place, options.clock())
                await _play_one(conversation, spec, options, context, spawner, outcome)
            outcome.conversations += 1
    finally:
        await spawner.close()
    return outcome


def _conversations(recording: Recording) -> Iterator[_Conversation]:
    items = list(zip(recording.lines, recording.items, strict=True))
    for number in dict.fromkeys(item.link for item in recording.items):
        yield [(line, item) for line, item in items if item.link == number]


def _check(conversation: _Conversation, rules: FrameRules, options: PlayOptions) -> None:
    for line, item in conversation:
        if isinstance(item, Happening) and item.event == JOINED:
            raise UnusableFrame(
                f"the conversation of line {line} was tapped while it was under way; its beginning is missing"
            )
        if isinstance(item, Recorded):
            said = RecordedFrame(line, item, rules.turn(item.direction, item.value))
            check(said, options.allow_redacted, options.complain)


def _build_context(
    recording: Recording, conversation: _Conversation, spec: PluginSpec, place: str, now: float
) -> PlayContext:
    manifests = (spec.root / name for name in CONTRACTS[spec.contract].manifest_files)
    manifest = next((str(path) for path in manifests if path.is_file()), "")
    try:
        began = datetime.fromisoformat(recording.header.began_at) + timedelta(seconds=conversation[0][1].t)
    except ValueError:
        began = None
    return PlayContext(manifest, place, os.getpid(), began, datetime.fromtimestamp(now, UTC))


async def _play_one(
    conversation: _Conversation,
    spec: PluginSpec,
    options: PlayOptions,
    context: PlayContext,
    spawner: Spawner,
    outcome: Outcome,
) -> None:
    try:
        child = await spawner.spawn(build_launch(spec, place=Path(context.place)), spec.timeouts.launch)
    except LaunchFailed as error:
        hint = f"; {error.hint}" if error.hint else ""
        outcome.findings.append(Finding(conversation[0][0], f"it cannot be started: {error.message}{hint}"))
        return
    subject = Subject(child, CONTRACTS[spec.contract].framing_of(Role.PLUGIN))
    played = _Player(subject, CONTRACTS[spec.contract].frame_rules, options, context, outcome)
    try:
        await played.carry_out(conversation)
    except _ConversationEnded as over:
        outcome.findings.append(over.finding)
    finally:
        await subject.close()
        await child.wait(spec.timeouts.kill)


class _ConversationEnded(Exception):
    """The rest of the conversation cannot be played."""

    def __init__(self, line: int, what: str) -> None:
        super().__init__(what)
        self.finding = Finding(line, what)


class _Player:
    """One conversation with one process."""

    def __init__(
        self, subject: Subject, rules: FrameRules, options: PlayOptions, context: PlayContext, outcome: Outcome
    ) -> None:
        self._subject = subject
        self._rules = rules
        self._options = options
        self._context = context
        self._outcome = outcome
        self._codec = MsgspecCodec()
        self._came: list[tuple[Turn, Frame]] = []
        """Frames of the plugin that were not expected yet."""
        self._awaited: Counter[str] = Counter()
        """Recorded requests of the plugin, by name, that it has not repeated yet."""
        self._ids: dict[Any, Any] = {}
        """The new ids of the plugin's own requests, by their recorded ids."""
        self._swaps: dict[str, str] = {}
        self._at: float | None = None

    async def carry_out(self, conversation: _Conversation) -> None:
        said = [self._said(line, item) for line, item in conversation if isinstance(item, Recorded)]
        asks = (each.turn for each in said if each.frame.direction == Role.PLUGIN)
        self._awaited.update(turn.name for turn in asks if turn.kind == REQUEST)
        for each in said:
            await self._wait_until(each.frame.t)
            if each.frame.direction == Role.HOST:
                self._send(each)
            else:
                self._compare(each, await self._next_like(each))
        for line, item in conversation:
            if isinstance(item, Happening) and item.event == EXIT:
                await self._await_exit(line, item)

    def _said(self, line: int, frame: Recorded) -> RecordedFrame:
        return RecordedFrame(line, frame, self._rules.turn(frame.direction, frame.value))

    async def _wait_until(self, t: float) -> None:
        if self._options.speed and self._at is not None:
            await asyncio.sleep(max(0.0, t - self._at) / self._options.speed)
        self._at = t

    # Frames of the host.

    def _send(self, said: RecordedFrame) -> None:
        if said.frame.raw is not None:
            return  # no host of ours writes what is not a message
        value = renew_frame(said.frame.value, self._context)
        self._swaps |= find_swaps(said.frame.value, value, tuple(RENEWALS))
        if said.turn.kind in (ANSWER, PIECE) and said.turn.id in self._ids:
            value = self._rules.with_id(value, self._ids[said.turn.id])
        self._subject.send(self._subject.framing.wrap(self._codec.encode(value)))
        self._outcome.sent += 1

    # Frames of the plugin.

    async def _next_like(self, said: RecordedFrame) -> Frame:
        until = Until(self._options.seconds)
        while True:
            for at, (turn, frame) in enumerate(self._came):
                if _is_alike(turn, frame, said):
                    del self._came[at]
                    return self._taken(turn, frame, said)
            came = await self._subject.next_frame(until.left())
            if not isinstance(came, Frame):
                raise _ConversationEnded(said.line, await self._missing(said, came))
            self._keep(came, said)

    def _keep(self, came: Frame, awaited: RecordedFrame) -> None:
        turn = self._rules.turn(Role.PLUGIN, came.value)
        if turn.kind == REQUEST:
            self._awaited[turn.name] -= 1
            if self._awaited[turn.name] < 0:
                what = (
                    f"it asks its host for {turn.name}, which was not recorded, instead of {_describe_frame(awaited)}"
                )
                raise _ConversationEnded(awaited.line, what)
        self._came.append((turn, came))

    def _taken(self, turn: Turn, frame: Frame, said: RecordedFrame) -> Frame:
        if turn.kind == REQUEST:
            self._ids[said.turn.id] = turn.id
        return frame

    async def _missing(self, said: RecordedFrame, came: Ended | Late) -> str:
        why = f"did not come within {self._options.seconds:g} s"
        if isinstance(came, Ended):
            status = await self._subject.exited(GONE_SECONDS)
            why = "did not come: its output ended" + (f" ({status.describe()})" if status else "")
        tail = "".join(f"\n  stderr: {line}" for line in self._subject.child.stderr.tail(STDERR_LINES))
        return f"{_describe_frame(said)} {why}{tail}"

    def _compare(self, said: RecordedFrame, came: Frame) -> None:
        self._outcome.compared += 1
        if said.frame.raw is not None:
            return  # neither was a message
        wanted = apply_swaps(said.frame.value, self._swaps)
        own = ("/id",) if said.turn.kind == REQUEST else ()
        passed = IgnoredPaths((*own, *said.frame.redacted, *self._options.ignore), shapes=True)
        found = differences(wanted, came.value, passed)
        if found:
            self._outcome.findings.append(Finding(said.line, f"{_describe_frame(said)} is different", tuple(found)))

    async def _await_exit(self, line: int, end: Happening) -> None:
        self._subject.close_stdin()
        if end.facts.get("code") != 0:
            return  # it was killed, or failed; either way that is no example
        status = await self._subject.exited(EXIT_SECONDS)
        if status is None:
            raise _ConversationEnded(line, f"it was still running {EXIT_SECONDS:g} s after the end of its input")
        if not status.clean:
            raise _ConversationEnded(line, f"it ended with {status.describe()}, not with exit code 0")


def _is_alike(turn: Turn, frame: Frame, said: RecordedFrame) -> bool:
    """Whether this frame corresponds to the recorded one, whatever its values."""
    if said.frame.raw is not None or frame.problem:
        return said.frame.raw is not None and bool(frame.problem)
    if turn.kind != said.turn.kind:
        return False
    return turn.id == said.turn.id if turn.kind in (ANSWER, PIECE) else turn.name == said.turn.name


def _describe_frame(said: RecordedFrame) -> str:
    if said.turn.kind in (ANSWER, PIECE):
        what = "answer" if said.turn.kind == ANSWER else "piece of the answer"
        return f"the {what} to {said.turn.id!r:.60}" if said.turn.id != GREETING else "the greeting"
    return f"the {said.turn.kind} {said.turn.name}" if said.turn.name else "a line that is not a message"
