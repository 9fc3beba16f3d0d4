"""The kaged machine, both roles, with no process: every kind of frame, every state, the pair."""

from __future__ import annotations

import json
from itertools import product
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plugbay.contracts.base import Misuse, Role
from plugbay.contracts.kaged.machine import KagedMachine
from plugbay.contracts.kaged.messages import MAX_READ, MAX_SENT
from plugbay.contracts.kaged.storage import READ
from plugbay.contracts.rpc import CLOSED, CLOSING, FAILED, GREETING, READY, START
from plugbay.model.errors import Code, Failure, Origin
from plugbay.model.events import CallArrived, CallFinished, Closed, Fault, Noise, Notified, Ready
from plugbay.model.operations import (
    CallMethod,
    CheckHealth,
    DeleteStored,
    DeliverEvent,
    GetStored,
    InvokeTool,
    ListStored,
    Publish,
    RecallMemory,
    RunHook,
    SetStored,
    Shutdown,
)
from plugbay.wire.fast_json import MsgspecCodec
from plugbay.wire.strict_json import stdlib_codec
from tests.contracts.kaged.talk import SURFACE, frames, greeting, hello, host, line, plugin, request
from tests.support.codecs import CODECS
from tests.support.pairs import exchange
from tests.support.requirements import requirement

if TYPE_CHECKING:
    from plugbay.model.events import Event
    from plugbay.wire.strict_json import Codec


def fault(events: list[Event]) -> Failure | None:
    faults = [event.failure for event in events if isinstance(event, Fault)]
    return faults[0] if faults else None


def finished(events: list[Event]) -> CallFinished:
    (event,) = events
    assert isinstance(event, CallFinished)
    return event


def asked(events: list[Event]) -> CallArrived:
    (event,) = events
    assert isinstance(event, CallArrived)
    return event


def invoke(machine: KagedMachine, id: int = 1, value: Any = None) -> None:
    assert machine.call(id, InvokeTool("t", machine.codec.dump(value or {}))) is None


# The greeting.


@requirement("kaged:wire-initialize", "kaged:wire-initialized")
def test_the_greeting_is_the_one_of_the_real_plugin_byte_for_byte(codec: Codec) -> None:
    name, tools = "memory-markdown", ("retain", "recall", "forget", "list_tags")
    machine = KagedMachine(
        Role.HOST,
        codec,
        plugin_name=name,
        version="0.1.1",
        tools=tools,
        capabilities=("kaged:storage:read", "net:[]"),
        storage=True,
        projects=("proj_test",),
    )
    machine.greet()
    assert machine.outgoing() == (
        b'{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"daemon_version":"0.1.0","api_version":1,'
        b'"plugin_name":"memory-markdown","storage_available":true,"projects":["proj_test"]}}\n'
    )
    reply = {
        "name": name,
        "version": "0.1.0",
        "api_version": 1,
        "methods": [f"{name}.{tool}" for tool in tools],
        "notifications": [],
        "capabilities_used": ["kaged:storage:read"],
    }
    said = {
        "plugin_id": name,
        "server_version": "0.1.0",
        "exposed_tools": list(tools),
        "warnings": ["says it is version 0.1.0; its manifest says 0.1.1"],
    }
    assert machine.receive(line({"jsonrpc": "2.0", "id": 1, "result": reply})) == [Ready(said)]
    assert machine.outgoing() == b'{"jsonrpc":"2.0","method":"initialized","params":{}}\n'
    assert machine.state == READY


@requirement("kaged:wire-config")
def test_settings_travel_in_initialize_when_there_are_some() -> None:
    machine = KagedMachine(
        Role.HOST, stdlib_codec(), plugin_name="p", config={"store": "x"}, system_config={"key": "s"}
    )
    machine.greet()
    (frame,) = frames(machine)
    assert (frame["params"]["config"], frame["params"]["system_config"]) == ({"store": "x"}, {"key": "s"})
    peer = plugin()
    (ready,) = peer.receive(line({"jsonrpc": "2.0", **frame}))
    assert isinstance(ready, Ready)
    assert (ready.hello["config"], ready.hello["system_config"]) == ({"store": "x"}, {"key": "s"})


@pytest.mark.parametrize("config", [{"a": object()}, {"a": "x" * MAX_SENT}], ids=["no json", "too large"])
def test_settings_that_cannot_be_sent_are_our_own_bug(codec: Codec, config: Any) -> None:
    machine = KagedMachine(Role.HOST, codec, plugin_name="p", config=config)
    with pytest.raises(Misuse, match="configuration cannot be sent"):
        machine.greet()


@requirement("kaged:wire-hello", "kaged:wire-api-version", "kaged:wire-capabilities-used")
@pytest.mark.parametrize(
    ("answer", "code", "words"),
    [
        ({"error": {"code": -32603, "message": "no disk"}}, Code.HANDSHAKE_FAILED, "refused initialize: no disk"),
        ({"error": None, "result": hello()}, Code.HANDSHAKE_FAILED, "refused initialize"),
        ({}, Code.HANDSHAKE_FAILED, "not an object"),
        ({"result": None}, Code.HANDSHAKE_FAILED, "not an object"),
        ({"result": hello(name="q")}, Code.HANDSHAKE_FAILED, "'q', not 'p'"),
        ({"result": hello(methods=["p.other"])}, Code.HANDSHAKE_FAILED, "p.other"),
        ({"result": hello(api_version=2)}, Code.PROTOCOL_VERSION_MISMATCH, "version 2"),
        ({"result": hello(capabilities_used=["net:*"])}, Code.CAPABILITY_NOT_DECLARED, "net:*"),
    ],
    ids=str,
)
def test_a_plugin_that_is_not_accepted_is_a_fault(answer: Any, code: str, words: str) -> None:
    machine = greeting()
    failure = fault(machine.receive(line({"id": 1, **answer})))
    assert failure is not None
    assert failure.code == code
    assert words in failure.message
    assert (machine.state, machine.outgoing()) == (FAILED, b"")
    assert machine.receive(line({"id": 1, "result": hello()})) == []


