"""The rune machine, both roles, with no process: every check in its order, every state, the pair."""

from __future__ import annotations

import json
from itertools import product
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plugbay.contracts.base import Misuse, Role
from plugbay.contracts.rune.machine import (
    ANSWERED,
    CALLING,
    CLOSED,
    FAILED,
    GREETING,
    READY,
    START,
    RuneMachine,
)
from plugbay.contracts.rune.messages import MAX_PLUGIN_LINE, Identity
from plugbay.model.errors import Code, Failure
from plugbay.model.events import CallArrived, CallFinished, Closed, Fault, Noise, Ready
from plugbay.model.operations import DeliverEvent, InvokeTool
from plugbay.wire.fast_json import MsgspecCodec
from plugbay.wire.strict_json import stdlib_codec
from tests.support.pairs import exchange
from tests.support.requirements import requirement

if TYPE_CHECKING:
    from plugbay.model.events import Event

REQUEST_ID = "plugin_req_0000000000000001"


def manifest(**changes: Any) -> dict[str, Any]:
    whole = {
        "plugin_id": "p",
        "plugin_version": "1",
        "protocol_version": "rterm.plugin.v1",
        "exposed_tools": ["t"],
        "capabilities": [],
    }
    return {key: value for key, value in (whole | changes).items() if value is not ...}


def hello(**changes: Any) -> dict[str, Any]:
    return {"type": "handshake", "manifest": manifest(**changes)}


def answer(**changes: Any) -> dict[str, Any]:
    whole = {"type": "response", "request_id": REQUEST_ID, "status": "ok", "output": {"n": 1}}
    return {key: value for key, value in (whole | changes).items() if value is not ...}


def line(message: Any) -> bytes:
    return message if isinstance(message, bytes) else json.dumps(message).encode() + b"\n"


def host(granted: tuple[str, ...] = ()) -> RuneMachine:
    machine = RuneMachine(Role.HOST, MsgspecCodec(), plugin_id="p", granted=granted)
    machine.greet()
    machine.outgoing()
    return machine


def calling(granted: tuple[str, ...] = ()) -> RuneMachine:
    machine = host(granted)
    machine.receive(line(hello(capabilities=list(granted))))
    assert machine.call(1, InvokeTool("t", machine.codec.dump({}))) is None
    machine.outgoing()
    return machine


def fault_code(events: list[Event]) -> str | None:
    faults = [event.failure.code for event in events if isinstance(event, Fault)]
    return faults[0] if faults else None


# The handshake, in the published order.

HANDSHAKES: list[tuple[str, Any, str | None]] = [
    ("a good one", hello(), None),
    ("a version padded with spaces", hello(protocol_version="  rterm.plugin.v1 "), None),
    ("unknown extra fields", {**hello(), "extra": 1}, None),
    ("capabilities missing", hello(capabilities=...), None),
    ("carriage return and newline", json.dumps(hello()).encode() + b"\r\n", None),
    ("wrong type", {**hello(), "type": "response"}, Code.HANDSHAKE_FAILED),
    ("an empty object", {}, Code.HANDSHAKE_FAILED),
    ("upper-case keys", {"TYPE": "handshake", "MANIFEST": manifest()}, Code.HANDSHAKE_FAILED),
    ("blank plugin_id", hello(plugin_id=" "), Code.HANDSHAKE_FAILED),
    ("blank plugin_version", hello(plugin_version=""), Code.HANDSHAKE_FAILED),
    ("no exposed_tools", hello(exposed_tools=...), Code.HANDSHAKE_FAILED),
    ("exposed_tools null", hello(exposed_tools=None), Code.HANDSHAKE_FAILED),
    ("exposed_tools empty", hello(exposed_tools=[]), Code.HANDSHAKE_FAILED),
    ("another plugin_id", hello(plugin_id="q"), Code.HANDSHAKE_FAILED),
    ("a padded plugin_id", hello(plugin_id=" p "), Code.HANDSHAKE_FAILED),
    ("manifest missing", {"type": "handshake"}, Code.PROTOCOL_VERSION_MISMATCH),
    ("manifest null", {"type": "handshake", "manifest": None}, Code.PROTOCOL_VERSION_MISMATCH),
    ("another version", hello(protocol_version="rterm.plugin.v0"), Code.PROTOCOL_VERSION_MISMATCH),
    (
        "another version and all else broken",
        hello(protocol_version="v0", plugin_id=""),
        Code.PROTOCOL_VERSION_MISMATCH,
    ),
    ("wrong type beats wrong version", {"type": "x", "manifest": {}}, Code.HANDSHAKE_FAILED),
    ("not JSON", b"hello\n", Code.MALFORMED_RESPONSE),
    ("an array", b"[]\n", Code.MALFORMED_RESPONSE),
    ("a scalar", b"1\n", Code.MALFORMED_RESPONSE),
    ("null", b"null\n", Code.MALFORMED_RESPONSE),
    ("exposed_tools of the wrong type", hello(exposed_tools="t"), Code.MALFORMED_RESPONSE),
    ("exposed_tools with a number", hello(exposed_tools=[1]), Code.MALFORMED_RESPONSE),
    ("plugin_id of the wrong type", hello(plugin_id=1), Code.MALFORMED_RESPONSE),
    ("manifest of the wrong type", {"type": "handshake", "manifest": []}, Code.MALFORMED_RESPONSE),
    ("a blank line first", b"\n" + line(hello()), Code.MALFORMED_RESPONSE),
    ("a log line first", b"starting\n" + line(hello()), Code.MALFORMED_RESPONSE),
    ("a byte order mark first", b"\xef\xbb\xbf" + line(hello()), Code.MALFORMED_RESPONSE),
    ("invalid UTF-8", b'{"type":"handshake","x":"\xff"}\n', Code.MALFORMED_RESPONSE),
]


