"""Summarizes a recording: requests, how often, how long they took, and which parts are missing. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from statistics import median
from typing import Any

import msgspec

from plugbay.conformance.replay.exchanges import contract_of
from plugbay.contracts.frames import ANSWER, REQUEST
from plugbay.link.recording import Frame, Recording


class Question(msgspec.Struct, frozen=True):
    """One kind of request, of the host or of the plugin."""

    asker: str
    name: str
    count: int
    failed: int
    milliseconds: float | None
    """Of the usual answer; None when there was none."""


class Summary(msgspec.Struct, frozen=True):
    """The contents of a recording."""

    conversations: int
    frames: int
    seconds: float
    questions: tuple[Question, ...]
    missing: tuple[str, ...]
    """Missing parts: `line 4: redacted at /params/token`."""
    finished: bool

    def to_json(self) -> dict[str, Any]:
        return msgspec.to_builtins(self)  # type: ignore[no-any-return]


def summarize(recording: Recording) -> Summary:
    """The summary of a recording."""
    frames, times = recording.frames(), [item.t for item in recording.items]
    return Summary(
        len({item.link for item in recording.items}),
        len(frames),
        max(times, default=0.0) - min(times, default=0.0),
        tuple(_questions(recording)),
        tuple(f"line {line}: {what}" for line, frame in frames for what in _missing(frame)),
        recording.end is not None,
    )


def _missing(frame: Frame) -> list[str]:
    cut = ["too long, so only its beginning is here"] if frame.cut else []
    return cut + [f"redacted at {place or 'some place'}" for place in frame.redacted]


def _questions(recording: Recording) -> Iterable[Question]:
    rules = contract_of(recording).frame_rules
    asked: dict[tuple[int, str, str], tuple[tuple[str, str], float]] = {}
    counts: dict[tuple[str, str], int] = {}
    took: dict[tuple[str, str], list[float]] = {}
    failed: dict[tuple[str, str], int] = {}
    for _, frame in recording.frames():
        turn = rules.turn(frame.direction, frame.value)
        if turn.kind == REQUEST:
            what = (frame.direction, turn.name)
            counts[what] = counts.get(what, 0) + 1
            asked[frame.link, frame.direction, str(turn.id)] = (what, frame.t)
        elif turn.kind == ANSWER:
            other = "plugin" if frame.direction == "host" else "host"
            what_asked, at = asked.pop((frame.link, other, str(turn.id)), (None, 0.0))
            if what_asked is not None:
                took.setdefault(what_asked, []).append((frame.t - at) * 1000)
                failed[what_asked] = failed.get(what_asked, 0) + bool(turn.failed)
    for what, count in counts.items():
        yield Question(*what, count, failed.get(what, 0), median(took[what]) if what in took else None)
