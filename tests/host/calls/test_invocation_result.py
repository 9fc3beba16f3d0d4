"""The outcome of work, with the records of its attempts."""

from __future__ import annotations

from typing import Any

import pytest

from plugbay import CallFailed
from plugbay.host.calls.calls import CallResult
from plugbay.host.calls.invocation_result import InvocationResult
from plugbay.host.ports import CallRecord, InvocationRecord
from plugbay.model.errors import Code, Failure
from plugbay.wire.fast_json import MsgspecCodec

CODEC = MsgspecCodec()


def call(failure: Failure | None = None) -> CallResult:
    record = CallRecord("call_1", "acme/p", "1.0.0", "vai", "t", 0.0, 1.0, failure)
    return CallResult(record, None if failure else CODEC.dump({"n": 1}), CODEC)


def attempt(status: str) -> InvocationRecord:
    names = "invocation_id trace_id export_kind export_id package_id package_version"
    texts: dict[str, Any] = dict.fromkeys(names.split(), "x")
    more: dict[str, Any] = {
        "binding_id": None,
        "execution_class": "worker",
        "org_id": "o",
        "project_id": None,
        "session_id": None,
    }
    rest: dict[str, Any] = {
        "chain_id": None,
        "run_id": None,
        "execution_id": "e",
        "retry_count": 0,
        "started_at": "",
        "permissions": {},
    }
    return InvocationRecord(**texts, **more, **rest, narrowed=False, status=status)


def test_a_success_has_its_value_and_its_last_attempt() -> None:
    result = InvocationResult(call(), (attempt("retryable_failure"), attempt("succeeded")))
    assert result.value() == result.value_or_raise() == {"n": 1} and result.failure is None
    assert result.record is result.records[1] and result.status == "succeeded"


def test_a_failure_is_a_value_until_it_is_asked_for() -> None:
    failure = Failure(Code.TIMEOUT, "too late")
    result = InvocationResult(call(failure), (attempt("cancelled"),))
    assert (result.status, result.failure, result.value()) == ("cancelled", failure, None)
    with pytest.raises(CallFailed, match="too late"):
        result.value_or_raise()


def test_what_was_refused_before_any_attempt_has_the_status_of_its_call() -> None:
    result = InvocationResult(call(Failure(Code.NOT_FOUND, "no such thing")), ())
    assert result.record is None and result.status == "failed"
