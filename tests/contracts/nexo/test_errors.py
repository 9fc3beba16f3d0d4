"""Every number of the contract, both ways."""

from __future__ import annotations

from typing import Any

import pytest

from plugbay.contracts.nexo import errors, messages
from plugbay.contracts.rpc import MAX_ERROR_TEXT
from plugbay.model.errors import Code, Failure, Origin
from plugbay.model.operations import (
    Chat,
    CompleteChat,
    DeleteVectors,
    InvokeTool,
    Publish,
    RecallMemory,
    RunHook,
    SendOutbound,
    Shutdown,
    StartChannel,
    UpsertVectors,
)
from tests.support.requirements import requirement

NUMBERS: list[tuple[int, type, str, str, bool]] = [
    (-33401, InvokeTool, Code.TOOL_NOT_EXPOSED, "tool_not_found", False),
    (-33402, InvokeTool, Code.INVALID_INPUT, "tool_argument_invalid", False),
    (-33403, InvokeTool, Code.PLUGIN_ERROR, "tool_execution_failed", False),
    (-33404, InvokeTool, Code.UNAVAILABLE, "tool_unavailable", True),
    (-33405, InvokeTool, Code.PLUGIN_ERROR, "tool_denied", False),
    (-33001, StartChannel, Code.UNAVAILABLE, "connection_failed", True),
    (-33002, StartChannel, Code.PLUGIN_ERROR, "authentication_failed", False),
    (-33003, SendOutbound, Code.INVALID_INPUT, "recipient_invalid", False),
    (-33004, SendOutbound, Code.OVERLOADED, "rate_limited", True),
    (-33005, SendOutbound, Code.NOT_FOUND, "unsupported_feature", False),
    (-33101, Chat, Code.UNAVAILABLE, "connection_failed", True),
    (-33102, Chat, Code.PLUGIN_ERROR, "authentication_failed", False),
    (-33103, Chat, Code.OVERLOADED, "rate_limited", True),
    (-33104, Chat, Code.NOT_FOUND, "model_not_found", False),
    (-33105, Chat, Code.INVALID_INPUT, "context_overflow", False),
    (-33301, UpsertVectors, Code.NOT_FOUND, "collection_not_found", False),
    (-33302, UpsertVectors, Code.INVALID_INPUT, "dimension_mismatch", False),
    (-33303, UpsertVectors, Code.OVERLOADED, "rate_limited", True),
    (-33304, DeleteVectors, Code.PLUGIN_ERROR, "write_failed", False),
    (-32700, InvokeTool, Code.PLUGIN_ERROR, "parse_error", False),
    (-32600, InvokeTool, Code.PLUGIN_ERROR, "invalid_request", False),
    (-32602, InvokeTool, Code.INVALID_INPUT, "invalid_params", False),
    (-32603, InvokeTool, Code.PLUGIN_ERROR, "internal_error", False),
    (-32601, InvokeTool, Code.TOOL_NOT_EXPOSED, "method_not_found", False),
    (-32601, RunHook, Code.NOT_FOUND, "method_not_found", False),
    (-32601, SendOutbound, Code.NOT_FOUND, "unsupported_feature", False),
    (-32601, CompleteChat, Code.NOT_FOUND, "method_not_found", False),
    (-32602, RecallMemory, Code.INVALID_INPUT, "invalid_params", False),
    (-32603, RecallMemory, Code.UNAVAILABLE, "internal_error", False),
]


@requirement("nexo:wire-error-codes")
@pytest.mark.parametrize(("number", "op", "code", "kind", "retryable"), NUMBERS)
def test_every_number_has_a_code_of_ours_and_its_own_name(
    number: int, op: type, code: str, kind: str, retryable: bool
) -> None:
    failure = errors.from_wire(op, "m", {"code": number, "message": "no"})
    assert (failure.code, failure.retryable) == (code, retryable)
    words = kind.removeprefix("tool_").replace("_", " ")
    named = kind != "tool_execution_failed" and (number < -33000 or op is SendOutbound)
    assert failure.message.endswith(f"{words}: no" if named else "no")
    assert failure.detail["plugin_code"] == number
    assert failure.detail["kind"] == kind
    assert failure.origin == (Origin.HOST if op in (RecallMemory, CompleteChat) else Origin.PLUGIN)