@requirement("rune:handshake:first", "rune:handshake:manifest", "rune:handshake:identity", "rune:handshake:version")
@requirement("rune:frame:object")
@pytest.mark.parametrize(("message", "code"), [row[1:] for row in HANDSHAKES], ids=[row[0] for row in HANDSHAKES])
def test_a_handshake_is_judged_by_the_first_check_that_fails(message: Any, code: str | None) -> None:
    machine = host()
    events = machine.receive(line(message))
    assert fault_code(events) == code
    assert machine.state == (READY if code is None else FAILED)
    if code is None:
        assert events[0] == Ready({"plugin_id": "p", "plugin_version": "1", "exposed_tools": ["t"], "capabilities": []})


# Tools and capabilities, judged when something is asked.

CAPABILITIES: list[tuple[str, tuple[str, ...], Any, str | None]] = [
    ("granted and declared", ("a",), ["a"], None),
    ("a subset is enough", ("a", "b"), ["b"], None),
    ("nothing granted, nothing declared", (), [], None),
    ("granted but the list is empty", ("a",), [], Code.CAPABILITY_NOT_DECLARED),
    ("granted but the list is missing", ("a",), ..., Code.CAPABILITY_NOT_DECLARED),
    ("granted but the list is null", ("a",), None, Code.CAPABILITY_NOT_DECLARED),
    ("a blank entry", ("a",), [" "], Code.CAPABILITY_NOT_DECLARED),
    ("a padded entry", ("a",), [" a"], Code.CAPABILITY_NOT_DECLARED),
    ("a repeated entry", ("a",), ["a", "a"], Code.CAPABILITY_NOT_DECLARED),
    ("outside the grants", ("a",), ["b"], Code.CAPABILITY_NOT_ALLOWED),
    ("outside, in another case", ("a",), ["A"], Code.CAPABILITY_NOT_ALLOWED),
    ("declared though nothing is granted", (), ["a"], Code.CAPABILITY_NOT_ALLOWED),
    ("first offence decides: not allowed", ("a",), ["z", "z"], Code.CAPABILITY_NOT_ALLOWED),
    ("first offence decides: not declared", ("a",), ["a", "a", "z"], Code.CAPABILITY_NOT_DECLARED),
]


@requirement("rune:capability:declared", "rune:capability:subset", "rune:capability:form")
@pytest.mark.parametrize(
    ("granted", "declared", "code"), [row[1:] for row in CAPABILITIES], ids=[row[0] for row in CAPABILITIES]
)
def test_capabilities_are_scanned_in_order_against_the_grants(
    granted: tuple[str, ...], declared: Any, code: str | None
) -> None:
    machine = host(granted)
    machine.receive(line(hello(capabilities=declared)))
    refusal = machine.call(1, InvokeTool("t", machine.codec.dump({})))
    assert (refusal.code if refusal else None) == code
    assert bool(machine.outgoing()) is (code is None)


