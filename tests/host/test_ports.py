"""The record of a call says everything about it except its contents."""

from __future__ import annotations

from plugbay.host.ports import CallRecord
from plugbay.model.errors import Code, Failure


def record(failure: Failure | None = None) -> CallRecord:
    return CallRecord("call_1", "p", "1", "rune", "t", 5.0, 1.5, failure)


def test_a_call_without_failure_succeeded() -> None:
    assert record().status == "succeeded"
    assert record().to_json() == {
        "call_id": "call_1",
        "plugin": {"id": "p", "version": "1", "contract": "rune"},
        "export": "t",
        "started_at": 5.0,
        "duration_ms": 1.5,
        "status": "succeeded",
        "failure": None,
    }


def test_a_failure_decides_the_status() -> None:
    assert record(Failure(Code.CANCELLED, "x")).status == "cancelled"
    stored = record(Failure(Code.CRASHED, "x", detail={"exit": "exit code 3"})).to_json()["failure"]
    assert stored == {"code": "crashed", "origin": "host", "exit": "exit code 3"}


def test_what_is_stored_tells_nothing_of_inputs_outputs_or_stderr() -> None:
    detail = {"line": "secret", "stderr_tail": ["secret"], "errors": ["secret"]}
    assert "secret" not in str(record(Failure(Code.INVALID_INPUT, "secret", detail=detail)).to_json())
