"""The nexo machine, both roles, with no process: every kind of frame, every state, the pair."""

from __future__ import annotations

import json
from itertools import product
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plugbay.contracts.base import Misuse, Role
from plugbay.contracts.nexo.machine import NexoMachine
from plugbay.contracts.nexo.messages import MAX_CHILD_LINE, MAX_EARLY_PUBLISHES, MAX_HOST_LINE
from plugbay.contracts.rpc import CLOSED, CLOSING, FAILED, GREETING, READY, START
from plugbay.model.errors import Code, Failure, Origin
from plugbay.model.events import CallArrived, CallFinished, CallProgress, Closed, Fault, Noise, Notified, Ready
from plugbay.model.operations import (
    Chat,
    CompleteChat,
    DeliverEvent,
    InvokeTool,
    Publish,
    RecallMemory,
    RunHook,
    SendOutbound,
    Shutdown,
    StartChannel,
    StopChannel,
    WriteLog,
)
from plugbay.wire.fast_json import MsgspecCodec
from plugbay.wire.strict_json import stdlib_codec
from tests.contracts.nexo.talk import MANIFEST, TOOL, frames, greeting, hello, host, line, plugin
from tests.contracts.nexo.test_messages import EXAMPLES
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


def invoke(machine: NexoMachine, id: int = 1, value: Any = None) -> None:
    assert machine.call(id, InvokeTool("p_t", machine.codec.dump(value))) is None


# The greeting.


@requirement("nexo:wire-initialize")
def test_the_host_opens_with_initialize_under_the_first_id(codec: Codec) -> None:
    machine = NexoMachine(Role.HOST, codec, plugin_id="slack", nexo_version="0.1.5")
    machine.greet()
    sent = b'{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"nexo_version":"0.1.5"}}\n'
    assert machine.outgoing() == sent
    reply = {"manifest": {"plugin": {"id": "slack", "version": "0.2.0"}}, "server_version": "slack-0.2.0"}
    said = {"plugin_id": "slack", "server_version": "slack-0.2.0", "tools": [], "warnings": []}
    assert machine.receive(line({"jsonrpc": "2.0", "id": 1, "result": reply})) == [Ready(said)]
    assert machine.state == READY


@requirement("nexo:wire-identity")
@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ({"error": {"code": -32603, "message": "no database"}}, "refused initialize: no database"),
        ({"error": None, "result": hello()}, "refused initialize"),
        ({}, "not an object"),
        ({"result": None}, "not an object"),
        ({"result": hello(manifest={"plugin": {"id": "q"}})}, "'q', not 'p'"),
        ({"result": hello(tools=[{**TOOL, "name": "p_other"}])}, "p_other"),
    ],
    ids=str,
)
def test_a_child_that_is_not_accepted_is_a_fault(answer: Any, words: str) -> None:
    machine = greeting()
    failure = fault(machine.receive(line({"id": 1, **answer})))
    assert failure is not None
    assert failure.code == Code.HANDSHAKE_FAILED
    assert words in failure.message
    assert machine.state == FAILED
    assert machine.receive(line({"id": 1, "result": hello()})) == []


@requirement("nexo:wire-before-ready")
@pytest.mark.parametrize("id", [5, "five", None])
def test_a_request_before_the_greeting_is_answered_as_not_yet_wired(id: Any) -> None:
    machine = greeting()
    assert machine.receive(line({"id": id, "method": "memory.recall", "params": {}})) == []
    (frame,) = frames(machine)
    assert (frame["id"], frame["error"]["code"]) == (id, -32603)
    assert "not yet wired" in frame["error"]["message"]


def publish(number: int) -> dict[str, Any]:
    return {"method": "broker.publish", "params": {"topic": "t", "event": {"n": number}}}


@requirement("nexo:wire-before-ready")
def test_what_was_published_before_the_greeting_follows_it_in_order() -> None:
    machine = greeting()
    for number in range(MAX_EARLY_PUBLISHES):
        assert machine.receive(line(publish(number))) == []
    (noise,) = machine.receive(line(publish(MAX_EARLY_PUBLISHES)))
    assert isinstance(noise, Noise)
    ready, *rest = machine.receive(line({"id": 1, "result": hello()}) + line(publish(1000)))
    assert isinstance(ready, Ready)
    assert rest == [Notified(Publish("t", {"n": n})) for n in [*range(MAX_EARLY_PUBLISHES), 1000]]


# What a frame is.