@requirement("rune:tool:exposed")
@pytest.mark.parametrize("tool", ["u", " t", "T", ""])
def test_the_tool_is_checked_before_the_capabilities_and_nothing_is_sent(tool: str) -> None:
    machine = host()
    machine.receive(line(hello(capabilities=["not granted"])))
    refusal = machine.call(1, InvokeTool(tool, machine.codec.dump({})))
    assert refusal is not None
    assert refusal.code == Code.TOOL_NOT_EXPOSED
    assert machine.outgoing() == b""


# The response.

RESPONSES: list[tuple[str, Any, str | None]] = [
    ("ok", answer(), None),
    ("error null beside ok", answer(error=None), None),
    ("metadata object", answer(metadata={"a": 1}), None),
    ("unknown extra fields", answer(structured=1), None),
    ("not JSON", b"done\n", Code.MALFORMED_RESPONSE),
    ("an array", b"[]\n", Code.MALFORMED_RESPONSE),
    ("null", b"null\n", Code.MALFORMED_RESPONSE),
    ("two objects on one line", line(answer()).strip() + line(answer()), Code.MALFORMED_RESPONSE),
    ("NaN", b'{"type":"response","request_id":"%s","status":"ok","output":NaN}\n', Code.MALFORMED_RESPONSE),
    ("request_id missing", answer(request_id=...), Code.MALFORMED_RESPONSE),
    ("another request_id", answer(request_id="plugin_req_2"), Code.MALFORMED_RESPONSE),
    ("status missing", answer(status=...), Code.MALFORMED_RESPONSE),
    ("status in upper case", answer(status="OK"), Code.MALFORMED_RESPONSE),
    ("wrong type", answer(type="handshake"), Code.MALFORMED_RESPONSE),
    ("ok with an empty error", answer(error={}), Code.MALFORMED_RESPONSE),
    ("ok with an error", answer(error={"code": "x", "message": "y"}), Code.MALFORMED_RESPONSE),
    ("error without an error object", answer(status="error"), Code.MALFORMED_RESPONSE),
    ("error without a message", answer(status="error", error={"code": "x"}), Code.MALFORMED_RESPONSE),
    ("error with a blank message", answer(status="error", error={"message": " "}), Code.MALFORMED_RESPONSE),
    ("metadata of the wrong type", answer(metadata=[1]), Code.MALFORMED_RESPONSE),
]


@requirement("rune:response:one", "rune:response:error")
@pytest.mark.parametrize(("message", "code"), [row[1:] for row in RESPONSES], ids=[row[0] for row in RESPONSES])
def test_a_response_is_taken_whole_or_refused_as_malformed(message: Any, code: str | None) -> None:
    machine = calling()
    events = machine.receive(line(message))
    assert fault_code(events) == code
    assert machine.state == (ANSWERED if code is None else FAILED)


@pytest.mark.parametrize(("output", "value"), [(..., None), (None, None), (5, 5), ({"a": [1]}, {"a": [1]})], ids=str)
def test_an_output_may_be_anything_or_nothing(output: Any, value: Any) -> None:
    machine = calling()
    (event,) = machine.receive(line(answer(output=output)))
    assert isinstance(event, CallFinished)
    assert (None if event.value is None else machine.codec.load(event.value)) == value


def test_an_error_response_is_the_plugins_own_failure() -> None:
    machine = calling()
    (event,) = machine.receive(line(answer(status="error", error={"code": "invalid_input", "message": "no"})))
    assert isinstance(event, CallFinished)
    assert event.failure is not None
    assert (event.failure.code, event.failure.message) == (Code.INVALID_INPUT, "no")


@requirement("rune:frame:limit")
@pytest.mark.parametrize(("size", "code"), [(MAX_PLUGIN_LINE, None), (MAX_PLUGIN_LINE + 1, Code.MALFORMED_RESPONSE)])
def test_a_line_may_have_exactly_one_mebibyte_after_trimming(size: int, code: str | None) -> None:
    machine = calling()
    empty = len(line(answer(output="")).strip())
    body = line(answer(output="x" * (size - empty))).strip()
    assert len(body) == size
    assert fault_code(machine.receive(b"  " + body + b" \r\n")) == code


def test_output_after_the_answer_is_noise_and_the_machine_wants_no_more() -> None:
    machine = calling()
    machine.receive(line(answer()))
    assert machine.satisfied
    assert machine.receive(b"bye\n") == [Noise(b"bye", "output after the answer")]


