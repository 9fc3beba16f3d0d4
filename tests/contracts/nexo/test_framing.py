"""Limits of a line, and what becomes of a frame the other end would drop."""

from __future__ import annotations

from typing import Any

import pytest

from plugbay.contracts.nexo.messages import MAX_CHILD_LINE, MAX_HOST_LINE
from plugbay.model.errors import Code, Failure
from plugbay.model.events import CallArrived, CallFinished, Noise
from plugbay.model.operations import DeliverEvent, InvokeTool, Publish, RecallMemory, RunHook
from tests.contracts.nexo.talk import frames, host, line, plugin
from tests.support.requirements import requirement


def padded(message: dict[str, Any], size: int) -> bytes:
    """`message` as a line of exactly `size` bytes before its newline."""
    short = len(line({**message, "pad": ""})) - 1
    return line({**message, "pad": "x" * (size - short)})


@requirement("nexo:wire-limit-child")
@pytest.mark.parametrize(("size", "taken"), [(MAX_HOST_LINE, True), (MAX_HOST_LINE + 1, False)])
def test_a_plugin_reads_a_line_of_one_mebibyte_and_drops_a_longer_one_without_a_word(size: int, taken: bool) -> None:
    machine = plugin()
    request = {"id": 1, "method": "tool.invoke", "params": {"tool_name": "p_t"}}
    (event,) = machine.receive(padded(request, size))
    assert isinstance(event, CallArrived) is taken
    if not taken:
        assert isinstance(event, Noise)
        assert "max" in event.why
    assert frames(machine) == []
    assert len(machine.receive(line({"id": 2, "method": "initialize"}))) == 1


@requirement("nexo:wire-limit-host-reads")
@pytest.mark.parametrize(("size", "taken"), [(MAX_HOST_LINE * 2, True), (MAX_CHILD_LINE + 1, False)])
def test_a_host_reads_far_longer_lines_and_keeps_the_child_after_one_too_long(size: int, taken: bool) -> None:
    machine = host()
    machine.call(1, InvokeTool("p_t", machine.codec.dump({})))
    (event,) = machine.receive(padded({"id": 2, "result": 1}, size))
    assert isinstance(event, CallFinished if taken else Noise)
    assert machine.state == "ready"
    assert machine.receive(line({"id": 2, "result": 1})) == [CallFinished(1, None if taken else machine.codec.dump(1))]


def input_for_frame_of(size: int, call: int) -> str:
    machine = host()
    machine.call(call, InvokeTool("p_t", ""))
    return "x" * (size - (len(machine.outgoing()) - 1))


@requirement("nexo:wire-limit-host-sends")
def test_a_host_refuses_a_tool_call_the_child_would_drop() -> None:
    machine = host()
    refusal = machine.call(1, InvokeTool("p_t", input_for_frame_of(MAX_HOST_LINE, 1)))
    assert refusal is not None
    assert (refusal.code, refusal.detail["size"]) == (Code.FRAME_TOO_LARGE, MAX_HOST_LINE)
    assert machine.outgoing() == b""
    assert machine.receive(line({"id": 2, "result": 1}))[0].__class__ is Noise
    assert machine.call(2, InvokeTool("p_t", input_for_frame_of(MAX_HOST_LINE - 1, 2))) is None
    assert len(machine.outgoing()) == MAX_HOST_LINE


def test_a_host_refuses_any_other_call_the_child_would_drop() -> None:
    machine = host()
    refusal = machine.call(1, RunHook("before_message", "x" * MAX_HOST_LINE))
    assert refusal is not None
    assert refusal.code == Code.FRAME_TOO_LARGE
    assert frames(machine) == []