@requirement("kaged:wire-before-ready")
def test_before_the_greeting_requests_are_refused_and_notifications_dropped() -> None:
    machine = greeting()
    assert machine.receive(line(request(5, "kaged.storage.get", {"key": "k"}))) == []
    (frame,) = frames(machine)
    assert (frame["id"], frame["error"]["code"]) == (5, -32603)
    (noise,) = machine.receive(line({"method": "ticked", "params": {}}))
    assert isinstance(noise, Noise)
    assert isinstance(machine.receive(line({"id": 1, "result": hello()}))[0], Ready)


# What a frame is to the host.

GET = {"method": "kaged.storage.get", "params": {"key": "k"}}
TICKED = {"method": "ticked", "params": {"n": 1}}
NOTIFIED = Notified(Publish("plugin.p.ticked", {"payload": {"n": 1}}))
HOST_FRAMES: list[tuple[str, Any, Any]] = [
    ("a request", {"jsonrpc": "2.0", "id": 9, **GET}, CallArrived(1, GetStored("k"))),
    ("without jsonrpc", {"id": 9, **GET}, CallArrived(1, GetStored("k"))),
    ("a string id", {"id": "x", **GET}, CallArrived(1, GetStored("k"))),
    ("a null id", {"id": None, **GET}, CallArrived(1, GetStored("k"))),
    ("a float id", {"id": 1.5, **GET}, CallArrived(1, GetStored("k"))),
    ("an id that is an answer's", {"id": 2, **GET}, CallArrived(1, GetStored("k"))),
    ("a notification", TICKED, NOTIFIED),
    ("a notification without params", {"method": "ticked"}, Notified(Publish("plugin.p.ticked", {"payload": None}))),
    ("CRLF", line(TICKED)[:-1] + b"\r\n", NOTIFIED),
    ("blanks around", b"  " + line(TICKED)[:-1] + b" \n", NOTIFIED),
    (
        "line separators that are none",
        '{"method":"ticked","params":"\u2028\u0085\u2029"}\n'.encode(),
        Notified(Publish("plugin.p.ticked", {"payload": "\u2028\u0085\u2029"})),
    ),
    ("a blank line", b"\n", None),
    ("a line of blanks", b" \t\r\n", None),
    ("an answer", {"id": 2, "result": 5}, CallFinished(1, 5)),
    ("an answer with an empty method", {"id": 2, "method": "", "result": 5}, CallFinished(1, 5)),
    ("an answer with a method that is not a name", {"id": 2, "method": 7, "result": 5}, CallFinished(1, 5)),
    ("a late answer", {"id": 1, "result": 5}, CallFinished(0)),
    ("an answer to nothing", {"id": 77, "result": 5}, "unknown call"),
    ("an answer to zero", {"id": 0, "result": 5}, "unknown call"),
    ("an error to zero", {"id": 0, "error": {"code": -32700, "message": "parse"}}, "unknown call"),
    ("an error to null", {"id": None, "error": {"code": -32700, "message": "parse"}}, "an answer to an unknown call"),
    ("an answer to a negative id", {"id": -1, "result": 5}, "unknown call"),
    ("an answer to a string", {"id": "2", "result": 5}, "an answer to an unknown call"),
    ("an answer to a float", {"id": 2.0, "result": 5}, "an answer to an unknown call"),
    ("an answer to true", {"id": True, "result": 5}, "an answer to an unknown call"),
    ("an answer to an array", {"id": [2], "result": 5}, "an answer to an unknown call"),
    ("an empty object", {}, "an answer to an unknown call"),
    ("a request with an array as id", {"id": [1], **GET}, "id is neither"),
    ("a request with true as id", {"id": True, **GET}, "id is neither"),
    ("storage without an id", GET, "does not declare"),
    ("an undeclared notification", {"method": "rang"}, "'rang' that the manifest does not declare"),
    ("the topic instead of the name", {"method": "plugin.p.ticked"}, "does not declare"),
    ("a log line", b"starting up\n", "malformed"),
    ("half an object", b'{"id":\n', "malformed"),
    ("a batch", b'[{"id":2,"result":5}]\n', "a batch"),
    ("a number", b"42\n", "not an object"),
    ("null", b"null\n", "not an object"),
    ("invalid UTF-8", b'{"method":"\xff"}\n', "malformed"),
    ("a byte order mark", b"\xef\xbb\xbf{}\n", "malformed"),
    ("NaN", b'{"id":3,"result":NaN}\n', "malformed"),
]


