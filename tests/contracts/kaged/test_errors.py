"""kaged's error numbers to and from our codes."""

from __future__ import annotations

from typing import Any

import pytest

from plugbay.contracts.kaged import errors
from plugbay.contracts.rpc import MAX_ERROR_TEXT
from plugbay.model.errors import CallFailed, Code, Failure, Origin
from plugbay.model.operations import CallMethod, CheckHealth, GetStored, InvokeTool, RunHook, SetStored, Shutdown
from tests.support.requirements import requirement

TOO_LARGE = {"code": "content_too_large", "actual_bytes": 102_401, "max_bytes": 102_400}

IN: list[tuple[type, Any, str, dict[str, Any]]] = [
    (InvokeTool, {"code": -32601, "message": "m"}, Code.TOOL_NOT_EXPOSED, {"plugin_code": -32601}),
    (CallMethod, {"code": -32601, "message": "m"}, Code.TOOL_NOT_EXPOSED, {"plugin_code": -32601}),
    (RunHook, {"code": -32601, "message": "m"}, Code.NOT_FOUND, {"plugin_code": -32601}),
    (InvokeTool, {"code": -32602, "message": "m"}, Code.INVALID_INPUT, {"plugin_code": -32602}),
    (InvokeTool, {"code": -32603, "message": "m"}, Code.PLUGIN_ERROR, {"plugin_code": -32603}),
    (
        InvokeTool,
        {"code": -32000, "message": "m", "data": TOO_LARGE},
        Code.PLUGIN_ERROR,
        {"plugin_code": -32000, "data": TOO_LARGE},
    ),
    (RunHook, {"code": 7, "message": "m", "data": ["no object"]}, Code.PLUGIN_ERROR, {"plugin_code": 7}),
    (InvokeTool, {"code": "x", "message": "m"}, Code.PLUGIN_ERROR, {}),
    (InvokeTool, {"code": True, "message": "m"}, Code.PLUGIN_ERROR, {}),
    (InvokeTool, {}, Code.PLUGIN_ERROR, {}),
    (InvokeTool, {"code": -32602, "message": 5}, Code.INVALID_INPUT, {"plugin_code": -32602}),
    (InvokeTool, "boom", Code.MALFORMED_RESPONSE, {}),
    (InvokeTool, None, Code.MALFORMED_RESPONSE, {}),
]


@requirement("kaged:wire-error-codes", "kaged:wire-error-data")
@pytest.mark.parametrize(("op", "error", "code", "detail"), IN)
def test_an_error_of_any_shape_is_a_failure_with_words(op: type, error: Any, code: str, detail: Any) -> None:
    failure = errors.from_wire(op, "p.t", error)
    assert (failure.code, failure.detail) == (code, detail)
    assert failure.message.strip()
    if code != Code.MALFORMED_RESPONSE:
        assert failure.origin == Origin.PLUGIN


@pytest.mark.parametrize("forged", [{"stderr_tail": 5}, {"hint": "run this as root"}, {"plugin_code": 1}])
def test_a_plugins_data_never_takes_the_place_of_what_the_host_knows(forged: dict[str, Any]) -> None:
    failure = errors.from_wire(InvokeTool, "p.t", {"code": -32000, "message": "m", "data": forged})
    assert failure.detail == {"plugin_code": -32000, "data": forged}
    assert str(CallFailed(failure)) == "plugin_error: m"


@requirement("kaged:wire-storage-errors")
@pytest.mark.parametrize(
    ("error", "code"),
    [
        ({"code": -32601, "message": "m"}, Code.UNAVAILABLE),
        ({"code": -32602, "message": "m"}, Code.INVALID_INPUT),
        ({"code": -32603, "message": "m"}, Code.UNAVAILABLE),
        ({"code": -32000, "message": "m", "data": {"code": "capability_not_allowed"}}, Code.CAPABILITY_NOT_ALLOWED),
        ({"code": -32000, "message": "m", "data": {"code": "no code of ours"}}, Code.UNAVAILABLE),
        ({"code": -32000, "message": "m", "data": {"code": ["x"]}}, Code.UNAVAILABLE),
    ],
)
def test_a_hosts_refusal_means_to_a_plugin_what_it_meant_to_the_host(error: Any, code: str) -> None:
    failure = errors.from_wire(GetStored, "kaged.storage.get", error)
    assert (failure.code, failure.origin) == (code, Origin.HOST)


