"""Numbers on the wire to our codes and back, in both directions."""

from __future__ import annotations

from typing import Any

import pytest

from plugbay.contracts.ainb.errors import MAX_DATA, from_host, from_plugin, not_found, to_host, to_plugin
from plugbay.model.errors import CODES, Code, Failure, Origin
from plugbay.model.operations import DispatchCli, FetchUrl, GetSnapshot, InvokeAction, ReadFile, Render
from tests.support.requirements import requirement

FROM_PLUGIN: list[tuple[type, int, str]] = [
    (Render, -32601, Code.TOOL_NOT_EXPOSED),
    (DispatchCli, -32601, Code.TOOL_NOT_EXPOSED),
    (InvokeAction, -32601, Code.NOT_FOUND),
    (Render, -32602, Code.INVALID_INPUT),
    (DispatchCli, -32001, Code.CAPABILITY_NOT_ALLOWED),
    (InvokeAction, -32002, Code.TIMEOUT),
    (Render, -32003, Code.PLUGIN_ERROR),
    (Render, -32603, Code.PLUGIN_ERROR),
    (Render, 7, Code.PLUGIN_ERROR),
]


@requirement("ainb:wire-errors")
@pytest.mark.parametrize(("op", "number", "code"), FROM_PLUGIN, ids=str)
def test_a_plugins_number_is_one_of_our_codes_and_survives(op: type, number: int, code: str) -> None:
    failure = from_plugin(op, "m", {"code": number, "message": "why", "data": {"a": 1}})
    assert (failure.code, failure.message, failure.origin) == (code, "why", Origin.PLUGIN)
    assert failure.detail == {"plugin_code": number, "data": {"a": 1}}


FROM_HOST: list[tuple[int, str]] = [
    (-32601, Code.UNAVAILABLE),
    (-32602, Code.INVALID_INPUT),
    (-32001, Code.CAPABILITY_NOT_ALLOWED),
    (-32002, Code.TIMEOUT),
    (-32603, Code.INTERNAL),
    (-32004, Code.INTERNAL),
]


@requirement("ainb:wire-errors")
@pytest.mark.parametrize(("number", "code"), FROM_HOST)
def test_a_hosts_number_is_one_of_our_codes(number: int, code: str) -> None:
    failure = from_host("m", {"code": number, "message": "why"})
    assert (failure.code, failure.origin, failure.detail) == (code, Origin.HOST, {"plugin_code": number})


@requirement("ainb:wire-denied")
@pytest.mark.parametrize(
    ("message", "capability"),
    [("capability denied: network", "network"), ("no", None), ("capability denied: a: b", "a: b")],
)
def test_a_denial_names_what_is_lacking_where_the_host_says_it(message: str, capability: str | None) -> None:
    assert from_host("m", {"code": -32001, "message": message}).detail.get("capability") == capability


@pytest.mark.parametrize("error", ["no", 5, [], True])
def test_an_error_that_is_no_object_is_malformed(error: Any) -> None:
    for failure in (from_plugin(Render, "m", error), from_host("m", error)):
        assert failure.code == Code.MALFORMED_RESPONSE


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        ({}, Code.PLUGIN_ERROR, "an error without a message"),
        ({"code": "x", "message": 5}, Code.PLUGIN_ERROR, "an error without a message"),
        ({"code": -32602, "message": " "}, Code.INVALID_INPUT, "error -32602 without a message"),
        ({"code": True, "message": "m"}, Code.PLUGIN_ERROR, "m"),
    ],
    ids=str,
)
def test_an_error_with_parts_missing_is_still_one(error: Any, code: str, message: str) -> None:
    failure = from_plugin(Render, "m", error)
    assert (failure.code, failure.message) == (code, message)


def test_huge_data_is_left_out_and_its_size_is_not() -> None:
    failure = from_plugin(Render, "m", {"code": 1, "message": "m", "data": "x" * (MAX_DATA + 1)})
    assert failure.detail == {"plugin_code": 1, "data_left_out": MAX_DATA + 1}


def test_a_huge_message_is_cut() -> None:
    assert len(from_plugin(Render, "m", {"code": 1, "message": "x" * 1_000_000}).message) < 100_000


ACTION = InvokeAction("act", b"", 5)