@requirement("kaged:wire-useless-answer")
@pytest.mark.parametrize(
    ("answer", "code"),
    [
        (b'{"id":2,"result":NaN}', Code.MALFORMED_RESPONSE),
        (b'{"jsonrpc":"2.0","id":2,"result":{"n":%d}}' % (10**40), Code.MALFORMED_RESPONSE),
        (b'{"jsonrpc":"2.0","id":2,"result":{"half', Code.MALFORMED_RESPONSE),
        (b'{"jsonrpc":"2.0","id":2,"result":"' + b"x" * MAX_READ + b'"}', Code.FRAME_TOO_LARGE),
    ],
    ids=["NaN", "a number nobody can hold", "cut off", "too long"],
)
def test_an_answer_that_cannot_be_used_ends_its_call_at_once_and_no_other(
    codec: Codec, answer: bytes, code: str
) -> None:
    machine = host(codec)
    invoke(machine)
    assert machine.call(2, CheckHealth()) is None
    noise, finished = machine.receive(answer + b"\n")
    assert isinstance(noise, Noise)
    assert isinstance(finished, CallFinished) and finished.failure is not None
    assert (finished.id, finished.failure.code, finished.failure.origin) == (1, code, Origin.PLUGIN)
    assert machine.receive(answer.replace(b'"id":2', b'"id":3') + b"\n")[1:] == [CallFinished(2)]  # it lives
    assert [type(event) for event in machine.receive(answer + b"\n")] == [Noise]


@requirement("kaged:wire-useless-answer")
def test_an_answer_to_initialize_that_cannot_be_used_ends_the_handshake_at_once(codec: Codec) -> None:
    machine = greeting(codec)
    failure = fault(machine.receive(b'{"jsonrpc":"2.0","id":1,"result":NaN}\n'))
    assert failure is not None and failure.code == Code.HANDSHAKE_FAILED
    assert "the answer to initialize cannot be used: malformed line" in failure.message


def check(machine: KagedMachine, message: Any, expected: Any) -> None:
    """The frame is the event, noise with these words, or nothing; and the conversation goes on."""
    events = machine.receive(line(message))
    if expected is None:
        assert events == []
    elif isinstance(expected, str):
        (event,) = events
        assert isinstance(event, Noise)
        assert expected in event.why
    else:
        if isinstance(expected, CallFinished) and expected.value is not None:
            expected = CallFinished(expected.id, machine.codec.dump(expected.value))
        assert events == [expected]
    assert machine.state == READY


@requirement("kaged:wire-line", "kaged:wire-no-batch", "kaged:wire-noise", "kaged:wire-notifications")
@pytest.mark.parametrize(("message", "expected"), [row[1:] for row in HOST_FRAMES], ids=[row[0] for row in HOST_FRAMES])
def test_what_a_frame_is_to_the_host(codec: Codec, message: Any, expected: Any) -> None:
    machine = host(codec)
    invoke(machine)
    machine.outgoing()
    check(machine, message, expected)
    assert machine.outgoing() == b""
    assert machine.receive(line(TICKED)) == [NOTIFIED]


@requirement("kaged:wire-unknown-method")
@pytest.mark.parametrize("name", ["no.such", "p.t", "initialize", "ping", "kaged.storage", "kaged.storage.clear"])
@pytest.mark.parametrize("id", [9, 1.5, 'nine"\\', None])
def test_a_method_the_host_does_not_have_is_not_found(name: str, id: Any) -> None:
    machine = host()
    assert machine.receive(line(request(id, name, {}))) == []
    (frame,) = frames(machine)
    assert (frame["id"], frame["error"]["code"]) == (id, -32601)


# Storage.


@requirement("kaged:wire-storage-errors")
def test_storage_that_is_off_is_an_unknown_method() -> None:
    machine = host(storage=False)
    assert machine.receive(line({"id": 1, **GET})) == []
    assert [frame["error"]["code"] for frame in frames(machine)] == [-32601]


@requirement("kaged:wire-storage-params")
def test_the_host_is_not_bothered_with_storage_whose_params_are_wrong() -> None:
    machine = host()
    assert machine.receive(line(request(1, "kaged.storage.get", {"key": ""}))) == []
    assert [frame["error"]["code"] for frame in frames(machine)] == [-32602]


@requirement("kaged:wire-storage-grants")
def test_storage_needs_the_grant_for_what_is_asked_and_a_refusal_is_seen() -> None:
    machine = host(granted=(READ,))
    (refused,) = machine.receive(line(request(7, "kaged.storage.set", {"key": "k", "value": 1})))
    assert isinstance(refused, Noise)
    assert "kaged:storage:write, which is not granted" in refused.why
    (frame,) = frames(machine)
    assert (frame["id"], frame["error"]["code"]) == (7, -32000)
    assert frame["error"]["data"] == {"code": "capability_not_allowed"}
    assert isinstance(asked(machine.receive(line({"id": 8, **GET}))).op, GetStored)


STORED: list[tuple[Any, Any]] = [
    (GetStored("k"), {"found": True, "value": {"deep": [1]}}),
    (GetStored("k"), {"found": False, "value": None}),
    (SetStored("k", {"a": None}), None),
    (DeleteStored("k"), True),
    (DeleteStored("k"), False),
    (ListStored("pre", 3), ["prefix", "pre2"]),
]


@requirement("kaged:wire-storage")
@pytest.mark.parametrize(("op", "value"), STORED, ids=str)
def test_a_plugin_reaches_its_storage_while_it_is_called_itself(op: Any, value: Any) -> None:
    machine, peer = pair()
    invoke(machine, 1)
    tool = asked(exchange(machine, peer)[1])
    assert peer.call(1, op) is None
    arrived = asked(exchange(machine, peer)[0])
    assert arrived.op == op
    machine.finish(arrived.id, value)
    assert finished(exchange(machine, peer)[1]) == CallFinished(1, value)
    peer.finish(tool.id, "done")
    assert machine.codec.load(finished(exchange(machine, peer)[0]).value) == "done"


