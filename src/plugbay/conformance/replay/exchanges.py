"""Splits a recording into exchanges: a frame of the host, and the frames of the plugin that follow from it.

Answers and parts of answers name their request. A request or notification of the plugin is assigned to the latest
request that was still open, else to the last frame of the host: a recording says no more. A frame that was cut or
redacted cannot be replayed or compared; `check` says so.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from plugbay.contracts.base import Role
from plugbay.contracts.contract import Contract
from plugbay.contracts.frames import ANSWER, CANCEL, NOTICE, PIECE, REQUEST, FrameRules, Turn
from plugbay.contracts.registry import CONTRACTS
from plugbay.link.recording import EXIT, BadRecording, Frame, Happening, Item, Recording, StderrLine

ALLOW = "--allow-redacted goes on with placeholders"


class UnusableFrame(Exception):
    """A recorded frame cannot be sent or compared, because a part of it is missing; the text says which and where."""


def check(said: RecordedFrame, allow_redacted: bool, complain: Callable[[str], None]) -> None:
    """Raise `UnusableFrame` when a part of the frame is missing; complain instead when placeholders are allowed."""
    who = f"the {said.frame.direction}'s {said.turn.name or said.turn.kind} in line {said.line}"
    if said.frame.cut:
        raise UnusableFrame(f"{who} was too long to be recorded whole, so it can neither be sent nor compared")
    if not said.frame.redacted:
        return
    places = ", ".join(place or "the whole of it" for place in said.frame.redacted)
    if not allow_redacted:
        raise UnusableFrame(f"{who} was redacted at {places}, so it can neither be sent nor compared; {ALLOW}")
    complain(f"{who} has placeholders at {places}")


KILLED = (9, 15)
"""Signals by which a host ends a plugin; such an exit is not the plugin's own."""


class RecordedFrame(msgspec.Struct, frozen=True):
    """A recorded frame, its line in the file, and its role in the conversation."""

    line: int
    frame: Frame
    turn: Turn


class SendFrame(msgspec.Struct, frozen=True):
    """The plugin sends this frame."""

    said: RecordedFrame


class AwaitFrame(msgspec.Struct, frozen=True):
    """The plugin waits for this answer of the host."""

    said: RecordedFrame


class CancelRequest(msgspec.Struct, frozen=True):
    """The host cancelled the request."""

    t: float


class WriteStderr(msgspec.Struct, frozen=True):
    """The plugin wrote a line to stderr."""

    t: float
    text: str


class ExitProcess(msgspec.Struct, frozen=True):
    """The plugin exits without an answer."""

    t: float
    code: int


Reaction = SendFrame | AwaitFrame | CancelRequest | WriteStderr | ExitProcess


class Exchange(msgspec.Struct):
    """A frame of the host and the reactions of the plugin. `cause` is None for reactions before the first frame."""

    cause: RecordedFrame | None
    reactions: list[Reaction] = msgspec.field(default_factory=list)

    @property
    def answer(self) -> RecordedFrame | None:
        """The answer, if there was one."""
        says = [each.said for each in self.reactions if isinstance(each, SendFrame)]
        return next((said for said in says if said.turn.kind == ANSWER), None)


def contract_of(recording: Recording) -> Contract:
    """The contract of a recording; raises `BadRecording` when it is none of ours."""
    name = recording.header.contract
    if name not in CONTRACTS:
        raise BadRecording(f"its contract is {name!r}, which is not one of {', '.join(CONTRACTS)}")
    return CONTRACTS[name]


def exchanges(recording: Recording) -> list[Exchange]:
    """Every exchange, conversation after conversation."""
    found: list[Exchange] = []
    rules = contract_of(recording).frame_rules
    for number in dict.fromkeys(item.link for item in recording.items):
        conversation = _Conversation(rules)
        for line, item in zip(recording.lines, recording.items, strict=True):
            if item.link == number:
                conversation.take(line, item)
        found += conversation.found
    return found


class _Conversation:
    """One conversation while it is read."""

    def __init__(self, rules: FrameRules) -> None:
        self._rules = rules
        self._open: dict[object, Exchange] = {}
        self._asked: dict[object, Exchange] = {}
        """The exchange of each open request of the plugin, by its id."""
        self._last = Exchange(None)
        self.found = [self._last]

    def take(self, line: int, item: Item) -> None:
        owner = self._owner()
        if isinstance(item, StderrLine):
            owner.reactions.append(WriteStderr(item.t, item.text))
        elif isinstance(item, Happening):
            self._take_event(item, owner)
        else:
            said = RecordedFrame(line, item, self._rules.turn(item.direction, item.value))
            self._host_says(said) if item.direction == Role.HOST else self._plugin_says(said, owner)

    def _owner(self) -> Exchange:
        """The exchange of the latest open request, else of the host's last frame."""
        return next(reversed(self._open.values()), self._last)

    def _take_event(self, item: Happening, owner: Exchange) -> None:
        code, signal = item.facts.get("code"), item.facts.get("signal")
        if item.event == EXIT and self._open and signal not in KILLED:
            owner.reactions.append(ExitProcess(item.t, code if isinstance(code, int) else 1))

    def _host_says(self, said: RecordedFrame) -> None:
        kind, id = said.turn.kind, said.turn.id
        if kind == ANSWER and id in self._asked:
            self._asked.pop(id).reactions.append(AwaitFrame(said))
        elif kind == CANCEL and id in self._open:
            self._open[id].reactions.append(CancelRequest(said.frame.t))
        elif kind in (REQUEST, NOTICE):
            self._last = Exchange(said)
            self.found.append(self._last)
            if kind == REQUEST:
                self._open[id] = self._last

    def _plugin_says(self, said: RecordedFrame, owner: Exchange) -> None:
        kind, id = said.turn.kind, said.turn.id
        if kind in (ANSWER, PIECE) and id in self._open:
            owner = self._open.pop(id) if kind == ANSWER else self._open[id]
        elif kind == REQUEST:
            self._asked[id] = owner
        owner.reactions.append(SendFrame(said))