REQUEST = {"method": "memory.recall", "params": {"agent_id": "a", "query": "q"}}
HOST_FRAMES: list[tuple[str, Any, Any]] = [
    ("a request", {"jsonrpc": "2.0", "id": 9, **REQUEST}, CallArrived(1, RecallMemory("a", "q"))),
    ("without jsonrpc", {"id": 9, **REQUEST}, CallArrived(1, RecallMemory("a", "q"))),
    ("another jsonrpc", {"jsonrpc": 1, "id": 9, **REQUEST}, CallArrived(1, RecallMemory("a", "q"))),
    ("a string id", {"id": "x", **REQUEST}, CallArrived(1, RecallMemory("a", "q"))),
    ("a null id", {"id": None, **REQUEST}, CallArrived(1, RecallMemory("a", "q"))),
    ("an id that is an answer's", {"id": 2, **REQUEST}, CallArrived(1, RecallMemory("a", "q"))),
    ("a publish", publish(1), Notified(Publish("t", {"n": 1}))),
    ("a publish with an id", {"id": 9, **publish(1)}, CallArrived(1, Publish("t", {"n": 1}))),
    ("CRLF", line(publish(1))[:-1] + b"\r\n", Notified(Publish("t", {"n": 1}))),
    ("blanks around", b"  " + line(publish(1))[:-1] + b" \n", Notified(Publish("t", {"n": 1}))),
    ("a blank line", b"\n", None),
    ("a line of blanks", b" \t\r\n", None),
    ("an answer", {"id": 2, "result": 5}, CallFinished(1, 5)),
    ("an answer with an empty method", {"id": 2, "method": "", "result": 5}, CallFinished(1, 5)),
    ("an answer with a method that is not a name", {"id": 2, "method": 7, "result": 5}, CallFinished(1, 5)),
    ("a late answer", {"id": 1, "result": 5}, CallFinished(0)),
    ("an answer to nothing", {"id": 77, "result": 5}, "unknown call"),
    ("an answer to zero", {"id": 0, "result": 5}, "unknown call"),
    ("an answer to a negative id", {"id": -1, "result": 5}, "unknown call"),
    ("an answer to a string", {"id": "2", "result": 5}, "neither"),
    ("an answer to a float", {"id": 2.0, "result": 5}, "neither"),
    ("an answer to true", {"id": True, "result": 5}, "neither"),
    ("an answer to an array", {"id": [2], "result": 5}, "neither"),
    ("an error to null", {"id": None, "error": {"code": -32700, "message": "parse"}}, "an error for an unknown call"),
    ("an empty object", {}, "neither"),
    ("a request with an array as id", {"id": [1], **REQUEST}, "id is neither"),
    ("a request with an object as id", {"id": {}, **REQUEST}, "id is neither"),
    ("a request with a float as id", {"id": 1.5, **REQUEST}, "id is neither"),
    ("a request with true as id", {"id": True, **REQUEST}, "id is neither"),
    ("a service without an id", REQUEST, "unknown notification 'memory.recall'"),
    ("an unknown notification", {"method": "no.such"}, "unknown notification 'no.such'"),
    ("a publish without topic", {"method": "broker.publish", "params": {"event": {}}}, "topic"),
    ("a publish without params", {"method": "broker.publish"}, "params"),
    ("a log line", b"starting up\n", "malformed"),
    ("half an object", b'{"id":\n', "malformed"),
    ("an array", b"[]\n", "malformed"),
    ("a number", b"42\n", "malformed"),
    ("null", b"null\n", "malformed"),
    ("invalid UTF-8", b'{"method":"\xff"}\n', "malformed"),
    ("a byte order mark", b"\xef\xbb\xbf{}\n", "malformed"),
    ("NaN", b'{"id":9,"result":NaN}\n', "malformed"),
    ("a number beyond 64 bits", b'{"id":123456789012345678901234567890,"result":1}\n', "malformed"),
]


def check(machine: NexoMachine, message: Any, expected: Any) -> None:
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
    assert machine.outgoing() == b""


@requirement("nexo:wire-line", "nexo:wire-frame-host", "nexo:wire-noise")
@pytest.mark.parametrize(("message", "expected"), [row[1:] for row in HOST_FRAMES], ids=[row[0] for row in HOST_FRAMES])
def test_what_a_frame_is_to_the_host(codec: Codec, message: Any, expected: Any) -> None:
    machine = host(codec)
    invoke(machine)
    machine.outgoing()
    check(machine, message, expected)
    assert machine.receive(line(publish(3))) == [Notified(Publish("t", {"n": 3}))]


CONTEXT = {"agent_id": None, "plugin_id": "p"}
TOOL_CALL = {"method": "tool.invoke", "params": {"tool_name": "p_t"}}
PLUGIN_FRAMES: list[tuple[str, Any, Any]] = [
    ("a request", {"id": 80, **TOOL_CALL}, CallArrived(1, InvokeTool("p_t", None, CONTEXT))),
    ("a string id", {"id": "x", **TOOL_CALL}, CallArrived(1, InvokeTool("p_t", None, CONTEXT))),
    ("a null id", {"id": None, **TOOL_CALL}, CallArrived(1, InvokeTool("p_t", None, CONTEXT))),
    ("an event", {"method": "broker.event", "params": {"topic": "t", "event": 1}}, Notified(DeliverEvent("t", 1))),
    ("an event without topic", {"method": "broker.event", "params": {"event": 1}}, "topic"),
    ("an answer", {"id": 1, "result": {"ok": True}}, CallFinished(1, {"ok": True})),
    ("an answer to a string", {"id": "1", "result": {}}, "neither"),
    ("an answer to an array", {"id": [1], "result": {}}, "neither"),
    ("an answer to nothing", {"id": 2, "result": {}}, "unknown call"),
    ("a tool call without an id", TOOL_CALL, "unknown notification"),
    ("an unknown notification", {"method": "plugin.configure"}, "unknown notification"),
    ("a blank line", b"\r\n", None),
    ("malformed", b"not json\n", "malformed"),
    ("an array", b"[]\n", "malformed"),
    ("invalid UTF-8", b"\xff\n", "malformed"),
]


