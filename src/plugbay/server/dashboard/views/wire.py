"""Values of the wire page: one row for each frame, stderr line and event of a tapped or recorded plugin. Pure.

Answers are matched with requests to show their durations. Secrets are redacted before frames arrive here.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from plugbay.contracts.base import Role
from plugbay.contracts.frames import ANSWER, GREETING, PIECE, REQUEST, Turn
from plugbay.contracts.registry import CONTRACTS
from plugbay.link.recording import EXIT, Frame, Happening, Item, StderrLine
from plugbay.process.status import ExitStatus
from plugbay.server.dashboard.text import as_json, duration
from plugbay.server.dashboard.views.tones import BAD, CALM, GOOD, WARN

MAX_SHOWN = 8_000
"""Characters of one frame that are shown."""

MAX_OPEN_CALLS = 1_024
"""Requests that are remembered; a plugin may never answer."""


class WireRow(msgspec.Struct, frozen=True):
    """One frame, line or event."""

    time: str
    """Seconds since the host started."""
    process: int
    sender: str
    """`host`, `plugin`, `stderr` or `process`."""
    title: str
    tone: str
    notes: tuple[str, ...]
    whole: str
    """The frame as JSON; empty if the title says all."""


class WireReader:
    """Makes the rows of one plugin."""

    def __init__(self, contract: str) -> None:
        known = CONTRACTS.get(contract)
        self._rules = None if known is None else known.frame_rules
        self._asked: dict[tuple[int, str, str], tuple[str, float]] = {}

    def rows(self, items: Iterable[Item]) -> list[WireRow]:
        return [self._row(item) for item in items]

    def _row(self, item: Item) -> WireRow:
        time = f"{item.t:.3f}"
        if isinstance(item, StderrLine):
            return WireRow(time, item.link, "stderr", item.text, CALM, (), "")
        if isinstance(item, Happening):
            return WireRow(time, item.link, "process", _event(item), CALM, (), "")
        title, tone = self._title(item)
        notes = [f"{item.size:,} bytes", *([f"{len(item.redacted)} redacted"] if item.redacted else ())]
        notes += [text for text in (item.problem, "only its beginning" if item.cut else "") if text]
        raw = None if item.raw is None else item.raw.decode("utf-8", "backslashreplace")[:MAX_SHOWN]
        whole = as_json(item.value, most=MAX_SHOWN) if raw is None else raw
        return WireRow(time, item.link, str(item.direction), title, tone, tuple(notes), whole)

    def _title(self, frame: Frame) -> tuple[str, str]:
        if frame.raw is not None or self._rules is None:
            return ("a long message" if frame.cut else "not a message"), WARN
        turn = self._rules.turn(frame.direction, frame.value)
        if turn.kind == REQUEST:
            self._remember(frame, turn)
            return f"{turn.name}{_id(turn.id)}", CALM
        if turn.kind not in (ANSWER, PIECE):
            return turn.name or turn.kind, CALM
        asker = Role.PLUGIN if frame.direction == Role.HOST else Role.HOST
        key = (frame.link, str(asker), str(turn.id))
        name, asked_at = self._asked.get(key, ("", frame.t))
        if turn.kind == ANSWER:
            self._asked.pop(key, None)
        word = "piece" if turn.kind == PIECE else "error" if turn.failed else "ok"
        took = f", {duration((frame.t - asked_at) * 1000)}" if name else ""
        return f"{word} {name}{_id(turn.id)}{took}", {"error": BAD, "ok": GOOD}.get(word, CALM)

    def _remember(self, frame: Frame, turn: Turn) -> None:
        if len(self._asked) >= MAX_OPEN_CALLS:
            del self._asked[next(iter(self._asked))]
        self._asked[frame.link, str(frame.direction), str(turn.id)] = (turn.name, frame.t)


def _event(item: Happening) -> str:
    if item.event == EXIT:
        return f"ended: {ExitStatus(item.facts.get('code'), item.facts.get('signal')).describe()}"
    return f"{item.event}, process {item.facts.get('pid')}"


def _id(id: Any) -> str:
    return "" if id in (None, GREETING) else f" #{str(id)[-12:]}"