@requirement("kaged:wire-storage-errors")
def test_a_failed_storage_tells_the_plugin_why() -> None:
    machine, peer = pair()
    assert peer.call(1, SetStored("k", 1)) is None
    machine.finish(asked(exchange(machine, peer)[0]).id, None, Failure(Code.UNAVAILABLE, "full", detail={"x": 1}))
    failure = finished(exchange(machine, peer)[1]).failure
    assert failure is not None
    assert (failure.code, failure.message, failure.origin) == (Code.UNAVAILABLE, "full", Origin.HOST)


# The host calls.


@requirement("kaged:wire-tool-prefix", "kaged:wire-context")
def test_a_tool_call_is_byte_exact(codec: Codec) -> None:
    machine = host(codec)
    context = {"operator_id": "op", "agent_path": "primary", "session_id": "ses_1"}
    assert machine.call(9, InvokeTool("t", codec.dump({"content": "x", "tags": ["auth"]}), context)) is None
    assert machine.call(10, CallMethod("p.report.daily", codec.dump({}))) is None
    assert machine.outgoing() == (
        b'{"jsonrpc":"2.0","id":10,"method":"p.t","params":{"content":"x","tags":["auth"],'
        b'"_context":{"operator_id":"op","agent_path":"primary","session_id":"ses_1"}}}\n'
        b'{"jsonrpc":"2.0","id":11,"method":"p.report.daily","params":{"_context":{}}}\n'
    )


@requirement("kaged:wire-hooks")
def test_a_hook_is_a_request_and_its_result_is_passed_on(codec: Codec) -> None:
    machine = host(codec)
    assert machine.call(1, RunHook("on_session_idle", {"transcript": [{"role": "user"}]}, {"session_id": "s"})) is None
    params = {"transcript": '[{"role":"user"}]', "_context": {"session_id": "s"}}
    assert frames(machine) == [{"id": 2, "method": "kaged.hook.on_session_idle", "params": params}]
    assert codec.load(finished(machine.receive(line({"id": 2, "result": {"inject": "hi"}}))).value) == {"inject": "hi"}


@requirement("kaged:wire-hook-cut")
def test_a_hook_with_an_endless_text_is_cut_and_sent_and_one_with_another_large_part_is_refused() -> None:
    machine = host()
    assert machine.call(1, RunHook("on_session_idle", {"transcript": "x" * (2 * MAX_SENT)})) is None
    assert MAX_SENT - 1000 < len(machine.outgoing()) <= MAX_SENT
    refusal = machine.call(2, RunHook("pre_compact", {"messages": ["x" * MAX_SENT]}))
    assert refusal is not None
    assert refusal.code == Code.FRAME_TOO_LARGE


@pytest.mark.parametrize(
    ("op", "code"),
    [
        (InvokeTool("u", {}), Code.TOOL_NOT_EXPOSED),
        (CallMethod("p.t", {}), Code.TOOL_NOT_EXPOSED),
        (InvokeTool("t", []), Code.INVALID_INPUT),
        (InvokeTool("t", {"_context": {}}), Code.INVALID_INPUT),
        (InvokeTool("t", {}, {"session_id": "../../x"}), Code.INVALID_INPUT),
        (RunHook("h", {}, {"agent_path": "secondary"}), Code.INVALID_INPUT),
    ],
    ids=str,
)
def test_a_call_that_must_not_be_made_is_refused_before_anything_is_sent(op: Any, code: str) -> None:
    machine = host()
    refusal = machine.call(1, op)
    assert refusal is not None
    assert (refusal.code, machine.outgoing()) == (code, b"")
    invoke(machine, 2)


@requirement("kaged:wire-responses", "kaged:wire-ids")
def test_answers_find_their_calls_in_any_order(codec: Codec) -> None:
    machine = host(codec)
    for id in (1, 2, 3):
        invoke(machine, id)
    assert [frame["id"] for frame in frames(machine)] == [2, 3, 4]
    events = machine.receive(b"".join(line({"id": id, "result": id}) for id in (4, 2, 3)))
    found = [(event.id, codec.load(event.value)) for event in events if isinstance(event, CallFinished)]
    assert found == [(3, 4), (1, 2), (2, 3)]


def test_an_answer_that_cannot_be_used_fails_its_call_and_no_other() -> None:
    machine = host()
    invoke(machine, 1)
    invoke(machine, 2)
    failure = finished(machine.receive(line({"id": 2}))).failure
    assert failure is not None
    assert failure.code == Code.MALFORMED_RESPONSE
    assert finished(machine.receive(line({"id": 3, "result": 1}))).failure is None


@requirement("kaged:wire-late")
def test_the_answer_to_a_cancelled_call_is_late_and_harmless() -> None:
    machine = host()
    invoke(machine, 1)
    machine.outgoing()
    machine.cancel(1, "deadline_exceeded")
    assert machine.outgoing() == b""
    assert machine.receive(line({"id": 2, "result": 1})) == [CallFinished(1)]
    assert machine.receive(line({"id": 2, "error": {"code": 1}})) == [CallFinished(1)]


# Health.