@requirement("nexo:wire-line", "nexo:wire-frame-plugin", "nexo:wire-noise")
@pytest.mark.parametrize(
    ("message", "expected"), [row[1:] for row in PLUGIN_FRAMES], ids=[row[0] for row in PLUGIN_FRAMES]
)
def test_what_a_frame_is_to_the_plugin(message: Any, expected: Any) -> None:
    machine = plugin()
    machine.receive(line({"id": 1, "method": "initialize"}))
    assert machine.call(1, Publish("t", {})) is None
    machine.outgoing()
    check(machine, message, expected)


@requirement("nexo:wire-unknown-method")
@pytest.mark.parametrize("name", ["no.such", "broker.subscribe", "broker.unsubscribe", "tool.invoke", "initialize"])
@pytest.mark.parametrize("id", [9, 'nine"\\', None])
def test_a_method_the_host_does_not_have_is_not_found(name: str, id: Any) -> None:
    machine = host()
    assert machine.receive(line({"id": id, "method": name, "params": {}})) == []
    (frame,) = frames(machine)
    assert (frame["id"], frame["error"]["code"]) == (id, -32601)


@requirement("nexo:wire-unknown-method")
@pytest.mark.parametrize(
    ("served", "name", "code"),
    [
        (frozenset(), "tool.invoke", -32601),
        (frozenset({InvokeTool}), "tool.invoke", -32602),
        (frozenset({InvokeTool}), "channel.start", -32601),
        (frozenset({InvokeTool, DeliverEvent}), "broker.event", -32601),
        (NexoMachine.SUPPORTS, "plugin.configure", -32601),
        (NexoMachine.SUPPORTS, "memory.recall", -32601),
        (NexoMachine.SUPPORTS, "llm.chat", -32602),
    ],
)
def test_a_plugin_looks_for_a_handler_before_it_looks_at_params(served: Any, name: str, code: int) -> None:
    machine = plugin(serves=served)
    assert machine.receive(line({"id": 4, "method": name, "params": "wrong"})) == []
    assert [frame["error"]["code"] for frame in frames(machine)] == [code]


@requirement("nexo:wire-invalid-params")
@pytest.mark.parametrize(
    ("name", "params"),
    [
        ("broker.publish", {"topic": "", "event": {}}),
        ("memory.recall", {"query": "q"}),
        ("llm.complete", {"provider": "p", "model": "m", "messages": []}),
    ],
)
def test_the_host_is_not_bothered_with_a_request_whose_params_are_wrong(name: str, params: Any) -> None:
    machine = host()
    assert machine.receive(line({"id": 4, "method": name, "params": params})) == []
    assert [frame["error"]["code"] for frame in frames(machine)] == [-32602]


# The host asks.


@requirement("nexo:wire-tool-invoke")
def test_a_tool_call_is_byte_exact(codec: Codec) -> None:
    machine = NexoMachine(Role.HOST, codec, plugin_id="browser", tools=("browser_navigate",))
    machine.greet()
    tools = [{**TOOL, "name": "browser_navigate"}]
    machine.receive(line({"id": 1, "result": hello(manifest={"plugin": {"id": "browser"}}, tools=tools)}))
    machine.outgoing()
    args = codec.dump({"url": "https://example.com"})
    assert machine.call(79, InvokeTool("browser_navigate", args, {"agent_id": "shopper", "other": 1})) is None
    assert machine.call(80, InvokeTool("browser_navigate", codec.dump(None))) is None
    start = b'{"jsonrpc":"2.0","id":%d,"method":"tool.invoke","params":{"plugin_id":"browser",'
    assert machine.outgoing() == b"".join(
        (
            start % 80,
            b'"tool_name":"browser_navigate","args":{"url":"https://example.com"},"agent_id":"shopper"}}\n',
            start % 81,
            b'"tool_name":"browser_navigate","args":null,"agent_id":null}}\n',
        )
    )


@requirement("nexo:wire-catalogue-missing")
def test_a_tool_that_was_declared_and_not_offered_is_refused_here() -> None:
    machine = host(tools=("p_t", "p_late"))
    machine.outgoing()
    refusal = machine.call(1, InvokeTool("p_late", machine.codec.dump({})))
    assert refusal is not None
    assert (refusal.code, refusal.detail["plugin_code"]) == (Code.TOOL_NOT_EXPOSED, -33401)
    assert machine.outgoing() == b""


CALLS = [row for row in EXAMPLES if type(row[0]) in NexoMachine.SUPPORTS - {DeliverEvent}]


@requirement("nexo:wire-methods", "nexo:wire-ids")
@pytest.mark.parametrize(("op", "name", "params"), CALLS, ids=[f"{row[1]}-{n}" for n, row in enumerate(CALLS)])
def test_every_call_of_the_host_is_a_request_under_the_next_id(codec: Codec, op: Any, name: str, params: Any) -> None:
    machine = host(codec)
    assert machine.call(1, op) is None
    assert frames(machine) == [{"id": 2, "method": name, "params": params}]


@requirement("nexo:wire-responses")
def test_answers_find_their_calls_in_any_order(codec: Codec) -> None:
    machine = host(codec)
    for id in (1, 2, 3):
        invoke(machine, id)
    events = machine.receive(b"".join(line({"id": id, "result": id}) for id in (4, 2, 3)))
    assert [(event.id, codec.load(event.value)) for event in events if isinstance(event, CallFinished)] == [
        (3, 4),
        (1, 2),
        (2, 3),
    ]