@requirement("nexo:wire-limit-host-sends")
def test_an_event_the_child_would_drop_is_refused() -> None:
    machine = host()
    for payload, code in (("x" * MAX_HOST_LINE, Code.FRAME_TOO_LARGE), (object(), Code.INVALID_INPUT)):
        refusal = machine.notify(DeliverEvent("t", payload))
        assert refusal is not None
        assert refusal.code == code
    assert machine.notify(DeliverEvent("t", "small")) is None
    assert [frame["params"]["event"] for frame in frames(machine)] == ["small"]


def test_an_answer_of_the_host_the_child_would_drop_becomes_an_error() -> None:
    machine = host()
    (asked,) = machine.receive(line({"id": "r", "method": "memory.recall", "params": {"agent_id": "a", "query": "q"}}))
    assert isinstance(asked, CallArrived)
    assert isinstance(asked.op, RecallMemory)
    machine.finish(asked.id, ["x" * MAX_HOST_LINE])
    (frame,) = frames(machine)
    assert (frame["id"], frame["error"]["code"]) == ("r", -32603)


def nested(levels: int) -> Any:
    value: Any = 0
    for _ in range(levels):
        value = [value]
    return value


UNSENDABLE = {"nan": float("nan"), "object": object(), "surrogate": "\ud800", "deep": nested(64), "key": {1: 2}}


@requirement("nexo:wire-result-unsendable")
@pytest.mark.parametrize("value", UNSENDABLE.values(), ids=list(UNSENDABLE))
@pytest.mark.parametrize(
    ("method", "params", "code"),
    [
        ("tool.invoke", {"tool_name": "p_t"}, -33403),
        ("hook.on_hook", {"hook_name": "h", "event": {}}, -32603),
    ],
)
def test_a_result_that_cannot_be_sent_is_an_error_without_data(value: Any, method: str, params: Any, code: int) -> None:
    machine = plugin()
    (asked,) = machine.receive(line({"id": 7, "method": method, "params": params}))
    assert isinstance(asked, CallArrived)
    machine.finish(asked.id, value)
    (frame,) = frames(machine)
    assert (frame["id"], frame["error"]["code"], frame["error"].keys()) == (7, code, {"code", "message"})


def test_a_result_over_the_hosts_limit_is_an_error() -> None:
    machine = plugin()
    (asked,) = machine.receive(line({"id": 7, "method": "tool.invoke", "params": {"tool_name": "p_t"}}))
    assert isinstance(asked, CallArrived)
    machine.finish(asked.id, "x" * MAX_CHILD_LINE)
    assert frames(machine)[0]["error"]["code"] == -33403


@pytest.mark.parametrize("details", UNSENDABLE.values(), ids=list(UNSENDABLE))
def test_an_error_whose_data_cannot_be_sent_goes_without_it(details: Any) -> None:
    machine = plugin()
    (asked,) = machine.receive(line({"id": 7, "method": "tool.invoke", "params": {"tool_name": "p_t"}}))
    assert isinstance(asked, CallArrived)
    machine.finish(asked.id, None, Failure(Code.INVALID_INPUT, "bad", detail={"details": details}))
    assert frames(machine) == [{"id": 7, "error": {"code": -33402, "message": "bad"}}]


@pytest.mark.parametrize("value", UNSENDABLE.values(), ids=list(UNSENDABLE))
def test_an_input_that_cannot_be_sent_is_refused_before_it_is(value: Any) -> None:
    machine = host()
    for refusal in (machine.call(1, InvokeTool("p_t", value)), machine.call(2, RunHook("h", value))):
        assert refusal is not None
        assert refusal.code == Code.INVALID_INPUT
    assert machine.outgoing() == b""


def test_a_plugin_may_publish_more_than_it_may_be_sent() -> None:
    machine = plugin()
    assert machine.notify(Publish("t", {"payload": "x" * MAX_HOST_LINE})) is None
    assert len(machine.outgoing()) > MAX_HOST_LINE
    refusal = machine.notify(Publish("t", {"payload": "x" * MAX_CHILD_LINE}))
    assert refusal is not None
    assert refusal.code == Code.FRAME_TOO_LARGE
    assert not machine.has_outgoing
