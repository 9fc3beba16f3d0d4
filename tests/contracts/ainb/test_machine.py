"""The ainb machine, both roles, with no process: every kind of frame, every method, every state, the pair."""

from __future__ import annotations

import base64
import json
from itertools import product
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plugbay.contracts.ainb.machine import AinbMachine
from plugbay.contracts.ainb.messages import MAX_BODY
from plugbay.contracts.base import Misuse, Role
from plugbay.contracts.rpc import CLOSED, CLOSING, FAILED, GREETING, READY, START
from plugbay.model.errors import Code, Failure, Origin
from plugbay.model.events import CallArrived, CallFinished, Closed, Fault, Noise, Notified, Ready
from plugbay.model.operations import (
    DeliverSnapshot,
    DispatchCli,
    FetchUrl,
    GetSnapshot,
    InvokeAction,
    InvokeTool,
    PerformAction,
    PressKey,
    PublishSnapshot,
    ReadFile,
    ReadFolder,
    Render,
    Shutdown,
    SubscribeSnapshot,
    UseMouse,
    WriteLog,
)
from plugbay.wire.fast_json import MsgspecCodec
from plugbay.wire.strict_json import stdlib_codec
from tests.contracts.ainb.talk import (
    HELLO,
    answer,
    bodies,
    frame,
    framed,
    frames,
    greeting,
    host,
    notification,
    plugin,
    request,
)
from tests.support.codecs import CODECS
from tests.support.pairs import exchange
from tests.support.requirements import requirement
from tests.support.tiers import exhaustive
from tests.wire.chunks import one_by_one

if TYPE_CHECKING:
    from plugbay.model.events import Event
    from plugbay.wire.strict_json import Codec

DENIED = Failure(Code.CAPABILITY_NOT_ALLOWED, "not granted", detail={"capability": "network=example.org"})
READY_HOST = Ready({"name": "p", "version": "1.0.0", "abi_version": 2, "warnings": []})


def b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def fault(events: list[Event]) -> Failure | None:
    return next((event.failure for event in events if isinstance(event, Fault)), None)


def finished(events: list[Event]) -> CallFinished:
    (event,) = events
    assert isinstance(event, CallFinished)
    return event


def asked(events: list[Event]) -> CallArrived:
    (event,) = events
    assert isinstance(event, CallArrived)
    return event


def pair() -> tuple[AinbMachine, AinbMachine]:
    machine = AinbMachine(
        Role.HOST,
        MsgspecCodec(),
        plugin_name="p",
        version="1.0.0",
        manifest_path="/plugins/p/manifest.toml",
        granted=("network=example.org", "event_bus"),
        config={"theme": "dark"},
        host_pid=7,
    )
    peer = plugin()
    machine.greet()
    at_host, at_plugin = exchange(machine, peer)
    assert at_host == [READY_HOST]
    hello = {
        "granted": ("event_bus", "network"),
        "config": {"theme": "dark"},
        "manifest_path": "/plugins/p/manifest.toml",
    }
    assert at_plugin == [Ready(hello)]
    return machine, peer


# The transcript in which both ends use the same ids, byte for byte.


@requirement("ainb:wire-ids", "ainb:wire-reverse-during-init", "ainb:wire-init", "ainb:wire-empty-result")
def test_ids_of_the_two_directions_collide_and_nothing_is_mixed_up(codec: Codec) -> None:
    machine = AinbMachine(
        Role.HOST,
        codec,
        plugin_name="x",
        version="1.0.0",
        manifest_path="dist/plugins/x/manifest.toml",
        granted=("event_bus",),
    )
    machine.greet()
    assert machine.outgoing() == framed(
        b'{"jsonrpc":"2.0","id":1,"method":"plugin/init","params":{"manifest_path":"dist/plugins/x/manifest.toml",'
        b'"granted_capabilities":["event_bus"],"abi_version":2,"config":null}}'
    )
    events = machine.receive(
        framed(b'{"jsonrpc":"2.0","id":1,"method":"host/snapshot/subscribe","params":{"topic":"t"}}')
    )
    assert events == [CallArrived(1, SubscribeSnapshot("t"))]
    machine.finish(1)
    assert machine.outgoing() == framed(b'{"jsonrpc":"2.0","id":1,"result":{}}')
    log = b'{"jsonrpc":"2.0","method":"host/log","params":{"level":"info","message":"ready"}}'
    assert machine.receive(framed(log)) == [Notified(WriteLog("info", "ready"))]
    hello = {"name": "x", "version": "1.0.0", "abi_version": 2, "warnings": []}
    assert machine.receive(framed(b'{"jsonrpc":"2.0","id":1,"result":{"name":"x","version":"1.0.0"}}')) == [
        Ready(hello)
    ]
    assert machine.notify(DeliverSnapshot("t", b"hi")) is None
    assert machine.call(1, Render("x", 80, 24)) is None
    assert machine.outgoing() == framed(
        b'{"jsonrpc":"2.0","method":"plugin/handle_event","params":{"topic":"t","payload":"aGk="}}'
    ) + framed(
        b'{"jsonrpc":"2.0","id":2,"method":"plugin/render","params":{"viewport":{"width":80,"height":24},'
        b'"generation":0,"screen_id":"x"}}'
    )
    picture = {"buffer": {"width": 80, "height": 24, "cells": []}, "redraw": False, "captures_text": False}
    done = finished(machine.receive(frame(answer(2, picture))))
    assert (done.id, done.failure, codec.load(done.value)) == (1, None, picture)
    events = machine.receive(
        framed(
            b'{"jsonrpc":"2.0","id":2,"method":"host/network/fetch","params":{"url":"https://example.org/",'
            b'"method":"GET","body":null,"headers":[["accept","*/*"]]}}'
        )
    )
    assert events == [CallArrived(2, FetchUrl("https://example.org/", "GET", None, (("accept", "*/*"),)))]
    machine.finish(2, None, DENIED)
    assert machine.outgoing() == framed(
        b'{"jsonrpc":"2.0","id":2,"error":{"code":-32001,"message":"capability denied: network"}}'
    )


@requirement("ainb:wire-init")
def test_what_the_host_says_of_itself_is_sent_when_it_is_known() -> None:
    machine = AinbMachine(Role.HOST, stdlib_codec(), config={"a": 1}, host_pid=42)
    machine.greet()
    (sent,) = frames(machine)
    assert sent["params"]["host"] == {"kind": "plugbay", "pid": 42}
    assert sent["params"]["config"] == {"a": 1}


@pytest.mark.parametrize("config", [{"a": object()}, {"a": "x" * MAX_BODY}], ids=["no json", "too large"])
def test_settings_that_cannot_be_sent_are_our_own_bug(codec: Codec, config: Any) -> None:
    machine = AinbMachine(Role.HOST, codec, config=config)
    with pytest.raises(Misuse, match="configuration cannot be sent"):
        machine.greet()


# The greeting.


