"""Lines: too long, not JSON, several messages in one; and who is told."""

from __future__ import annotations

import json
from typing import Any

import pytest

from plugbay.contracts.mcp.framing import MAX_BATCH, TOO_LONG, requested_id
from plugbay.contracts.mcp.messages import MAX_LINE
from plugbay.model.errors import Code
from plugbay.model.events import CallArrived, CallFinished, Closed, Fault, Noise
from plugbay.model.operations import InvokeTool
from tests.contracts.mcp.talk import asked, finished, frames, host, line, modern, plugin, request, session, value_of
from tests.support.requirements import requirement


@requirement("mcp:wire-lines")
@pytest.mark.parametrize("junk", [b"listening on 3000", b"{", b"null", b"5", b'"x"', b"\xff\xfe", b"{}x"])
def test_a_line_that_is_no_message_is_noise_and_the_next_one_counts(junk: bytes) -> None:
    machine = host()
    machine.call(1, InvokeTool("echo", {}))
    (frame,) = frames(machine)
    noise, answer = machine.receive(junk + b"\n" + line({"id": frame["id"], "result": {"content": []}}))
    assert isinstance(noise, Noise)
    assert isinstance(answer, CallFinished) and value_of(machine, answer) == {"content": []}


def test_a_blank_line_is_nothing() -> None:
    assert host().receive(b"\n  \r\n\n") == []


@requirement("mcp:wire-line-limit")
def test_an_answer_that_is_too_long_ends_its_call_and_nothing_else() -> None:
    machine = host()
    machine.call(1, InvokeTool("echo", {}))
    machine.call(2, InvokeTool("echo", {}))
    first, second = frames(machine)
    head = b'{"jsonrpc":"2.0","id":%d,"result":{"content":[{"type":"text","text":"' % first["id"]
    events = machine.receive(head + b"x" * (MAX_LINE + 10_000))
    assert [type(event) for event in events] == [Noise, CallFinished]
    failure = events[1].failure  # type: ignore[union-attr]
    assert (events[1].id, failure.code) == (1, Code.FRAME_TOO_LARGE)  # type: ignore[union-attr]
    answer = line({"id": second["id"], "result": {"content": []}})
    assert finished(machine.receive(b'"}]}}\n' + answer)).id == 2


@requirement("mcp:wire-line-limit")
def test_a_line_of_full_length_is_read_and_one_byte_more_is_not() -> None:
    def answer(machine: Any, size: int) -> bytes:
        machine.call(1, InvokeTool("echo", {}))
        (frame,) = frames(machine)
        empty = json.dumps({"id": frame["id"], "result": {"text": ""}}, separators=(",", ":")).encode()
        return empty.replace(b'""', b'"%b"' % (b"x" * (size - len(empty)))) + b"\n"

    machine = host()
    assert finished(machine.receive(answer(machine, MAX_LINE))).failure is None
    machine = host()
    assert [type(event) for event in machine.receive(answer(machine, MAX_LINE + 1))] == [Noise, CallFinished]


@requirement("mcp:wire-line-limit")
def test_what_the_peer_would_not_read_is_not_sent() -> None:
    machine = host()
    failure = machine.call(1, InvokeTool("echo", {"text": "x" * MAX_LINE}))
    assert failure is not None and failure.code == Code.FRAME_TOO_LARGE
    assert machine.outgoing() == b""


@requirement("mcp:wire-line-limit")
def test_a_result_that_is_too_long_becomes_an_error_that_says_so() -> None:
    machine = session()
    number = asked(machine.receive(line(request(5, "tools/call", {"name": "echo"})))).id
    machine.finish(number, "x" * MAX_LINE)
    (frame,) = frames(machine)
    assert frame["id"] == 5
    assert frame["error"]["data"]["dev.plugbay/failure"]["code"] == Code.FRAME_TOO_LARGE


