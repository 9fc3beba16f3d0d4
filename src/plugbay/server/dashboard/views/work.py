"""Work on pages: timelines and outcomes; rows of invocations, deliveries and audit entries. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import msgspec

from plugbay.host.ports import InvocationRecord
from plugbay.server.dashboard.tables import Cell
from plugbay.server.dashboard.text import as_json, duration, moment
from plugbay.server.dashboard.views.calls import FailureView
from plugbay.server.dashboard.views.tones import BAD, CALM, GOOD, OFF, WARN
from plugbay.store.audit import Entry
from plugbay.store.deliveries import Attempt, Delivery

RUNNING = "running"

TONES = {
    RUNNING: CALM,
    "queued": CALM,
    "succeeded": GOOD,
    "completed": GOOD,
    "failed": BAD,
    "timed_out": BAD,
    "retryable_failure": WARN,
    "cancelled": OFF,
    "interrupted": WARN,
    "pending": CALM,
    "delivering": CALM,
    "delivered": GOOD,
    "dead_letter": BAD,
    "dropped": OFF,
}
"""Of invocations, attempts and deliveries, by their status."""

WORK_STATUSES = ("queued", "running", "succeeded", "failed", "cancelled")
"""Of executions and compactions."""

UNFINISHED = ("queued", "running")

LEAST_WIDTH = 0.6
"""Percent of the width of a timeline: shorter bars would not be seen."""


def tone_of(status: str | None) -> str:
    return TONES.get(status or RUNNING, CALM)


def words(status: str | None) -> str:
    return (status or RUNNING).replace("_", " ")


# Timelines.


class Span(msgspec.Struct, frozen=True):
    """One attempt, from its start to its end; without an end it is running."""

    label: str
    begin: float
    end: float | None
    status: str | None
    about: str = ""
    link: str = ""


class Bar(msgspec.Struct, frozen=True):
    """A span in the picture, in percent of the width."""

    start: str
    width: str
    tone: str


class Step(msgspec.Struct, frozen=True):
    """Something that happened, and how long after the beginning."""

    label: str
    at: float
    after: str
    tone: str = CALM
    about: str = ""
    link: str = ""


class Timeline(msgspec.Struct, frozen=True):
    """When a piece of work was queued, started, tried again and finished."""

    bars: tuple[Bar, ...]
    steps: tuple[Step, ...]
    took: str


def timeline_of(queued: float | None, spans: Sequence[Span], now: float) -> Timeline:
    """The steps of work, oldest first; a running attempt ends now."""
    ordered = sorted(spans, key=lambda span: span.begin)
    begin = min([span.begin for span in ordered] + ([] if queued is None else [queued]), default=now)
    end = max([now if span.end is None else span.end for span in ordered], default=now)
    whole = max(end - begin, 0.001)
    steps = [] if queued is None else [Step("queued", queued, "")]
    for span in ordered:
        label = span.label if len(ordered) > 1 else "started"
        steps.append(Step(label, span.begin, _after(span.begin - begin), link=span.link))
        if span.end is not None:
            taken = _after(span.end - begin)
            steps.append(Step(words(span.status), span.end, taken, tone_of(span.status), span.about))
    bars = tuple(_bar(span, begin, whole, now) for span in ordered)
    return Timeline(bars, tuple(steps), duration(whole * 1000))


def _after(seconds: float) -> str:
    return f"+{duration(max(0.0, seconds) * 1000)}"


def _bar(span: Span, begin: float, whole: float, now: float) -> Bar:
    end = now if span.end is None else span.end
    start = min(max(0.0, span.begin - begin) / whole * 100, 100 - LEAST_WIDTH)
    width = min(max(max(0.0, end - span.begin) / whole * 100, LEAST_WIDTH), 100 - start)
    return Bar(f"{start:.2f}%", f"{width:.2f}%", tone_of(span.status))


# Runs, executions and compactions.


class Work(Protocol):
    """A piece of work that is queued, runs and ends."""

    @property
    def status(self) -> str: ...
    @property
    def created_at(self) -> float: ...
    @property
    def started_at(self) -> float | None: ...
    @property
    def completed_at(self) -> float | None: ...
    @property
    def error(self) -> Mapping[str, Any] | None: ...


def work_values(work: Work, now: float, spans: Sequence[Span] | None = None) -> dict[str, Any]:
    """What the page of each of them shows: state, timeline, failure. Without `spans`, from its start to its end."""
    if spans is None and work.started_at is not None:
        spans = [Span("started", work.started_at, work.completed_at, work.status)]
    return {
        "state": words(work.status),
        "tone": tone_of(work.status),
        "is_over": work.status not in UNFINISHED,
        "timeline": timeline_of(work.created_at, spans or (), now),
        "failure": stored_failure_view(work.error),
    }


def cancellation(status: str) -> str:
    """What came of a request to cancel work that had this status."""
    return "It is being cancelled." if status in UNFINISHED else "It had ended already."


def json_parts(*named: tuple[str, Any]) -> list[tuple[str, str]]:
    """Values of a record as JSON, under their names; empty ones are left out."""
    return [(name, as_json(value)) for name, value in named if value]


# Invocations.

INVOCATION_COLUMNS = ("Export", "Status", "Package", "Where", "Took", "When")


def started(record: InvocationRecord) -> float:
    return moment(record.started_at) or 0.0


def ended(record: InvocationRecord) -> float | None:
    return None if record.ended_at is None else moment(record.ended_at)


def took(record: InvocationRecord) -> str:
    end = ended(record)
    return "" if end is None else duration((end - started(record)) * 1000)


def invocation_row(record: InvocationRecord) -> tuple[Cell, ...]:
    return (
        Cell(record.export_id, record.export_kind, f"/invocations/{record.invocation_id}", mono=True),
        Cell(words(record.status), record.error_code or "", tone=tone_of(record.status)),
        Cell(record.package_id, record.package_version),
        Cell(record.org_id, record.project_id or ""),
        Cell(took(record), f"on {record.node}" if record.node else "", number=True),
        Cell(at=started(record)),
    )


def invocation_span(record: InvocationRecord) -> Span:
    where = f"on {record.node}" if record.node else ""
    about = " ".join(text for text in (record.error_code, record.status_reason, where) if text)
    label = f"attempt {record.retry_count + 1} started"
    return Span(label, started(record), ended(record), record.status, about, f"/invocations/{record.invocation_id}")


def stored_failure_view(failure: Mapping[str, Any] | None) -> FailureView | None:
    """A failure as it is stored, for the part of a page that shows failures."""
    if failure is None:
        return None
    detail = dict(failure.get("detail") or {})
    hint, stderr = str(detail.pop("hint", "")), detail.pop("stderr_tail", ())
    lines = tuple(map(str, stderr)) if isinstance(stderr, list | tuple) else (str(stderr),)
    return FailureView(
        str(failure.get("code", "")),
        str(failure.get("origin", "")),
        str(failure.get("message", "")),
        hint,
        lines,
        as_json(detail) if detail else "",
    )


# Deliveries.

DELIVERY_COLUMNS = ("Delivery", "Status", "Binding", "Attempts", "Since")


def delivery_row(delivery: Delivery) -> tuple[Cell, ...]:
    return (
        Cell(delivery.id, "test" if delivery.test else "", f"/deliveries/{delivery.id}", mono=True),
        Cell(words(delivery.status), delivery.error_code or "", tone=tone_of(delivery.status)),
        Cell(delivery.binding_id, link=f"/bindings/{delivery.binding_id}", mono=True),
        Cell(str(delivery.attempts), number=True),
        Cell(at=delivery.created_at),
    )


def attempt_span(attempt: Attempt) -> Span:
    link = f"/invocations/{attempt.invocation_id}" if attempt.invocation_id else ""
    message = str((attempt.failure or {}).get("message", ""))
    about = ": ".join(text for text in (attempt.error_code, message) if text)
    return Span(
        f"attempt {attempt.attempt} started", attempt.started_at, attempt.ended_at, attempt.outcome, about, link
    )


# Audit.

AUDIT_COLUMNS = ("Action", "Subject", "By", "Org", "When", "Details")

PAGES = {
    "org": "/orgs/{}",
    "key": "/keys/{}",
    "package": "/packages/{}",
    "binding": "/bindings/{}",
    "secret": "/secrets?search={}",
    "delivery": "/deliveries/{}",
    "plugin": "/plugins/{}",
    "session": "/sessions/{}",
    "chain": "/chains/{}",
    "run": "/runs/{}",
    "harness_execution": "/harnesses/{}",
    "compaction": "/compactions/{}",
}
"""The page of a subject, by its kind."""


def audit_row(entry: Entry) -> tuple[Cell, ...]:
    actor = entry.actor_kind if entry.actor_kind == entry.actor_id else entry.actor_id
    link = PAGES.get(entry.subject_kind, "")
    chain = {"position": entry.position, "hash": entry.hash, "request_id": entry.request_id, **entry.details}
    return (
        Cell(entry.action, mono=True),
        Cell(entry.subject_id, entry.subject_kind, link.format(entry.subject_id) if link else ""),
        Cell(actor, mono=True),
        Cell(entry.org_id or "", entry.project_id or ""),
        Cell(at=entry.at),
        Cell(more=as_json(chain)),
    )