def test_every_number_we_know_is_in_the_table_above() -> None:
    assert set(errors.MEANINGS) == {number for number, *_ in NUMBERS} | {-32000}


DATA: list[tuple[int, Any, dict[str, Any], int | None]] = [
    (-33402, {"details": {"city": "missing"}, "x": 1}, {"details": {"city": "missing"}}, None),
    (-33402, None, {}, None),
    (-33404, {"retry_after_ms": 5000}, {"retry_after_ms": 5000}, 5000),
    (-33404, {"retry_after_ms": -1}, {"retry_after_ms": -1}, None),
    (-33404, {"retry_after_ms": True}, {"retry_after_ms": True}, None),
    (-33404, {"retry_after_ms": "soon"}, {"retry_after_ms": "soon"}, None),
    (-33404, [5000], {}, None),
    (-33003, {"recipient": "U1", "reason": "gone"}, {"recipient": "U1", "reason": "gone"}, None),
    (-33003, {}, {"recipient": "", "reason": "no"}, None),
    (-33004, {"retry_after_secs": 42}, {"retry_after_secs": 42}, 42_000),
    (-33004, {"retry_after_secs": 0.5}, {"retry_after_secs": 0.5}, 500),
    (-33004, {"retry_after_secs": 1e308}, {"retry_after_secs": 1e308}, None),
    (-33005, {"feature": "media"}, {"feature": "media"}, None),
    (-33005, None, {"feature": "no"}, None),
    (-33103, {"retry_after_secs": 30}, {"retry_after_secs": 30}, 30_000),
    (-33301, {"collection": "kb"}, {"collection": "kb"}, None),
    (-33302, {"expected": 768, "got": 2}, {"expected": 768, "got": 2}, None),
    (-33303, {"retry_after_secs": 60}, {"retry_after_secs": 60}, 60_000),
    (-33403, {"details": "kept to itself"}, {}, None),
]


@requirement("nexo:wire-error-data")
@pytest.mark.parametrize(("number", "data", "known", "wait"), DATA)
def test_what_data_may_say_reaches_the_detail(number: int, data: Any, known: dict[str, Any], wait: int | None) -> None:
    failure = errors.from_wire(StartChannel, "m", {"code": number, "message": "no", "data": data})
    named = {"plugin_code": number, "kind": errors.MEANINGS[number].kind}
    assert failure.detail == {**named, **known}
    assert failure.retry_after_ms == wait


@requirement("nexo:wire-channel-unsupported")
def test_a_channel_method_nobody_serves_is_a_feature_that_is_missing() -> None:
    failure = errors.from_wire(SendOutbound, "channel.send_outbound", {"code": -32601, "message": "nope"})
    assert failure.detail["feature"] == "channel.send_outbound"
    assert failure.detail["kind"] == "unsupported_feature"


@pytest.mark.parametrize(
    ("error", "code", "detail"),
    [
        (None, Code.MALFORMED_RESPONSE, {}),
        ("boom", Code.MALFORMED_RESPONSE, {}),
        ([], Code.MALFORMED_RESPONSE, {}),
        ({}, Code.PLUGIN_ERROR, {}),
        ({"code": "E1", "message": "x"}, Code.PLUGIN_ERROR, {}),
        ({"code": -33404.0, "message": "x"}, Code.PLUGIN_ERROR, {}),
        ({"code": True, "message": "x"}, Code.PLUGIN_ERROR, {}),
        ({"code": -31234, "message": "x"}, Code.PLUGIN_ERROR, {"plugin_code": -31234}),
        ({"code": 10**18}, Code.PLUGIN_ERROR, {"plugin_code": 10**18}),
        ({"code": -33403, "message": 5}, Code.PLUGIN_ERROR, {"plugin_code": -33403, "kind": "tool_execution_failed"}),
    ],
)
def test_an_error_of_any_shape_is_a_failure_with_words(error: Any, code: str, detail: dict[str, Any]) -> None:
    failure = errors.from_wire(InvokeTool, "tool.invoke", error)
    assert (failure.code, failure.detail) == (code, detail)
    assert failure.message.strip()


