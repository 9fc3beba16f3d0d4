"""The vai machine, both roles, with no process: every kind of frame, every state, the pair, any bytes at all."""

from __future__ import annotations

import json
from itertools import product
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plugbay.contracts.base import Misuse, Role
from plugbay.contracts.rpc import CLOSED, CLOSING, FAILED, GREETING, READY, START
from plugbay.contracts.vai.machine import VaiMachine
from plugbay.contracts.vai.messages import MAX_BODY, Identity
from plugbay.model.errors import Code, Failure, Origin
from plugbay.model.events import (
    CallArrived,
    CallFinished,
    CallProgress,
    CancelArrived,
    Closed,
    Fault,
    Noise,
    Notified,
    Ready,
)
from plugbay.model.operations import Compact, DeliverEvent, InvokeTool, RunHarness, RunHook, Shutdown, WriteLog
from plugbay.wire.fast_json import MsgspecCodec
from plugbay.wire.strict_json import stdlib_codec
from tests.contracts.vai.talk import (
    EXPORTS,
    WHO,
    event,
    frame,
    framed,
    frames,
    greeting,
    hello,
    host,
    host_hello,
    plugin,
    request,
    response,
    says,
    ungreeted,
)
from tests.support.pairs import exchange
from tests.support.requirements import requirement
from tests.wire.chunks import cut, one_by_one, places

if TYPE_CHECKING:
    from plugbay.model.events import Event
    from plugbay.wire.strict_json import Codec

SECRET = "s3cret-t0ken"
CONTEXT = {"context": {"invocation_id": "inv_1"}, "config": {}, "secrets": {"jira_token": SECRET}}
SEARCH = InvokeTool("jira_search", {"query": "q"}, CONTEXT)
COMPACTION = {"compaction_id": "cmp_1", "source": {"chain_id": "ch_1"}, "target": {}, "policy": {}}
HARNESS = {"mode": "start", "target": {}, "trigger": {"type": "user_request"}, "policy": {}}
FOUR: list[Any] = [
    SEARCH,
    RunHook("slack_notify", {"type": "run.completed"}, {**CONTEXT, "delivery_id": "del_1", "attempt": 1}),
    Compact("coder_window", COMPACTION, CONTEXT),
    RunHarness("triage", HARNESS, CONTEXT),
]
WORKING = {"type": "progress", "message": "working"}


def fault(events: list[Event]) -> Failure | None:
    return next((event.failure for event in events if isinstance(event, Fault)), None)


def finished(events: list[Event]) -> CallFinished:
    (event,) = events
    assert isinstance(event, CallFinished)
    return event


def noise(events: list[Event]) -> Noise:
    (event,) = events
    assert isinstance(event, Noise)
    return event


def asking(codec: Codec | None = None, *ops: Any) -> VaiMachine:
    """A host that has asked `req_1`, `req_2`, …; one search unless it is told what."""
    machine = host(codec)
    for number, op in enumerate(ops or (SEARCH,), 1):
        assert machine.call(number, op) is None
    machine.outgoing()
    return machine


def asked(codec: Codec | None = None, **more: Any) -> VaiMachine:
    """A plugin that works on `req_1`."""
    machine = plugin(codec)
    (event,) = machine.receive(frame(request(**more)))
    assert isinstance(event, CallArrived)
    return machine


def pair() -> tuple[VaiMachine, VaiMachine]:
    machine = VaiMachine(Role.HOST, MsgspecCodec(), **WHO, host_version="0.1.0")
    peer = ungreeted()
    machine.greet()
    at_host, at_plugin = exchange(machine, peer)
    assert at_host == [Ready({**WHO, "warnings": []})]
    assert at_plugin == [Ready({"host_name": "plugbay", "host_version": "0.1.0"})]
    return machine, peer


# A whole conversation, byte for byte.


@requirement("vai:wire-framing", "vai:wire-frames", "vai:wire-hello", "vai:wire-shutdown")
def test_a_conversation_as_it_goes_over_the_wire(codec: Codec) -> None:
    machine = VaiMachine(Role.HOST, codec, **WHO, host_name="vai-runner", host_version="0.1.0")
    machine.greet()
    assert machine.outgoing() == framed(
        b'{"protocol":"vai.rpc.v1","type":"hello","role":"host","host":{"name":"vai-runner","version":"0.1.0"}}'
    )
    peer = ungreeted(codec)
    peer.receive(frame(host_hello()))
    said = peer.outgoing()
    assert said == framed(
        b'{"protocol":"vai.rpc.v1","type":"hello","role":"plugin",'
        b'"plugin":{"package_id":"acme/devkit","version":"0.1.0"}}'
    )
    assert machine.receive(said) == [Ready({**WHO, "warnings": []})]
    assert machine.call(1, InvokeTool("jira_search", {"query": "é"}, {"tool_execution_id": "toolx_1"})) is None
    sent = machine.outgoing()
    assert sent == framed(
        '{"protocol":"vai.rpc.v1","type":"request","id":"req_1","op":"tool.invoke","body":{"export_id":"jira_search",'
        '"tool_execution_id":"toolx_1","input":{"query":"é"}}}'.encode()
    )
    op = InvokeTool("jira_search", {"query": "é"}, {"tool_execution_id": "toolx_1"})
    assert peer.receive(sent) == [CallArrived("req_1", op)]
    assert peer.progress("req_1", {"type": "progress", "message": "été"}) is None
    said = peer.outgoing()
    assert said.startswith(b"Content-Length: 107\r\n\r\n")
    (progress,) = machine.receive(said)
    assert isinstance(progress, CallProgress)
    assert (progress.id, codec.load(progress.item)) == (1, {"type": "progress", "message": "été"})
    machine.cancel(1, "deadline_exceeded")
    sent = machine.outgoing()
    assert sent == framed(
        b'{"protocol":"vai.rpc.v1","type":"cancel","request_id":"req_1","reason":"deadline_exceeded"}'
    )
    assert peer.receive(sent) == [CancelArrived("req_1")]
    peer.finish("req_1", {"content": []})
    said = peer.outgoing()
    assert said == framed(
        b'{"protocol":"vai.rpc.v1","type":"response","id":"req_1","ok":true,'
        b'"body":{"status":"succeeded","result":{"content":[]}}}'
    )
    done = finished(machine.receive(said))
    assert (done.id, codec.load(done.value), done.failure) == (1, {"content": []}, None)
    machine.close("done")
    sent = machine.outgoing()
    assert sent == b'Content-Length: 43\r\n\r\n{"protocol":"vai.rpc.v1","type":"shutdown"}'
    assert peer.receive(sent) == [Notified(Shutdown())]