@requirement("ainb:wire-abi", "ainb:wire-manifest-refused", "ainb:wire-useless-answer")
@pytest.mark.parametrize(
    ("body", "code", "words"),
    [
        (answer(1, error={"code": -32003, "message": "no such ABI"}), Code.HANDSHAKE_FAILED, "no such ABI"),
        (answer(1, error="no"), Code.HANDSHAKE_FAILED, "not an object"),
        (answer(1, {**HELLO, "abi_version": 3}), Code.PROTOCOL_VERSION_MISMATCH, "ABI version 3"),
        (answer(1, {"manifest": {"plugin": {"abi_version": 1}}}), Code.PROTOCOL_VERSION_MISMATCH, "ABI version 1"),
        (b'{"jsonrpc":"2.0","id":1,"result":{"name":', Code.HANDSHAKE_FAILED, "cannot be used"),
        ({"id": 1, "result": HELLO}, Code.HANDSHAKE_FAILED, "cannot be used"),
    ],
    ids=str,
)
def test_a_plugin_that_is_not_accepted_is_a_fault(codec: Codec, body: Any, code: str, words: str) -> None:
    machine = greeting(codec)
    failure = fault(machine.receive(frame(body)))
    assert failure is not None
    assert (failure.code, failure.origin) == (code, Origin.PLUGIN)
    assert words in failure.message
    assert machine.state == FAILED
    assert machine.receive(frame(answer(1, HELLO))) == []


@requirement("ainb:wire-init-any-shape")
@pytest.mark.parametrize(
    "body", [answer(1), answer(1, None), answer(1, {}), answer(1, []), answer(1, HELLO, error=None)], ids=str
)
def test_any_other_answer_is_accepted_and_odd_ones_are_warned_about(codec: Codec, body: Any) -> None:
    machine = greeting(codec)
    (ready,) = machine.receive(frame(body))
    assert isinstance(ready, Ready)
    assert (ready.hello["name"], ready.hello["version"]) == ("p", "1.0.0")
    assert bool(ready.hello["warnings"]) == ("error" not in body)
    assert machine.state == READY


@requirement("ainb:wire-reverse-during-init")
def test_a_plugin_is_served_and_heard_before_it_answers_the_greeting(codec: Codec) -> None:
    machine = greeting(codec)
    sent = [request(1, "host/snapshot/subscribe", {"topic": "a"}), request(2, "host/snapshot/get", {"topic": "b"})]
    events = machine.receive(b"".join(map(frame, sent)))
    assert events == [CallArrived(1, SubscribeSnapshot("a")), CallArrived(2, GetSnapshot("b"))]
    machine.finish(2, {"data": None, "version": 0})
    machine.finish(1)
    assert frames(machine) == [{"id": 2, "result": {"payload": None, "version": 0}}, {"id": 1, "result": {}}]
    published = notification("host/snapshot/publish", {"topic": "a", "payload": b64(b"x")})
    assert machine.receive(frame(published)) == [Notified(PublishSnapshot("a", b"x"))]
    assert machine.receive(frame(answer(1, HELLO))) == [READY_HOST]


@requirement("ainb:wire-init-reply")
def test_a_plugin_says_who_it_is_in_both_shapes_as_often_as_asked_and_is_ready_once(codec: Codec) -> None:
    machine = plugin(codec)
    params = {"manifest_path": "/no/such", "granted_capabilities": ["event_bus", 5], "abi_version": 2, "later": 1}
    (ready,) = machine.receive(frame(request(7, "plugin/init", params)))
    assert ready == Ready({"granted": ("event_bus",), "config": None, "manifest_path": "/no/such"})
    assert machine.receive(frame(request(8, "plugin/init", {}))) == []
    assert frames(machine) == [{"id": 7, "result": HELLO}, {"id": 8, "result": HELLO}]


@requirement("ainb:wire-abi")
@pytest.mark.parametrize(
    ("params", "code"),
    [({"abi_version": 3}, -32003), ({"abi_version": "2"}, -32003), ([], -32602), (None, -32602), (..., -32602)],
    ids=str,
)
def test_a_plugin_refuses_a_host_it_cannot_talk_to_and_goes_on_listening(params: Any, code: int) -> None:
    machine = plugin()
    assert machine.receive(frame(request(1, "plugin/init", params))) == []
    (sent,) = frames(machine)
    assert (sent["id"], sent["error"]["code"]) == (1, code)
    assert isinstance(machine.receive(frame(request(2, "plugin/init", {})))[0], Ready)


def test_a_manifest_that_is_no_json_is_an_error_the_host_can_read() -> None:
    machine = plugin(manifest={"plugin": object()})
    machine.receive(frame(request(1, "plugin/init", {})))
    (sent,) = frames(machine)
    assert sent["error"]["code"] == -32603
    assert "manifest cannot be sent" in sent["error"]["message"]


# What a frame is.

GET = request(9, "host/snapshot/get", {"topic": "t"})
GOT = CallArrived(1, GetSnapshot("t"))
LOG = notification("host/log", {"level": "info", "message": "m"})
LOGGED = Notified(WriteLog("info", "m"))
PICTURE = {"buffer": {"width": 1, "height": 1, "cells": []}}

HOST_FRAMES: list[tuple[str, Any, Any]] = [
    ("a request", GET, GOT),
    ("a request with id 0", {**GET, "id": 0}, GOT),
    ("a request with the largest id", {**GET, "id": 2**64 - 1}, GOT),
    ("a request under the id of our own call", {**GET, "id": 2}, GOT),
    ("a request with fields nobody knows", {**GET, "extra": [1]}, GOT),
    ("a request beside a result", {**GET, "result": 5}, GOT),
    ("a notification", LOG, LOGGED),
    ("a notification with a null id", {**LOG, "id": None}, LOGGED),
    ("blanks around a body", b" " + json.dumps(LOG).encode() + b"\r\n", LOGGED),
    ("an answer", answer(2, PICTURE), CallFinished(1, PICTURE)),
    ("an answer with a null method", {**answer(2, PICTURE), "method": None}, CallFinished(1, PICTURE)),
    ("an answer with a null error", answer(2, PICTURE, error=None), CallFinished(1, PICTURE)),
    ("an answer to the greeting, again", answer(1, HELLO), CallFinished(0)),
    ("an answer to nothing", answer(77, 5), "unknown call"),
    ("an answer to zero", answer(0, 5), "unknown call"),
    ("an error to nothing", answer(77, error={"code": 1}), "unknown call"),
    ("an answer with a null id", answer(None, 5), "neither a method nor an id"),
    ("an answer without an id", {"jsonrpc": "2.0", "result": 5}, "neither a method nor an id"),
    ("an empty object", {}, "JSON-RPC 2.0"),
    ("no jsonrpc", {"id": 9, "method": GET["method"], "params": GET["params"]}, "JSON-RPC 2.0"),
    ("another jsonrpc", {**GET, "jsonrpc": "1.0"}, "JSON-RPC 2.0"),
    ("a number as jsonrpc", {**LOG, "jsonrpc": 2.0}, "JSON-RPC 2.0"),
    ("a string id", {**GET, "id": "9"}, "unsigned integer"),
    ("a float id", {**GET, "id": 9.0}, "unsigned integer"),
    ("a negative id", {**GET, "id": -1}, "unsigned integer"),
    ("true as id", {**GET, "id": True}, "unsigned integer"),
    ("an array as id", {**GET, "id": [1]}, "unsigned integer"),
    ("an id beyond 64 bits", {**GET, "id": 2**64}, "malformed"),
    ("an answer to a string", answer("2", 5), "unsigned integer"),
    ("an answer to a float", answer(2.0, 5), "unsigned integer"),
    ("a method that is a number", {**GET, "method": 5}, "not a string"),
    ("an answer with a method that is a number", {**answer(2, 5), "method": 5}, "not a string"),
    ("an unknown notification", notification("host/nothing", {}), "unknown notification"),
    ("a notification of a later host", notification("host/event_stream_cancel", {}), "unknown notification"),
    ("a notification of the other direction", notification("plugin/handle_key", {}), "unknown notification"),
    ("a request without an id", notification("host/snapshot/get", {"topic": "t"}), "without an id"),
    ("a fetch with a null id", {**GET, "id": None}, "without an id"),
    ("a log without params", notification("host/log"), "params must be an object"),
    ("a log with null params", notification("host/log", None), "params must be an object"),
    ("a log of an unknown level", notification("host/log", {"level": "fatal", "message": ""}), "level must be"),
    ("a publish that is not base64", notification("host/snapshot/publish", {"topic": "t", "payload": "a"}), "payload"),
    ("an empty body", b"", "malformed"),
    ("a log line", b"starting up", "malformed"),
    ("half an object", b'{"jsonrpc":"2.0"', "malformed"),
    ("two objects", b"{}{}", "malformed"),
    ("a batch", [GET], "malformed"),
    ("a number", b"42", "malformed"),
    ("null", b"null", "malformed"),
    ("invalid UTF-8", b'{"jsonrpc":"2.0","method":"\xff"}', "malformed"),
    ("half a surrogate pair", b'{"jsonrpc":"2.0","method":"\\ud800"}', "malformed"),
    ("UTF-16", json.dumps(LOG).encode("utf-16"), "malformed"),
    ("NaN", b'{"jsonrpc":"2.0","id":3,"result":NaN}', "malformed"),
]