@requirement("nexo:wire-responses")
@pytest.mark.parametrize(
    ("answer", "code"),
    [
        ({"result": None}, None),
        ({"result": {}}, None),
        ({"error": {"code": -33404, "message": "busy", "data": {"retry_after_ms": 5}}}, Code.UNAVAILABLE),
        ({"error": {"code": "x"}}, Code.PLUGIN_ERROR),
        ({"error": None}, Code.MALFORMED_RESPONSE),
        ({"error": "boom"}, Code.MALFORMED_RESPONSE),
        ({"error": None, "result": 1}, Code.MALFORMED_RESPONSE),
        ({"error": {"code": -33403, "message": "m"}, "result": 1}, Code.MALFORMED_RESPONSE),
        ({}, Code.MALFORMED_RESPONSE),
    ],
    ids=str,
)
def test_an_answer_that_cannot_be_used_fails_its_call_and_no_other(answer: Any, code: str | None) -> None:
    machine = host()
    invoke(machine, 1)
    invoke(machine, 2)
    failure = finished(machine.receive(line({"id": 2, **answer}))).failure
    assert (failure.code if failure else None) == code
    assert finished(machine.receive(line({"id": 3, "result": 1}))).failure is None


def test_an_answer_of_the_wrong_shape_fails_its_call_and_no_other() -> None:
    machine = host()
    assert machine.call(1, SendOutbound("slack", {})) is None
    invoke(machine, 2)
    failure = finished(machine.receive(line({"id": 2, "result": {"ok": True}}))).failure
    assert failure is not None
    assert (failure.code, machine.state) == (Code.MALFORMED_RESPONSE, READY)


@requirement("nexo:wire-late")
def test_the_answer_to_a_cancelled_call_is_late_and_harmless() -> None:
    machine = host()
    invoke(machine, 1)
    assert machine.call(2, Chat("p", "m", {}, stream=True)) is None
    machine.outgoing()
    for id in (1, 2):
        machine.cancel(id, "deadline_exceeded")
    assert machine.outgoing() == b""
    assert machine.receive(line({"id": 2, "result": 1})) == [CallFinished(1)]
    assert machine.receive(line({"id": 2, "error": {"code": 1}})) == [CallFinished(1)]
    assert machine.receive(delta(3, {"type": "end"})) == [CallProgress(2, {"type": "end"})]


def delta(request_id: Any, chunk: Any, method: str = "llm.chat.delta") -> bytes:
    return line({"method": method, "params": {"request_id": request_id, "chunk": chunk}})


CHAT_RESULT = {
    "content": {"type": "text", "text": ""},
    "usage": {"prompt_tokens": 12, "completion_tokens": 4},
    "finish_reason": {"kind": "stop"},
}


@requirement("nexo:wire-chat-stream")
def test_the_deltas_of_a_chat_are_its_progress_until_its_answer() -> None:
    machine = host()
    assert machine.call(50, Chat("cohere", "command-r", {}, stream=True)) is None
    chunks = [{"type": "text_delta", "delta": "Hello"}, {"type": "text_delta", "delta": " world"}]
    events = machine.receive(b"".join(delta(51, chunk) for chunk in chunks) + line({"id": 51, "result": CHAT_RESULT}))
    assert events[:2] == [CallProgress(50, chunk) for chunk in chunks]
    assert machine.codec.load(finished(events[2:]).value) == CHAT_RESULT


@pytest.mark.parametrize(
    ("request_id", "chunk"),
    [(2, {}), (3, {}), (99, {}), ("3", {}), (None, {}), ([3], {}), (True, {}), (4, "text"), (4, None)],
    ids=str,
)
def test_a_delta_that_belongs_to_no_stream_is_noise(request_id: Any, chunk: Any) -> None:
    machine = host()
    invoke(machine, 1)
    assert machine.call(2, Chat("p", "m", {})) is None
    assert machine.call(3, Chat("p", "m", {}, stream=True)) is None
    assert [type(event) for event in machine.receive(delta(request_id, chunk))] == [Noise]
    assert [type(event) for event in machine.receive(line({"method": "llm.chat.delta"}))] == [Noise]


# The plugin asks.


@requirement("nexo:wire-recall")
def test_a_plugin_recalls_as_the_contracts_example_does(codec: Codec) -> None:
    machine = plugin(codec)
    assert machine.call(1, RecallMemory("ventas_v1", "user preferences", 10)) is None
    params = {"agent_id": "ventas_v1", "query": "user preferences", "limit": 10}
    assert frames(machine) == [{"id": 1, "method": "memory.recall", "params": params}]
    entry = {"id": "1", "agent_id": "ventas_v1", "content": "user prefers concise answers"}
    (recalled,) = finished(machine.receive(line({"id": 1, "result": {"entries": [entry]}}))).value
    assert recalled == {**entry, "tags": [], "concept_tags": [], "created_at": None, "memory_type": None}


@requirement("nexo:wire-complete-stream")
def test_a_plugin_hears_the_text_of_a_streamed_completion_before_its_answer(codec: Codec) -> None:
    machine = plugin(codec)
    assert machine.call(50, CompleteChat("p", "m", [], stream=True)) is None
    texts = [delta(50, text, "llm.complete.delta") for text in ("hello", " world")]
    usage = {"prompt_tokens": 12, "completion_tokens": 7}
    final = line({"id": 50, "result": {"finish_reason": "stop", "usage": usage}})
    events = machine.receive(b"".join(texts) + final)
    assert events[:2] == [CallProgress(50, "hello"), CallProgress(50, " world")]
    assert finished(events[2:]).value == {"content": None, "finish_reason": "stop", "usage": usage}