# The hellos.


@requirement("vai:wire-identity", "vai:wire-hello")
@pytest.mark.parametrize(
    ("message", "code", "plugin_code"),
    [
        (hello(plugin={**WHO, "version": "0.1.1"}), Code.HANDSHAKE_FAILED, "plugin.identity_mismatch"),
        (hello(plugin={**WHO, "package_id": "acme/evil"}), Code.HANDSHAKE_FAILED, "plugin.identity_mismatch"),
        (hello(plugin=None), Code.HANDSHAKE_FAILED, "protocol.invalid_frame"),
        (hello(role="host"), Code.HANDSHAKE_FAILED, "protocol.invalid_frame"),
        (hello(role=None), Code.HANDSHAKE_FAILED, "protocol.invalid_frame"),
        (host_hello(), Code.HANDSHAKE_FAILED, "protocol.invalid_frame"),
        (hello(protocol="vai.rpc.v2"), Code.PROTOCOL_VERSION_MISMATCH, "protocol.unsupported_version"),
        (hello(protocol=1), Code.PROTOCOL_VERSION_MISMATCH, "protocol.unsupported_version"),
        ({"type": "hello", "role": "plugin", "plugin": WHO}, Code.HANDSHAKE_FAILED, "protocol.invalid_frame"),
        (request(), Code.HANDSHAKE_FAILED, "protocol.invalid_frame"),
        (response(), Code.HANDSHAKE_FAILED, "protocol.invalid_frame"),
        (event(), Code.HANDSHAKE_FAILED, "protocol.invalid_frame"),
        (says("shutdown"), Code.HANDSHAKE_FAILED, "protocol.invalid_frame"),
        (says("nonsense"), Code.HANDSHAKE_FAILED, "protocol.invalid_frame"),
        (b'{"protocol":"vai.rpc.v1","type":"response","id":"req_1",', Code.HANDSHAKE_FAILED, "protocol.invalid_frame"),
        (b"starting up", Code.HANDSHAKE_FAILED, "protocol.invalid_frame"),
    ],
    ids=str,
)
def test_a_plugin_that_is_not_accepted_is_a_fault_and_is_asked_nothing(
    codec: Codec, message: Any, code: str, plugin_code: str
) -> None:
    machine = greeting(codec)
    failure = fault(machine.receive(frame(message) + frame(hello())))
    assert failure is not None
    assert (failure.code, failure.origin, failure.detail["plugin_code"]) == (code, Origin.PLUGIN, plugin_code)
    assert (machine.state, machine.outgoing()) == (FAILED, b"")
    refusal = machine.call(1, SEARCH)
    assert refusal is not None
    assert (refusal.code, machine.outgoing()) == (Code.UNAVAILABLE, b"")


@requirement("vai:wire-unknown-fields")
def test_fields_nobody_knows_are_ignored_in_a_hello(codec: Codec) -> None:
    message = hello(plugin={**WHO, "exports": ["x"]}, later=True)
    assert greeting(codec).receive(frame(message)) == [Ready({**WHO, "warnings": []})]


@requirement("vai:wire-hello")
def test_a_second_hello_is_a_violation_for_both(codec: Codec) -> None:
    for machine, again in ((host(codec), hello()), (plugin(codec), host_hello())):
        failure = fault(machine.receive(frame(again)))
        assert failure is not None
        assert (failure.code, "a second hello" in failure.message) == (Code.MALFORMED_RESPONSE, True)
        assert failure.detail["plugin_code"] == "protocol.invalid_frame"


@requirement("vai:wire-hello")
@pytest.mark.parametrize(
    ("message", "code"),
    [
        (host_hello(role="plugin"), Code.HANDSHAKE_FAILED),
        (host_hello(protocol="vai.rpc.v2"), Code.PROTOCOL_VERSION_MISMATCH),
        (says("shutdown"), Code.HANDSHAKE_FAILED),
        (says("cancel", request_id="req_1"), Code.HANDSHAKE_FAILED),
        (b"GET / HTTP/1.1", Code.HANDSHAKE_FAILED),
    ],
    ids=str,
)
def test_a_plugin_answers_only_a_host_it_can_talk_to(codec: Codec, message: Any, code: str) -> None:
    machine = ungreeted(codec)
    failure = fault(machine.receive(frame(message) + frame(host_hello())))
    assert failure is not None
    assert (failure.code, failure.origin) == (code, Origin.HOST)
    assert (machine.state, machine.outgoing()) == (FAILED, b"")


@requirement("vai:wire-hello", "vai:wire-bad-request")
def test_a_request_before_the_hello_is_refused_and_the_hello_may_still_come(codec: Codec) -> None:
    machine = ungreeted(codec)
    assert machine.receive(frame(request())) == []
    error = {"code": "protocol.invalid_frame", "message": "a 'request' before the hello"}
    assert frames(machine) == [{"type": "response", "id": "req_1", "ok": False, "error": error}]
    assert machine.receive(frame(host_hello())) == [Ready({"host_name": "vai-runner", "host_version": "0.1.0"})]


