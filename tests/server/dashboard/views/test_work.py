"""Work as values: when each attempt began and ended, and the rows of lists."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from plugbay.host.ports import InvocationRecord
from plugbay.server.dashboard import rendering
from plugbay.server.dashboard.views.work import (
    Span,
    attempt_span,
    audit_row,
    cancellation,
    delivery_row,
    invocation_row,
    invocation_span,
    json_parts,
    stored_failure_view,
    timeline_of,
    tone_of,
    work_values,
)
from plugbay.store.audit import Entry
from plugbay.store.deliveries import Attempt, Delivery


def record(**fields: Any) -> InvocationRecord:
    values: dict[str, Any] = {
        "invocation_id": "inv_1",
        "trace_id": "tr_1",
        "export_kind": "tool",
        "export_id": "t",
        "package_id": "acme/p",
        "package_version": "1.0.0",
        "binding_id": "bind_1",
        "execution_class": "worker",
        "org_id": "org_1",
        "project_id": None,
        "session_id": None,
        "chain_id": None,
        "run_id": None,
        "execution_id": "toolx_1",
        "retry_count": 0,
        "started_at": "2026-11-17T10:00:00.000Z",
        "permissions": {},
        "narrowed": False,
    }
    return InvocationRecord(**{**values, **fields})


def test_a_timeline_has_the_queue_every_attempt_and_the_end() -> None:
    spans = [
        Span("attempt 2 started", 106.0, 110.0, "succeeded"),
        Span("attempt 1 started", 102.0, 104.0, "failed", "x"),
    ]
    line = timeline_of(100.0, spans, 500.0)
    assert [(step.label, step.after) for step in line.steps] == [
        ("queued", ""),
        ("attempt 1 started", "+2.00 s"),
        ("failed", "+4.00 s"),
        ("attempt 2 started", "+6.00 s"),
        ("succeeded", "+10.00 s"),
    ]
    assert [(bar.start, bar.width, bar.tone) for bar in line.bars] == [
        ("20.00%", "20.00%", "bad"),
        ("60.00%", "40.00%", "good"),
    ]
    assert line.took == "10.00 s" and line.steps[2].about == "x"


def test_a_running_attempt_ends_now_and_no_bar_leaves_the_picture() -> None:
    running = timeline_of(None, [Span("attempt 1 started", 10.0, None, None)], 12.0)
    assert [step.label for step in running.steps] == ["started"] and running.bars[0].width == "100.00%"
    for spans in ([Span("a", 0.0, 0.0, "failed"), Span("b", 1e9, 1e9, "failed")], [Span("a", 5.0, 1.0, "failed")]):
        for bar in timeline_of(None, spans, 3.0).bars:
            start, width = float(bar.start[:-1]), float(bar.width[:-1])
            assert start >= 0 and width > 0 and start + width <= 100.01
    assert timeline_of(None, [], 7.0).steps == ()


def test_the_picture_has_no_style_and_the_list_says_the_same() -> None:
    line = timeline_of(0.0, [Span("attempt 1 started", 1.0, 2.0, "failed", '<b>"x', "/invocations/a")], 3.0)
    html = rendering.fragment("parts/timeline.html", timeline=line, here="/deliveries/d", now=3.0)
    assert "<rect" in html and 'aria-hidden="true"' in html and "style=" not in html
    assert "&lt;b&gt;" in html and "queued" in html and 'href="/invocations/a"' in html


def test_rows_name_the_record_first() -> None:
    done = record(ended_at="2026-11-17T10:00:01.500Z", status="failed", error_code="acme.half")
    cells = invocation_row(done)
    assert (cells[0].text, cells[0].link) == ("t", "/invocations/inv_1")
    assert (cells[1].text, cells[1].about, cells[1].tone, cells[4].text) == ("failed", "acme.half", "bad", "1.50 s")
    assert invocation_row(record())[1].text == "running" and invocation_row(record())[4].text == ""
    span = invocation_span(record(retry_count=2))
    assert (span.label, span.end) == ("attempt 3 started", None)
    entry = Entry("aud_1", 1.0, "org_1", None, "key", "key_1", "binding.create", "binding", "bind_1", None, {"a": 1})
    row = audit_row(entry)
    assert (row[0].text, row[1].link, row[2].text) == ("binding.create", "/bindings/bind_1", "key_1")
    assert '"a": 1' in row[5].more
    unknown = audit_row(Entry("aud_2", 1.0, None, None, "operator", "operator", "x.y", "thing", "t", None, {}))
    assert unknown[1].link == "" and unknown[2].text == "operator"


def test_a_delivery_and_its_attempts() -> None:
    delivery = Delivery(
        id="del_1",
        event_id="evt_1",
        binding_id="bind_1",
        org_id="org_1",
        project_id=None,
        status="dead_letter",
        reason=None,
        attempts=8,
        attempt_limit=8,
        due_at=1.0,
        lease_owner=None,
        lease_until=None,
        error_code="e",
        invocation_id=None,
        created_at=1.0,
        completed_at=2.0,
        test=True,
    )
    cells = delivery_row(delivery)
    assert (cells[0].about, cells[1].text, cells[1].tone, cells[3].text) == ("test", "dead letter", "bad", "8")
    attempt = Attempt(
        delivery_id="del_1",
        attempt=2,
        outcome="failed",
        error_code="e",
        invocation_id="inv_1",
        started_at=1.0,
        ended_at=2.0,
        failure={"message": "no"},
    )
    assert attempt_span(attempt) == Span("attempt 2 started", 1.0, 2.0, "failed", "e: no", "/invocations/inv_1")


@pytest.mark.parametrize("tail", [["a", "b"], ("a", "b"), "a", 7])
def test_a_stored_failure_is_shown_with_its_parts(tail: object) -> None:
    view = stored_failure_view(
        {"code": "c", "origin": "plugin", "message": "m", "detail": {"hint": "h", "stderr_tail": tail, "exit": 1}}
    )
    assert view is not None and (view.code, view.hint) == ("c", "h") and '"exit": 1' in view.detail
    assert all(isinstance(line, str) for line in view.stderr)
    assert stored_failure_view(None) is None and tone_of(None) == "calm" and tone_of("unknown") == "calm"


@dataclass(frozen=True)
class Done:
    """A piece of work."""

    status: str = "failed"
    created_at: float = 10.0
    started_at: float | None = 12.0
    completed_at: float | None = 15.0
    error: dict[str, Any] | None = None


def test_work_shows_its_state_its_time_and_its_failure() -> None:
    values = work_values(Done(error={"code": "acme.half"}), 99.0)
    assert (values["state"], values["tone"], values["is_over"]) == ("failed", "bad", True)
    assert [step.after for step in values["timeline"].steps] == ["", "+2.00 s", "+5.00 s"]
    assert values["failure"].code == "acme.half"
    waiting = work_values(Done("queued", started_at=None, completed_at=None), 11.0)
    assert not waiting["is_over"] and waiting["failure"] is None
    assert [step.label for step in waiting["timeline"].steps] == ["queued"]
    own = work_values(Done(), 99.0, [Span("answer", 12.0, 13.0, "completed")])
    assert [step.label for step in own["timeline"].steps] == ["queued", "started", "completed"]
    assert cancellation("running") != cancellation("failed")
    assert json_parts(("Summary", {"a": 1}), ("Target", None), ("Policy", {})) == [("Summary", '{\n  "a": 1\n}')]