def check(machine: AinbMachine, message: Any, expected: Any) -> None:
    """The frame is the event, or noise with these words; and the conversation goes on."""
    events = machine.receive(frame(message))
    if isinstance(expected, str):
        (event,) = events
        assert isinstance(event, Noise)
        assert expected in event.why
    else:
        if isinstance(expected, CallFinished) and expected.value is not None:
            expected = CallFinished(expected.id, machine.codec.dump(expected.value))
        assert events == [expected]
    assert machine.state == READY


@requirement("ainb:wire-envelope", "ainb:wire-useless-body", "ainb:wire-ids", "ainb:wire-empty-body", "ainb:wire-kinds")
@pytest.mark.parametrize(("message", "expected"), [row[1:] for row in HOST_FRAMES], ids=[row[0] for row in HOST_FRAMES])
def test_what_a_frame_is_to_the_host(codec: Codec, message: Any, expected: Any) -> None:
    machine = host(codec)
    assert machine.call(1, Render("s", 1, 1)) is None
    machine.outgoing()
    check(machine, message, expected)
    assert machine.outgoing() == b""
    assert machine.receive(frame(LOG)) == [LOGGED]


LATER = [
    "host/event_stream_subscribe",
    "host/spawn_managed_subprocess",
    "host/unix_socket_dial",
    "host/secret_store_get",
    "host/workspace_list",
    "host/workspace_get_active",
    "host/workspace_set_active",
    "host/workspace_set_default",
    "host/workspace_create",
    "host/workspace_delete",
]


@requirement("ainb:wire-unknown-method", "ainb:wire-kinds", "ainb:wire-later-methods")
@pytest.mark.parametrize(
    "name", ["host/nothing", "", "plugin/init", "plugin/render", "host/snapshot/publish", "host/log", *LATER]
)
@pytest.mark.parametrize("made", [greeting, host], ids=["before the greeting is answered", "after"])
def test_a_request_the_host_does_not_know_is_refused_by_name(codec: Codec, made: Any, name: str) -> None:
    machine = made(codec)
    assert machine.receive(frame(request(5, name, {}))) == []
    error = {"code": -32601, "message": f"method not found: {name}"}
    assert frames(machine) == [{"id": 5, "error": error}]


BAD_PARAMS: list[tuple[str, Any]] = [
    ("host/snapshot/get", {}),
    ("host/snapshot/get", {"topic": 5}),
    ("host/snapshot/subscribe", {"topic": None}),
    ("host/action/invoke", {"action": "a"}),
    ("host/action/invoke", {"action": "a", "payload": "?"}),
    ("host/action/invoke", {"action": "a", "payload": "", "timeout_ms": -1}),
    ("host/action/invoke", {"action": "a", "payload": "", "timeout_ms": 1.0}),
    ("host/fs/read_dir", {"path": ["a"]}),
    ("host/fs/read_file", {}),
    ("host/network/fetch", {"url": "u", "headers": [["a"]]}),
    ("host/network/fetch", {"url": "u", "headers": {"a": "b"}}),
    ("host/network/fetch", {"url": "u", "body": 5}),
    ("host/network/fetch", {"method": "GET"}),
]


@requirement("ainb:wire-params-object")
@pytest.mark.parametrize(("name", "params"), BAD_PARAMS, ids=str)
def test_parameters_that_do_not_fit_are_refused(codec: Codec, name: str, params: Any) -> None:
    machine = host(codec)
    wrongs: list[Any] = [params, None, [], "x", 5]
    for wrong in wrongs:
        assert machine.receive(frame(request(5, name, wrong))) == []
    assert machine.receive(frame(request(5, name))) == []
    assert [sent["error"]["code"] for sent in frames(machine)] == [-32602] * 6
    assert machine.state == READY


PLUGIN_FRAMES: list[tuple[str, Any, Any]] = [
    ("a render", request(5, "plugin/render", {"viewport": {"width": 3, "height": 2}}), Render("", 3, 2, 0)),
    (
        "a render of one of several screens",
        request(5, "plugin/render", {"viewport": {"width": 3, "height": 2}, "generation": 9, "screen_id": "s"}),
        Render("s", 3, 2, 9),
    ),
    ("a command line", request(5, "plugin/cli_dispatch", {"namespace": "ns", "argv": ["a", "-b"]}), None),
    (
        "an action",
        request(5, "host/action/invoke", {"action": "a", "payload": [104, 105]}),
        InvokeAction("a", b"hi", 0),
    ),
    (
        "an event",
        notification("plugin/handle_event", {"topic": "t", "payload": "aGk="}),
        Notified(DeliverSnapshot("t", b"hi")),
    ),
    (
        "an event without jsonrpc",
        {"method": "plugin/handle_event", "params": {"topic": "t", "payload": []}},
        Notified(DeliverSnapshot("t", b"")),
    ),
    (
        "a key",
        notification("plugin/handle_key", {"screen_id": "s", "key": {"code": {"type": "esc"}}, "generation": 3}),
        Notified(PressKey("s", {"code": {"type": "esc"}, "mods": 0, "kind": "press"}, 3)),
    ),
    (
        "the mouse",
        notification(
            "plugin/handle_mouse",
            {"screen_id": "s", "mouse": {"kind": {"type": "scroll_up"}, "col": 7, "row": 2}, "generation": 3},
        ),
        Notified(UseMouse("s", {"kind": {"type": "scroll_up"}, "col": 7, "row": 2, "mods": 0}, 3)),
    ),
    ("an action it is told", notification("plugin/handle_action", {"action_id": "a"}), Notified(PerformAction("a"))),
    ("an unknown notification", notification("plugin/handle_dream", {}), "unknown notification"),
    ("a render without an id", notification("plugin/render", {}), "without an id"),
    ("an init without an id", notification("plugin/init", {}), "unknown notification"),
    ("a key without its code", notification("plugin/handle_key", {"screen_id": "s", "key": {}}), "key must be"),
    ("a string id", request("5", "plugin/render", {}), "unsigned integer"),
    ("a negative id", request(-5, "plugin/render", {}), "unsigned integer"),
    ("an answer to nothing", answer(5, {}), "unknown call"),
    ("an empty body", b"", "malformed"),
    ("no JSON", b"oops", "malformed"),
]