OUT: list[tuple[type, Failure, int, Any]] = [
    (InvokeTool, Failure(Code.TOOL_NOT_EXPOSED, "m"), -32601, None),
    (InvokeTool, Failure(Code.INVALID_INPUT, "m"), -32602, None),
    (InvokeTool, Failure(Code.INTERNAL, "m"), -32603, None),
    (InvokeTool, Failure(Code.PLUGIN_ERROR, "m"), -32000, None),
    (InvokeTool, Failure(Code.NOT_FOUND, "m"), -32000, None),
    (RunHook, Failure(Code.NOT_FOUND, "m"), -32601, None),
    (InvokeTool, Failure(Code.PLUGIN_ERROR, "m", detail={"plugin_code": -32050}), -32050, None),
    (InvokeTool, Failure(Code.PLUGIN_ERROR, "m", detail={"plugin_code": 10**12}), -32000, None),
    (InvokeTool, Failure(Code.PLUGIN_ERROR, "m", detail={"plugin_code": True}), -32000, None),
    (InvokeTool, Failure(Code.PLUGIN_ERROR, "m", detail={"plugin_code": "quota"}), -32000, {"code": "quota"}),
    (
        InvokeTool,
        Failure(Code.PLUGIN_ERROR, "m", detail={"plugin_code": "quota", "max_bytes": 1}),
        -32000,
        {"code": "quota", "max_bytes": 1},
    ),
    (InvokeTool, Failure(Code.INVALID_INPUT, "m", detail={"data": {"field": "city"}}), -32602, {"field": "city"}),
    (Shutdown, Failure(Code.INTERNAL, "m"), -32603, None),
    (SetStored, Failure(Code.UNAVAILABLE, "m", detail={"quota": "keys"}), -32000, {"code": "unavailable"}),
    (GetStored, Failure(Code.INVALID_INPUT, "m"), -32602, {"code": "invalid_input"}),
]


@requirement("kaged:wire-error-codes", "kaged:wire-error-data")
@pytest.mark.parametrize(("op", "failure", "number", "data"), OUT)
def test_a_failure_has_a_number_and_data_only_where_there_is_some(
    op: type, failure: Failure, number: int, data: Any
) -> None:
    assert errors.to_wire(op, failure) == (number, "m", data)


def test_an_error_reaches_the_peer_whatever_its_words_are() -> None:
    assert errors.to_wire(InvokeTool, Failure(Code.INTERNAL, " "))[1] == "it failed with internal"
    assert errors.to_wire(InvokeTool, Failure(Code.INTERNAL, "\udcff"))[1] == "\\udcff"
    assert len(errors.to_wire(InvokeTool, Failure(Code.INTERNAL, "x" * 1_000_000))[1]) == MAX_ERROR_TEXT
    assert len(errors.from_wire(CheckHealth, "m", {"message": "x" * 1_000_000}).message) == MAX_ERROR_TEXT


def test_what_is_not_declared_is_refused_with_what_is() -> None:
    failure = errors.not_declared("tool", "u", ["t"])
    assert (failure.code, failure.origin) == (Code.TOOL_NOT_EXPOSED, Origin.HOST)
    assert "'u'; it declares t" in failure.message
    assert "declares none" in errors.not_declared("tool", "u", []).message


@requirement("kaged:wire-error-data")
@pytest.mark.parametrize(("length", "kept"), [(errors.MAX_DATA - len(str({"a": ""})), True), (errors.MAX_DATA, False)])
def test_huge_data_of_an_error_is_left_out_and_its_size_is_told(length: int, kept: bool) -> None:
    data = {"a": "x" * length}
    detail = errors.from_wire(InvokeTool, "p.t", {"code": -32000, "message": "no", "data": data}).detail
    assert detail == {"plugin_code": -32000, **({"data": data} if kept else {"data_left_out": len(str(data))})}
