"""A recording as questions and what followed from them.

Owns which of a plugin's frames belongs to which frame of its host. Answers, and pieces of them, say so themselves. What
a plugin asks or tells on its own is put down to the latest question that was still open, or else to whatever the host
said last: a recording cannot tell more. Refuses to know how a recording is played.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from plugbay.conformance.speech import ANSWER, CANCEL, NOTICE, PIECE, REQUEST, SPEECHES, Speech, Turn
from plugbay.contracts.base import Role
from plugbay.link.recording import EXIT, Frame, Happening, Item, Recording, StderrLine

KILLED = (9, 15)
"""Signals by which a host ends a plugin: that is no ending of the plugin's own."""


@dataclass(frozen=True, slots=True)
class Said:
    """A frame, where it stands in the file, and what it is."""

    line: int
    frame: Frame
    turn: Turn


@dataclass(frozen=True, slots=True)
class Say:
    """The plugin said this."""

    said: Said


@dataclass(frozen=True, slots=True)
class Hear:
    """The plugin had its answer from the host."""

    said: Said


@dataclass(frozen=True, slots=True)
class CalledOff:
    """The host did not want the answer any more."""

    t: float


@dataclass(frozen=True, slots=True)
class Complain:
    """The plugin wrote a line to stderr."""

    t: float
    text: str


@dataclass(frozen=True, slots=True)
class Leave:
    """The plugin left without an answer."""

    t: float
    code: int


Reaction = Say | Hear | CalledOff | Complain | Leave


@dataclass(slots=True)
class Exchange:
    """What the host said, and everything that followed from it. `cause` is None for what came before any word."""

    cause: Said | None
    reactions: list[Reaction] = field(default_factory=list)

    @property
    def answer(self) -> Said | None:
        """The answer, if there was one."""
        says = [each.said for each in self.reactions if isinstance(each, Say)]
        return next((said for said in says if said.turn.kind == ANSWER), None)


def exchanges(recording: Recording) -> list[Exchange]:
    """All of them, conversation after conversation."""
    found: list[Exchange] = []
    for number in dict.fromkeys(item.link for item in recording.items):
        talk = _Talk(SPEECHES[recording.header.contract])
        for line, item in zip(recording.lines, recording.items, strict=True):
            if item.link == number:
                talk.take(line, item)
        found += talk.found
    return found


class _Talk:
    """One conversation while it is read."""

    def __init__(self, speech: Speech) -> None:
        self._speech = speech
        self._open: dict[object, Exchange] = {}
        self._asked: dict[object, Exchange] = {}
        """Whose question of the plugin waits for the host, by its id."""
        self._last = Exchange(None)
        self.found = [self._last]

    def take(self, line: int, item: Item) -> None:
        owner = self._owner()
        if isinstance(item, StderrLine):
            owner.reactions.append(Complain(item.t, item.text))
        elif isinstance(item, Happening):
            self._happened(item, owner)
        else:
            said = Said(line, item, self._speech.turn(item.direction, item.value))
            self._host_says(said) if item.direction == Role.HOST else self._plugin_says(said, owner)

    def _owner(self) -> Exchange:
        """The latest question that is open, or the last word of the host."""
        return next(reversed(self._open.values()), self._last)

    def _happened(self, item: Happening, owner: Exchange) -> None:
        code, signal = item.facts.get("code"), item.facts.get("signal")
        if item.event == EXIT and self._open and signal not in KILLED:
            owner.reactions.append(Leave(item.t, code if isinstance(code, int) else 1))

    def _host_says(self, said: Said) -> None:
        kind, id = said.turn.kind, said.turn.id
        if kind == ANSWER and id in self._asked:
            self._asked.pop(id).reactions.append(Hear(said))
        elif kind == CANCEL and id in self._open:
            self._open[id].reactions.append(CalledOff(said.frame.t))
        elif kind in (REQUEST, NOTICE):
            self._last = Exchange(said)
            self.found.append(self._last)
            if kind == REQUEST:
                self._open[id] = self._last

    def _plugin_says(self, said: Said, owner: Exchange) -> None:
        kind, id = said.turn.kind, said.turn.id
        if kind in (ANSWER, PIECE) and id in self._open:
            owner = self._open.pop(id) if kind == ANSWER else self._open[id]
        elif kind == REQUEST:
            self._asked[id] = owner
        owner.reactions.append(Say(said))