def test_a_host_that_has_given_up_no_longer_cares_for_a_hello() -> None:
    machine = greeting()
    machine.close("done")
    assert machine.outgoing() == b""
    assert noise(machine.receive(frame(hello()))).why == "a hello during the shutdown"
    assert machine.receive_eof() == [Closed()]


# HOST: what a frame is.


@requirement("vai:wire-statuses", "vai:wire-refusal", "vai:wire-invalid-response")
@pytest.mark.parametrize(
    ("message", "code", "plugin_code", "outcome"),
    [
        (response(body={"status": "failed", "error": {"code": "x.y"}}), Code.PLUGIN_ERROR, "x.y", "failed"),
        (
            response(body={"status": "retryable_failure", "error": {"code": "x.y"}}),
            Code.PLUGIN_ERROR,
            "x.y",
            "retryable_failure",
        ),
        (response(body={"status": "cancelled"}), Code.CANCELLED, None, "cancelled"),
        (response(body={"status": "timed_out"}), Code.MALFORMED_RESPONSE, "protocol.invalid_response", "failed"),
        (response(body={}), Code.MALFORMED_RESPONSE, "protocol.invalid_response", "failed"),
        (response(body=None), Code.MALFORMED_RESPONSE, "protocol.invalid_response", "failed"),
        (says("response", id="req_1"), Code.MALFORMED_RESPONSE, "protocol.invalid_response", "failed"),
        (says("response", id="req_1", ok=False), Code.MALFORMED_RESPONSE, "protocol.invalid_response", "failed"),
        (
            says("response", id="req_1", ok=False, error={"code": "protocol.unknown_op", "message": "m"}),
            Code.TOOL_NOT_EXPOSED,
            "protocol.unknown_op",
            "failed",
        ),
        (
            says("response", id="req_1", ok=False, error={"code": "protocol.overloaded", "message": "m"}),
            Code.OVERLOADED,
            "protocol.overloaded",
            "retryable_failure",
        ),
        (
            b'{"protocol":"vai.rpc.v1","type":"response","id":"req_1","ok":true,"body":{"result":NaN}}',
            Code.MALFORMED_RESPONSE,
            "protocol.invalid_response",
            "failed",
        ),
        (
            b'{"protocol":"vai.rpc.v1","type":"response","id":"req_1","ok":true,"body":' + b"[" * 99 + b"]" * 99 + b"}",
            Code.MALFORMED_RESPONSE,
            "protocol.invalid_response",
            "failed",
        ),
    ],
    ids=lambda case: str(case)[:80],
)
def test_every_end_but_success_is_a_failure_of_that_request_alone(
    codec: Codec, message: Any, code: str, plugin_code: str | None, outcome: str
) -> None:
    machine = asking(codec, SEARCH, SEARCH)
    done = finished(machine.receive(frame(message)))
    assert (done.id, done.value) == (1, None)
    assert done.failure is not None
    assert (done.failure.code, done.failure.outcome, done.failure.origin) == (code, outcome, Origin.PLUGIN)
    assert done.failure.detail.get("plugin_code") == plugin_code
    assert finished(machine.receive(frame(response("req_2")))).failure is None


@requirement("vai:wire-late-frames")
@pytest.mark.parametrize(
    "message",
    [
        response("req_1"),
        response("req_99"),
        response("REQ_2"),
        response(""),
        response("x" * 10_000),
        response("req_1", body=None),
        event("req_1"),
        event("req_99"),
        b'{"id":"req_1","broken":',
    ],
    ids=lambda case: str(case)[:60],
)
def test_what_belongs_to_no_open_request_is_dropped_and_counted(codec: Codec, message: Any) -> None:
    machine = asking(codec, SEARCH, SEARCH)
    machine.receive(frame(response("req_1")))
    assert "is not expected" in noise(machine.receive(frame(message))).why
    assert machine.state == READY
    assert finished(machine.receive(frame(response("req_2")))).id == 2


@requirement("vai:wire-event")
@pytest.mark.parametrize("said", [None, [], "working", {}, {"type": 5}, {"message": "m"}], ids=str)
def test_an_event_that_says_nothing_is_dropped(codec: Codec, said: Any) -> None:
    machine = asking(codec)
    assert "not an object with a type" in noise(machine.receive(frame(event(event=said)))).why
    message = says("event", request_id="req_1")
    assert "not an object with a type" in noise(machine.receive(frame(message))).why
    assert finished(machine.receive(frame(response()))).failure is None


@requirement("vai:wire-unknown-type", "vai:wire-direction")
@pytest.mark.parametrize(
    "message",
    [
        says("nonsense"),
        says("nonsense", id="req_1"),
        says("Response", id="req_1"),
        request(),
        says("cancel", request_id="req_1"),
        says("shutdown"),
        says("response", ok=True, body={}),
        response(5),
        response(None),
        says("event", event=WORKING),
        event(5),
        {"protocol": "vai.rpc.v1"},
        {"protocol": "vai.rpc.v1", "type": 5},
        {"type": "response", "id": "req_1"},
        {},
        [response()],
        b"",
        b"null",
        b"42",
        b"starting up",
        b'{"protocol":"vai.rpc.v1","type":"event","request_id":"req_1","event":{"type":"\xff"}}',
        json.dumps(response()).encode("utf-16"),
    ],
    ids=lambda case: str(case)[:60],
)
def test_a_frame_that_a_host_cannot_place_ends_the_conversation(codec: Codec, message: Any) -> None:
    machine = asking(codec)
    failure = fault(machine.receive(frame(message) + frame(response())))
    assert failure is not None
    assert (failure.code, failure.origin) == (Code.MALFORMED_RESPONSE, Origin.PLUGIN)
    assert failure.detail["plugin_code"] == "protocol.invalid_frame"
    assert (machine.state, machine.receive(frame(response())), machine.receive_eof()) == (FAILED, [], [])