TO_PLUGIN: list[tuple[Any, Failure, tuple[int, str]]] = [
    (
        GetSnapshot("t"),
        Failure(Code.CAPABILITY_NOT_ALLOWED, "x", detail={"capability": "event_bus"}),
        (-32001, "capability denied: event_bus"),
    ),
    (
        FetchUrl("u"),
        Failure(Code.CAPABILITY_NOT_ALLOWED, "x", detail={"capability": "network=a.b"}),
        (-32001, "capability denied: network"),
    ),
    (FetchUrl("u"), Failure(Code.CAPABILITY_NOT_ALLOWED, "nope"), (-32001, "capability denied: nope")),
    (ACTION, Failure(Code.TIMEOUT, "x"), (-32002, "action timed out: act")),
    (FetchUrl("u"), Failure(Code.TIMEOUT, "slow"), (-32603, "slow")),
    (ReadFile("p"), Failure(Code.INVALID_INPUT, "bad"), (-32602, "bad")),
    (ACTION, Failure(Code.NOT_FOUND, "unknown action"), (-32602, "unknown action")),
    (ReadFile("p"), Failure(Code.FRAME_TOO_LARGE, "large"), (-32602, "large")),
    (FetchUrl("u"), Failure(Code.FRAME_TOO_LARGE, "large"), (-32602, "large")),
    (GetSnapshot("t"), Failure(Code.FRAME_TOO_LARGE, "large"), (-32603, "large")),
    (ACTION, Failure(Code.UNAVAILABLE, "x"), (-32601, "method not found: the/method")),
    (ACTION, Failure(Code.NOT_FOUND, "x", detail={"absent": True}), (-32601, "method not found: the/method")),
    (ACTION, Failure(Code.PLUGIN_ERROR, "no", detail={"plugin_code": -9}), (-32603, "no")),
    (ACTION, Failure(Code.INTERNAL, " "), (-32603, "it failed with internal")),
]


@requirement("ainb:wire-errors", "ainb:wire-denied", "ainb:wire-action-timeout")
@pytest.mark.parametrize(("op", "failure", "error"), TO_PLUGIN, ids=str)
def test_what_a_host_tells_a_plugin_of_its_failures(op: Any, failure: Failure, error: tuple[int, str]) -> None:
    assert to_plugin(op, "the/method", failure) == (*error, None)


@requirement("ainb:wire-errors")
@pytest.mark.parametrize(
    ("failure", "number"),
    [
        (Failure(Code.PLUGIN_ERROR, "m", detail={"plugin_code": -32001}), -32001),
        (Failure(Code.PLUGIN_ERROR, "m", detail={"plugin_code": 2**31}), -32603),
        (Failure(Code.PLUGIN_ERROR, "m", detail={"plugin_code": "word"}), -32603),
        (Failure(Code.PLUGIN_ERROR, "m", detail={"plugin_code": True}), -32603),
        (Failure(Code.INVALID_INPUT, "m"), -32602),
        (Failure(Code.NOT_FOUND, "m"), -32602),
        (Failure(Code.TOOL_NOT_EXPOSED, "m"), -32601),
        (Failure(Code.CAPABILITY_NOT_ALLOWED, "m"), -32001),
        (Failure(Code.TIMEOUT, "m"), -32002),
        (Failure(Code.UNAVAILABLE, "m"), -32603),
    ],
    ids=str,
)
def test_a_handlers_failure_has_its_own_number_or_that_of_its_code(failure: Failure, number: int) -> None:
    assert to_host(failure) == (number, "m", None)


def test_data_travels_when_it_is_an_object_and_nothing_else_of_the_detail_does() -> None:
    given = Failure(Code.INTERNAL, "m", detail={"data": {"a": 1}, "stderr": "secret"})
    assert to_host(given)[2] == {"a": 1}
    assert to_plugin(GetSnapshot("t"), "m", given)[2] == {"a": 1}
    assert to_host(Failure(Code.INTERNAL, "m", detail={"data": [1]}))[2] is None


@pytest.mark.parametrize("code", sorted(CODES))
def test_every_failure_there_is_has_a_number_both_ways(code: str) -> None:
    assert to_host(Failure(code, "m"))[0] < 0
    assert to_plugin(ACTION, "m", Failure(code, "m"))[0] < 0


@requirement("ainb:wire-unknown-method")
def test_an_unknown_method_is_named() -> None:
    assert not_found("a/b") == (-32601, "method not found: a/b")