@requirement("ainb:wire-envelope", "ainb:wire-useless-body", "ainb:wire-kinds", "ainb:wire-legacy-bytes")
@pytest.mark.parametrize(
    ("message", "expected"), [row[1:] for row in PLUGIN_FRAMES], ids=[row[0] for row in PLUGIN_FRAMES]
)
def test_what_a_frame_is_to_the_plugin(codec: Codec, message: Any, expected: Any) -> None:
    machine = plugin(codec)
    machine.receive(frame(request(1, "plugin/init", {})))
    machine.outgoing()
    if expected is None:
        expected = DispatchCli("ns", ("a", "-b"))
    is_event = isinstance(expected, (str, Notified))
    check(machine, message, expected if is_event else CallArrived(1, expected))
    assert machine.outgoing() == b""


@requirement("ainb:wire-unknown-method")
@pytest.mark.parametrize("name", ["plugin/nothing", "host/log", "host/snapshot/get", "initialize", ""])
def test_a_plugin_refuses_an_unknown_method_even_before_its_greeting(codec: Codec, name: str) -> None:
    machine = plugin(codec)
    assert machine.receive(frame(request(5, name))) == []
    assert frames(machine) == [{"id": 5, "error": {"code": -32601, "message": f"method not found: {name}"}}]


@requirement("ainb:wire-unknown-method")
@pytest.mark.parametrize("name", ["plugin/render", "plugin/cli_dispatch", "host/action/invoke"])
def test_a_plugin_without_a_handler_does_not_know_the_method(name: str) -> None:
    machine = plugin(serves=frozenset())
    assert machine.receive(frame(request(5, name, {}))) == []
    assert [sent["error"]["code"] for sent in frames(machine)] == [-32601]


@requirement("ainb:wire-params-object")
@pytest.mark.parametrize(
    ("name", "params"),
    [
        ("plugin/render", {}),
        ("plugin/render", {"viewport": {"width": 80.0, "height": 24}}),
        ("plugin/render", {"viewport": {"width": True, "height": 24}}),
        ("plugin/render", {"viewport": {"width": 65536, "height": 24}}),
        ("plugin/cli_dispatch", {"namespace": "ns", "argv": "a"}),
        ("plugin/cli_dispatch", {"argv": []}),
        ("plugin/handle_key", {"screen_id": "s"}),
    ],
    ids=str,
)
def test_a_plugin_refuses_parameters_that_do_not_fit(name: str, params: Any) -> None:
    machine = plugin()
    wrongs: list[Any] = [params, None, []]
    for wrong in wrongs:
        assert machine.receive(frame(request(5, name, wrong))) == []
    assert [sent["error"]["code"] for sent in frames(machine)] == [-32602] * 3


def test_a_plugin_that_is_told_something_with_an_id_says_that_it_heard() -> None:
    machine = plugin()
    params = {"topic": "t", "payload": ""}
    assert machine.receive(frame(request(5, "plugin/handle_event", params))) == [Notified(DeliverSnapshot("t", b""))]
    assert frames(machine) == [{"id": 5, "result": {}}]


@requirement("ainb:wire-cli")
def test_a_command_line_of_a_namespace_nobody_has_ends_with_exit_code_2() -> None:
    machine = plugin()
    assert machine.receive(frame(request(5, "plugin/cli_dispatch", {"namespace": "other", "argv": []}))) == []
    ((result),) = (sent["result"] for sent in frames(machine))
    assert (result["stdout"], result["exit_code"]) == ("", 2)
    assert "'other'; this plugin has ns" in base64.b64decode(result["stderr"]).decode()


# Every method, from one machine to the other.

KEY = {"code": {"type": "char", "ch": "é"}, "mods": 3, "kind": "repeat"}
MOUSE = {"kind": {"type": "down", "button": {"type": "left"}}, "col": 7, "row": 2, "mods": 1}
RUN = {"stdout": b"hello\n", "stderr": b"\xff", "exit_code": -3}
ENTRIES = [{"name": "a.txt", "is_dir": False, "size": 3}, {"name": "d", "is_dir": True, "size": 0}]
PAGE = {"status": 200, "headers": [["a", "b"]], "body": b"\x00\xff"}

HOST_ASKS: list[tuple[Any, Any, Any]] = [
    (Render("s", 80, 24, 5), PICTURE, PICTURE),
    (DispatchCli("ns", ("a", "é")), RUN, {"stdout": "aGVsbG8K", "stderr": "/w==", "exit_code": -3}),
    (InvokeAction("act", b"\x00in", 250), b"out\xff", b"out\xff"),
]
PLUGIN_ASKS: list[tuple[Any, Any]] = [
    (GetSnapshot("t"), {"data": b"\x00x", "version": 3}),
    (GetSnapshot("t"), {"data": None, "version": 0}),
    (GetSnapshot("t"), {"data": b"", "version": 2**64 - 1}),
    (SubscribeSnapshot("t"), None),
    (InvokeAction("act", b"in", 1000), b"out"),
    (ReadFolder("/a"), ENTRIES),
    (ReadFile("/a/b"), b"\x00\x01"),
    (FetchUrl("https://e/", "POST", b"body", (("h", "v"), ("h", "w"))), PAGE),
]


@requirement("ainb:wire-render", "ainb:wire-cli", "ainb:wire-base64")
@pytest.mark.parametrize(("op", "value", "seen"), HOST_ASKS, ids=lambda case: type(case).__name__)
def test_every_request_of_a_host_arrives_as_it_was_and_is_answered(op: Any, value: Any, seen: Any) -> None:
    machine, peer = pair()
    assert machine.call(1, op) is None
    arrived = asked(exchange(machine, peer)[1])
    assert arrived.op == op
    peer.progress(arrived.id, {"percent": 50})
    peer.finish(arrived.id, value)
    done = finished(exchange(machine, peer)[0])
    assert (done.id, done.failure) == (1, None)
    assert (done.value if isinstance(op, InvokeAction) else machine.codec.load(done.value)) == seen


@requirement("ainb:wire-snapshots", "ainb:wire-files", "ainb:wire-fetch", "ainb:wire-actions", "ainb:wire-base64")
@pytest.mark.parametrize(("op", "value"), PLUGIN_ASKS, ids=lambda case: type(case).__name__)
def test_every_request_of_a_plugin_arrives_as_it_was_and_is_answered(op: Any, value: Any) -> None:
    machine, peer = pair()
    assert peer.call(1, op) is None
    arrived = asked(exchange(machine, peer)[0])
    assert arrived.op == op
    machine.finish(arrived.id, value)
    assert finished(exchange(machine, peer)[1]) == CallFinished(1, value)


@requirement("ainb:wire-keys", "ainb:wire-mouse", "ainb:wire-events", "ainb:wire-handle-action")
@pytest.mark.parametrize(
    "op",
    [
        PressKey("s", KEY, 5),
        UseMouse("s", MOUSE, 6),
        PerformAction("a", {"x": [1]}),
        PerformAction("a", None),
        DeliverSnapshot("t", b"\x00\xff"),
    ],
    ids=str,
)
def test_everything_a_host_tells_arrives_as_it_was(op: Any) -> None:
    machine, peer = pair()
    assert machine.notify(op) is None
    assert exchange(machine, peer) == ([], [Notified(op)])


@requirement("ainb:wire-log", "ainb:wire-snapshots")
@pytest.mark.parametrize("state", [GREETING, READY, CLOSING])
@pytest.mark.parametrize(
    "op",
    [
        PublishSnapshot("t", b"\x00\xff"),
        *(WriteLog(level, "m", {"a": 1}) for level in ("trace", "debug", "info", "warn", "error")),
    ],
    ids=str,
)
def test_everything_a_plugin_tells_arrives_as_it_was_at_any_time(op: Any, state: str) -> None:
    machine, peer = host(), plugin()
    peer.state = state
    assert peer.notify(op) is None
    assert exchange(machine, peer) == ([Notified(op)], [])


