"""Calls on pages."""

from __future__ import annotations

from typing import Any

import pytest

from plugbay.host.ports import CallRecord
from plugbay.host.request import CallResult
from plugbay.model.errors import Code, Failure
from plugbay.server.dashboard.views.calls import FailureView, call_outcome, call_row, failure_view
from plugbay.store.calls import StoredCall
from plugbay.wire.fast_json import MsgspecCodec


def stored(status: str = "succeeded", failure: dict[str, Any] | None = None) -> StoredCall:
    return StoredCall("call_1", "p", "1", "rune", "t", 1_770_000_000.0, 1_000.0, status, failure)


def result(output: bytes | None, failure: Failure | None = None) -> CallResult:
    record = CallRecord("call_1", "p", "1", "rune", "t", 1.0, 2.5, failure)
    return CallResult(record, output, MsgspecCodec())


@pytest.mark.parametrize(
    ("status", "tone"),
    [("succeeded", "good"), ("failed", "bad"), ("retryable_failure", "warn"), ("cancelled", "off"), ("odd", "calm")],
)
def test_an_outcome_has_a_tone(status: str, tone: str) -> None:
    row = call_row(stored(status))
    assert (row.tone, row.status) == (tone, status.replace("_", " "))


def test_a_failure_that_was_written_down_is_shown_whole() -> None:
    row = call_row(stored("failed", {"code": "crashed", "origin": "plugin", "exit": "exit code 3"}))
    assert (row.code, row.origin, row.exit) == ("crashed", "plugin", "exit code 3")
    odd = call_row(stored("failed", {"code": "crashed", "exit": {"signal": 9}}))
    assert (odd.origin, odd.exit) == ("", '{"signal":9}')


def test_an_answer_is_spread_out() -> None:
    shown = call_outcome(result(b'{"a":[1]}'))
    assert shown.output == '{\n  "a": [\n    1\n  ]\n}' and shown.failure is None and shown.tone == "good"


def test_the_hint_of_a_failure_is_separate() -> None:
    detail = {"hint": "try again", "stderr_tail": ["a", "b"], "exit": "1"}
    shown = call_outcome(result(None, Failure(Code.CRASHED, "gone", origin="plugin", detail=detail)))
    assert shown.failure == FailureView("crashed", "plugin", "gone", "try again", ("a", "b"), '{\n  "exit": "1"\n}')
    assert (shown.output, shown.status) == ("", "failed")
    assert failure_view(Failure(Code.TIMEOUT, "late")).detail == ""