def test_a_hosts_refusal_reaches_the_plugin_with_its_number() -> None:
    machine = plugin()
    assert machine.call(1, RecallMemory("a", "q")) is None
    error = {"code": -32603, "message": "memory not configured"}
    failure = finished(machine.receive(line({"id": 1, "error": error}))).failure
    assert failure is not None
    assert (failure.origin, failure.detail["plugin_code"]) == (Origin.HOST, -32603)


@requirement("nexo:wire-publish")
def test_a_plugin_publishes_the_event_exactly_as_it_was_given(codec: Codec) -> None:
    machine = plugin(codec)
    event = {"topic": "plugin.inbound.slack", "source": "slack", "payload": {"text": "ü"}}
    machine.notify(Publish("plugin.inbound.slack", event))
    params = {"topic": "plugin.inbound.slack", "event": event}
    assert frames(machine) == [{"method": "broker.publish", "params": params}]


# Who is asked answers.


@requirement("nexo:wire-ids")
@pytest.mark.parametrize("id", [0, 7, -3, 2**63, "seven", 'quote" and \\ and \n', None])
def test_the_peers_id_comes_back_as_it_was(codec: Codec, id: Any) -> None:
    machine = host(codec)
    arrived = asked(machine.receive(line({"id": id, **publish(1)})))
    machine.finish(arrived.id, None)
    assert frames(machine) == [{"id": id, "result": {"ok": True}}]


def test_requests_that_share_an_id_are_told_apart() -> None:
    machine = plugin()
    numbers = [asked(machine.receive(line({"id": None, **TOOL_CALL}))).id for _ in range(2)]
    machine.finish(numbers[1], "second")
    machine.finish(numbers[0], "first")
    assert [frame["result"] for frame in frames(machine)] == ["second", "first"]


COMPLETE = {"provider": "p", "model": "m", "messages": [{"role": "user", "content": "hi"}]}
ANSWER = {"content": None, "finish_reason": "stop", "usage": {"prompt_tokens": 1, "completion_tokens": 2}}


@requirement("nexo:wire-complete-stream")
def test_the_host_streams_a_completion_and_repeats_none_of_it(codec: Codec) -> None:
    machine = host(codec)
    arrived = asked(
        machine.receive(line({"id": "c", "method": "llm.complete", "params": {**COMPLETE, "stream": True}}))
    )
    machine.progress(arrived.id, "hello")
    machine.finish(arrived.id, {**ANSWER, "tool_calls": [{}]})
    machine.progress(arrived.id, "too late")
    final = {"finish_reason": "stop", "usage": ANSWER["usage"]}
    assert frames(machine) == [
        {"method": "llm.complete.delta", "params": {"request_id": "c", "chunk": "hello"}},
        {"id": "c", "result": final},
    ]


@requirement("nexo:wire-complete-tool-calls")
def test_an_empty_delta_is_no_text() -> None:
    machine = host()
    arrived = asked(machine.receive(line({"id": 1, "method": "llm.complete", "params": {**COMPLETE, "stream": True}})))
    machine.progress(arrived.id, "")
    machine.finish(arrived.id, {**ANSWER, "tool_calls": [{}]})
    assert frames(machine)[-1]["error"]["code"] == -32601


def test_progress_nobody_wanted_is_not_sent() -> None:
    machine = host()
    arrived = asked(machine.receive(line({"id": 1, "method": "llm.complete", "params": COMPLETE})))
    machine.progress(arrived.id, "text")
    assert machine.outgoing() == b""
    child = plugin()
    child.progress(asked(child.receive(line({"id": 1, **TOOL_CALL}))).id, {"percent": 50})
    assert child.outgoing() == b""


@requirement("nexo:wire-chat-stream")
def test_a_plugin_streams_a_chat_under_the_hosts_id() -> None:
    machine = plugin()
    params = {"provider": "p", "model": "m", "stream": True, "request": {}}
    arrived = asked(machine.receive(line({"id": 51, "method": "llm.chat", "params": params})))
    machine.progress(arrived.id, {"type": "text_delta", "delta": "Hi"})
    chunk = {"request_id": 51, "chunk": {"type": "text_delta", "delta": "Hi"}}
    assert frames(machine) == [{"method": "llm.chat.delta", "params": chunk}]


@requirement("nexo:wire-error-data")
def test_a_handlers_failure_is_answered_with_its_number_and_data() -> None:
    machine = plugin()
    arrived = asked(machine.receive(line({"id": 80, **TOOL_CALL})))
    machine.finish(arrived.id, None, Failure(Code.UNAVAILABLE, "busy", retry_after_ms=5000))
    error = {"code": -33404, "message": "busy", "data": {"retry_after_ms": 5000}}
    assert frames(machine) == [{"id": 80, "error": error}]


# The plugin is greeted, and served before it is.


@requirement("nexo:wire-initialize-reply", "nexo:wire-no-init-gate")
def test_a_plugin_says_who_it_is_as_often_as_it_is_asked_and_is_ready_once(codec: Codec) -> None:
    machine = plugin(codec)
    assert isinstance(asked(machine.receive(line({"id": 1, **TOOL_CALL}))).op, InvokeTool)
    first = machine.receive(line({"id": 2, "method": "initialize", "params": {"nexo_version": "0.1.5"}}))
    assert first == [Ready({"nexo_version": "0.1.5"})]
    assert machine.receive(line({"id": "again", "method": "initialize"})) == []
    assert frames(machine) == [{"id": 2, "result": hello()}, {"id": "again", "result": hello()}]


