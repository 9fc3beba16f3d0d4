"""What handlers raise, as failures; what services raise."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from plugbay import sdk
from plugbay.model.errors import Code, Failure, Origin, PlugbayError
from plugbay.sdk import errors
from plugbay.sdk.errors import HandlerError, ServiceError, failure_of, service_error


@pytest.mark.parametrize(
    ("error", "code", "kind", "data", "retry"),
    [
        (errors.ToolNotFound("x"), Code.TOOL_NOT_EXPOSED, "tool_not_found", {}, None),
        (errors.ToolArgumentInvalid("x", [1]), Code.INVALID_INPUT, "tool_argument_invalid", {"details": [1]}, None),
        (errors.ToolExecutionFailed("x"), Code.PLUGIN_ERROR, "tool_execution_failed", {}, None),
        (errors.ToolUnavailable("x"), Code.UNAVAILABLE, "tool_unavailable", {}, None),
        (errors.ToolUnavailable("x", 50), Code.UNAVAILABLE, "tool_unavailable", {"retry_after_ms": 50}, 50),
        (errors.ToolDenied("x"), Code.CAPABILITY_NOT_ALLOWED, "tool_denied", {}, None),
        (errors.ChannelConnectionFailed("x"), Code.UNAVAILABLE, "connection_failed", {}, None),
        (errors.ChannelAuthenticationFailed("x"), Code.PLUGIN_ERROR, "authentication_failed", {}, None),
        (
            errors.RecipientInvalid("bob", "gone"),
            Code.INVALID_INPUT,
            "recipient_invalid",
            {"recipient": "bob", "reason": "gone"},
            None,
        ),
        (errors.UnsupportedFeature("video"), Code.NOT_FOUND, "unsupported_feature", {"feature": "video"}, None),
        (errors.LlmConnectionFailed("x"), Code.UNAVAILABLE, "connection_failed", {}, None),
        (errors.LlmAuthenticationFailed("x"), Code.PLUGIN_ERROR, "authentication_failed", {}, None),
        (errors.ModelNotFound("x"), Code.NOT_FOUND, "model_not_found", {}, None),
        (errors.ContextOverflow("x"), Code.INVALID_INPUT, "context_overflow", {}, None),
        (errors.CollectionNotFound("kb"), Code.NOT_FOUND, "collection_not_found", {"collection": "kb"}, None),
        (errors.DimensionMismatch(3, 2), Code.INVALID_INPUT, "dimension_mismatch", {"expected": 3, "got": 2}, None),
        (errors.WriteFailed("x"), Code.PLUGIN_ERROR, "write_failed", {}, None),
        (errors.RateLimited(1.5), Code.OVERLOADED, "rate_limited", {"retry_after_secs": 1.5}, 1500),
        (errors.RateLimited(), Code.OVERLOADED, "rate_limited", {}, None),
        (errors.MethodMissing("x"), Code.NOT_FOUND, "method_not_found", {}, None),
    ],
)
def test_each_error_is_a_row_of_the_table(
    error: HandlerError, code: str, kind: str, data: dict[str, Any], retry: int | None
) -> None:
    failure = failure_of(error)
    assert (failure.code, failure.origin, failure.retry_after_ms) == (code, Origin.PLUGIN, retry)
    assert failure.detail == {"plugin_code": kind, "kind": kind, **data}
    assert failure.retryable == (code in (Code.UNAVAILABLE, Code.OVERLOADED))
    assert failure.message


def test_an_authors_own_code_has_no_kind() -> None:
    failure = failure_of(errors.ToolError("no", code="quota"))
    assert (failure.code, failure.detail) == (Code.PLUGIN_ERROR, {"plugin_code": "quota"})
    assert failure_of(errors.ToolError("no", code="not_found")).code == Code.NOT_FOUND


def test_a_bug_is_a_short_text_and_a_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    failure = failure_of(KeyError("city"))
    assert (failure.code, failure.message) == (Code.PLUGIN_ERROR, "KeyError: 'city'")
    assert "KeyError: 'city'" in capsys.readouterr().err


@pytest.mark.parametrize("how", [ValueError, SystemExit])
def test_an_error_that_cannot_be_read_is_still_an_answer(how: type[BaseException]) -> None:
    class Unreadable(Exception):
        def __str__(self) -> str:
            raise how

    assert failure_of(Unreadable()).message == "Unreadable: (its text cannot be read)"


def test_an_error_made_of_the_wrong_things_is_a_bug_and_still_an_answer() -> None:
    failure = failure_of(errors.RateLimited("soon"))  # type: ignore[arg-type]
    assert (failure.code, failure.detail) == (Code.PLUGIN_ERROR, {"plugin_code": "internal"})
    assert failure.message.startswith("ValueError")


def test_a_service_error_says_why_and_with_which_number() -> None:
    error = service_error(Failure(Code.UNAVAILABLE, "no memory", detail={"plugin_code": -32603}))
    assert (error.code, error.rpc_code, str(error)) == (Code.UNAVAILABLE, -32603, "no memory")
    assert service_error(Failure(Code.UNAVAILABLE, "gone", detail={"plugin_code": "text"})).rpc_code is None
    copied = pickle.loads(pickle.dumps(ServiceError("timeout", "late", 3)))
    assert (copied.code, copied.rpc_code, str(copied)) == ("timeout", 3, "late")


def test_every_public_name_is_there_and_no_other() -> None:
    assert all(getattr(sdk, name) for name in sdk.__all__)
    assert all(issubclass(getattr(sdk, name), PlugbayError) for name in dir(errors) if name in sdk.__all__)
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        sdk.Nothing  # noqa: B018


def test_a_service_that_the_host_refused_is_no_bug_of_the_author(capfd: pytest.CaptureFixture[str]) -> None:
    failure = failure_of(ServiceError("not_found", "this host has no storage"))
    assert (failure.code, failure.message) == (Code.UNAVAILABLE, "it needs the host: this host has no storage")
    assert capfd.readouterr().err == ""
