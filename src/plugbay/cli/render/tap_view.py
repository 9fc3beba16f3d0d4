"""Views of tapped frames: one line or the whole frame for people, JSON lines for programs.

Matches responses with requests to show durations. `contracts.frames` classifies the frames of each
contract; secrets are redacted before frames arrive here.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from plugbay.cli.render import output
from plugbay.contracts.base import Role
from plugbay.contracts.frames import ANSWER, GREETING, PIECE, REQUEST, Turn
from plugbay.contracts.registry import CONTRACTS
from plugbay.link.recording import EXIT, SPAWN, Frame, Happening, Item, StderrLine
from plugbay.process.status import ExitStatus

if TYPE_CHECKING:
    from plugbay.cli.render.output import Part

ARROWS = {Role.HOST: ("→", "cyan"), Role.PLUGIN: ("←", "green")}
"""Arrow and colour by sender."""

ENVELOPE = frozenset({"jsonrpc", "protocol", "type", "id", "request_id", "method", "op", "tool_name", "status", "ok"})
"""Keys of frames that the title of the line already shows."""

PIPE_WIDTH = 200
"""Columns of a line in a pipe."""

MAX_OPEN_CALLS = 1024
"""Open requests that are remembered; a bound, because a plugin may never answer."""


class JsonView:
    """Prints a line of JSON for each item, as in a recording."""

    def show(self, item: Item) -> None:
        output.print_line(item.to_json())


class HumanView:
    """Prints lines for people."""

    def __init__(self, contract: str, *, full: bool = False) -> None:
        self._rules = CONTRACTS[contract].frame_rules
        self._full = full
        self._asked: dict[tuple[int, str, Any], tuple[str, float]] = {}
        """(conversation, sender, request id) → (name, time)."""

    def show(self, item: Item) -> None:
        if isinstance(item, Frame):
            self._frame(item)
        elif isinstance(item, StderrLine):
            self._line(item, ("│ ", output.DIM), (item.text, output.DIM))
        else:
            self._line(item, ("● ", output.DIM), (_describe_event(item), output.DIM))

    def _frame(self, frame: Frame) -> None:
        arrow, style = ARROWS[frame.direction]
        turn = self._rules.turn(frame.direction, frame.value)
        self._line(frame, (f"{arrow} ", style), *self._title(frame, turn), *_marks(frame), _summarize(frame))
        if self._full and frame.raw is None:
            for line in json.dumps(frame.value, ensure_ascii=False, indent=2).splitlines():
                output.out().line(line, indent=12)

    def _title(self, frame: Frame, turn: Turn) -> list[Part]:
        if frame.raw is not None:
            return [("cut " if frame.cut else "not a message ", output.WARN_STYLE), (frame.problem, output.DIM)]
        if turn.kind == REQUEST:
            self._remember(frame, turn)
            return [(turn.name, output.NAME), (_format_id(turn.id), output.DIM)]
        if turn.kind not in (ANSWER, PIECE):
            return [(turn.name or turn.kind, output.NAME)]
        asker = Role.PLUGIN if frame.direction == Role.HOST else Role.HOST
        key = (frame.link, asker, str(turn.id))
        name, asked_at = self._asked.get(key, ("", frame.t))
        took = f"  {output.duration(round((frame.t - asked_at) * 1000, 3))}"
        if turn.kind == ANSWER:
            self._asked.pop(key, None)
        word, style = ("error", output.BAD_STYLE) if turn.failed else ("ok", output.GOOD_STYLE)
        word, style = ("piece", output.DIM) if turn.kind == PIECE else (word, style)
        return [(f"{word} ", style), (name, output.NAME), (_format_id(turn.id), output.DIM), (took, output.DIM)]

    def _remember(self, frame: Frame, turn: Turn) -> None:
        if len(self._asked) >= MAX_OPEN_CALLS:
            del self._asked[next(iter(self._asked))]
        self._asked[frame.link, frame.direction, str(turn.id)] = (turn.name, frame.t)

    def _line(self, item: Item, *parts: Part) -> None:
        number = f"{item.link} " if item.link > 1 else "  "
        output.out().single((f"{item.t:9.3f} {number}", output.DIM), *parts, most=PIPE_WIDTH)


def _describe_event(item: Happening) -> str:
    pid = f"pid {item.facts.get('pid')}"
    if item.event == EXIT:
        return f"exited: {ExitStatus(item.facts.get('code'), item.facts.get('signal')).describe()}"
    return f"started, {pid}" if item.event == SPAWN else f"{item.event}, {pid}"


def _marks(frame: Frame) -> list[Part]:
    marks: list[Part] = []
    if frame.cut:
        marks.append((f"  {frame.size:,} bytes, {frame.cut[:19]}…", output.WARN_STYLE))
    if frame.redacted:
        marks.append((f"  {len(frame.redacted)} redacted", output.WARN_STYLE))
    return marks


def _format_id(id: Any) -> str:
    return "" if id in (None, GREETING) else f" #{str(id)[-12:]}"


def _summarize(frame: Frame) -> Part:
    """The content of a frame without the keys that the title shows."""
    if frame.raw is not None:
        return "  " + frame.raw[:PIPE_WIDTH].decode("utf-8", "backslashreplace")
    value = frame.value
    if isinstance(value, dict):
        value = {key: item for key, item in value.items() if key not in ENVELOPE}
        value = next(iter(value.values())) if len(value) == 1 else value
    return "" if value in ({}, None) else "  " + json.dumps(value, ensure_ascii=False)[:PIPE_WIDTH]