@pytest.mark.parametrize("params", [..., None, {}, [], {"nexo_version": 1}])
def test_initialize_is_forgiving_about_its_params_and_silent_without_an_id(params: Any) -> None:
    machine = plugin(tools=())
    message = {"method": "initialize"} | ({} if params is ... else {"params": params})
    assert machine.receive(line(message)) == [Ready({"nexo_version": ""})]
    assert machine.outgoing() == b""


def test_a_manifest_that_is_no_json_is_an_error_the_host_can_read() -> None:
    machine = plugin(manifest={"plugin": {"id": "p", "released": object()}})
    machine.receive(line({"id": 1, "method": "initialize"}))
    (frame,) = frames(machine)
    assert (frame["error"]["code"], "released" in frame["error"]["message"]) == (-32603, True)


# Good-bye.


@requirement("nexo:wire-shutdown")
def test_the_host_says_good_bye_under_the_next_id_and_still_takes_answers() -> None:
    machine = host()
    invoke(machine, 1)
    machine.outgoing()
    machine.close("done")
    machine.close("done")
    assert frames(machine) == [{"id": 3, "method": "shutdown", "params": {"reason": "host requested"}}]
    refusal = machine.call(2, InvokeTool("p_t", machine.codec.dump({})))
    assert refusal is not None
    assert refusal.code == Code.UNAVAILABLE
    machine.notify(DeliverEvent("t", {}))
    assert machine.outgoing() == b""
    assert finished(machine.receive(line({"id": 2, "result": 1}))).failure is None
    arrived = asked(machine.receive(line({"id": 9, **REQUEST})))
    machine.finish(arrived.id, [])
    assert frames(machine) == [{"id": 9, "result": {"entries": []}}]
    assert machine.receive(line({"id": 3, "result": {"ok": True}}) + line(publish(1))) == [Closed()]
    assert (machine.state, machine.receive_eof()) == (CLOSED, [])


@requirement("nexo:wire-shutdown-error")
def test_a_child_that_cannot_leave_in_good_order_says_why() -> None:
    machine = host()
    machine.close("done")
    failure = fault(machine.receive(line({"id": 2, "error": {"code": -32000, "message": "disk full"}})))
    assert failure is not None
    assert (failure.code, failure.message) == (Code.PLUGIN_ERROR, "shutdown handler failed: disk full")
    assert failure.detail["plugin_code"] == -32000
    machine.close("done")
    assert machine.state == CLOSED


def test_a_child_that_was_never_ready_is_left_without_a_word() -> None:
    machine = greeting()
    machine.close("done")
    assert machine.outgoing() == b""
    assert machine.receive(line({"id": 1, "result": hello()})) == []
    assert machine.receive(line({"id": 5, **REQUEST})) == []
    assert frames(machine)[0]["error"]["code"] == -32603
    assert machine.receive_eof() == [Closed()]


def test_a_plugin_may_publish_when_its_input_has_ended_and_ask_nothing_more() -> None:
    machine = plugin()
    assert machine.receive_eof() == [Closed()]
    assert machine.notify(Publish("plugin.inbound.slack", {"payload": 1})) is None
    assert [frame["method"] for frame in frames(machine)] == ["broker.publish"]
    refusal = machine.call(1, RecallMemory("a", "q"))
    assert refusal is not None
    assert refusal.code == Code.UNAVAILABLE


@requirement("nexo:wire-shutdown")
@pytest.mark.parametrize("failure", [None, Failure(Code.INTERNAL, "disk full")])
def test_a_plugin_answers_shutdown_when_it_is_told_to_and_may_ask_until_then(failure: Failure | None) -> None:
    machine = plugin()
    slow = asked(machine.receive(line({"id": 5, **TOOL_CALL})))
    leave = asked(machine.receive(line({"id": 6, "method": "shutdown", "params": {"reason": "host requested"}})))
    assert leave.op == Shutdown("host requested")
    assert machine.state == CLOSING
    assert machine.call(1, RecallMemory("a", "q")) is None
    assert finished(machine.receive(line({"id": 1, "result": {"entries": []}}))).value == []
    machine.outgoing()
    machine.finish(slow.id, "done")
    machine.finish(leave.id, None, failure)
    tool, bye = frames(machine)
    assert tool == {"id": 5, "result": "done"}
    if failure is None:
        assert bye == {"id": 6, "result": {"ok": True}}
    else:
        assert bye == {"id": 6, "error": {"code": -32000, "message": "disk full"}}
    assert machine.state == CLOSED
    refusal = machine.call(2, RecallMemory("a", "q"))
    assert refusal is not None
    assert refusal.code == Code.UNAVAILABLE


def test_shutdown_without_an_id_is_obeyed_and_not_answered() -> None:
    machine = plugin()
    assert machine.receive(line({"method": "shutdown"})) == [Notified(Shutdown(""))]
    assert (machine.state, machine.outgoing()) == (CLOSING, b"")
    assert machine.receive(line({"id": 1, "method": "initialize"})) == []
    assert frames(machine)[0]["id"] == 1