@requirement("mcp:wire-line-limit")
def test_a_request_that_is_too_long_is_answered_where_it_can_be_seen_whose_it_is() -> None:
    machine = session()
    head = b'{"jsonrpc":"2.0","id":9,"method":"tools/call","params":{"name":"echo","arguments":{"x":"'
    assert machine.receive(head + b"x" * (MAX_LINE + 10_000)) == [Noise(head + b"x" * (200 - len(head)), TOO_LONG)]
    (frame,) = frames(machine)
    assert (frame["id"], frame["error"]["code"]) == (9, -32600)


@pytest.mark.parametrize(
    ("head", "id"),
    [
        (b'{"jsonrpc":"2.0","id":9,"method":"m","params":{', 9),
        (b'{"id": 9 ,"method":"m","params":{"id":4', 9),
        (b'{"method":"m","params":{"id":4,', None),
        (b'{"id":"a","method":"m","params":{', None),
        (b'{"id":9,"result":{', None),
        (b'{"id":9999999999999999,"method":"m","params":{', None),
        (b"junk", None),
    ],
)
def test_the_id_of_a_request_is_seen_only_where_it_is_certain(head: bytes, id: int | None) -> None:
    assert requested_id(head) == id


@requirement("mcp:wire-batch")
def test_a_batch_is_taken_as_if_each_message_had_come_alone() -> None:
    batch = [request(1, "ping"), request("b", "tools/call", {"name": "echo"}), {"jsonrpc": "2.0", "method": "x"}, 7]
    machine = session()
    arrived, unknown, wrong = machine.receive(line(batch))
    assert isinstance(arrived, CallArrived) and arrived.op == InvokeTool("echo", {}, {})
    assert isinstance(unknown, Noise) and isinstance(wrong, Noise)
    assert frames(machine) == [{"id": 1, "result": {}}]


@requirement("mcp:wire-batch")
def test_answers_may_come_in_a_batch() -> None:
    machine = host()
    machine.call(1, InvokeTool("echo", {}))
    machine.call(2, InvokeTool("echo", {}))
    ids = [frame["id"] for frame in frames(machine)]
    events = machine.receive(line([{"jsonrpc": "2.0", "id": id, "result": {"content": []}} for id in ids]))
    assert [event.id for event in events if isinstance(event, CallFinished)] == [1, 2]


@requirement("mcp:wire-batch")
def test_a_batch_that_would_keep_everybody_waiting_is_noise() -> None:
    machine = session()
    assert machine.receive(line([request(1, "ping")] * MAX_BATCH)) == []
    assert len(frames(machine)) == MAX_BATCH
    (event,) = machine.receive(line([request(1, "ping")] * (MAX_BATCH + 1)))
    assert isinstance(event, Noise) and "1,001 messages" in event.why
    assert frames(machine) == []


@requirement("mcp:wire-batch")
@pytest.mark.parametrize("batch", [b"[]\n", b"[1,\n"])
def test_a_batch_of_nothing_is_noise(batch: bytes) -> None:
    (event,) = session().receive(batch)
    assert isinstance(event, Noise)


def test_the_last_line_need_not_have_its_end() -> None:
    machine = plugin()
    whole = line(request(1, "server/discover", modern()))[:-1]
    assert machine.receive(whole) == []
    assert machine.pending == len(whole)
    machine.receive_eof()
    assert [frame["id"] for frame in frames(machine)] == [1]


def test_half_a_message_at_the_end_is_no_message() -> None:
    machine = session()
    machine.receive(line(request(1, "tools/list"))[:-5])
    machine.receive_eof()
    assert machine.outgoing() == b""


def test_half_an_answer_at_the_end_is_no_answer_but_the_end_of_the_server() -> None:
    machine = host()
    machine.call(1, InvokeTool("echo", {}))
    (frame,) = frames(machine)
    machine.receive(line({"id": frame["id"], "result": {"content": []}})[:-5])
    (fault,) = machine.receive_eof()
    assert isinstance(fault, Fault) and fault.failure.code == Code.CRASHED


def test_a_blank_at_the_end_is_nothing() -> None:
    machine = session()
    machine.receive(b"  ")
    assert machine.receive_eof() == [Closed()]