@requirement("vai:wire-hello")
def test_another_protocol_in_mid_conversation_ends_it(codec: Codec) -> None:
    failure = fault(asking(codec).receive(frame(response() | {"protocol": "vai.rpc.v2"})))
    assert failure is not None
    assert failure.code == Code.PROTOCOL_VERSION_MISMATCH
    assert failure.detail["plugin_code"] == "protocol.unsupported_version"


@requirement("vai:wire-unknown-fields")
def test_fields_nobody_knows_are_ignored_in_responses_and_events(codec: Codec) -> None:
    machine = asking(codec)
    (progress,) = machine.receive(frame(event(event={**WORKING, "later": [1]}) | {"later": 1}))
    assert isinstance(progress, CallProgress)
    assert codec.load(progress.item) == {**WORKING, "later": [1]}
    done = finished(machine.receive(frame(response(later=1, error=None))))
    assert codec.load(done.value) == {"n": 1}


@requirement("vai:wire-out-of-order")
def test_responses_come_in_any_order_and_events_interleave(codec: Codec) -> None:
    machine = asking(codec, *[SEARCH] * 10)
    data = b"".join(frame(event(f"req_{number}")) for number in (3, 1, 3, 2))
    events = machine.receive(data)
    assert [event.id for event in events if isinstance(event, CallProgress)] == [3, 1, 3, 2]
    order = [7, 1, 10, 2, 9, 3, 8, 4, 6, 5]
    answers = [frame(response(f"req_{n}", {"status": "succeeded", "result": n})) for n in order]
    done = [event for event in machine.receive(b"".join(answers)) if isinstance(event, CallFinished)]
    assert [(event.id, codec.load(event.value)) for event in done] == [(n, n) for n in order]


# HOST: what we ask.


@requirement("vai:wire-cancel")
def test_a_cancel_is_said_once_and_what_was_done_meanwhile_still_counts(codec: Codec) -> None:
    machine = asking(codec, SEARCH, SEARCH)
    machine.cancel(1, "deadline_exceeded")
    machine.cancel(1, "host_shutdown")
    machine.cancel(99, "deadline_exceeded")
    machine.cancel("req_2", "deadline_exceeded")
    machine.cancel(2, "the caller cancelled")
    assert frames(machine) == [
        {"type": "cancel", "request_id": "req_1", "reason": "deadline_exceeded"},
        {"type": "cancel", "request_id": "req_2", "reason": "user_cancelled"},
    ]
    assert isinstance(machine.receive(frame(event()))[0], CallProgress)
    assert finished(machine.receive(frame(response()))).failure is None
    machine.cancel(1, "deadline_exceeded")
    assert machine.outgoing() == b""


@requirement("vai:wire-size")
def test_a_request_over_eight_mebibytes_is_refused_here(codec: Codec) -> None:
    machine = host(codec)
    refusal = machine.call(1, InvokeTool("jira_search", {"q": "x" * MAX_BODY}, CONTEXT))
    assert refusal is not None
    assert (refusal.code, refusal.detail["limit"]) == (Code.FRAME_TOO_LARGE, 8 * 1024 * 1024)
    assert SECRET not in repr(refusal)
    assert machine.outgoing() == b""
    assert "is not expected" in noise(machine.receive(frame(response()))).why


@pytest.mark.parametrize("op", [Compact("c", [1]), InvokeTool("t", {"a": object()})], ids=["no object", "no json"])
def test_a_request_that_cannot_be_written_is_refused_here(op: Any) -> None:
    machine = host()
    refusal = machine.call(1, op)
    assert refusal is not None
    assert (refusal.code, machine.outgoing()) == (Code.INVALID_INPUT, b"")


def test_a_request_that_nests_too_deeply_for_the_peer_is_refused_here() -> None:
    deep: Any = 1
    for _ in range(63):
        deep = [deep]
    machine = host()
    refusal = machine.call(1, InvokeTool("jira_search", {"a": deep}))
    assert refusal is not None
    assert (refusal.code, machine.outgoing()) == (Code.INVALID_INPUT, b"")


def test_what_this_contract_cannot_carry_is_our_own_bug() -> None:
    machine, peer = host(), plugin()
    for wrong in (DeliverEvent("t", {}), Shutdown()):
        with pytest.raises(Misuse, match="vai cannot ask"):
            machine.call(1, wrong)
    with pytest.raises(Misuse, match="vai cannot ask"):
        machine.call("1", SEARCH)
    with pytest.raises(Misuse, match="vai cannot ask"):
        peer.call(1, SEARCH)
    for one in (machine, peer):
        with pytest.raises(Misuse, match="no notifications"):
            one.notify(WriteLog("info", "m"))
    with pytest.raises(Misuse, match="nothing can be asked in 'greeting'"):
        greeting().call(1, SEARCH)
    with pytest.raises(Misuse, match="waits for an answer"):
        asking().finish(1, {})


# PLUGIN: what a frame is.