@requirement("kaged:wire-health")
@pytest.mark.parametrize(
    ("answer", "next_probe"),
    [
        ({"result": {"status": "ok"}}, "health.check"),
        ({"result": None}, "health.check"),
        ({"error": {"code": -32603, "message": "busy"}}, "health.check"),
        ({"error": "odd"}, "health.check"),
        ({}, "health.check"),
        ({"error": {"code": -32601, "message": "Method not found"}}, "ping"),
    ],
    ids=str,
)
def test_any_answer_proves_life_and_an_unknown_probe_changes_the_next(answer: Any, next_probe: str) -> None:
    machine = host()
    assert machine.call(1, CheckHealth()) is None
    assert frames(machine) == [{"id": 2, "method": "health.check", "params": {}}]
    assert finished(machine.receive(line({"id": 2, **answer}))).failure is None
    assert machine.call(2, CheckHealth()) is None
    assert frames(machine) == [{"id": 3, "method": next_probe, "params": {}}]
    assert finished(machine.receive(line({"id": 3, "result": {"status": "ok"}}))).failure is None


@requirement("kaged:wire-health")
@pytest.mark.parametrize("name", ["health.check", "ping"])
def test_a_plugin_answers_both_probes_at_any_time(name: str) -> None:
    machine = plugin()
    assert machine.receive(line(request(3, name, {}))) == []
    assert frames(machine) == [{"id": 3, "result": {"status": "ok"}}]


# What a frame is to a plugin: the answers of the real one.

PLUGIN_ANSWERS: list[tuple[str, Any, Any]] = [
    ("not JSON", b"not json\n", (0, -32700)),
    ("invalid UTF-8", b"\xff\n", (0, -32700)),
    ("NaN", b'{"jsonrpc":"2.0","id":1,"method":"ping","params":NaN}\n', (0, -32700)),
    ("a batch", [request(1, "ping")], (0, -32600)),
    ("an empty batch", [], (0, -32600)),
    ("a string", b'"x"\n', (0, -32600)),
    ("a number", b"42\n", (0, -32600)),
    ("no jsonrpc", {"id": 1, "method": "ping"}, (0, -32600)),
    ("another jsonrpc", {"jsonrpc": "1.0", "id": 1, "method": "ping"}, (0, -32600)),
    ("an empty method", request(1, ""), (0, -32600)),
    ("no method", {"jsonrpc": "2.0", "id": 1}, (0, -32600)),
    ("a method that is not a name", {"jsonrpc": "2.0", "id": 1, "method": 5}, (0, -32600)),
    ("an empty object", {}, (0, -32600)),
    ("a string id", request("abc", "ping"), ("abc", None)),
    ("a null id", request(None, "ping"), (0, None)),
    ("true as id", request(True, "ping"), (0, None)),
    ("an array as id", request([1], "ping"), (0, None)),
    ("a float id", request(1.5, "ping"), (1.5, None)),
    ("an unknown method", request(4, "p.u"), (4, -32601)),
    ("a bare tool", request(4, "t"), (4, -32601)),
    ("an unknown hook", request(4, "kaged.hook.on_compact", {}), (4, -32601)),
    ("an unknown method with a string id", request("x", "p.u"), ("x", -32601)),
    ("several in one write", line(request(7, "ping"))[:-1] + b"\r\n\r\n  \n", (7, None)),
]


@requirement("kaged:wire-golden", "kaged:wire-ids", "kaged:wire-no-batch")
@pytest.mark.parametrize(
    ("message", "answer"), [row[1:] for row in PLUGIN_ANSWERS], ids=[row[0] for row in PLUGIN_ANSWERS]
)
def test_a_plugin_answers_as_the_real_one_does(codec: Codec, message: Any, answer: tuple[Any, int | None]) -> None:
    machine = plugin(codec)
    machine.receive(line(message))
    (frame,) = frames(machine)
    assert (frame["id"], frame["error"]["code"] if "error" in frame else None) == answer
    assert type(frame["id"]) is type(answer[0])


PLUGIN_FRAMES: list[tuple[str, Any, Any]] = [
    (
        "a tool",
        request(8, "p.t", {"a": 1, "_context": {"session_id": "s"}}),
        InvokeTool("t", {"a": 1}, {"session_id": "s"}),
    ),
    ("a tool with params that are none", request(8, "p.t", [1]), InvokeTool("t", {})),
    ("a tool without params", request(8, "p.t"), InvokeTool("t", {})),
    ("a method", request(8, "p.report.daily", {"day": 1}), CallMethod("p.report.daily", {"day": 1})),
    ("a hook", request(8, "kaged.hook.post_compact", {"trigger": "x"}), RunHook("post_compact", {"trigger": "x"})),
    ("an answer to a string", {"id": "1", "result": {}}, "an answer to an unknown call"),
    ("an answer to nothing", {"id": 5, "result": {}}, "unknown call"),
    ("initialized", {"jsonrpc": "2.0", "method": "initialized", "params": {}}, None),
    ("an unknown notification", {"jsonrpc": "2.0", "method": "no.such"}, "unknown notification"),
    ("a tool call without an id", {"jsonrpc": "2.0", "method": "p.t"}, "unknown notification"),
    ("a blank line", b"\r\n", None),
]


