"""Requests of calls and their ids; results of plain and of recorded calls."""

from __future__ import annotations

import re
from typing import Any

import pytest

from plugbay.host.ports import CallRecord, InvocationRecord
from plugbay.host.request import CallRequest, CallResult, new_id, request_problem, with_ids_of_context
from plugbay.model.errors import CallFailed, Code, Failure
from plugbay.wire.fast_json import MsgspecCodec

CODEC = MsgspecCodec()


def result_of(*attempts: InvocationRecord, failure: Failure | None = None) -> CallResult:
    record = CallRecord("call_1", "acme/p", "1.0.0", "vai", "t", 0.0, 1.0, failure)
    return CallResult(record, None if failure else CODEC.dump({"n": 1}), CODEC, attempts)


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
    result = result_of(attempt("retryable_failure"), attempt("succeeded"))
    assert result.value() == result.value_or_raise() == {"n": 1} and result.failure is None
    assert result.invocation is result.invocations[1] and result.status == "succeeded"


def test_a_failure_is_a_value_until_it_is_asked_for() -> None:
    failure = Failure(Code.TIMEOUT, "too late")
    result = result_of(attempt("cancelled"), failure=failure)
    assert (result.status, result.failure, result.value()) == ("cancelled", failure, None)
    with pytest.raises(CallFailed, match="too late"):
        result.value_or_raise()


def test_a_call_that_was_refused_before_any_attempt_has_a_status() -> None:
    result = result_of(failure=Failure(Code.NOT_FOUND, "no such thing"))
    assert result.invocation is None and result.status == "failed"


def test_the_context_of_a_plain_call_has_ids() -> None:
    context = {"session_id": "sess_1", "run_id": None, "delivery_id": "del_1", "attempt": 2}
    request = with_ids_of_context(CallRequest("t", context=context))
    assert request == CallRequest("t", context=context, session_id="sess_1", execution_id="del_1", attempt=2)


@pytest.mark.parametrize("name", ["invocation_id", "deadline_at", "gateway", "scratch_dir", "secrets", "binding"])
def test_a_plain_call_cannot_set_fields_of_the_host(name: str) -> None:
    refused = with_ids_of_context(CallRequest("t", context={name: "x"}))
    assert isinstance(refused, Failure) and refused.code == Code.INVALID_INPUT and name in refused.message


@pytest.mark.parametrize(
    "given",
    [
        CallRequest("t", org_id="a/b"),
        CallRequest("t", session_id="a:b"),
        CallRequest("t", chain_id=".."),
        CallRequest("t", run_id=""),
        CallRequest("t", trace_id="a b"),
        CallRequest("t", execution_id="x" * 201),
        CallRequest("t", org_id=7),  # type: ignore[arg-type]
        CallRequest("t", attempt=0),
        CallRequest("t", attempt=True),
    ],
)
def test_a_request_with_invalid_ids_is_refused(given: CallRequest) -> None:
    assert request_problem(given) is not None
    assert request_problem(CallRequest("t", org_id="org_1", execution_id="exec-1.a")) is None


def test_ids_have_their_prefix_and_eighty_random_bits() -> None:
    first, second = new_id("inv"), new_id("inv")
    assert first != second and re.fullmatch(r"inv_[0-9a-f]{20}", first)