@requirement("vai:wire-bad-request")
@pytest.mark.parametrize(
    ("message", "code", "words"),
    [
        (says("request", id="r", op="tool.invoke"), "invalid_frame", "missing body"),
        (request("r", body=None), "invalid_frame", "missing body"),
        (says("request", id="r", body={}), "invalid_frame", "missing op"),
        (request("r", "tool.nothing"), "unknown_op", "unknown op 'tool.nothing'"),
        (request("r", body={"export_id": "nothing"}), "unknown_export", "no tool 'nothing'"),
        (request("r", "hook.handle"), "unknown_export", "no hook 'jira_search'"),
        (request("req_1"), "duplicate_id", "req_1 is already in progress"),
        (request("r", body={"export_id": "jira_search"}), "invalid_frame", "no input"),
        (request("r") | {"protocol": "vai.rpc.v2"}, "unsupported_version", "vai.rpc.v2"),
        (says("nonsense", id="r"), "invalid_frame", "which no host sends"),
        (response("r"), "invalid_frame", "which no host sends"),
        ({"protocol": "vai.rpc.v1", "id": "r"}, "invalid_frame", "without its protocol or type"),
        ({"type": "request", "id": "r"}, "invalid_frame", "without its protocol or type"),
        (b'{"protocol":"vai.rpc.v1","type":"request","id":"r","body":', "invalid_frame", "cannot be read: not JSON"),
        (b'{"type":"request","id":"r","body":{"n":1e999}}', "invalid_frame", "a number is out of range"),
        (b'{"type":"request","id":"r","body":' + b"[" * 99 + b"]" * 99 + b"}", "invalid_frame", "nested deeper"),
        (b'{"type":"request","id":"r","body":"\xff"}', "invalid_frame", "not UTF-8"),
    ],
    ids=lambda case: str(case)[:60],
)
def test_a_plugin_refuses_what_it_cannot_serve_and_goes_on(codec: Codec, message: Any, code: str, words: str) -> None:
    machine = asked(codec)
    assert machine.receive(frame(message)) == []
    (sent,) = frames(machine)
    assert (sent["type"], sent["ok"]) == ("response", False)
    assert sent["id"] == ("req_1" if code == "duplicate_id" else "r")
    assert sent["error"]["code"] == f"protocol.{code}"
    assert words in sent["error"]["message"]
    assert machine.state == READY
    machine.finish("req_1", {"n": 1})
    assert frames(machine)[0]["ok"] is True


@requirement("vai:wire-bad-request", "vai:wire-unknown-type")
@pytest.mark.parametrize(
    "message",
    [
        says("request", op="tool.invoke", body={}),
        request(5),
        request(""),
        request("x" * 257),
        says("nonsense"),
        event(),
        says("cancel"),
        says("cancel", request_id=5),
        {},
        [],
        b"",
        b"{",
        b'{"body":{"id":"r"},',
    ],
    ids=lambda case: str(case)[:60],
)
def test_what_a_plugin_can_neither_read_nor_refuse_ends_the_conversation(codec: Codec, message: Any) -> None:
    machine = plugin(codec)
    failure = fault(machine.receive(frame(message) + frame(request())))
    assert failure is not None
    assert (failure.code, failure.origin) == (Code.MALFORMED_RESPONSE, Origin.HOST)
    assert failure.detail == {"plugin_code": "protocol.invalid_frame"}
    assert (machine.state, machine.outgoing()) == (FAILED, b"")


@requirement("vai:wire-secrets")
@pytest.mark.parametrize(
    "data",
    [
        frame(request(5, body={"secrets": SECRET})),
        frame({"secrets": SECRET}),
        frame(b'{"secrets":"%b"' % SECRET.encode()),
        frame(b'{"id":"r","secrets":"%b"' % SECRET.encode()),
        frame(request(body={"export_id": "jira_search", "input": {}, "secrets": [SECRET]})),
        b"Secrets: %b\nContent-Length: 5\r\n" % SECRET.encode(),
        frame(request(body={"secrets": SECRET}))[:-1],
        frame(says("shutdown")) + frame(says("shutdown", secrets=SECRET)),
    ],
    ids=lambda data: str(data)[:60],
)
def test_a_plugin_never_repeats_what_it_was_sent(codec: Codec, data: bytes) -> None:
    machine = plugin(codec)
    events = machine.receive(data) + machine.receive_eof()
    assert events or machine.has_outgoing
    assert SECRET not in repr(events)
    assert SECRET.encode() not in machine.outgoing()


@requirement("vai:wire-secrets")
def test_a_machine_keeps_nothing_of_a_request_but_its_kind(codec: Codec) -> None:
    machine = asking(codec)
    (open,) = machine._open.values()
    assert (open.kind, open.number, open.cancelled) == ("tool", 1, False)
    assert SECRET not in repr(machine)


@requirement("vai:wire-cancel")
def test_a_plugin_is_told_of_a_cancel_once_and_only_for_what_it_works_on(codec: Codec) -> None:
    machine = asked(codec)
    cancel = frame(says("cancel", request_id="req_1", reason="deadline_exceeded"))
    assert machine.receive(frame(says("cancel", request_id="req_9", reason="x"))) == []
    assert machine.receive(cancel + cancel) == [CancelArrived("req_1")]
    machine.finish("req_1", None, Failure(Code.CANCELLED, "stopped"))
    assert machine.receive(cancel) == []
    error = {"code": "cancelled", "message": "stopped"}
    body = {"status": "cancelled", "error": error}
    assert frames(machine) == [{"type": "response", "id": "req_1", "ok": True, "body": body}]


@requirement("vai:wire-ids")
def test_an_id_may_come_again_once_it_was_answered(codec: Codec) -> None:
    machine = asked(codec)
    machine.finish("req_1", {})
    (event,) = machine.receive(frame(request()))
    assert isinstance(event, CallArrived)


# PLUGIN: what we answer.


