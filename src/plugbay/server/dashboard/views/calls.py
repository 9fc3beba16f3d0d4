"""Calls on pages: rows, outcomes, failures, tries. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from plugbay.host.request import CallResult
from plugbay.model.errors import Failure, Outcome
from plugbay.server.dashboard.text import as_json
from plugbay.server.dashboard.tries import Try
from plugbay.server.dashboard.views.tones import BAD, CALM, GOOD, OFF, WARN
from plugbay.store.calls import StoredCall

OUTCOME_TONES = {
    Outcome.SUCCEEDED: GOOD,
    Outcome.FAILED: BAD,
    Outcome.RETRYABLE_FAILURE: WARN,
    Outcome.CANCELLED: OFF,
}


OUTCOMES = tuple(OUTCOME_TONES)


class CallRow(msgspec.Struct, frozen=True):
    """A finished call."""

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


class FailureView(msgspec.Struct, frozen=True):
    """The reason of a failed call, and a hint."""

    code: str
    origin: str
    message: str
    hint: str
    stderr: tuple[str, ...]
    """The last lines of its stderr."""
    detail: str


class CallOutcome(msgspec.Struct, frozen=True):
    """The outcome of a call made from the page."""

    call_id: str
    plugin: str
    status: str
    tone: str
    duration_ms: float
    output: str
    failure: FailureView | None


def call_row(call: StoredCall) -> CallRow:
    """A stored call."""
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
        OUTCOME_TONES.get(call.status, CALM),
        str(failure.get("code") or ""),
        str(failure.get("origin") or ""),
        "" if left is None else left if isinstance(left, str) else as_json(left, spread=False),
    )


def failure_view(failure: Failure) -> FailureView:
    """A failure, with hint and stderr separated from other details."""
    detail: Mapping[str, Any] = failure.detail
    stderr = detail.get("stderr_tail", ())
    rest = {name: value for name, value in detail.items() if name not in ("hint", "stderr_tail")}
    return FailureView(
        failure.code,
        failure.origin,
        failure.message,
        str(detail.get("hint", "")),
        tuple(map(str, stderr)),
        as_json(rest) if rest else "",
    )


class TryView(msgspec.Struct, frozen=True):
    """A call from the dashboard."""

    id: str
    export: str
    at: float
    status: str
    tone: str
    running: bool
    can_repeat: bool
    """Its input is kept."""
    answer: CallOutcome | None


def try_view(made: Try) -> TryView:
    """A call, running or finished."""
    answer = None if made.result is None else call_outcome(made.result)
    status = "running" if made.is_running else "cancelled" if answer is None else answer.status
    tone = GOOD if made.is_running else OFF if answer is None else answer.tone
    return TryView(made.id, made.export, made.at, status, tone, made.is_running, bool(made.kept), answer)


def call_outcome(result: CallResult) -> CallOutcome:
    """The outcome of a call."""
    record, failure = result.record, result.failure
    return CallOutcome(
        record.call_id,
        record.plugin,
        record.status.replace("_", " "),
        OUTCOME_TONES.get(record.status, CALM),
        record.duration_ms,
        as_json(result.value()) if failure is None else "",
        None if failure is None else failure_view(failure),
    )
