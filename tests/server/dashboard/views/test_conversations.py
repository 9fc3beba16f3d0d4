"""Conversations as values: who says what, what a run did, what is left of a budget."""

from __future__ import annotations

from typing import Any

import pytest

from plugbay.server.dashboard.views.conversations import Budget, budgets_of, message_of, run_spans, took
from plugbay.store.runs import Run, ToolExecution


@pytest.mark.parametrize(
    ("block", "speaker", "text", "about"),
    [
        ({"kind": "input", "content": [{"type": "text", "text": "Hi"}]}, "user", "Hi", ""),
        (
            {"kind": "response", "content": [{"type": "text", "text": "a"}, {"type": "image"}]},
            "model",
            "a\n(image)",
            "",
        ),
        ({"kind": "tool_call", "name": "t", "input": {"a": 1}}, "tool call", '{\n  "a": 1\n}', "t"),
        ({"kind": "tool_result", "is_error": True, "structured_output": 7}, "tool result", "7", "failed"),
        ({"kind": "strange", "content": "text"}, "strange", "", ""),
        ({"kind": "input", "content": [7, None, {"type": "text"}]}, "user", "", ""),
        ({}, "", "", ""),
    ],
)
def test_a_block_is_a_message(block: dict[str, Any], speaker: str, text: str, about: str) -> None:
    message = message_of(block)
    assert (message.speaker, message.text, message.about, message.bad) == (speaker, text, about, about == "failed")


def run(**fields: Any) -> Run:
    values: dict[str, Any] = dict.fromkeys(Run.__struct_fields__)
    values |= {"id": "run_1", "status": "failed", "created_at": 1.0, "started_at": 2.0, "completed_at": 9.0}
    return Run(**{**values, **fields})


def test_a_run_and_its_tools_are_spans() -> None:
    tool = ToolExecution(
        id="toolx_1",
        run_id="run_1",
        turn=1,
        position=0,
        tool_call_id="c",
        name="search",
        binding_id=None,
        status=None,
        execution_outcome=None,
        error_code="acme.no",
        attempts=2,
        input=b"",
        result=None,
        started_at=3.0,
        ended_at=None,
    )
    whole, call = run_spans(run(error={"code": "model.failed"}), [tool])
    assert (whole.status, whole.about, whole.end) == ("failed", "model.failed", 9.0)
    assert (call.label, call.about, call.end) == ("tool search", "acme.no 2 attempts", None)
    assert run_spans(run(started_at=None), []) == []
    assert run_spans(run(status="running", completed_at=None), [])[0].status is None


def test_a_budget_names_what_is_spent_of_it() -> None:
    found = budgets_of({"max_child_runs": 4, "max_depth": 2, "tools": ["a", "b"]}, {"child_run": 3})
    assert found == (
        Budget("runs", 3, "4", 4),
        Budget("depth", None, "2"),
        Budget("compactions", 0, "no limit", None),
        Budget("tools", None, "a, b"),
    )
    assert budgets_of({"allow_compaction": False, "max_child_runs": True}, {})[2].limit == "none"
    assert budgets_of({"max_child_runs": True}, {})[0].limit == "no limit"


def test_what_has_not_ended_took_nothing_yet() -> None:
    assert took(1.0, 2.5) == "1.50 s" and took(None, 1.0) == took(1.0, None) == ""