@requirement("ainb:wire-golden")
def test_what_a_plugin_writes_is_byte_exact(codec: Codec) -> None:
    machine = plugin(codec)
    ops: list[Any] = [SubscribeSnapshot("t"), InvokeAction("a", b"hi"), FetchUrl("u")]
    for id, op in enumerate(ops, 1):
        assert machine.call(id, op) is None
    assert machine.notify(PublishSnapshot("t", b"hi")) is None
    assert machine.notify(WriteLog("warn", "é")) is None
    assert bodies(machine.outgoing()) == [
        b'{"jsonrpc":"2.0","id":1,"method":"host/snapshot/subscribe","params":{"topic":"t"}}',
        b'{"jsonrpc":"2.0","id":2,"method":"host/action/invoke",'
        b'"params":{"action":"a","payload":"aGk=","timeout_ms":0}}',
        b'{"jsonrpc":"2.0","id":3,"method":"host/network/fetch",'
        b'"params":{"url":"u","method":"GET","body":null,"headers":[]}}',
        b'{"jsonrpc":"2.0","method":"host/snapshot/publish","params":{"topic":"t","payload":"aGk="}}',
        '{"jsonrpc":"2.0","method":"host/log","params":{"level":"warn","message":"é","fields":null}}'.encode(),
    ]


@requirement("ainb:wire-golden", "ainb:wire-keys", "ainb:wire-mouse")
def test_what_a_host_writes_is_byte_exact(codec: Codec) -> None:
    machine = host(codec)
    assert machine.call(1, DispatchCli("ns", ["a"])) is None
    assert machine.notify(PressKey("s", {"code": {"type": "esc"}, "mods": 0, "kind": "press"}, 1)) is None
    assert machine.notify(UseMouse("s", MOUSE, 2)) is None
    assert machine.notify(PerformAction("a", codec.dump({"x": 1}))) is None
    machine.close("done")
    assert bodies(machine.outgoing()) == [
        b'{"jsonrpc":"2.0","id":2,"method":"plugin/cli_dispatch","params":{"namespace":"ns","argv":["a"]}}',
        b'{"jsonrpc":"2.0","method":"plugin/handle_key","params":{"screen_id":"s",'
        b'"key":{"code":{"type":"esc"},"mods":0,"kind":"press"},"generation":1}}',
        b'{"jsonrpc":"2.0","method":"plugin/handle_mouse","params":{"screen_id":"s","mouse":{"kind":{"type":"down",'
        b'"button":{"type":"left"}},"col":7,"row":2,"mods":1},"generation":2}}',
        b'{"jsonrpc":"2.0","method":"plugin/handle_action","params":{"action_id":"a","payload":{"x":1}}}',
        b'{"jsonrpc":"2.0","id":3,"method":"plugin/shutdown","params":{}}',
    ]


@requirement("ainb:wire-errors")
@pytest.mark.parametrize(("op", "value", "seen"), HOST_ASKS, ids=lambda case: type(case).__name__)
def test_a_handlers_failure_reaches_the_host_with_its_number_and_data(op: Any, value: Any, seen: Any) -> None:
    machine, peer = pair()
    assert machine.call(1, op) is None
    arrived = asked(exchange(machine, peer)[1])
    detail = {"plugin_code": -5, "data": {"why": "x"}}
    peer.finish(arrived.id, None, Failure(Code.PLUGIN_ERROR, "no", detail=detail))
    failure = finished(exchange(machine, peer)[0]).failure
    assert failure is not None
    assert (failure.code, failure.message, failure.origin) == (Code.PLUGIN_ERROR, "no", Origin.PLUGIN)
    assert failure.detail == detail


@requirement("ainb:wire-denied")
@pytest.mark.parametrize("op", [row[0] for row in PLUGIN_ASKS], ids=lambda op: type(op).__name__)
def test_a_denial_reaches_the_plugin_with_the_capability_it_lacks(op: Any) -> None:
    machine, peer = pair()
    assert peer.call(1, op) is None
    machine.finish(asked(exchange(machine, peer)[0]).id, None, DENIED)
    failure = finished(exchange(machine, peer)[1]).failure
    assert failure is not None
    assert (failure.code, failure.message) == (Code.CAPABILITY_NOT_ALLOWED, "capability denied: network")
    assert (failure.origin, failure.detail["capability"]) == (Origin.HOST, "network")


@requirement("ainb:wire-action-timeout")
def test_an_action_that_takes_too_long_has_a_number_of_its_own() -> None:
    machine, peer = pair()
    assert peer.call(1, InvokeAction("slow", b"", 50)) is None
    arrived = asked(exchange(machine, peer)[0])
    machine.finish(arrived.id, None, Failure(Code.TIMEOUT, "no answer"))
    (body,) = bodies(machine.outgoing())
    assert json.loads(body)["error"] == {"code": -32002, "message": "action timed out: slow"}
    failure = finished(peer.receive(framed(body))).failure
    assert failure is not None
    assert failure.code == Code.TIMEOUT


# Answers.


@requirement("ainb:wire-responses")
def test_answers_find_their_calls_in_any_order(codec: Codec) -> None:
    machine = host(codec)
    for id in (1, 2, 3):
        assert machine.call(id, Render("s", 1, 1)) is None
    assert [sent["id"] for sent in frames(machine)] == [2, 3, 4]
    events = machine.receive(b"".join(frame(answer(id, {"n": id})) for id in (4, 2, 3)))
    found = [(event.id, codec.load(event.value)) for event in events if isinstance(event, CallFinished)]
    assert found == [(3, {"n": 4}), (1, {"n": 2}), (2, {"n": 3})]


@requirement("ainb:wire-responses")
def test_the_answer_to_a_cancelled_call_is_late_and_harmless() -> None:
    machine = host()
    assert machine.call(1, Render("s", 1, 1)) is None
    machine.outgoing()
    machine.cancel(1, "deadline_exceeded")
    assert machine.outgoing() == b""
    assert machine.receive(frame(answer(2, PICTURE))) == [CallFinished(1)]
    assert machine.receive(frame(answer(2, error={"code": 1}))) == [CallFinished(1)]


@requirement("ainb:wire-envelope")
def test_an_error_counts_before_a_result() -> None:
    machine = host()
    assert machine.call(1, Render("s", 1, 1)) is None
    failure = finished(machine.receive(frame(answer(2, PICTURE, error={"code": -9, "message": "no"})))).failure
    assert failure is not None
    assert (failure.code, failure.message) == (Code.PLUGIN_ERROR, "no")


USELESS = [
    b'{"jsonrpc":"2.0","id":2,"result":NaN}',
    b'{"jsonrpc":"2.0","id":2,"result":{"n":%d}}' % 10**40,
    b'{"jsonrpc":"2.0","id":2,"result":{"half',
    b'{"jsonrpc":"2.0","id":2,"result":"\xff"}',
    b'{"jsonrpc":"2.0","id":2,"result":' + b"[" * 100 + b"]" * 100 + b"}",
    b'{"id":2,"result":{}}',
    b'{"jsonrpc":"1.0","id":2,"result":{}}',
]