def test_a_huge_message_is_cut() -> None:
    assert len(errors.from_wire(InvokeTool, "m", {"code": 1, "message": "x" * 1_000_000}).message) == 65_536


# Going out.

OUT: list[tuple[type, Failure, int, Any]] = [
    (InvokeTool, Failure(Code.TOOL_NOT_EXPOSED, "m"), -33401, None),
    (InvokeTool, Failure(Code.INVALID_INPUT, "m"), -33402, None),
    (InvokeTool, Failure(Code.INVALID_INPUT, "m", detail={"details": ["city"]}), -33402, {"details": ["city"]}),
    (InvokeTool, Failure(Code.PLUGIN_ERROR, "m", detail={"details": 1}), -33403, None),
    (InvokeTool, Failure(Code.INTERNAL, "m"), -33403, None),
    (InvokeTool, Failure(Code.TIMEOUT, "m"), -33403, None),
    (InvokeTool, Failure(Code.UNAVAILABLE, "m"), -33404, None),
    (InvokeTool, Failure(Code.UNAVAILABLE, "m", retry_after_ms=5000), -33404, {"retry_after_ms": 5000}),
    (InvokeTool, Failure(Code.OVERLOADED, "m"), -33404, None),
    (InvokeTool, Failure(Code.CAPABILITY_NOT_ALLOWED, "m"), -33405, None),
    (InvokeTool, Failure(Code.PLUGIN_ERROR, "m", detail={"plugin_code": -33405}), -33405, None),
    (InvokeTool, Failure(Code.PLUGIN_ERROR, "m", detail={"plugin_code": "quota"}), -33403, None),
    (InvokeTool, Failure(Code.PLUGIN_ERROR, "m", detail={"plugin_code": True}), -33403, None),
    (InvokeTool, Failure(Code.PLUGIN_ERROR, "m", detail={"plugin_code": 10**12}), -33403, None),
    (InvokeTool, Failure(Code.PLUGIN_ERROR, "m", detail={"kind": "tool_denied"}), -33405, None),
    (InvokeTool, Failure(Code.PLUGIN_ERROR, "m", detail={"kind": "tool_denied", "plugin_code": -33401}), -33401, None),
    (InvokeTool, Failure(Code.OVERLOADED, "m", detail={"kind": "rate_limited"}), -33404, None),
    (InvokeTool, Failure(Code.NOT_FOUND, "m", detail={"kind": "method_not_found"}), -32601, None),
    (InvokeTool, Failure(Code.PLUGIN_ERROR, "m", detail={"kind": ["odd"]}), -33403, None),
    (RunHook, Failure(Code.NOT_FOUND, "m", detail={"kind": "method_not_found"}), -32601, None),
    (SendOutbound, Failure(Code.PLUGIN_ERROR, "m", detail={"kind": "authentication_failed"}), -33002, None),
    (Chat, Failure(Code.PLUGIN_ERROR, "m", detail={"kind": "authentication_failed"}), -33102, None),
    (Chat, Failure(Code.INVALID_INPUT, "m", detail={"kind": "context_overflow"}), -33105, None),
    (UpsertVectors, Failure(Code.PLUGIN_ERROR, "m", detail={"kind": "write_failed"}), -33304, None),
    (CompleteChat, Failure(Code.NOT_FOUND, "m", detail={"kind": "method_not_found"}), -32603, None),
    (StartChannel, Failure(Code.UNAVAILABLE, "m"), -33001, None),
    (
        SendOutbound,
        Failure(Code.INVALID_INPUT, "m", detail={"recipient": "U1", "reason": "gone"}),
        -33003,
        {"recipient": "U1", "reason": "gone"},
    ),
    (SendOutbound, Failure(Code.OVERLOADED, "m", retry_after_ms=41_001), -33004, {"retry_after_secs": 42}),
    (SendOutbound, Failure(Code.NOT_FOUND, "m", detail={"feature": "media"}), -33005, {"feature": "media"}),
    (SendOutbound, Failure(Code.PLUGIN_ERROR, "m"), -32603, None),
    (Chat, Failure(Code.UNAVAILABLE, "m"), -33101, None),
    (Chat, Failure(Code.OVERLOADED, "m", detail={"retry_after_secs": 30}), -33103, {"retry_after_secs": 30}),
    (Chat, Failure(Code.NOT_FOUND, "m"), -33104, None),
    (Chat, Failure(Code.INVALID_INPUT, "m"), -32602, None),
    (UpsertVectors, Failure(Code.NOT_FOUND, "m", detail={"collection": "kb"}), -33301, {"collection": "kb"}),
    (
        UpsertVectors,
        Failure(Code.INVALID_INPUT, "m", detail={"plugin_code": -33302, "expected": 768, "got": 2}),
        -33302,
        {"expected": 768, "got": 2},
    ),
    (UpsertVectors, Failure(Code.OVERLOADED, "m"), -33303, None),
    (DeleteVectors, Failure(Code.INTERNAL, "m"), -32603, None),
    (RunHook, Failure(Code.PLUGIN_ERROR, "m"), -32603, None),
    (Shutdown, Failure(Code.INTERNAL, "m"), -32000, None),
    (RecallMemory, Failure(Code.UNAVAILABLE, "m"), -32603, None),
    (CompleteChat, Failure(Code.NOT_FOUND, "m"), -32603, None),
    (CompleteChat, Failure(Code.INVALID_INPUT, "m"), -32603, None),
    (CompleteChat, Failure(Code.OVERLOADED, "m", detail={"plugin_code": -33103}), -32603, None),
    (CompleteChat, Failure(Code.NOT_FOUND, "m", detail={"not_implemented": True}), -32601, None),
    (RecallMemory, Failure(Code.INVALID_INPUT, "m"), -32602, None),
    (Publish, Failure(Code.CAPABILITY_NOT_ALLOWED, "m"), -32603, None),
]


