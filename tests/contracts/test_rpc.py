"""What the JSON-RPC conversations have in common, shown with the smallest contract there could be."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from plugbay.contracts.base import Misuse, Role
from plugbay.contracts.rpc import (
    CLOSED,
    CLOSING,
    FAILED,
    GREETING,
    GREETING_ID,
    HEAD_BYTES,
    MAX_ERROR_TEXT,
    READY,
    START,
    IncomingRequest,
    RpcMachine,
    answered_id,
    error_text,
    malformed,
    noise,
    sendable,
    transitions,
)
from plugbay.model.errors import Code, Failure
from plugbay.model.events import CallArrived, CallFinished, Closed, Fault, Noise, Ready
from plugbay.model.operations import InvokeTool, Shutdown
from plugbay.wire.strict_json import ABSENT, stdlib_codec

if TYPE_CHECKING:
    from plugbay.model.events import Event

MOST = 200
"""Bytes of a frame in the small contract."""


class Small(RpcMachine):
    """A contract with one method, whose frames are separated by NULs."""

    CONTRACT = "small"
    TRANSITIONS = transitions(host_breaks=(GREETING, READY))

    def __init__(self, role: str) -> None:
        super().__init__(role, stdlib_codec(), MOST)
        self._decode = self.codec.decoder(("id", "method", "error"), ("params", "result"))

    def _frame(self, body: bytes) -> bytes:
        return body + b"\0"

    def _take_unfinished(self) -> list[Event]:
        return []

    def receive(self, data: bytes) -> list[Event]:
        return [event for frame in data.split(b"\0")[:-1] for event in self._take(self._decode(frame), frame)]

    def _take(self, message: Any, frame: bytes) -> list[Event]:
        if message.method is ABSENT:
            return self._dispatch_answer(message.id, message, frame)
        if message.method == "initialize":
            self._write_result(message.id, b"{}")
            self._step("hello")
            return [Ready({})]
        if message.method == "shutdown":
            self._step("shutdown")
            return self._accept_request(IncomingRequest(message.id, Shutdown()))
        return self._accept_request(IncomingRequest(message.id, InvokeTool("t", message.params)))

    def _send_greeting(self) -> None:
        self._write_request(GREETING_ID, self.HELLO, b"{}")

    def _check_greeting(self, message: Any, frame: bytes) -> list[Event]:
        self._step("hello")
        self._greeted = True
        return [Ready({})]

    def _send_call(self, wire: int, op: Any) -> Failure | None:
        failure = self._write_request(wire, "t", self._json(op.input))
        if failure is None:
            self._remember(wire, "t")
        return failure

    def _read_answer(self, asked: Any, message: Any, frame: bytes) -> tuple[Any, Failure | None]:
        return (asked, message.result), None

    def _encode_result(self, asked: IncomingRequest, value: Any) -> bytes | Failure:
        return self._json(value)

    def _encode_failure(self, asked: IncomingRequest, failure: Failure) -> tuple[int, str, dict[str, Any] | None]:
        return -1, failure.message, failure.detail or None


def sent(machine: Small) -> list[Any]:
    return [json.loads(frame) for frame in machine.outgoing().split(b"\0")[:-1]]


def frame(**message: Any) -> bytes:
    return json.dumps(message).encode() + b"\0"


def host() -> Small:
    machine = Small(Role.HOST)
    machine.greet()
    machine.receive(frame(id=1, result={}))
    machine.outgoing()
    return machine


def plugin() -> Small:
    machine = Small(Role.PLUGIN)
    machine.greet()
    return machine


# The table.


def test_only_a_contract_whose_peer_can_break_it_has_failed_in_its_table() -> None:
    table = transitions(host_breaks=(GREETING,))
    assert table[Role.HOST, GREETING, "violation"] == FAILED
    assert table[Role.HOST, FAILED, "close"] == CLOSED
    assert (Role.HOST, READY, "violation") not in table
    assert not any(role == Role.PLUGIN and FAILED in (state, target) for (role, state, _), target in table.items())
    both = transitions(host_breaks=(GREETING,), plugin_breaks=(READY,))
    assert (both[Role.PLUGIN, READY, "violation"], both[Role.PLUGIN, FAILED, "close"]) == (FAILED, CLOSED)


@pytest.mark.parametrize("role", [Role.HOST, Role.PLUGIN])
def test_a_conversation_begins_with_a_greeting_and_can_be_closed_at_any_time(role: str) -> None:
    machine = Small(role)
    assert machine.state == START
    machine.greet()
    assert machine.state == GREETING
    with pytest.raises(Misuse):
        machine.greet()
    for state in (START, GREETING, READY, CLOSING, CLOSED):
        machine.state = state
        machine.close("done")
        assert machine.state in (CLOSING, CLOSED)


# Calls.


def test_a_hosts_calls_count_on_from_its_greeting_and_a_plugins_from_one() -> None:
    machine = Small(Role.HOST)
    machine.greet()
    assert [message["id"] for message in sent(machine)] == [1]
    assert machine.receive(frame(id=1, result={})) == [Ready({})]
    assert machine.call(1, InvokeTool("t", {"a": 1})) is None
    assert sent(machine) == [{"jsonrpc": "2.0", "id": 2, "method": "t", "params": {"a": 1}}]
    assert machine.receive(frame(id=2, result=5)) == [CallFinished(1, ("t", 5))]
    peer = plugin()
    assert peer.call(1, InvokeTool("t", {})) is None
    assert [message["id"] for message in sent(peer)] == [1]


def test_an_answer_that_nobody_waits_for_is_late_or_noise() -> None:
    machine = host()
    assert machine.call(1, InvokeTool("t", {})) is None
    machine.cancel(1, "deadline_exceeded")
    machine.cancel("no number", "deadline_exceeded")
    assert machine.receive(frame(id=2, result=5)) == [CallFinished(1)]
    assert machine.receive(frame(id=1, result={})) == [CallFinished(0)]
    (event,) = machine.receive(frame(id=3, result=5))
    assert isinstance(event, Noise)


def test_nothing_is_asked_before_the_time_or_after_it() -> None:
    for machine in (Small(Role.HOST), Small(Role.PLUGIN)):
        with pytest.raises(Misuse, match="nothing can be asked in 'start'"):
            machine.call(1, InvokeTool("t", {}))
    machine = host()
    with pytest.raises(Misuse, match="small numbers its calls"):
        machine.call("one", InvokeTool("t", {}))
    machine.close("done")
    refusal = machine.call(1, InvokeTool("t", {}))
    assert refusal is not None
    assert refusal.code == Code.UNAVAILABLE


def test_what_the_peer_asks_is_reported_under_numbers_of_our_own() -> None:
    machine = plugin()
    events = machine.receive(frame(id=7, method="t", params=1) + frame(id=7, method="t", params=2))
    assert events == [CallArrived(1, InvokeTool("t", 1)), CallArrived(2, InvokeTool("t", 2))]
    machine.finish(2, "b")
    machine.finish(1, "a")
    assert [(message["id"], message["result"]) for message in sent(machine)] == [(7, "b"), (7, "a")]
    with pytest.raises(Misuse, match="not a request that waits"):
        machine.finish(1, "a")
    assert machine.progress(1, "half") is None
    assert machine.outgoing() == b""


@pytest.mark.parametrize("id", [0, 2**64 - 1, 1.5, "x", None])
def test_the_peers_id_comes_back_as_it_was(id: Any) -> None:
    machine = plugin()
    machine.receive(frame(id=id, method="t", params={}))
    machine.finish(1, {})
    (message,) = sent(machine)
    assert (message["id"], type(message["id"])) == (id, type(id))


# Writing.


@pytest.mark.parametrize(
    ("value", "code"), [("x" * MOST, Code.FRAME_TOO_LARGE), (object(), Code.INVALID_INPUT)], ids=["large", "no json"]
)
def test_a_call_that_no_peer_would_read_is_refused_and_a_result_becomes_an_error(value: Any, code: str) -> None:
    machine = host()
    refusal = machine.call(1, InvokeTool("t", value))
    assert refusal is not None
    assert (refusal.code, machine.outgoing()) == (code, b"")
    assert machine.receive(frame(id=2, result=5))[0].__class__ is Noise
    machine.receive(frame(id=7, method="t", params={}))
    machine.finish(1, value)
    (message,) = sent(machine)
    assert "the result cannot be sent" in message["error"]["message"]


def test_a_frame_of_exactly_the_limit_is_sent() -> None:
    machine = host()
    around = len(b'{"jsonrpc":"2.0","id":2,"method":"t","params":""}')
    assert machine.call(1, InvokeTool("t", "x" * (MOST - around))) is None
    assert len(machine.outgoing()) == MOST + 1
    refusal = machine.call(2, InvokeTool("t", "x" * (MOST - around + 1)))
    assert refusal is not None
    assert refusal.detail == {"size": MOST + 1, "limit": MOST}


@pytest.mark.parametrize("data", [{"a": "x" * MOST}, {"a": object()}], ids=["large", "no json"])
def test_an_error_goes_out_even_when_its_data_cannot(data: Any) -> None:
    machine = plugin()
    machine.receive(frame(id=7, method="t", params={}))
    machine.finish(1, None, Failure(Code.INTERNAL, "no", detail=data))
    assert sent(machine) == [{"jsonrpc": "2.0", "id": 7, "error": {"code": -1, "message": "no"}}]


# Good-bye.


def test_a_host_asks_its_plugin_to_leave_once_and_any_answer_will_do() -> None:
    machine, peer = host(), plugin()
    assert machine.call(1, InvokeTool("t", {})) is None
    machine.outgoing()
    machine.close("done")
    machine.close("done")
    farewell = machine.outgoing()
    assert farewell == b'{"jsonrpc":"2.0","id":3,"method":"shutdown","params":{}}\0'
    assert peer.receive(farewell) == [CallArrived(1, Shutdown())]
    peer.finish(1)
    assert peer.state == CLOSED
    assert machine.receive(peer.outgoing()) == [Closed()]
    assert (machine.state, machine.receive_eof()) == (CLOSED, [])


def test_an_answer_to_the_greeting_of_a_host_that_is_leaving_means_nothing() -> None:
    machine = Small(Role.HOST)
    machine.greet()
    machine.close("done")
    assert machine.receive(frame(id=1, result={})) == []
    assert machine.receive_eof() == [Closed()]


def test_a_plugin_that_ends_its_output_unasked_has_crashed_and_a_host_has_only_left() -> None:
    for machine, words in ((host(), "closed its output"), (Small(Role.HOST), "before it answered initialize")):
        if machine.state == START:
            assert machine.receive_eof() == []
            machine.greet()
        (event,) = machine.receive_eof()
        assert isinstance(event, Fault)
        assert (event.failure.code, machine.state) == (Code.CRASHED, FAILED)
        assert event.failure.message.endswith(words)
    assert plugin().receive_eof() == [Closed()]


# Small things that every one of these contracts needs.


@pytest.mark.parametrize(
    ("head", "id"),
    [
        (b'{"jsonrpc":"2.0","id":7,"result":"xxx', 7),
        (b'{"jsonrpc": "2.0", "id": 7 , "error": {', 7),
        (b'{"id":7,"jsonrpc":"2.0","result":{"method":"', 7),
        (b'{"id":7', None),
        (b'{"id":7,"params":{"topic":"ttttttttt', None),
        (b'{"id":7,"params":{"result":"ttttttt', None),
        (b'{"id":0,"error":{', 0),
        (b'{"jsonrpc":"2.0","result":{"id":7,', None),
        (b'{"jsonrpc":"2.0","error":{"id":7,', None),
        (b'{"method":"kaged.storage.set","params":{"id":7,', None),
        (b'{"id":7,"method":"kaged.storage.set","params":', None),
        (b'{"id":"7","result":', None),
        (b'{"id":-7,"result":', None),
        (b'{"id":7.5,"result":', None),
        (b'{"id":77777777777777777777,"result":', None),
        (b'{"id":', None),
        (b"a log line", None),
    ],
)
def test_an_answer_that_cannot_be_read_still_says_whose_it_is_or_nothing_is_guessed(
    head: bytes, id: int | None
) -> None:
    assert answered_id(head) == id


def test_a_malformed_answer_is_quoted_briefly_and_printably() -> None:
    failure = malformed("bad", b"\x1b[31m\xff" + b"x" * 300, more=1)
    assert failure.detail["line"].startswith("\\x1b[31m\\xff")
    assert len(failure.detail["line"]) < 220
    assert (failure.code, failure.detail["more"]) == (Code.MALFORMED_RESPONSE, 1)
    (event,) = noise(b"x" * 1000, "why")
    assert event == Noise(b"x" * HEAD_BYTES, "why")


def test_the_words_of_an_error_are_those_of_the_peer_its_number_or_ours() -> None:
    assert error_text({"code": 5, "message": " no "}) == " no "
    assert error_text({"code": 5, "message": " "}) == "error 5 without a message"
    assert error_text({"code": True}) == "an error without a message"
    assert len(error_text({"message": "x" * 1_000_000})) == MAX_ERROR_TEXT


def test_what_we_say_in_an_error_can_always_be_sent() -> None:
    assert sendable("\udcff é") == "\\udcff é"
    assert len(sendable("x" * 1_000_000)) == MAX_ERROR_TEXT
