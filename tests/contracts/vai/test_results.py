"""The four ways in which work ends, read and written."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from plugbay.contracts.vai import results
from plugbay.model.errors import Code, Failure
from plugbay.wire.fast_json import MsgspecCodec
from tests.support.requirements import requirement

if TYPE_CHECKING:
    from plugbay.wire.strict_json import Codec

KINDS = ["tool", "hook", "compactor", "harness"]


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


@requirement("vai:wire-statuses")
@pytest.mark.parametrize("kind", ["tool", "compactor", "harness"])
@pytest.mark.parametrize("result", [{"content": [], "is_error": False}, {}, None, [1]], ids=str)
def test_work_that_is_done_has_a_result(codec: Codec, kind: str, result: Any) -> None:
    value, failure = results.read(kind, True, {"status": "succeeded", "result": result}, None, codec)
    assert (codec.load(value), failure) == (result, None)


@requirement("vai:wire-hook")
@pytest.mark.parametrize("body", [{"status": "ack"}, {"status": "succeeded"}, {"status": "ack", "result": 5}], ids=str)
def test_a_hook_acknowledges_and_carries_nothing(codec: Codec, body: Any) -> None:
    value, failure = results.read("hook", True, body, None, codec)
    assert (codec.load(value), failure) == ({}, None)


@requirement("vai:wire-statuses")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("status", "code", "retryable"),
    [
        ("failed", Code.PLUGIN_ERROR, False),
        ("retryable_failure", Code.PLUGIN_ERROR, True),
        ("cancelled", Code.CANCELLED, False),
    ],
)
def test_work_of_any_kind_may_end_early(codec: Codec, kind: str, status: str, code: str, retryable: bool) -> None:
    error = {"code": "jira.down", "message": "try later"}
    value, failure = results.read(kind, True, {"status": status, "error": error}, None, codec)
    assert value is None
    assert failure is not None
    assert (failure.code, failure.retryable, failure.message) == (code, retryable, "try later")
    assert failure.detail == {"plugin_code": "jira.down"}


@requirement("vai:wire-early-result")
@pytest.mark.parametrize("status", ["failed", "retryable_failure", "cancelled"])
def test_what_is_left_of_work_that_ended_early_comes_along(codec: Codec, status: str) -> None:
    left = {"checkpoint": {"kind": "checkpoint", "data": {"cursor": 12}}}
    _, failure = results.read("harness", True, {"status": status, "result": left}, None, codec)
    assert failure is not None
    assert failure.detail == {"result": left}


def test_what_is_left_is_not_remembered_when_it_is_huge(codec: Codec) -> None:
    huge = "x" * results.MAX_LEFT
    _, failure = results.read("tool", True, {"status": "failed", "result": huge}, None, codec)
    assert failure is not None
    assert failure.detail == {"result_left_out": results.MAX_LEFT + 2}
    _, failure = results.read("tool", True, {"status": "failed", "result": huge[2:]}, None, codec)
    assert failure is not None
    assert failure.detail == {"result": huge[2:]}


INVALID: list[tuple[str, Any, Any, str]] = [
    ("tool", True, None, "no body"),
    ("tool", True, [], "no body"),
    ("tool", True, {}, "no status"),
    ("tool", True, {"status": None}, "no status"),
    ("tool", True, {"status": ["succeeded"]}, "no status"),
    ("tool", True, {"status": "timed_out"}, "'timed_out'"),
    ("tool", True, {"status": "completed", "result": {}}, "'completed'"),
    ("tool", True, {"status": "SUCCEEDED", "result": {}}, "'SUCCEEDED'"),
    ("tool", True, {"status": "ack"}, "'ack'"),
    ("harness", True, {"status": "ack"}, "'ack'"),
    ("hook", True, {"status": "done"}, "'done'"),
    ("tool", True, {"status": "succeeded"}, "without a result"),
    ("tool", None, {"status": "succeeded", "result": {}}, "neither ok=true"),
    ("tool", 1, {"status": "succeeded", "result": {}}, "neither ok=true"),
    ("tool", "true", {"status": "succeeded", "result": {}}, "neither ok=true"),
]


@requirement("vai:wire-invalid-response")
@pytest.mark.parametrize(("kind", "ok", "body", "words"), INVALID, ids=str)
def test_a_response_that_the_contract_does_not_know_is_a_failure(
    codec: Codec, kind: str, ok: Any, body: Any, words: str
) -> None:
    value, failure = results.read(kind, ok, body, None, codec)
    assert value is None
    assert failure is not None
    assert (failure.code, failure.detail["plugin_code"]) == (Code.MALFORMED_RESPONSE, "protocol.invalid_response")
    assert words in failure.message


@requirement("vai:wire-refusal")
def test_a_refusal_is_no_outcome_of_the_work(codec: Codec) -> None:
    error = {"code": "protocol.unknown_export", "message": "none such"}
    value, failure = results.read("tool", False, {"status": "succeeded", "result": {}}, error, codec)
    assert value is None
    assert failure is not None
    assert (failure.code, failure.message) == (Code.TOOL_NOT_EXPOSED, "none such")


def test_a_result_that_cannot_be_handed_on_is_an_invalid_response() -> None:
    codec = MsgspecCodec()
    assert results.read("tool", True, {"status": "succeeded", "result": nested(60)}, None, codec)[1] is None
    _, failure = results.read("tool", True, {"status": "succeeded", "result": nested(61)}, None, codec)
    assert failure is not None
    assert "nested deeper" in failure.message


@requirement("vai:wire-statuses")
@pytest.mark.parametrize("kind", KINDS)
def test_success_says_what_came_out(kind: str) -> None:
    expected = {"status": "ack"} if kind == "hook" else {"status": "succeeded", "result": {"n": 1}}
    assert results.success(kind, {"n": 1}) == expected


@requirement("vai:wire-statuses", "vai:wire-early-result")
@pytest.mark.parametrize(
    ("failure", "body"),
    [
        (Failure(Code.PLUGIN_ERROR, "no"), {"status": "failed", "error": {"code": "plugin_error", "message": "no"}}),
        (
            Failure(Code.PLUGIN_ERROR, "no", retryable=True, retry_after_ms=50),
            {
                "status": "retryable_failure",
                "error": {"code": "plugin_error", "message": "no", "retry_after_ms": 50},
            },
        ),
        (
            Failure(Code.CANCELLED, "stopped", detail={"result": {"checkpoint": 1}}),
            {
                "status": "cancelled",
                "error": {"code": "cancelled", "message": "stopped"},
                "result": {"checkpoint": 1},
            },
        ),
    ],
    ids=["failed", "retryable", "cancelled"],
)
def test_an_early_end_says_why_and_what_is_left(failure: Failure, body: dict[str, Any]) -> None:
    assert results.end(failure) == body
    assert results.end(failure, leave=False) == {key: value for key, value in body.items() if key != "result"}