@requirement("vai:wire-statuses", "vai:wire-refusal", "vai:wire-early-result")
@pytest.mark.parametrize(
    ("failure", "ok", "said"),
    [
        (
            Failure(Code.PLUGIN_ERROR, "no", detail={"plugin_code": "jira.down"}),
            True,
            {"status": "failed", "error": {"code": "jira.down", "message": "no"}},
        ),
        (
            Failure(Code.INVALID_INPUT, "no"),
            True,
            {"status": "failed", "error": {"code": "invalid_input", "message": "no"}},
        ),
        (
            Failure(Code.UNAVAILABLE, "no", retryable=True, retry_after_ms=1000),
            True,
            {
                "status": "retryable_failure",
                "error": {"code": "unavailable", "message": "no", "retry_after_ms": 1000},
            },
        ),
        (
            Failure(Code.CANCELLED, "no", detail={"result": {"checkpoint": {"data": 1}}}),
            True,
            {
                "status": "cancelled",
                "error": {"code": "cancelled", "message": "no"},
                "result": {"checkpoint": {"data": 1}},
            },
        ),
        (
            Failure(Code.PLUGIN_ERROR, "no", detail={"result": object()}),
            True,
            {"status": "failed", "error": {"code": "plugin_error", "message": "no"}},
        ),
        (
            Failure(Code.PLUGIN_ERROR, "no", detail={"result": "x" * MAX_BODY}),
            True,
            {"status": "failed", "error": {"code": "plugin_error", "message": "no"}},
        ),
        (Failure(Code.TOOL_NOT_EXPOSED, "no"), False, {"code": "protocol.unknown_export", "message": "no"}),
        (
            Failure(Code.OVERLOADED, "no", retryable=True, retry_after_ms=5),
            False,
            {"code": "protocol.overloaded", "message": "no", "retry_after_ms": 5},
        ),
    ],
    ids=["failed", "input", "retryable", "cancelled", "odd result", "huge result", "no export", "overloaded"],
)
def test_each_failure_of_a_handler_has_its_own_answer(codec: Codec, failure: Failure, ok: bool, said: Any) -> None:
    machine = asked(codec)
    machine.finish("req_1", None, failure)
    part = {"body": said} if ok else {"error": said}
    assert frames(machine) == [{"type": "response", "id": "req_1", "ok": ok, **part}]


@requirement("vai:wire-size")
def test_a_result_over_eight_mebibytes_is_refused_by_the_plugin_and_by_name(codec: Codec) -> None:
    machine = asked(codec)
    machine.finish("req_1", {"text": "x" * MAX_BODY})
    said = machine.outgoing()
    done = finished(asking(codec).receive(said))
    assert done.failure is not None
    assert (done.failure.code, done.failure.detail["plugin_code"]) == (
        Code.FRAME_TOO_LARGE,
        "protocol.frame_too_large",
    )
    assert "8,388,608" in done.failure.message


@pytest.mark.parametrize("value", [{"a": object()}, float("nan"), {1: 2}], ids=["object", "nan", "key"])
def test_a_result_that_is_no_json_is_a_failure_of_the_handler(value: Any) -> None:
    machine = asked()
    machine.finish("req_1", value)
    (sent,) = frames(machine)
    assert (sent["ok"], sent["body"]["status"], sent["body"]["error"]["code"]) == (True, "failed", "internal")
    assert "the result cannot be sent" in sent["body"]["error"]["message"]


@requirement("vai:wire-one-response")
def test_a_request_is_answered_once_and_then_nothing_more_is_said_about_it(codec: Codec) -> None:
    machine = asked(codec)
    machine.finish("req_1", {})
    machine.outgoing()
    with pytest.raises(Misuse, match="waits for an answer"):
        machine.finish("req_1", {})
    refusal = machine.progress("req_1", WORKING)
    assert refusal is not None
    assert (refusal.code, machine.outgoing()) == (Code.UNAVAILABLE, b"")


@requirement("vai:wire-event")
@pytest.mark.parametrize(
    ("item", "code"),
    [
        ("working", Code.INVALID_INPUT),
        ({"message": "m"}, Code.INVALID_INPUT),
        ({"type": 5}, Code.INVALID_INPUT),
        ({"type": "x", "data": object()}, Code.INVALID_INPUT),
        ({"type": "x", "data": "x" * MAX_BODY}, Code.FRAME_TOO_LARGE),
    ],
    ids=["text", "no type", "odd type", "no json", "huge"],
)
def test_an_event_that_a_host_would_not_read_is_refused_here(codec: Codec, item: Any, code: str) -> None:
    machine = asked(codec)
    refusal = machine.progress("req_1", item)
    assert refusal is not None
    assert (refusal.code, machine.outgoing()) == (code, b"")


# Leaving.


@requirement("vai:wire-shutdown")
def test_a_host_says_shutdown_once_and_still_hears_what_was_under_way(codec: Codec) -> None:
    machine = asking(codec)
    machine.close("done")
    machine.close("done")
    assert frames(machine) == [{"type": "shutdown"}]
    refusal = machine.call(2, SEARCH)
    assert refusal is not None
    assert refusal.code == Code.UNAVAILABLE
    machine.cancel(1, "host_shutdown")
    assert machine.outgoing() == b""
    assert finished(machine.receive(frame(response()))).failure is None
    assert machine.receive_eof() == [Closed()]
    assert (machine.state, machine.receive_eof()) == (CLOSED, [])


@requirement("vai:wire-shutdown")
def test_a_plugin_that_is_dismissed_takes_no_more_and_finishes_what_it_has(codec: Codec) -> None:
    machine = asked(codec)
    assert machine.receive(frame(says("shutdown"))) == [Notified(Shutdown())]
    assert noise(machine.receive(frame(says("shutdown")))) == Noise(b"", "a second shutdown")
    assert machine.receive(frame(request("req_2"))) == []
    assert machine.receive(frame(says("cancel", request_id="req_1"))) == [CancelArrived("req_1")]
    assert machine.receive_eof() == [Closed()]
    assert machine.progress("req_1", WORKING) is None
    machine.finish("req_1", {})
    refused, progress, done = frames(machine)
    assert (refused["id"], refused["error"]["code"]) == ("req_2", "protocol.invalid_frame")
    assert (progress["type"], done["ok"]) == ("event", True)


