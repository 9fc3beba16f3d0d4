"""vai's codes to and from ours: the two layers, and nothing trusted."""

from __future__ import annotations

from typing import Any

import pytest

from plugbay.contracts.vai import errors
from plugbay.model.errors import Code, Failure, Origin
from tests.support.requirements import requirement

REFUSALS = [
    ("protocol.unknown_op", Code.TOOL_NOT_EXPOSED),
    ("protocol.unknown_export", Code.TOOL_NOT_EXPOSED),
    ("protocol.overloaded", Code.OVERLOADED),
    ("protocol.frame_too_large", Code.FRAME_TOO_LARGE),
    ("protocol.unsupported_version", Code.PROTOCOL_VERSION_MISMATCH),
    ("protocol.invalid_frame", Code.PLUGIN_ERROR),
    ("protocol.duplicate_id", Code.PLUGIN_ERROR),
    ("protocol.internal", Code.PLUGIN_ERROR),
    ("jira.down", Code.PLUGIN_ERROR),
]


@requirement("vai:wire-refusal")
@pytest.mark.parametrize(("code", "ours"), REFUSALS)
def test_what_a_refusal_means(code: str, ours: str) -> None:
    failure = errors.refused({"code": code, "message": "no"})
    assert (failure.code, failure.message, failure.origin) == (ours, "no", Origin.PLUGIN)
    assert failure.detail == {"plugin_code": code}
    assert failure.retryable == (ours == Code.OVERLOADED)


@requirement("vai:wire-refusal")
@pytest.mark.parametrize("error", [None, "no", [], 5])
def test_a_refusal_without_an_error_is_an_invalid_response(error: Any) -> None:
    failure = errors.refused(error)
    assert (failure.code, failure.detail["plugin_code"]) == (Code.MALFORMED_RESPONSE, "protocol.invalid_response")


@pytest.mark.parametrize(
    ("error", "message", "code"),
    [
        ({}, "the plugin refused the request with no code", ""),
        ({"code": "a.b"}, "the plugin refused the request with a.b", "a.b"),
        ({"code": 5, "message": 6}, "the plugin refused the request with no code", ""),
        ({"code": "x" * 5000, "message": " "}, "the plugin refused the request with " + "x" * 200, "x" * 200),
    ],
)
def test_a_refusal_says_something_whatever_the_plugin_left_out(error: Any, message: str, code: str) -> None:
    failure = errors.refused(error)
    assert (failure.message, failure.detail) == (message, {"plugin_code": code})


@requirement("vai:wire-statuses")
@pytest.mark.parametrize(
    ("status", "code", "retryable"),
    [
        ("failed", Code.PLUGIN_ERROR, False),
        ("retryable_failure", Code.PLUGIN_ERROR, True),
        ("cancelled", Code.CANCELLED, False),
    ],
)
def test_each_status_is_the_outcome_of_its_failure(status: str, code: str, retryable: bool) -> None:
    failure = errors.ended(status, {"code": "jira.down", "message": "try later"})
    assert (failure.code, failure.retryable, failure.outcome) == (code, retryable, status)
    assert (failure.message, failure.detail, failure.origin) == (
        "try later",
        {"plugin_code": "jira.down"},
        Origin.PLUGIN,
    )


@pytest.mark.parametrize(("status", "kept"), [("failed", True), ("retryable_failure", False)])
@pytest.mark.parametrize("code", [Code.INVALID_INPUT, Code.NOT_FOUND])
def test_two_codes_of_failed_work_are_ours_too(code: str, status: str, kept: bool) -> None:
    assert errors.ended(status, {"code": code, "message": "no"}).code == (code if kept else Code.PLUGIN_ERROR)


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (None, "the plugin ended with failed without a message"),
        ("text", "the plugin ended with failed without a message"),
        ({"message": "\n"}, "the plugin ended with failed without a message"),
        ({"code": "a.b"}, "the plugin ended with failed and the code a.b"),
    ],
)
def test_an_end_without_a_message_says_what_is_known(error: Any, message: str) -> None:
    assert errors.ended("failed", error).message == message


@pytest.mark.parametrize(
    ("after", "known"), [(250, 250), (0, 0), (-1, None), (True, None), ("5", None), (1.5, None), (None, None)]
)
def test_when_to_try_again_is_a_count_of_milliseconds(after: Any, known: int | None) -> None:
    error = {"code": "c", "message": "m", "retry_after_ms": after}
    assert errors.ended("retryable_failure", error).retry_after_ms == known
    assert errors.refused({**error, "code": "protocol.overloaded"}).retry_after_ms == known


def test_a_message_of_any_size_is_kept_within_bounds() -> None:
    assert len(errors.ended("failed", {"message": "x" * 1_000_000}).message) == 65_536


@requirement("vai:wire-refusal")
@pytest.mark.parametrize(
    ("code", "refusal"),
    [
        (Code.TOOL_NOT_EXPOSED, "protocol.unknown_export"),
        (Code.OVERLOADED, "protocol.overloaded"),
        (Code.FRAME_TOO_LARGE, "protocol.frame_too_large"),
        (Code.PLUGIN_ERROR, None),
        (Code.INVALID_INPUT, None),
        (Code.INTERNAL, None),
        (Code.CANCELLED, None),
        (Code.UNAVAILABLE, None),
    ],
)
def test_only_what_is_no_outcome_of_the_work_is_refused(code: str, refusal: str | None) -> None:
    assert errors.refusal_of(Failure(code, "x")) == refusal


@pytest.mark.parametrize(
    ("failure", "error"),
    [
        (Failure(Code.PLUGIN_ERROR, "no"), {"code": "plugin_error", "message": "no"}),
        (Failure(Code.INTERNAL, " "), {"code": "internal", "message": "it failed with internal"}),
        (
            Failure(Code.PLUGIN_ERROR, "no", detail={"plugin_code": "jira.down"}, retry_after_ms=9),
            {"code": "jira.down", "message": "no", "retry_after_ms": 9},
        ),
        (Failure(Code.PLUGIN_ERROR, "\udcff", detail={"plugin_code": 7}), {"code": "7", "message": "\\udcff"}),
    ],
)
def test_a_failure_says_its_code_and_its_message(failure: Failure, error: dict[str, Any]) -> None:
    assert errors.error_of(failure) == error