@requirement("kaged:wire-golden", "kaged:wire-hooks", "kaged:wire-context")
@pytest.mark.parametrize(
    ("message", "expected"), [row[1:] for row in PLUGIN_FRAMES], ids=[row[0] for row in PLUGIN_FRAMES]
)
def test_what_a_frame_is_to_the_plugin(codec: Codec, message: Any, expected: Any) -> None:
    machine = plugin(codec)
    machine.receive(line(request(1, "initialize")))
    machine.outgoing()
    op = expected is not None and not isinstance(expected, str)
    check(machine, message, CallArrived(1, expected) if op else expected)
    assert machine.outgoing() == b""


@requirement("kaged:wire-unknown-method")
@pytest.mark.parametrize("name", ["p.t", "p.report.daily", "kaged.hook.post_compact"])
def test_a_plugin_without_a_handler_does_not_know_the_method(name: str) -> None:
    machine = plugin(serves=frozenset())
    assert machine.receive(line(request(4, name, {}))) == []
    assert [frame["error"]["code"] for frame in frames(machine)] == [-32601]


def test_requests_that_share_an_id_are_told_apart() -> None:
    machine = plugin()
    numbers = [asked(machine.receive(line(request("same", "p.t")))).id for _ in range(2)]
    machine.finish(numbers[1], "second")
    machine.finish(numbers[0], "first")
    assert frames(machine) == [{"id": "same", "result": "second"}, {"id": "same", "result": "first"}]


@requirement("kaged:wire-error-data")
def test_a_handlers_failure_is_answered_with_its_number_and_data() -> None:
    machine = plugin()
    arrived = asked(machine.receive(line(request(80, "p.t"))))
    detail = {"plugin_code": "content_too_large", "actual_bytes": 102_401, "max_bytes": 102_400}
    machine.finish(arrived.id, None, Failure(Code.PLUGIN_ERROR, "too large", detail=detail))
    data = {"code": "content_too_large", "actual_bytes": 102_401, "max_bytes": 102_400}
    assert frames(machine) == [{"id": 80, "error": {"code": -32000, "message": "too large", "data": data}}]


# The plugin is greeted, and served before it is.


@requirement("kaged:wire-initialize-reply")
def test_a_plugin_says_who_it_is_as_often_as_it_is_asked_and_is_ready_once(codec: Codec) -> None:
    machine = plugin(codec)
    assert isinstance(asked(machine.receive(line(request(1, "p.t")))).op, InvokeTool)
    params = {
        "daemon_version": "0.1.0",
        "api_version": 1,
        "plugin_name": "p",
        "storage_available": True,
        "projects": [],
    }
    (ready,) = machine.receive(line(request(2, "initialize", params)))
    assert ready == Ready({**params, "config": {}, "system_config": {}})
    assert machine.receive(line(request(3, "initialize"))) == []
    assert frames(machine) == [{"id": 2, "result": hello()}, {"id": 3, "result": hello()}]


def test_an_identity_that_is_no_json_is_an_error_the_host_can_read() -> None:
    machine = plugin(version=object())
    machine.receive(line(request(1, "initialize")))
    (frame,) = frames(machine)
    assert (frame["error"]["code"], "version" in frame["error"]["message"]) == (-32603, True)


@requirement("kaged:wire-notifications")
@pytest.mark.parametrize("topic", ["ticked", "plugin.p.ticked"])
def test_a_plugin_tells_what_it_declared_under_its_name_or_topic(topic: str) -> None:
    machine, peer = pair()
    peer.notify(Publish(topic, {"payload": {"n": 1}}))
    peer.notify(Publish(topic, {}))
    at_host, _ = exchange(machine, peer)
    assert at_host == [NOTIFIED, Notified(Publish("plugin.p.ticked", {"payload": None}))]


@requirement("kaged:wire-notifications")
def test_a_plugin_does_not_tell_what_it_did_not_declare_nor_before_it_is_greeted() -> None:
    machine = plugin()
    for name in ("ticked", "rang"):
        refusal = machine.notify(Publish(name, {"payload": 1}))
        assert refusal is not None and "the handshake is not complete" in refusal.message
    machine.receive(line(request(1, "initialize")))
    machine.outgoing()
    refusal = machine.notify(Publish("rang", {"payload": 1}))
    assert refusal is not None and "not among the declared" in refusal.message
    assert machine.outgoing() == b""


# Good-bye.


@requirement("kaged:wire-shutdown")
@pytest.mark.parametrize("answer", [{"result": {"status": "ok"}}, {"error": {"code": -32603, "message": "no"}}, {}])
def test_the_host_says_good_bye_under_the_next_id_and_any_answer_will_do(answer: Any) -> None:
    machine = host()
    invoke(machine, 1)
    machine.outgoing()
    machine.close("done")
    machine.close("done")
    assert frames(machine) == [{"id": 3, "method": "shutdown", "params": {}}]
    refusal = machine.call(2, InvokeTool("t", machine.codec.dump({})))
    assert refusal is not None
    assert refusal.code == Code.UNAVAILABLE
    assert finished(machine.receive(line({"id": 2, "result": 1}))).failure is None
    machine.finish(asked(machine.receive(line({"id": 9, **GET}))).id, {"found": False, "value": None})
    assert frames(machine) == [{"id": 9, "result": {"value": None, "found": False}}]
    assert machine.receive(line({"id": 3, **answer}) + line(TICKED)) == [Closed()]
    assert (machine.state, machine.receive_eof()) == (CLOSED, [])