@requirement("vai:wire-eof")
@pytest.mark.parametrize("made", [ungreeted, plugin, asked])
def test_the_end_of_its_input_dismisses_a_plugin(made: Any) -> None:
    machine = made()
    assert machine.receive_eof() == [Closed()]
    assert machine.state == CLOSED


@requirement("vai:wire-eof")
@pytest.mark.parametrize(("made", "when"), [(greeting, " before its hello"), (host, ""), (asking, "")])
def test_a_plugin_that_ends_before_it_was_dismissed_has_crashed(made: Any, when: str) -> None:
    failure = fault(made().receive_eof())
    assert failure is not None
    assert (failure.code, failure.origin) == (Code.CRASHED, Origin.PLUGIN)
    assert failure.message == f"the plugin closed its output{when}"


@requirement("vai:wire-eof", "vai:wire-framing")
@pytest.mark.parametrize("cut", [b"C", b"Content-Length: 9\r\n", b"Content-Length: 9\r\n\r\n{", frame(response())[:-1]])
def test_the_end_inside_a_frame_is_reported_and_the_frame_is_not_obeyed(cut: bytes) -> None:
    machine = asking()
    assert machine.receive(cut) == []
    odd, end = machine.receive_eof()
    assert isinstance(odd, Noise)
    assert "the stream ended inside" in odd.why
    assert isinstance(end, Fault)
    assert end.failure.code == Code.CRASHED
    machine = plugin()
    assert machine.receive(cut) == []
    odd, end = machine.receive_eof()
    assert isinstance(odd, Noise)
    assert (odd.data, end) == (b"", Closed())


# Framing.

BROKEN: list[tuple[bytes, str]] = [
    (b"Content-Length: -1\r\n", Code.MALFORMED_RESPONSE),
    (b"Content-Length: +5\r\n", Code.MALFORMED_RESPONSE),
    (b"Content-Length: 0x10\r\n", Code.MALFORMED_RESPONSE),
    (b"Content-Length:\r\n", Code.MALFORMED_RESPONSE),
    (b"Content-Length: 5\n", Code.MALFORMED_RESPONSE),
    (b"Content-Length: 5\r\nContent-Length: 5\r\n", Code.MALFORMED_RESPONSE),
    (b"Content-Type: application/json\r\n\r\n", Code.MALFORMED_RESPONSE),
    (b"\r\n", Code.MALFORMED_RESPONSE),
    (b"starting up\r\n", Code.MALFORMED_RESPONSE),
    (b"Content-Length: 8388609\r\n\r\n", Code.FRAME_TOO_LARGE),
    (b"Content-Length: 1073741824\r\n\r\n", Code.FRAME_TOO_LARGE),
    (b"X-Padding: " + b" " * 4096, Code.FRAME_TOO_LARGE),
]


@requirement("vai:wire-framing", "vai:wire-size")
@pytest.mark.parametrize(("data", "code"), BROKEN, ids=lambda case: str(case)[:50])
@pytest.mark.parametrize("made", [greeting, asking, ungreeted, plugin])
def test_a_broken_header_ends_the_conversation_before_anything_is_buffered(made: Any, data: bytes, code: str) -> None:
    machine = made()
    failure = fault(machine.receive(data + b"x" * 100))
    assert failure is not None
    assert failure.code == code
    suffix = "frame_too_large" if code == Code.FRAME_TOO_LARGE else "invalid_frame"
    assert failure.detail["plugin_code"] == f"protocol.{suffix}"
    assert failure.origin == (Origin.PLUGIN if machine.role == Role.HOST else Origin.HOST)
    assert (machine._frames.pending, machine.state, machine.receive_eof()) == (0, FAILED, [])
    machine.close("done")
    assert (machine.state, machine.outgoing()) == (CLOSED, b"")


@requirement("vai:wire-framing")
@pytest.mark.parametrize(
    "header",
    [
        b"content-length:%d\r\n\r\n",
        b"CONTENT-LENGTH: %d\r\n\r\n",
        b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n",
        b"Content-Length: %d\r\nX-Anything: 5\r\n\r\n",
    ],
)
def test_what_the_grammar_allows_is_read(header: bytes) -> None:
    body = json.dumps(response()).encode()
    data = header % len(body) + body
    assert finished(asking().receive(data)).failure is None
    machine = asking()
    assert finished([event for byte in one_by_one(data) for event in machine.receive(byte)]).failure is None


@requirement("vai:wire-size")
def test_a_response_of_eight_mebibytes_is_read() -> None:
    empty = len(json.dumps(response(body={"status": "succeeded", "result": ""})))
    body = json.dumps(response(body={"status": "succeeded", "result": "x" * (MAX_BODY - empty)})).encode()
    assert len(body) == MAX_BODY
    assert finished(asking().receive(framed(body))).failure is None


# The pair.


@requirement("vai:wire-tool", "vai:wire-hook", "vai:wire-compactor", "vai:wire-harness", "vai:wire-event")
@pytest.mark.parametrize("op", FOUR, ids=lambda op: type(op).__name__)
def test_each_kind_is_asked_says_something_and_answers(op: Any) -> None:
    machine, peer = pair()
    assert machine.call(1, op) is None
    _, at_plugin = exchange(machine, peer)
    assert at_plugin == [CallArrived("req_1", op)]
    assert peer.progress("req_1", WORKING) is None
    peer.finish("req_1", {"summary": {"text": "déjà vu"}})
    progress, done = exchange(machine, peer)[0]
    assert isinstance(progress, CallProgress)
    assert isinstance(done, CallFinished)
    assert (progress.id, machine.codec.load(progress.item)) == (1, WORKING)
    expected = {} if isinstance(op, RunHook) else {"summary": {"text": "déjà vu"}}
    assert (done.id, done.failure, machine.codec.load(done.value)) == (1, None, expected)