def test_a_message_before_anything_was_asked_is_malformed() -> None:
    machine = host()
    machine.receive(line(hello()))
    assert fault_code(machine.receive(line(answer()))) == Code.MALFORMED_RESPONSE


# End of output.

ENDINGS: list[tuple[str, bytes, bool, str | None]] = [
    ("nothing before the handshake", b"", False, Code.CRASHED),
    ("half a handshake", b'{"type":"hand', False, Code.MALFORMED_RESPONSE),
    ("a whole handshake without newline", line(hello()).strip(), False, Code.CRASHED),
    ("nothing after the handshake", line(hello()), False, Code.CRASHED),
    ("nothing before the response", b"", True, Code.CRASHED),
    ("half a response", b'{"type":"resp', True, Code.MALFORMED_RESPONSE),
    ("a whole response without newline", line(answer()).strip(), True, None),
]


@pytest.mark.parametrize(("rest", "asked", "code"), [row[1:] for row in ENDINGS], ids=[row[0] for row in ENDINGS])
def test_the_end_of_output_is_a_crash_unless_something_was_said(rest: bytes, asked: bool, code: str | None) -> None:
    machine = calling() if asked else host()
    events = machine.receive(rest) + machine.receive_eof()
    assert fault_code(events) == code
    if code is None:
        assert events[-1] == Closed()
    assert machine.receive_eof() == []


# The pair.


def plugin(tools: tuple[str, ...] = ("t",), capabilities: tuple[str, ...] = ()) -> RuneMachine:
    identity = Identity("p", "1", tools, capabilities)
    machine = RuneMachine(Role.PLUGIN, stdlib_codec(), identity=identity)
    machine.greet()
    return machine


def conversation(value: Any = None, failure: Failure | None = None) -> list[Event]:
    """What the host reports when a plugin machine answers with this."""
    machine, peer = RuneMachine(Role.HOST, MsgspecCodec(), plugin_id="p", nonce=7), plugin()
    machine.greet()
    seen, _ = exchange(machine, peer)
    assert isinstance(seen[0], Ready)
    machine.call(3, InvokeTool("t", machine.codec.dump({"text": "ü"}), {"workspace_id": "w"}))
    _, arrived = exchange(machine, peer)
    (call,) = arrived
    assert isinstance(call, CallArrived)
    assert call.op == InvokeTool("t", {"text": "ü"}, {"workspace_id": "w"})
    peer.finish(call.id, value, failure)
    return exchange(machine, peer)[0]


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(json_values)
def test_any_json_value_travels_from_a_plugin_to_its_host_unchanged(value: Any) -> None:
    try:
        (event,) = conversation(value)
    except UnicodeEncodeError:
        pytest.fail("text that is not Unicode must be refused, not raised")
    assert isinstance(event, CallFinished)
    got = MsgspecCodec().load(event.value)
    assert got == value
    assert type(got) is type(value)


def test_a_failure_travels_with_its_code_and_message() -> None:
    (event,) = conversation(failure=Failure(Code.PLUGIN_ERROR, "full", detail={"plugin_code": "quota"}))
    assert isinstance(event, CallFinished)
    assert event.failure is not None
    assert (event.failure.message, event.failure.detail) == ("full", {"plugin_code": "quota"})


def nested(levels: int) -> Any:
    value: Any = 0
    for _ in range(levels):
        value = [value]
    return value


@pytest.mark.parametrize(
    "value",
    [float("nan"), {1, 2}, "\ud800", "x" * MAX_PLUGIN_LINE, nested(100)],
    ids=["nan", "set", "surrogate", "huge", "deep"],
)
def test_a_result_that_cannot_be_sent_becomes_an_error_response(value: Any) -> None:
    (event,) = conversation(value)
    assert isinstance(event, CallFinished)
    assert event.failure is not None
    assert event.failure.detail == {"plugin_code": "internal"}


@requirement("rune:frame:line")
@pytest.mark.parametrize("chunk", [1, 2, 7, 64])
def test_the_conversation_is_the_same_in_any_chunks(chunk: int) -> None:
    machine = host()
    data = line(hello())
    events = [event for at in range(0, len(data), chunk) for event in machine.receive(data[at : at + chunk])]
    assert [type(event) for event in events] == [Ready]