@requirement("nexo:wire-error-codes", "nexo:wire-error-data")
@pytest.mark.parametrize(("op", "failure", "number", "data"), OUT)
def test_a_handlers_failure_has_a_number_and_data_only_where_there_is_some(
    op: type, failure: Failure, number: int, data: Any
) -> None:
    assert errors.to_wire(op, failure) == (number, "m", data)


def test_every_operation_that_can_fail_has_its_numbers() -> None:
    asked = {method.op for method in (*messages.TO_CHILD, *messages.TO_HOST) if method.name != "broker.event"}
    assert set(errors._BANDS) == asked | {Shutdown}


def test_an_error_reaches_the_peer_whatever_its_words_are() -> None:
    assert errors.to_wire(InvokeTool, Failure(Code.INTERNAL, " "))[1] == "it failed with internal"
    assert errors.to_wire(InvokeTool, Failure(Code.INTERNAL, "\udcff"))[1] == "\\udcff"
    assert len(errors.to_wire(InvokeTool, Failure(Code.INTERNAL, "x" * 1_000_000))[1]) == MAX_ERROR_TEXT


def test_a_tool_that_was_not_offered_fails_like_one_the_plugin_does_not_know() -> None:
    failure = errors.tool_not_offered("p_u", ["p_t"])
    assert (failure.code, failure.detail["plugin_code"]) == (Code.TOOL_NOT_EXPOSED, -33401)
    assert "p_t" in failure.message
    assert "no tools" in errors.tool_not_offered("p_u", []).message
