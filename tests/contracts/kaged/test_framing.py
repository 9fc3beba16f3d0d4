"""Limits of a line, and what becomes of a frame the other end would not take."""

from __future__ import annotations

from typing import Any

import pytest

from plugbay.contracts.kaged.messages import MAX_READ, MAX_SENT
from plugbay.model.errors import Code, Failure
from plugbay.model.events import CallArrived, CallFinished, Noise
from plugbay.model.operations import CallMethod, InvokeTool, Publish, RunHook, SetStored
from tests.contracts.kaged.talk import frames, host, line, plugin, request
from tests.support.requirements import requirement


def padded(message: dict[str, Any], size: int) -> bytes:
    """`message` as a line of exactly `size` bytes before its newline."""
    short = len(line({**message, "pad": ""})) - 1
    return line({**message, "pad": "x" * (size - short)})


@requirement("kaged:wire-limit")
@pytest.mark.parametrize(("size", "taken"), [(MAX_READ, True), (MAX_READ + 1, False)])
def test_a_plugin_reads_a_line_of_four_mebibytes_and_survives_a_longer_one(size: int, taken: bool) -> None:
    machine = plugin()
    (event,) = machine.receive(padded(request(1, "p.t"), size))
    assert isinstance(event, CallArrived if taken else Noise)
    assert frames(machine) == []
    machine.receive(line(request(2, "ping")))
    assert frames(machine) == [{"id": 2, "result": {"status": "ok"}}]


@requirement("kaged:wire-limit")
@pytest.mark.parametrize(("size", "taken"), [(MAX_READ, True), (MAX_READ + 1, False)])
def test_a_host_reads_a_line_of_four_mebibytes_and_keeps_the_plugin_after_a_longer_one(size: int, taken: bool) -> None:
    machine = host()
    machine.call(1, InvokeTool("t", machine.codec.dump({})))
    *noise, finished = machine.receive(padded({"id": 2, "result": 1}, size))
    assert isinstance(finished, CallFinished)
    assert (finished.failure is None, [type(event) for event in noise]) == (taken, [] if taken else [Noise])
    assert machine.state == "ready"
    assert machine.receive(line({"id": 2, "result": 1})) == [CallFinished(1)]


def input_for_frame_of(size: int) -> dict[str, str]:
    machine = host()
    machine.call(1, InvokeTool("t", {"pad": ""}))
    return {"pad": "x" * (size - (len(machine.outgoing()) - 1))}


@requirement("kaged:wire-limit-send")
def test_a_host_refuses_a_call_that_is_too_large_and_sends_one_that_just_fits() -> None:
    machine = host()
    refusal = machine.call(1, InvokeTool("t", input_for_frame_of(MAX_SENT + 1)))
    assert refusal is not None
    assert (refusal.code, refusal.detail) == (Code.FRAME_TOO_LARGE, {"size": MAX_SENT + 1, "limit": MAX_SENT})
    assert machine.outgoing() == b""
    assert machine.receive(line({"id": 2, "result": 1}))[0].__class__ is Noise
    assert machine.call(1, InvokeTool("t", input_for_frame_of(MAX_SENT))) is None
    assert len(machine.outgoing()) == MAX_SENT + 1


@requirement("kaged:wire-limit-send")
def test_a_plugin_refuses_a_request_and_a_notification_that_are_too_large() -> None:
    machine = plugin()
    machine.receive(line(request(1, "initialize")))
    machine.outgoing()
    refusal = machine.call(1, SetStored("k", "x" * MAX_SENT))
    assert refusal is not None
    assert refusal.code == Code.FRAME_TOO_LARGE
    refusals = [
        machine.notify(Publish("ticked", {"payload": payload})) for payload in ("x" * MAX_SENT, object(), {"n": 1})
    ]
    assert [refusal and refusal.code for refusal in refusals] == [Code.FRAME_TOO_LARGE, Code.INVALID_INPUT, None]
    assert frames(machine) == [{"method": "ticked", "params": {"n": 1}}]


def nested(levels: int) -> Any:
    value: Any = 0
    for _ in range(levels):
        value = [value]
    return value


UNSENDABLE = {"nan": float("nan"), "object": object(), "surrogate": "\ud800", "deep": nested(64), "key": {1: 2}}


@requirement("kaged:wire-result-unsendable")
@pytest.mark.parametrize("value", [*UNSENDABLE.values(), "x" * MAX_SENT], ids=[*UNSENDABLE, "large"])
@pytest.mark.parametrize("method", ["p.t", "p.report.daily", "kaged.hook.post_compact"])
def test_a_result_that_cannot_be_sent_is_an_internal_error(value: Any, method: str) -> None:
    machine = plugin()
    (asked,) = machine.receive(line(request(7, method, {})))
    assert isinstance(asked, CallArrived)
    machine.finish(asked.id, value)
    (frame,) = frames(machine)
    assert (frame["id"], frame["error"]["code"], frame["error"].keys()) == (7, -32603, {"code", "message"})


@pytest.mark.parametrize("data", UNSENDABLE.values(), ids=list(UNSENDABLE))
def test_an_error_whose_data_cannot_be_sent_goes_without_it(data: Any) -> None:
    machine = plugin()
    (asked,) = machine.receive(line(request(7, "p.t")))
    assert isinstance(asked, CallArrived)
    machine.finish(asked.id, None, Failure(Code.INVALID_INPUT, "bad", detail={"why": data}))
    assert frames(machine) == [{"id": 7, "error": {"code": -32602, "message": "bad"}}]


@pytest.mark.parametrize("value", UNSENDABLE.values(), ids=list(UNSENDABLE))
def test_an_input_that_cannot_be_sent_is_refused_before_it_is(value: Any) -> None:
    machine = host()
    ops: tuple[InvokeTool | CallMethod | RunHook, ...] = (
        InvokeTool("t", {"a": value}),
        CallMethod("p.report.daily", {"a": value}),
        RunHook("h", {"a": value}),
    )
    for number, op in enumerate(ops, 1):
        refusal = machine.call(number, op)
        assert refusal is not None
        assert refusal.code == Code.INVALID_INPUT
    assert machine.outgoing() == b""
    refusal = plugin().call(1, SetStored("k", value))
    assert refusal is not None
    assert refusal.code == Code.INVALID_INPUT