@requirement("ainb:wire-useless-answer")
@pytest.mark.parametrize("body", USELESS, ids=lambda body: body[:40].decode(errors="replace"))
def test_an_answer_that_cannot_be_used_ends_its_call_at_once_and_no_other(codec: Codec, body: bytes) -> None:
    machine = host(codec)
    assert machine.call(1, Render("s", 1, 1)) is None
    assert machine.call(2, Render("s", 1, 1)) is None
    machine.outgoing()
    noise, done = machine.receive(framed(body))
    assert isinstance(noise, Noise)
    assert isinstance(done, CallFinished) and done.failure is not None
    assert (done.id, done.failure.code) == (1, Code.MALFORMED_RESPONSE)
    assert "plugin/render" in done.failure.message
    assert machine.outgoing() == b""
    assert [type(event) for event in machine.receive(framed(body))] == [Noise]
    assert finished(machine.receive(frame(answer(3, PICTURE)))).failure is None


@requirement("ainb:wire-useless-answer")
def test_a_request_that_cannot_be_read_is_no_answer_wherever_its_method_stands(codec: Codec) -> None:
    machine = greeting(codec)
    body = b'{"jsonrpc":"2.0","id":1,"params":{"topic":"%b"},"method":"host/snapshot/get",}' % (b"t" * 300)
    assert [type(event) for event in machine.receive(framed(body))] == [Noise]
    assert [type(event) for event in machine.receive(frame(answer(1, HELLO)))] == [Ready]


@requirement("ainb:wire-useless-answer")
@pytest.mark.parametrize(
    ("op", "result"),
    [
        (DispatchCli("ns", ()), None),
        (DispatchCli("ns", ()), {"stdout": "", "stderr": ""}),
        (DispatchCli("ns", ()), {"stdout": "", "stderr": "", "exit_code": 1.0}),
        (DispatchCli("ns", ()), {"stdout": "", "stderr": "", "exit_code": 2**31}),
        (DispatchCli("ns", ()), {"stdout": "no base64", "stderr": "", "exit_code": 0}),
        (InvokeAction("a"), {}),
        (InvokeAction("a"), {"payload": None}),
        (Render("s", 1, 1), ...),
    ],
    ids=str,
)
def test_an_answer_of_the_wrong_shape_fails_its_call_and_no_other(codec: Codec, op: Any, result: Any) -> None:
    machine = host(codec)
    assert machine.call(1, op) is None
    assert machine.call(2, Render("s", 1, 1)) is None
    failure = finished(machine.receive(frame(answer(2, result)))).failure
    assert failure is not None
    assert failure.code == Code.MALFORMED_RESPONSE
    assert finished(machine.receive(frame(answer(3, PICTURE)))).failure is None


@requirement("ainb:wire-legacy-bytes")
def test_arrays_of_numbers_are_read_as_bytes_and_handed_on_as_base64(codec: Codec) -> None:
    machine = host(codec)
    assert machine.call(1, DispatchCli("ns", ())) is None
    result = {"stdout": [104, 105], "stderr": [], "exit_code": 0, "later": True}
    value = finished(machine.receive(frame(answer(2, result)))).value
    assert codec.load(value) == {"stdout": "aGk=", "stderr": "", "exit_code": 0}


def test_requests_that_share_an_id_are_told_apart() -> None:
    machine = host()
    numbers = [asked(machine.receive(frame(request(7, "host/fs/read_file", {"path": "a"})))).id for _ in range(2)]
    machine.finish(numbers[1], b"second")
    machine.finish(numbers[0], b"first")
    assert [base64.b64decode(sent["result"]["bytes"]) for sent in frames(machine)] == [b"second", b"first"]


# The framing, as a conversation sees it. The grammar itself is tested with the decoder.

BROKEN = [
    (b"Content-Type: application/json\r\n", Code.MALFORMED_RESPONSE),
    (b"Content-Length: -1\r\n", Code.MALFORMED_RESPONSE),
    (b"Content-Length: 0x10\r\n", Code.MALFORMED_RESPONSE),
    (b"Content-Length: 1_0\r\n", Code.MALFORMED_RESPONSE),
    (b"Content-Length:\r\n", Code.MALFORMED_RESPONSE),
    (b"Content-Length: 5\n", Code.MALFORMED_RESPONSE),
    (b"\r\n", Code.MALFORMED_RESPONSE),
    (b"Hello there\r\n", Code.MALFORMED_RESPONSE),
    (b"Cont\xff: 5\r\n", Code.MALFORMED_RESPONSE),
    (b"Content-Length: 16777217\r\n\r\n", Code.FRAME_TOO_LARGE),
    (b"Content-Length:" + b" " * 8192, Code.FRAME_TOO_LARGE),
]


@requirement("ainb:wire-header", "ainb:wire-body-cap")
@pytest.mark.parametrize(("data", "code"), BROKEN, ids=lambda case: str(case)[:40])
@pytest.mark.parametrize("made", [greeting, host, plugin])
def test_a_broken_header_ends_the_conversation_after_what_came_before_it(made: Any, data: bytes, code: str) -> None:
    machine = made()
    before = frame(LOG if machine.role == Role.HOST else notification("plugin/handle_action", {"action_id": "a"}))
    first, last = machine.receive(before + data + before)
    assert isinstance(first, Notified)
    assert isinstance(last, Fault)
    assert (last.failure.code, machine.state) == (code, FAILED)
    assert last.failure.origin == (Origin.PLUGIN if machine.role == Role.HOST else Origin.HOST)
    assert machine.receive(before) == []
    assert machine.receive_eof() == []
    machine.close("done")
    assert (machine.state, machine.outgoing()) == (CLOSED, b"")


@requirement("ainb:wire-header")
@pytest.mark.parametrize(
    "header",
    [
        b"content-length:%d\r\n\r\n",
        b" CONTENT-LENGTH :\t+%d \r\n\r\n",
        b"Content-Length: 00000000000%d\r\n\r\n",
        b"Content-Length: 99999999\r\nContent-Length: %d\r\n\r\n",
    ],
)
def test_what_the_grammar_allows_is_read(header: bytes) -> None:
    body = json.dumps(LOG).encode()
    data = header % len(body) + body
    assert host().receive(data) == [LOGGED]
    machine = host()
    assert [event for byte in one_by_one(data) for event in machine.receive(byte)] == [LOGGED]


@requirement("ainb:wire-body-cap")
def test_a_body_of_sixteen_mebibytes_is_read() -> None:
    empty = len(json.dumps(notification("host/log", {"level": "info", "message": ""})))
    message = "x" * (MAX_BODY - empty)
    body = json.dumps(notification("host/log", {"level": "info", "message": message})).encode()
    assert len(body) == MAX_BODY
    assert host().receive(framed(body)) == [Notified(WriteLog("info", message))]


@requirement("ainb:wire-eof")
@pytest.mark.parametrize("cut", [b"C", b"Content-Length: 9\r\n", b"Content-Length: 9\r\n\r\n", frame(GET)[:-1]])
def test_the_end_inside_a_frame_is_reported_and_the_frame_is_not_obeyed(cut: bytes) -> None:
    machine = host()
    assert machine.receive(cut) == []
    noise, end = machine.receive_eof()
    assert isinstance(noise, Noise)
    assert "the stream ended inside" in noise.why
    assert isinstance(end, Fault)
    assert end.failure.code == Code.CRASHED
    machine = plugin()
    assert machine.receive(cut) == []
    noise, end = machine.receive_eof()
    assert (type(noise), end, machine.state) == (Noise, Closed(), CLOSED)


# Limits.