@pytest.mark.parametrize(
    ("machine", "code"),
    [(greeting, Code.CRASHED), (host, Code.CRASHED), (plugin, None)],
    ids=["a child in its greeting", "a resident child", "a host"],
)
@requirement("nexo:wire-eof")
def test_only_a_host_may_leave_without_being_asked(machine: Any, code: str | None) -> None:
    left = machine()
    events = left.receive_eof()
    failure = fault(events)
    assert (failure.code if failure else None) == code
    assert left.state == (CLOSED if code is None else FAILED)
    assert (events == [Closed()]) is (code is None)
    assert left.receive_eof() == []


@requirement("nexo:wire-eof")
def test_the_last_line_counts_without_its_newline() -> None:
    machine = host()
    invoke(machine)
    assert machine.receive(line({"id": 2, "result": 5})[:-1]) == []
    answer, end = machine.receive_eof()
    assert answer == CallFinished(1, machine.codec.dump(5))
    assert isinstance(end, Fault)
    assert "closed its output" in end.failure.message


def test_a_child_that_leaves_without_answering_shutdown_left_in_good_order() -> None:
    machine = host()
    machine.close("done")
    assert machine.receive_eof() == [Closed()]


def test_a_plugin_may_still_answer_a_good_bye_after_its_input_ended() -> None:
    machine = plugin()
    leave = asked(machine.receive(line({"id": 6, "method": "shutdown"})))
    assert machine.receive_eof() == [Closed()]
    machine.finish(leave.id)
    assert frames(machine) == [{"id": 6, "result": {"ok": True}}]


# Our own bugs.


@pytest.mark.parametrize(("role", "state"), list(product((Role.HOST, Role.PLUGIN), (START, GREETING, READY, CLOSING))))
def test_what_we_ask_of_a_machine_is_in_its_table_or_our_own_bug(role: str, state: str) -> None:
    machine = NexoMachine(role, stdlib_codec())
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
        (host, DeliverEvent("t", {})),
        (host, WriteLog("info", "x")),
        (host, Shutdown()),
        (plugin, InvokeTool("p_t", {})),
        (plugin, StopChannel("k")),
        (greeting, StartChannel("k")),
    ],
)
def test_only_what_the_contract_carries_in_this_direction_can_be_asked(made: Any, op: Any) -> None:
    with pytest.raises(Misuse):
        made().call(1, op)


def test_only_events_can_be_told_and_only_requests_answered() -> None:
    with pytest.raises(Misuse, match="cannot tell RunHook"):
        host().notify(RunHook("h", {}))
    with pytest.raises(Misuse, match="not a request that waits"):
        host().finish(1, None)
    with pytest.raises(Misuse, match="numbers its calls"):
        host().call("one", StopChannel("k"))


# The pair.


def pair() -> tuple[NexoMachine, NexoMachine]:
    machine = NexoMachine(Role.HOST, MsgspecCodec(), plugin_id="p", tools=("p_t",))
    peer = plugin()
    machine.greet()
    at_host, at_plugin = exchange(machine, peer)
    said = {"plugin_id": "p", "server_version": "p-0.2.0", "tools": [TOOL], "warnings": []}
    assert at_host == [Ready(said)]
    assert at_plugin == [Ready({"nexo_version": machine.nexo_version})]
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


@given(json_values, json_values)
def test_any_json_value_travels_to_a_tool_and_back_unchanged(args: Any, value: Any) -> None:
    machine, peer = pair()
    machine.call(1, InvokeTool("p_t", machine.codec.dump(args), {"agent_id": "a"}))
    arrived = asked(exchange(machine, peer)[1])
    assert arrived.op == InvokeTool("p_t", args, {"agent_id": "a", "plugin_id": "p"})
    peer.finish(arrived.id, value)
    got = machine.codec.load(finished(exchange(machine, peer)[0]).value)
    assert got == value
    assert type(got) is type(value)


@pytest.mark.parametrize(("op", "name", "params"), CALLS, ids=[f"{row[1]}-{n}" for n, row in enumerate(CALLS)])
def test_every_call_of_a_host_arrives_at_its_plugin_as_it_was(op: Any, name: str, params: Any) -> None:
    machine, peer = pair()
    assert machine.call(1, op) is None
    arrived = asked(exchange(machine, peer)[1])
    assert arrived.op == op
    peer.finish(arrived.id, None, Failure(Code.PLUGIN_ERROR, "no"))
    failure = finished(exchange(machine, peer)[0]).failure
    assert failure is not None
    assert failure.message == "no"


ASKS = [row for row in EXAMPLES if type(row[0]) not in NexoMachine.SUPPORTS]


@pytest.mark.parametrize(("op", "name", "params"), ASKS, ids=[f"{row[1]}-{n}" for n, row in enumerate(ASKS)])
def test_every_call_of_a_plugin_arrives_at_its_host_as_it_was(op: Any, name: str, params: Any) -> None:
    machine, peer = pair()
    assert peer.call(1, op) is None
    arrived = asked(exchange(machine, peer)[0])
    assert arrived.op == op
    machine.finish(arrived.id, [] if isinstance(op, RecallMemory) else ANSWER)
    assert finished(exchange(machine, peer)[1]).failure is None