def test_a_plugin_that_was_never_ready_is_left_without_a_word() -> None:
    machine = greeting()
    machine.close("done")
    assert machine.outgoing() == b""
    assert machine.receive(line({"id": 1, "result": hello()})) == []
    assert machine.receive(line({"id": 5, **GET})) == []
    assert frames(machine)[0]["error"]["code"] == -32603
    assert machine.receive_eof() == [Closed()]


@requirement("kaged:wire-shutdown")
@pytest.mark.parametrize("failure", [None, Failure(Code.INTERNAL, "disk full")])
def test_a_plugin_answers_shutdown_when_it_is_told_to_and_may_ask_until_then(failure: Failure | None) -> None:
    machine = plugin()
    slow = asked(machine.receive(line(request(5, "p.t"))))
    leave = asked(machine.receive(line(request(6, "shutdown", {}))))
    assert (leave.op, machine.state) == (Shutdown(), CLOSING)
    assert machine.call(1, GetStored("k")) is None
    answer = {"value": 1, "found": True}
    assert finished(machine.receive(line({"id": 1, "result": answer}))).value == answer
    machine.outgoing()
    machine.finish(slow.id, "done")
    machine.finish(leave.id, None, failure)
    tool, bye = frames(machine)
    assert tool == {"id": 5, "result": "done"}
    error = {"id": 6, "error": {"code": -32603, "message": "disk full"}}
    assert bye == ({"id": 6, "result": {"status": "ok"}} if failure is None else error)
    assert machine.state == CLOSED
    refusal = machine.call(2, GetStored("k"))
    assert refusal is not None
    assert refusal.code == Code.UNAVAILABLE
    machine.notify(Publish("ticked", {}))
    assert machine.outgoing() == b""


def test_shutdown_without_an_id_is_obeyed_and_not_answered() -> None:
    machine = plugin()
    assert machine.receive(line({"jsonrpc": "2.0", "method": "shutdown"})) == [Notified(Shutdown())]
    assert (machine.state, machine.outgoing()) == (CLOSING, b"")


@requirement("kaged:wire-eof")
@pytest.mark.parametrize(
    ("machine", "code"),
    [(greeting, Code.CRASHED), (host, Code.CRASHED), (plugin, None)],
    ids=["a plugin in its greeting", "a resident plugin", "a host"],
)
def test_only_a_host_may_leave_without_being_asked(machine: Any, code: str | None) -> None:
    left = machine()
    events = left.receive_eof()
    failure = fault(events)
    assert (failure.code if failure else None) == code
    assert left.state == (CLOSED if code is None else FAILED)
    assert (events == [Closed()]) is (code is None)
    assert left.receive_eof() == []


@requirement("kaged:wire-eof")
def test_the_last_line_of_a_plugin_counts_without_its_newline_and_that_of_a_host_does_not() -> None:
    machine = host()
    invoke(machine)
    assert machine.receive(line({"id": 2, "result": 5})[:-1]) == []
    answer, end = machine.receive_eof()
    assert answer == CallFinished(1, machine.codec.dump(5))
    assert isinstance(end, Fault)
    peer = plugin()
    assert peer.receive(line(request(1, "p.t"))[:-1]) == []
    assert peer.receive_eof() == [Closed()]


@requirement("kaged:wire-eof")
def test_half_an_answer_at_the_end_is_no_answer_but_the_end_of_the_plugin() -> None:
    machine = host()
    invoke(machine)
    machine.receive(line({"id": 2, "result": [5]})[:-3])
    (end,) = machine.receive_eof()
    assert isinstance(end, Fault) and end.failure.code == Code.CRASHED


def test_a_plugin_that_leaves_without_answering_shutdown_left_in_good_order() -> None:
    machine = host()
    machine.close("done")
    assert machine.receive_eof() == [Closed()]


def test_a_plugin_may_still_answer_a_good_bye_after_its_input_ended() -> None:
    machine = plugin()
    leave = asked(machine.receive(line(request(6, "shutdown"))))
    assert machine.receive_eof() == [Closed()]
    machine.finish(leave.id)
    assert frames(machine) == [{"id": 6, "result": {"status": "ok"}}]


# Our own bugs.


@pytest.mark.parametrize(("role", "state"), list(product((Role.HOST, Role.PLUGIN), (START, GREETING, READY, CLOSING))))
def test_what_we_ask_of_a_machine_is_in_its_table_or_our_own_bug(role: str, state: str) -> None:
    machine = KagedMachine(role, stdlib_codec())
    machine.state = state
    if state == START:
        machine.greet()
        assert machine.state == GREETING
    else:
        with pytest.raises(Misuse):
            machine.greet()
    machine.close("test")
    assert machine.state in (CLOSING, CLOSED)


@pytest.mark.parametrize(
    ("made", "op"),
    [
        (host, Publish("t", {})),
        (host, GetStored("k")),
        (host, Shutdown()),
        (plugin, InvokeTool("t", {})),
        (plugin, RecallMemory("a", "q")),
        (plugin, CheckHealth()),
        (greeting, CheckHealth()),
    ],
)
def test_only_what_the_contract_carries_in_this_direction_can_be_asked(made: Any, op: Any) -> None:
    with pytest.raises(Misuse):
        made().call(1, op)


def test_only_notifications_can_be_told_and_only_requests_answered() -> None:
    with pytest.raises(Misuse, match="cannot tell DeliverEvent"):
        host().notify(DeliverEvent("t", {}))
    with pytest.raises(Misuse, match="cannot tell GetStored"):
        plugin().notify(GetStored("k"))
    with pytest.raises(Misuse, match="not a request that waits"):
        host().finish(1, None)
    with pytest.raises(Misuse, match="numbers its calls"):
        host().call("one", CheckHealth())
    with pytest.raises(Misuse, match="nothing can be asked"):
        KagedMachine(Role.PLUGIN, stdlib_codec()).call(1, GetStored("k"))