def cells(number: int) -> dict[str, Any]:
    white, black = {"r": 255, "g": 255, "b": 255}, {"r": 0, "g": 0, "b": 0}
    cell = {"symbol": "x", "fg": white, "bg": black, "modifier": 31}
    return {"buffer": {"width": 200, "height": 60, "cells": [[{"x": 199, "y": 59}, cell]] * number}, "redraw": True}


@requirement("ainb:wire-json-limits")
def test_a_full_picture_of_200_by_60_coloured_cells_passes_both_ends() -> None:
    machine, peer = pair()
    assert machine.call(1, Render("s", 200, 60)) is None
    peer.finish(asked(exchange(machine, peer)[1]).id, cells(200 * 60))
    assert machine.codec.load(finished(exchange(machine, peer)[0]).value) == cells(200 * 60)


@exhaustive
@requirement("ainb:wire-json-limits")
def test_a_picture_of_a_million_cells_is_refused_where_it_is_made_and_where_it_arrives() -> None:
    machine, peer = pair()
    assert machine.call(1, Render("s", 200, 60)) is None
    peer.finish(asked(exchange(machine, peer)[1]).id, {"buffer": {"cells": [[]] * 1_000_000}})
    failure = finished(exchange(machine, peer)[0]).failure
    assert failure is not None
    assert (failure.code, failure.detail) == (Code.PLUGIN_ERROR, {"plugin_code": -32603})
    assert machine.call(2, Render("s", 200, 60)) is None
    body = b'{"jsonrpc":"2.0","id":3,"result":{"buffer":{"cells":[%b[]]}}}' % (b"[]," * 1_000_000)
    noise, done = machine.receive(framed(body))
    assert isinstance(noise, Noise)
    assert isinstance(done, CallFinished) and done.failure is not None
    assert done.failure.code == Code.MALFORMED_RESPONSE
    assert "more than 500000 commas" in done.failure.message
    assert len(str(done.failure.detail)) < 1000


BIG = b"x" * (MAX_BODY * 3 // 4)
"""As base64 exactly the largest body; with anything around it too much."""


@requirement("ainb:wire-limit-send")
def test_a_call_and_a_notification_that_no_peer_would_read_are_refused_before_they_are_sent() -> None:
    machine, peer = pair()
    refusals = [
        machine.call(1, InvokeAction("a", BIG)),
        machine.notify(DeliverSnapshot("t", BIG)),
        peer.call(1, InvokeAction("a", BIG)),
        peer.notify(PublishSnapshot("t", BIG)),
        peer.notify(WriteLog("info", "x" * MAX_BODY)),
    ]
    assert [refusal and refusal.code for refusal in refusals] == [Code.FRAME_TOO_LARGE] * 5
    assert (machine.outgoing(), peer.outgoing()) == (b"", b"")
    assert [type(event) for event in machine.receive(frame(answer(2, {})))] == [Noise]
    assert peer.notify(PublishSnapshot("t", BIG[:-90])) is None
    (told,) = exchange(machine, peer)[0]
    assert told == Notified(PublishSnapshot("t", BIG[:-90]))


@requirement("ainb:wire-limit-send")
@pytest.mark.parametrize(
    ("op", "value", "code"),
    [
        (ReadFile("/a"), BIG, -32602),
        (FetchUrl("u"), {"status": 200, "headers": [], "body": BIG}, -32602),
        (GetSnapshot("t"), {"data": BIG, "version": 1}, -32603),
        (InvokeAction("a"), BIG, -32603),
    ],
    ids=lambda case: type(case).__name__,
)
def test_an_answer_of_the_host_that_is_too_large_is_an_error_instead(op: Any, value: Any, code: int) -> None:
    machine, peer = pair()
    assert peer.call(1, op) is None
    machine.finish(asked(exchange(machine, peer)[0]).id, value)
    (sent,) = frames(machine)
    assert (sent["id"], sent["error"]["code"]) == (1, code)
    assert "16,777,216" in sent["error"]["message"]


UNSENDABLE = {"nan": float("nan"), "object": object(), "surrogate": "\ud800", "key": {1: 2}, "no object": 5}


@requirement("ainb:wire-limit-send")
@pytest.mark.parametrize("value", [*UNSENDABLE.values(), "x" * MAX_BODY], ids=[*UNSENDABLE, "large"])
def test_a_result_of_a_plugin_that_cannot_be_sent_is_an_internal_error(value: Any) -> None:
    machine = plugin()
    for method, result, params in (
        ("plugin/render", {"buffer": value}, {"viewport": {"width": 1, "height": 1}}),
        ("plugin/cli_dispatch", {"stdout": b"", "stderr": b"", "exit_code": value}, {"namespace": "ns", "argv": []}),
        ("host/action/invoke", value, {"action": "a", "payload": ""}),
    ):
        arrived = asked(machine.receive(frame(request(7, method, params))))
        machine.finish(arrived.id, value if value == 5 else result)
        (sent,) = frames(machine)
        assert (sent["id"], sent["error"]["code"]) == (7, -32603)
        assert "the result cannot be sent" in sent["error"]["message"]


@pytest.mark.parametrize(
    "op",
    [
        Render("s", 65536, 1),
        Render("s", -1, 1),
        InvokeAction("a", "dGV4dA=="),  # type: ignore[arg-type]
        DispatchCli("ns", "abc"),
        DispatchCli("ns", ("\ud800",)),
    ],
    ids=str,
)
def test_what_a_plugin_could_not_read_is_refused_before_it_is_asked(codec: Codec, op: Any) -> None:
    machine = host(codec)
    refusal = machine.call(1, op)
    assert refusal is not None
    assert (refusal.code, machine.outgoing()) == (Code.INVALID_INPUT, b"")
    assert machine.call(1, Render("s", 65535, 0)) is None


# Good-bye.


@requirement("ainb:wire-shutdown")
@pytest.mark.parametrize(
    "body",
    [answer(3, {}), answer(3, None), answer(3), answer(3, error={"code": -32601, "message": "?"}), {"id": 3}],
    ids=str,
)
def test_the_host_asks_its_plugin_to_leave_and_any_answer_will_do(body: Any) -> None:
    machine = host()
    assert machine.call(1, Render("s", 1, 1)) is None
    machine.outgoing()
    machine.close("done")
    machine.close("done")
    assert frames(machine) == [{"id": 3, "method": "plugin/shutdown", "params": {}}]
    refusal = machine.call(2, Render("s", 1, 1))
    assert refusal is not None
    assert refusal.code == Code.UNAVAILABLE
    refusal = machine.notify(PressKey("s", KEY))
    assert refusal is not None
    assert finished(machine.receive(frame(answer(2, PICTURE)))).failure is None
    machine.finish(asked(machine.receive(frame(GET))).id, {"data": None, "version": 0})
    assert frames(machine) == [{"id": 9, "result": {"payload": None, "version": 0}}]
    assert machine.receive(frame(body) + frame(LOG))[-1] == Closed()
    assert (machine.state, machine.receive_eof()) == (CLOSED, [])


@requirement("ainb:wire-shutdown")
@pytest.mark.parametrize("rest", [b"", b"Content-Length: 7\r\n"], ids=["between frames", "inside a frame"])
def test_a_plugin_that_leaves_without_answering_left_in_good_order(rest: bytes) -> None:
    machine = host()
    machine.close("done")
    machine.receive(rest)
    assert machine.receive_eof()[-1] == Closed()
    assert machine.state == CLOSED


def test_a_plugin_that_was_never_ready_is_left_without_a_word() -> None:
    machine = greeting()
    machine.close("done")
    assert machine.outgoing() == b""
    assert machine.receive(frame(answer(1, HELLO))) == []
    assert machine.receive_eof() == [Closed()]


@requirement("ainb:wire-shutdown")
@pytest.mark.parametrize("failure", [None, Failure(Code.INTERNAL, "disk full")])
def test_a_plugin_answers_when_it_is_ready_to_go_and_may_ask_and_tell_until_then(failure: Failure | None) -> None:
    machine = plugin()
    leave = asked(machine.receive(frame(request(6, "plugin/shutdown", {}))))
    assert (leave.op, machine.state) == (Shutdown(), CLOSING)
    assert machine.call(1, GetSnapshot("t")) is None
    assert machine.notify(WriteLog("info", "bye")) is None
    got = finished(machine.receive(frame(answer(1, {"payload": "aGk=", "version": 1}))))
    assert got.value == {"data": b"hi", "version": 1}
    machine.outgoing()
    machine.finish(leave.id, None, failure)
    (bye,) = frames(machine)
    error = {"id": 6, "error": {"code": -32603, "message": "disk full"}}
    assert bye == ({"id": 6, "result": {}} if failure is None else error)
    assert machine.state == CLOSED
    refusal = machine.call(2, GetSnapshot("t"))
    assert refusal is not None
    assert refusal.code == Code.UNAVAILABLE


@requirement("ainb:wire-shutdown")
@pytest.mark.parametrize("params", [{}, ..., None])
def test_a_shutdown_without_an_id_is_obeyed_and_not_answered(params: Any) -> None:
    machine = plugin()
    assert machine.receive(frame(notification("plugin/shutdown", params))) == [Notified(Shutdown())]
    assert (machine.state, machine.outgoing()) == (CLOSING, b"")
    assert machine.receive_eof() == [Closed()]


@requirement("ainb:wire-eof")
@pytest.mark.parametrize(
    ("made", "code"),
    [(greeting, Code.CRASHED), (host, Code.CRASHED), (plugin, None)],
    ids=["a plugin in its greeting", "a resident plugin", "a host"],
)
def test_only_a_host_may_leave_without_being_asked(made: Any, code: str | None) -> None:
    machine = made()
    events = machine.receive_eof()
    failure = fault(events)
    assert (failure.code if failure else None) == code
    assert machine.state == (CLOSED if code is None else FAILED)
    assert (events == [Closed()]) is (code is None)
    assert machine.receive_eof() == []


def test_both_ends_leave_in_good_order() -> None:
    machine, peer = pair()
    machine.close("done")
    peer.finish(asked(exchange(machine, peer)[1]).id)
    assert exchange(machine, peer)[0] == [Closed()]
    assert peer.receive_eof() == []


# Our own bugs.


@pytest.mark.parametrize(("role", "state"), list(product((Role.HOST, Role.PLUGIN), (START, GREETING, READY, CLOSING))))
def test_what_we_ask_of_a_machine_is_in_its_table_or_our_own_bug(role: str, state: str) -> None:
    machine = AinbMachine(role, stdlib_codec())
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
        (host, GetSnapshot("t")),
        (host, PressKey("s", KEY)),
        (host, InvokeTool("t", {})),
        (host, Shutdown()),
        (plugin, Render("s", 1, 1)),
        (plugin, PublishSnapshot("t", b"")),
        (greeting, Render("s", 1, 1)),
    ],
)
def test_only_what_the_contract_carries_in_this_direction_can_be_asked(made: Any, op: Any) -> None:
    with pytest.raises(Misuse):
        made().call(1, op)