def test_events_travel_both_ways_and_both_ends_leave_in_good_order() -> None:
    machine, peer = pair()
    machine.notify(DeliverEvent("plugin.outbound.p", {"payload": 1}))
    peer.notify(Publish("plugin.inbound.p", {"payload": 2}))
    at_host, at_plugin = exchange(machine, peer)
    assert at_host == [Notified(Publish("plugin.inbound.p", {"payload": 2}))]
    assert at_plugin == [Notified(DeliverEvent("plugin.outbound.p", {"payload": 1}))]
    machine.close("done")
    peer.finish(asked(exchange(machine, peer)[1]).id)
    assert exchange(machine, peer)[0] == [Closed()]


# Whatever comes.

SCRAPS: list[Any] = [
    *(row[1] for row in HOST_FRAMES),
    *(row[1] for row in PLUGIN_FRAMES),
    {"id": 1, "result": {"manifest": MANIFEST}},
    {"id": 3, "result": CHAT_RESULT},
    {"method": "llm.chat.delta", "params": {"request_id": 3, "chunk": {}}},
    {"id": 8, "method": "shutdown"},
    {"id": 8, "method": "initialize"},
]
keys = st.sampled_from("jsonrpc id method params result error code message data request_id chunk topic event".split())
odd_frames = st.dictionaries(keys, json_values | st.dictionaries(keys, json_values), max_size=5).map(
    lambda value: json.dumps(value).encode() + b"\n"
)
streams = st.lists(st.sampled_from([line(scrap) for scrap in SCRAPS]) | odd_frames | st.binary(max_size=40), max_size=8)


def talking(role: str, made: Codec) -> NexoMachine:
    if role == Role.PLUGIN:
        machine = plugin(made)
        machine.call(1, CompleteChat("p", "m", [], stream=True))
    else:
        machine = host(made)
        invoke(machine, 1)
        machine.call(2, Chat("p", "m", {}, stream=True))
    machine.outgoing()
    return machine


@requirement("nexo:wire-noise")
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
def test_no_child_can_break_its_own_greeting_otherwise_than_by_a_fault(parts: list[bytes]) -> None:
    machine = greeting()
    events = machine.receive(b"".join(parts)) + machine.receive_eof()
    assert sum(isinstance(event, Fault) for event in events) == 1
    assert machine.state == FAILED


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
    *skipped, event = machine.receive(padded({"id": 2, "result": 1}, size))
    assert isinstance(event, CallFinished) and (event.failure is None) == taken
    assert [type(each) for each in skipped] == ([] if taken else [Noise])
    assert machine.state == "ready"
    assert machine.receive(line({"id": 2, "result": 1})) == [CallFinished(1)]


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


UNREADABLE = {
    "NaN": (b'{"jsonrpc":"2.0","id":2,"result":NaN}\n', Code.MALFORMED_RESPONSE),
    "bad UTF-8": (b'{"id": 2, "result": "\xff"}\n', Code.MALFORMED_RESPONSE),
    "cut": (b'{"jsonrpc":"2.0","id":2,"error":{"code":\n', Code.MALFORMED_RESPONSE),
    "oversized": (b'{"jsonrpc":"2.0","id":2,"result":"' + b"x" * MAX_CHILD_LINE + b'"}\n', Code.FRAME_TOO_LARGE),
}


@requirement("nexo:wire-unreadable-answer")
@pytest.mark.parametrize("case", UNREADABLE)
def test_an_answer_that_cannot_be_read_fails_its_call_at_once(case: str) -> None:
    machine = host()
    frame, code = UNREADABLE[case]
    assert machine.call(1, InvokeTool("p_t", {})) is None
    noise, finished = machine.receive(frame)
    assert isinstance(noise, Noise) and isinstance(finished, CallFinished)
    assert finished.id == 1 and finished.failure is not None
    assert (finished.failure.code, finished.failure.origin) == (code, "plugin")
    assert "tool.invoke" in finished.failure.message
    assert machine.call(2, InvokeTool("p_t", {})) is None
    (answered,) = machine.receive(line({"id": 3, "result": 1}))
    assert isinstance(answered, CallFinished) and (answered.id, answered.failure) == (2, None)


@requirement("nexo:wire-unreadable-answer")
def test_an_unreadable_answer_to_the_greeting_refuses_the_child_at_once() -> None:
    machine = greeting()
    _, fault = machine.receive(b'{"jsonrpc":"2.0","id":1,"result":NaN}\n')
    assert isinstance(fault, Fault) and fault.failure.code == Code.HANDSHAKE_FAILED


@requirement("nexo:wire-unreadable-answer")
def test_an_unreadable_answer_of_the_host_fails_the_request_of_the_plugin_at_once() -> None:
    machine = plugin()
    assert machine.call(1, RecallMemory("a", "q")) is None
    _, finished = machine.receive(b'{"jsonrpc":"2.0","id":1,"result":{"entries":NaN}}\n')
    assert isinstance(finished, CallFinished) and finished.failure is not None
    assert (finished.failure.code, finished.failure.origin) == (Code.MALFORMED_RESPONSE, "host")


@requirement("nexo:wire-unreadable-answer")
@pytest.mark.parametrize("frame", [b'{"id":9,"result":NaN}\n', b'{"id":2,"method":"x","params":NaN}\n', b"NaN\n"])
def test_an_unreadable_line_that_answers_no_call_is_only_noise(frame: bytes) -> None:
    machine = host()
    machine.call(1, InvokeTool("p_t", {}))
    (noise,) = machine.receive(frame)
    assert isinstance(noise, Noise)