# The pair.


def pair() -> tuple[KagedMachine, KagedMachine]:
    machine = KagedMachine(
        Role.HOST,
        MsgspecCodec(),
        plugin_name="p",
        **SURFACE,
        storage=True,
        granted=("kaged:storage:read", "kaged:storage:write"),
        projects=("a",),
    )
    peer = plugin()
    machine.greet()
    at_host, at_plugin = exchange(machine, peer)
    assert at_host == [Ready({"plugin_id": "p", "server_version": "0.2.0", "exposed_tools": ["t"], "warnings": []})]
    (ready,) = at_plugin
    assert isinstance(ready, Ready)
    assert (ready.hello["projects"], ready.hello["storage_available"]) == (["a"], True)
    return machine, peer


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.text().filter(lambda key: key != "_context"), json_values, max_size=4), json_values)
def test_any_json_travels_to_a_tool_and_back_unchanged(args: dict[str, Any], value: Any) -> None:
    machine, peer = pair()
    machine.call(1, InvokeTool("t", machine.codec.dump(args), {"session_id": "s"}))
    arrived = asked(exchange(machine, peer)[1])
    assert arrived.op == InvokeTool("t", args, {"session_id": "s"})
    peer.finish(arrived.id, value)
    got = machine.codec.load(finished(exchange(machine, peer)[0]).value)
    assert got == value
    assert type(got) is type(value)


CALLS: list[tuple[Any, str]] = [
    (InvokeTool("t", {"a": 1}, {"request_id": "r"}), Code.PLUGIN_ERROR),
    (CallMethod("p.report.daily", {"a": 1}, {"request_id": "r"}), Code.PLUGIN_ERROR),
    (RunHook("post_compact", {"trigger": "x"}, {"agent_path": "primary.subagents.a"}), Code.PLUGIN_ERROR),
]


@pytest.mark.parametrize(("op", "code"), CALLS, ids=str)
def test_every_call_of_a_host_arrives_at_its_plugin_as_it_was(op: Any, code: str) -> None:
    machine, peer = pair()
    assert machine.call(1, op) is None
    arrived = asked(exchange(machine, peer)[1])
    assert arrived.op == op
    peer.progress(arrived.id, {"percent": 50})
    peer.finish(arrived.id, None, Failure(Code.PLUGIN_ERROR, "no"))
    failure = finished(exchange(machine, peer)[0]).failure
    assert failure is not None
    assert (failure.code, failure.message, failure.origin) == (code, "no", Origin.PLUGIN)


def test_a_probe_is_answered_and_both_ends_leave_in_good_order() -> None:
    machine, peer = pair()
    assert machine.call(1, CheckHealth()) is None
    assert finished(exchange(machine, peer)[0]).failure is None
    machine.close("done")
    peer.finish(asked(exchange(machine, peer)[1]).id)
    assert exchange(machine, peer)[0] == [Closed()]


# Whatever comes.

SCRAPS: list[Any] = [
    *(row[1] for row in HOST_FRAMES),
    *(row[1] for row in PLUGIN_ANSWERS),
    *(row[1] for row in PLUGIN_FRAMES),
    {"id": 1, "result": hello()},
    {"id": 3, "error": {"code": -32601}},
    request(8, "shutdown"),
    request(8, "initialize"),
]
keys = st.sampled_from("jsonrpc id method params result error code message data key value _context".split())
odd_frames = st.dictionaries(keys, json_values | st.dictionaries(keys, json_values), max_size=5).map(
    lambda value: json.dumps(value).encode() + b"\n"
)
streams = st.lists(st.sampled_from([line(scrap) for scrap in SCRAPS]) | odd_frames | st.binary(max_size=40), max_size=8)


def talking(role: str, made: Codec) -> KagedMachine:
    if role == Role.PLUGIN:
        machine = plugin(made)
        machine.call(1, GetStored("k"))
    else:
        machine = host(made)
        invoke(machine, 1)
        machine.call(2, CheckHealth())
    machine.outgoing()
    return machine


@requirement("kaged:wire-noise")
@given(st.sampled_from((Role.HOST, Role.PLUGIN)), st.sampled_from(sorted(CODECS)), streams, st.integers(1, 50))
def test_any_bytes_in_any_chunks_give_the_same_events_and_raise_nothing(
    role: str, name: str, parts: list[bytes], size: int
) -> None:
    data = b"".join(parts)
    whole, cut = talking(role, CODECS[name]()), talking(role, CODECS[name]())
    events = whole.receive(data) + whole.receive_eof()
    pieces = [data[at : at + size] for at in range(0, len(data), size)]
    assert [event for piece in pieces for event in cut.receive(piece)] + cut.receive_eof() == events
    assert (cut.state, cut.outgoing()) == (whole.state, whole.outgoing())


@given(streams)
def test_a_greeting_ends_with_a_fault_whatever_the_plugin_says_when_it_leaves(parts: list[bytes]) -> None:
    machine = greeting()
    events = machine.receive(b"".join(parts)) + machine.receive_eof()
    assert sum(isinstance(event, Fault) for event in events) == 1
    assert machine.state == FAILED


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