def test_only_notifications_can_be_told_and_only_requests_answered() -> None:
    with pytest.raises(Misuse, match="cannot tell Render"):
        host().notify(Render("s", 1, 1))
    with pytest.raises(Misuse, match="cannot tell GetSnapshot"):
        plugin().notify(GetSnapshot("t"))
    with pytest.raises(Misuse, match="nothing can be asked"):
        greeting().notify(PressKey("s", KEY))
    with pytest.raises(Misuse, match="not a request that waits"):
        host().finish(1, None)
    with pytest.raises(Misuse, match="numbers its calls"):
        host().call("one", Render("s", 1, 1))


@requirement("ainb:wire-traffic")
def test_keys_then_the_mouse_overtake_events_and_the_oldest_gives_way() -> None:
    traffic = AinbMachine.TRAFFIC
    assert (traffic.urgent_capacity, traffic.drops, tuple(traffic.urgent)) == (64, "oldest", (PressKey, UseMouse))
    assert (traffic.capacity, traffic.max_bytes) == (4_096, 64 << 20)
    asked, told = {Render, DispatchCli, InvokeAction}, {PressKey, UseMouse, PerformAction, DeliverSnapshot}
    assert asked | told == AinbMachine.SUPPORTS


# Whatever comes.

json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(st.binary(), st.binary(), st.integers(-(2**31), 2**31 - 1), st.lists(st.text()))
def test_any_bytes_and_words_travel_through_a_command_line_unchanged(
    out: bytes, err: bytes, code: int, argv: list[str]
) -> None:
    machine, peer = pair()
    assert machine.call(1, DispatchCli("ns", tuple(argv))) is None
    arrived = asked(exchange(machine, peer)[1])
    assert arrived.op == DispatchCli("ns", tuple(argv))
    peer.finish(arrived.id, {"stdout": out, "stderr": err, "exit_code": code})
    value = machine.codec.load(finished(exchange(machine, peer)[0]).value)
    assert (base64.b64decode(value["stdout"]), base64.b64decode(value["stderr"])) == (out, err)
    assert value["exit_code"] == code


@given(json_values)
def test_any_json_is_a_picture_to_the_machine_and_a_payload_of_an_action(value: Any) -> None:
    machine, peer = pair()
    assert machine.notify(PerformAction("a", machine.codec.dump(value))) is None
    assert exchange(machine, peer)[1] == [Notified(PerformAction("a", value))]
    assert machine.call(1, Render("s", 1, 1)) is None
    peer.finish(asked(exchange(machine, peer)[1]).id, {"buffer": value})
    assert machine.codec.load(finished(exchange(machine, peer)[0]).value) == {"buffer": value}


SCRAPS: list[Any] = [
    *(row[1] for row in HOST_FRAMES),
    *(row[1] for row in PLUGIN_FRAMES),
    answer(1, HELLO),
    answer(3, {"stdout": "", "stderr": "", "exit_code": 0}),
    answer(3, error={"code": -32601}),
    request(8, "plugin/shutdown"),
    request(8, "plugin/init", {}),
    request(8, "plugin/init", {"manifest_path": "", "abi_version": 3}),
    *(request(8, name, params) for name, params in BAD_PARAMS),
]
keys = st.sampled_from("jsonrpc id method params result error code message data topic payload".split())
odd_frames = st.dictionaries(keys, json_values | st.dictionaries(keys, json_values), max_size=5).map(frame)
framing = st.sampled_from([data for data, _ in BROKEN]) | st.binary(max_size=40)
streams = st.lists(st.sampled_from([frame(scrap) for scrap in SCRAPS]) | odd_frames | framing, max_size=8)


def talking(role: str, made: Codec) -> AinbMachine:
    if role == Role.PLUGIN:
        machine = plugin(made)
        machine.call(1, GetSnapshot("t"))
    else:
        machine = host(made)
        machine.call(1, Render("s", 1, 1))
        machine.call(2, DispatchCli("ns", ()))
    machine.outgoing()
    return machine


@requirement("ainb:wire-useless-body", "ainb:wire-header")
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