def test_a_plugin_leaves_in_good_order_when_its_input_ends_before_a_request() -> None:
    machine, peer = host(), plugin()
    machine.greet() if machine.state == START else None
    assert peer.receive(b'{"type":"handshake","protocol_version":"rterm.plugin.v1","new":1}\r\n') == [
        Ready({"protocol_version": "rterm.plugin.v1"})
    ]
    assert peer.receive_eof() == [Closed()]


@pytest.mark.parametrize(
    "lines",
    [
        [b"junk\n"],
        [b'{"type":"request"}\n'],
        [b'{"type":"handshake"}\n', b'{"type":"request","request_id":1}\n'],
    ],
    ids=["junk", "request before the handshake", "request without its keys"],
)
def test_a_host_that_breaks_the_contract_is_a_fault_for_the_plugin(lines: list[bytes]) -> None:
    peer = plugin()
    events = [event for data in lines for event in peer.receive(data)]
    assert isinstance(events[-1], Fault)


@requirement("rune:plugin:one-request")
@pytest.mark.parametrize("more", [line({"type": "request", "request_id": "r2", "tool_name": "t"}), b"junk\n", b"\n"])
def test_a_plugin_drops_everything_after_its_request_and_still_answers(more: bytes) -> None:
    peer = plugin()
    request = line({"type": "request", "request_id": "r1", "tool_name": "t", "context": {}, "input": {}})
    events = peer.receive(line({"type": "handshake"}) + request + more)
    assert [type(event) for event in events] == [Ready, CallArrived, Noise]
    peer.outgoing()
    peer.finish("r1", {"a": 1})
    assert json.loads(peer.outgoing())["request_id"] == "r1"
    assert [type(event) for event in peer.receive(more)] == [Noise]


@requirement("rune:messages:absent")
@pytest.mark.parametrize(
    ("message", "words"),
    [
        ({}, "the first message has no type"),
        ({"type": "handshake"}, "names no protocol_version in its manifest"),
        ({"type": "handshake", "manifest": {"protocol_version": "v0"}}, "the plugin speaks 'v0', this host speaks"),
    ],
)
def test_a_field_that_the_handshake_lacks_is_named(message: Any, words: str) -> None:
    (event,) = host().receive(line(message))
    assert isinstance(event, Fault)
    assert words in event.failure.message
    assert "ABSENT" not in event.failure.message


@requirement("rune:messages:absent")
@pytest.mark.parametrize(
    ("field", "words"),
    [("type", "has no type"), ("request_id", "has no request_id"), ("status", "has no status")],
)
def test_a_field_that_a_response_lacks_is_named(field: str, words: str) -> None:
    message = {key: value for key, value in answer().items() if key != field}
    (event,) = calling().receive(line(message))
    assert isinstance(event, Fault)
    assert words in event.failure.message
    assert "ABSENT" not in event.failure.message


# Every (state, verb) pair of our own.


def in_state(state: str, role: str) -> RuneMachine:
    machine = RuneMachine(role, stdlib_codec(), plugin_id="p", identity=Identity("p", "1", ("t",)))
    machine.state = state
    return machine


@pytest.mark.parametrize(
    ("role", "state"),
    list(product((Role.HOST, Role.PLUGIN), (START, GREETING, READY, CALLING, ANSWERED, CLOSED, FAILED))),
)
def test_what_we_ask_of_a_machine_is_in_its_table_or_our_own_bug(role: str, state: str) -> None:
    machine = in_state(state, role)
    if (role, state, "greet") in RuneMachine.TRANSITIONS:
        machine.greet()
    else:
        with pytest.raises(Misuse):
            machine.greet()
    machine = in_state(state, role)
    machine.close("test")
    assert machine.state == CLOSED


def test_rune_carries_tools_from_the_host_and_nothing_else() -> None:
    with pytest.raises(Misuse, match="cannot carry DeliverEvent"):
        in_state(READY, Role.HOST).call(1, DeliverEvent("t", 1))
    with pytest.raises(Misuse, match="no notifications"):
        in_state(READY, Role.HOST).notify(DeliverEvent("t", 1))
    with pytest.raises(Misuse, match="not the request"):
        in_state(CALLING, Role.PLUGIN).finish("other", 1)


def test_a_cancelled_call_hears_nothing_more() -> None:
    machine = calling()
    machine.cancel(1, "deadline_exceeded")
    assert machine.receive(line(answer())) == []
    assert machine.receive_eof() == []
