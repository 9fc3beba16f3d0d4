"""What a page shows of what happened: calls, events, lines of logs, the answer to a call. Values for templates.

Pure. Owns the tones of outcomes and how much of a payload is shown at once.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from plugbay.host.calls.calls import CallResult
from plugbay.model.errors import Failure, Outcome
from plugbay.server.dashboard.text import as_json, moment, time_of_day
from plugbay.server.dashboard.views import BAD, CALM, GOOD, OFF, WARN
from plugbay.server.domain.host_events import Numbered
from plugbay.server.domain.plugin_logs import Line
from plugbay.store.calls import StoredCall

TONES = {
    Outcome.SUCCEEDED: GOOD,
    Outcome.FAILED: BAD,
    Outcome.RETRYABLE_FAILURE: WARN,
    Outcome.CANCELLED: OFF,
}
OUTCOMES = tuple(TONES)

LEVELS = {"error": BAD, "warn": WARN}

SHORT = 160
"""Characters of an event's payload that are shown beside it; more is a click away."""

MAX_PAYLOAD = 8_000
"""Characters of an event's payload that are shown at all."""

AROUND = 2.0
"""Seconds after a call in which what its plugin wrote is still shown with it: pipes are read when there is time."""

LINES_OF_A_CALL = 100


@dataclass(frozen=True, slots=True)
class CallRow:
    """A call that is over."""

    id: str
    plugin: str
    version: str
    contract: str
    export: str
    at: float
    duration_ms: float
    status: str
    tone: str
    code: str
    origin: str
    exit: str


@dataclass(frozen=True, slots=True)
class EventRow:
    """An event of the bus."""

    id: str
    at: str
    time: str
    topic: str
    source: str
    short: str
    whole: str
    """Spread over lines, where there is more than `short`."""


@dataclass(frozen=True, slots=True)
class LogRow:
    """A line that a plugin wrote, or that tells what happened to it."""

    at: str
    time: str
    source: str
    tone: str
    text: str


@dataclass(frozen=True, slots=True)
class FailureView:
    """Why a call failed, and what to do."""

    code: str
    origin: str
    message: str
    hint: str
    wrote: tuple[str, ...]
    """The last lines of its stderr."""
    detail: str


@dataclass(frozen=True, slots=True)
class Answered:
    """How a call that was just made came out."""

    call_id: str
    plugin: str
    status: str
    tone: str
    duration_ms: float
    output: str
    failure: FailureView | None


def call_row(call: StoredCall) -> CallRow:
    """A call as it was written down."""
    failure = call.failure or {}
    left = failure.get("exit")
    return CallRow(
        call.id,
        call.plugin,
        call.version,
        call.contract,
        call.export,
        call.started_at,
        call.duration_ms,
        call.status.replace("_", " "),
        TONES.get(call.status, CALM),
        str(failure.get("code") or ""),
        str(failure.get("origin") or ""),
        "" if left is None else left if isinstance(left, str) else as_json(left, spread=False),
    )


def event_row(event: Numbered) -> EventRow:
    """An event, with as much of its payload as one looks at."""
    data = event.data
    short = as_json(data["payload"], spread=False)
    whole = as_json(data["payload"], most=MAX_PAYLOAD) if len(short) > SHORT else ""
    at = str(data["timestamp"])
    shown = f"{short[:SHORT]}…" if whole else short
    return EventRow(event.id, at, time_of_day(at), event.topic, str(data["source"]), shown, whole)


def log_row(line: Line) -> LogRow:
    return LogRow(line.at, time_of_day(line.at), line.source, LEVELS.get(line.level, CALM), line.text)


def lines_of_call(lines: Iterable[Line], call: StoredCall) -> list[LogRow]:
    """What a plugin wrote while a call ran, and just after: perhaps of it. Some lines are dated to the second."""
    begin, end = math.floor(call.started_at), call.started_at + call.duration_ms / 1000 + AROUND
    within = [line for line in lines if begin <= (moment(line.at) or 0.0) <= end]
    return [log_row(line) for line in within[-LINES_OF_A_CALL:]]


def failure_view(failure: Failure) -> FailureView:
    """A failure, its hint and what the plugin wrote apart from the rest of its detail."""
    detail: Mapping[str, Any] = failure.detail
    wrote = detail.get("stderr_tail", ())
    rest = {name: value for name, value in detail.items() if name not in ("hint", "stderr_tail")}
    return FailureView(
        failure.code,
        failure.origin,
        failure.message,
        str(detail.get("hint", "")),
        tuple(map(str, wrote)),
        as_json(rest) if rest else "",
    )


def answered(result: CallResult) -> Answered:
    """A call that was just made."""
    record, failure = result.record, result.failure
    return Answered(
        record.call_id,
        record.plugin,
        record.status.replace("_", " "),
        TONES.get(record.status, CALM),
        record.duration_ms,
        as_json(result.value()) if failure is None else "",
        None if failure is None else failure_view(failure),
    )