@requirement("vai:wire-out-of-order", "vai:wire-cancel")
def test_one_of_several_requests_is_cancelled_and_all_are_answered_out_of_order() -> None:
    machine, peer = pair()
    for number, op in enumerate(FOUR, 1):
        assert machine.call(number, op) is None
    machine.cancel(3, "deadline_exceeded")
    _, at_plugin = exchange(machine, peer)
    assert [type(event) for event in at_plugin] == [*[CallArrived] * 4, CancelArrived]
    assert at_plugin[-1] == CancelArrived("req_3")
    peer.finish("req_4", {"artifacts": []})
    peer.finish("req_2")
    peer.finish("req_3", None, Failure(Code.CANCELLED, "stopped"))
    peer.finish("req_1", {"content": []})
    done = [event for event in exchange(machine, peer)[0] if isinstance(event, CallFinished)]
    assert [event.id for event in done] == [4, 2, 3, 1]
    assert [event.failure and event.failure.outcome for event in done] == [None, None, "cancelled", None]


@requirement("vai:wire-cancel")
def test_work_that_succeeds_after_its_cancel_has_succeeded() -> None:
    machine, peer = pair()
    assert machine.call(1, SEARCH) is None
    machine.cancel(1, "deadline_exceeded")
    exchange(machine, peer)
    peer.finish("req_1", {"content": []})
    assert finished(exchange(machine, peer)[0]).failure is None


@requirement("vai:wire-shutdown")
def test_a_pair_parts() -> None:
    machine, peer = pair()
    machine.close("done")
    assert exchange(machine, peer) == ([], [Notified(Shutdown())])
    assert peer.receive_eof() == [Closed()]
    peer.close("done")
    assert machine.receive_eof() == [Closed()]
    assert (machine.state, peer.state) == (CLOSED, CLOSED)


def test_a_plugin_without_an_identity_serves_nothing() -> None:
    machine = VaiMachine(Role.PLUGIN, stdlib_codec())
    assert machine.identity == Identity("", "")


# Any bytes at all.

TO_HOST = b"".join(
    map(frame, [hello(), event(), response("req_2"), event(event={"type": "progress", "message": "été"}), response()])
)
TO_PLUGIN = b"".join(
    map(
        frame,
        [
            host_hello(),
            request(body={"export_id": "jira_search", "input": {"query": "été"}}),
            request("req_2", "nothing"),
            says("cancel", request_id="req_1", reason="deadline_exceeded"),
            says("shutdown"),
        ],
    )
)


def started(role: str) -> VaiMachine:
    return greeting(stdlib_codec()) if role == Role.HOST else ungreeted()


@requirement("vai:wire-framing")
@given(places)
@pytest.mark.parametrize(("role", "data"), [(Role.HOST, TO_HOST), (Role.PLUGIN, TO_PLUGIN)])
def test_where_the_stream_is_cut_does_not_matter(role: str, data: bytes, at: list[int]) -> None:
    whole, pieces, bytewise = started(role), started(role), started(role)
    expected = whole.receive(data)
    assert len(expected) == (5 if role == Role.HOST else 4)
    assert [event for piece in cut(data, at) for event in pieces.receive(piece)] == expected
    assert [event for byte in one_by_one(data) for event in bytewise.receive(byte)] == expected
    assert whole.outgoing() == pieces.outgoing() == bytewise.outgoing()


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.sampled_from(["", "req_1", "succeeded", "x"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)
TYPES = st.sampled_from(["hello", "request", "event", "response", "cancel", "shutdown", "other"])
FIELDS = st.sampled_from(["id", "request_id", "role", "plugin", "host", "op", "body", "ok", "error", "event"])
MESSAGES = st.builds(
    lambda type, fields, exports: says(type, **fields, **exports),
    TYPES,
    st.dictionaries(FIELDS.filter(lambda name: name != "op"), VALUES, max_size=5),
    st.sampled_from([{}, {"op": "tool.invoke"}, {"op": "harness.run"}, {"op": 5}]),
)


@given(st.lists(st.binary(max_size=80) | MESSAGES.map(frame) | st.binary(max_size=60).map(framed), max_size=6))
@pytest.mark.parametrize("made", [greeting, asking, ungreeted, plugin])
def test_no_bytes_make_a_machine_raise(made: Any, chunks: list[bytes]) -> None:
    machine = made()
    events = [event for chunk in chunks for event in machine.receive(chunk)] + machine.receive_eof()
    assert sum(isinstance(event, Fault | Closed) for event in events) == 1
    assert machine.state in (CLOSED, FAILED)


# The table.


@pytest.mark.parametrize(
    ("role", "state", "trigger"),
    list(
        product(
            (Role.HOST, Role.PLUGIN),
            (START, GREETING, READY, CLOSING, CLOSED, FAILED),
            ("greet", "hello", "shutdown", "eof", "close", "violation"),
        )
    ),
)
def test_each_trigger_moves_as_the_table_says_or_is_our_own_bug(role: str, state: str, trigger: str) -> None:
    machine = VaiMachine(role, stdlib_codec())
    machine.state = state
    target = VaiMachine.TRANSITIONS.get((role, state, trigger))
    if target is None:
        with pytest.raises(Misuse):
            machine._step(trigger)
        assert machine.state == state
    else:
        machine._step(trigger)
        assert machine.state == target


def test_nobody_answers_the_good_bye() -> None:
    assert VaiMachine.GOOD_BYE_IS_ANSWERED is False
    assert frozenset({InvokeTool, RunHook, Compact, RunHarness}) == VaiMachine.SUPPORTS
    assert set(EXPORTS.values()) == {"tool", "hook", "compactor", "harness"}
