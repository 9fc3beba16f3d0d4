"""A machine and a wire shared by threads; real pipes, a real nexo machine on the other end."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from threading import Thread
from typing import Any

import pytest

from plugbay.contracts.base import Role
from plugbay.contracts.nexo.machine import NexoMachine
from plugbay.contracts.nexo.messages import Identity
from plugbay.model.errors import Code, Failure
from plugbay.model.events import CallFinished, CallProgress
from plugbay.model.operations import CompleteChat, GetStored, Publish, RecallMemory
from plugbay.sdk.errors import ServiceError
from plugbay.sdk.io.stdio import Wire
from plugbay.sdk.runtime.connection import BlockingClient, Connection
from plugbay.wire.strict_json import stdlib_codec
from tests.support.requirements import requirement

RECALL = RecallMemory("a", "q")
STREAM = CompleteChat("p", "m", [], stream=True)


class Host:
    """The other end: reads frames, and answers through the connection's own reader."""

    def __init__(self) -> None:
        (plugin_in, self._out), (self._in, plugin_out) = os.pipe(), os.pipe()
        self._lines = os.fdopen(self._in, "rb")
        machine = NexoMachine(Role.PLUGIN, stdlib_codec(), identity=Identity({"plugin": {"id": "p"}}, "1"))
        machine.greet()
        self.connection = Connection(machine, Wire(plugin_in, plugin_out))
        self._fds = [plugin_in, plugin_out, self._out]

    def heard(self) -> Any:
        return json.loads(self._lines.readline())

    def says(self, **frame: Any) -> None:
        os.write(self._out, json.dumps({"jsonrpc": "2.0", **frame}).encode() + b"\n")
        for event in self.connection.receive(self.connection.read()):
            assert isinstance(event, CallFinished | CallProgress)
            self.connection.deliver_reply(event)

    def stops_reading(self) -> None:
        self._lines.close()

    def close(self) -> None:
        self._lines.close()
        for fd in self._fds:
            os.close(fd)


@pytest.fixture
def host() -> Iterator[Host]:
    host = Host()
    yield host
    host.close()


def asked(host: Host, answer: dict[str, Any]) -> Any:
    """What a thread gets that asks for memories; the host answers it with `answer`."""
    got: list[Any] = []

    def ask() -> None:
        try:
            got.append(BlockingClient(host.connection).ask(RECALL, list, 60))
        except ServiceError as error:
            got.append((error.code, error.rpc_code))

    thread = Thread(target=ask)
    thread.start()
    host.says(id=host.heard()["id"], **answer)
    thread.join()
    return got[0]


def test_an_answer_reaches_its_request(host: Host) -> None:
    entries = [{"id": "1", "content": "c"}]
    assert asked(host, {"result": {"entries": entries}})[0]["content"] == "c"


def test_before_a_thread_waits_for_an_answer_it_releases_the_reader(host: Host) -> None:
    host.connection.release_reader = lambda: host.says(id=host.heard()["id"], result={"entries": []})
    assert BlockingClient(host.connection).ask(RECALL, list, 60) == []


@requirement("nexo:sdk-service-error")
def test_an_error_of_the_host_keeps_its_number(host: Host) -> None:
    assert asked(host, {"error": {"code": -32603, "message": "memory not configured"}}) == (Code.UNAVAILABLE, -32603)
    assert asked(host, {"error": {"code": -32602, "message": "bad"}}) == (Code.INVALID_INPUT, -32602)
    assert asked(host, {"result": {}}) == (Code.MALFORMED_RESPONSE, None)


@requirement("kaged:sdk-what-is-not-carried")
def test_what_a_contract_has_no_word_for_is_refused_before_anything_is_said(host: Host) -> None:
    host.connection.unsupported = frozenset({GetStored})
    with pytest.raises(ServiceError, match=r"does not offer ctx\.storage") as caught:
        BlockingClient(host.connection).ask(GetStored("k"), dict, 60)
    assert (caught.value.code, caught.value.rpc_code) == (Code.NOT_FOUND, None)
    assert asked(host, {"result": {"entries": []}}) == []


@requirement("nexo:sdk-service-timeout")
def test_a_request_ends_at_its_timeout_and_a_late_answer_is_dropped(host: Host) -> None:
    with pytest.raises(ServiceError, match=r"did not answer RecallMemory within 0\.01 s") as caught:
        BlockingClient(host.connection).ask(RECALL, list, 0.01)
    assert caught.value.code == Code.TIMEOUT
    host.says(id=host.heard()["id"], result={"entries": []})
    assert asked(host, {"result": {"entries": []}}) == []


def test_a_time_in_quotes_is_refused_before_anything_is_said(host: Host) -> None:
    line: Any = BlockingClient(host.connection)
    for ask in (line.ask, line.stream):
        with pytest.raises(TypeError, match=r"timeout is a number of seconds, .* not '5'"):
            ask(RECALL, list, "5")
    assert asked(host, {"result": {"entries": []}}) == []


def test_giving_up_sends_no_messages_of_other_threads(host: Host) -> None:
    id = host.connection.ask(RECALL, lambda heard: None)
    host.connection._machine.notify(Publish("t", {"payload": "what another thread is about to send"}))
    host.connection.give_up(id)
    assert host.connection.unsent
    host.connection.flush()
    assert not host.connection.unsent


def test_a_stream_is_heard_piece_by_piece_and_ends_with_its_result(host: Host) -> None:
    stream = BlockingClient(host.connection).stream(STREAM, dict, 60)
    id = host.heard()["id"]
    for chunk in ("a", "b"):
        host.says(method="llm.complete.delta", params={"request_id": id, "chunk": chunk})
    host.says(id=id, result={"finish_reason": "stop", "usage": {}})
    assert list(stream) == ["a", "b"]
    assert stream.result == {"content": None, "finish_reason": "stop", "usage": {}}
    assert list(stream) == []


@requirement("nexo:sdk-abandon")
def test_when_the_host_leaves_waiting_and_later_requests_fail_at_once(host: Host) -> None:
    stream = BlockingClient(host.connection).stream(STREAM, dict, 60)
    host.connection.abandon(Failure("unavailable", "the host asked this plugin to shut down"))
    for ask in (lambda: next(stream), lambda: BlockingClient(host.connection).ask(RECALL, list, 60)):
        with pytest.raises(ServiceError, match="the host asked this plugin to shut down") as caught:
            ask()
        assert (caught.value.code, caught.value.rpc_code) == (Code.UNAVAILABLE, None)


def test_a_message_that_cannot_be_sent_raises_in_its_sender(host: Host) -> None:
    for payload, code in (({1, 2}, Code.INVALID_INPUT), ("x" * (17 << 20), Code.FRAME_TOO_LARGE)):
        with pytest.raises(ServiceError) as caught:
            host.connection.tell(Publish("t", {"payload": payload}))
        assert caught.value.code == code
    with pytest.raises(ServiceError):
        BlockingClient(host.connection).ask(CompleteChat("p", "m", [{1}]), dict, 60)
    host.connection.tell(Publish("t", {"payload": 1}))
    assert host.heard()["params"] == {"topic": "t", "event": {"payload": 1}}


def test_a_host_that_stops_reading_is_no_reason_to_fail(host: Host, capsys: pytest.CaptureFixture[str]) -> None:
    host.stops_reading()
    for _ in range(2):
        host.connection.tell(Publish("t", {"payload": 1}))
    assert capsys.readouterr().err.count("no longer reads") == 1


def test_the_reading_thread_is_not_blocked_by_a_thread_that_writes_to_a_slow_host(host: Host) -> None:
    stream = BlockingClient(host.connection).stream(STREAM, dict, 60)
    id = host.heard()["id"]
    speaker = Thread(target=host.connection.tell, args=(Publish("t", {"payload": "x" * 1_000_000}),))
    speaker.start()
    while not host.connection.writing.locked():
        pass
    host.says(method="llm.complete.delta", params={"request_id": id, "chunk": "heard"})
    assert next(stream) == "heard"
    assert speaker.is_alive()
    assert host.heard()["params"]["topic"] == "t"
    speaker.join()


def test_the_reading_thread_sends_only_answers_of_the_machine_itself(host: Host) -> None:
    machine = host.connection._machine
    for _ in range(2):
        host.connection.receive(b'{"jsonrpc":"2.0","id":1,"method":"nobody.knows"}\n')
        assert not machine.has_outgoing and host.heard()["error"]["code"] == -32601
    machine.notify(Publish("t", {"payload": "what another thread is about to send"}))
    with host.connection.writing:  # or so it is, to a host that does not read
        assert host.connection.receive(b"") != []
    assert machine.has_outgoing
    host.connection.flush()
    assert host.heard()["method"] == "broker.publish"


def test_threads_never_mix_their_frames(host: Host) -> None:
    text = "x" * 20_000  # several times what a pipe takes at once, all threads together
    threads = [Thread(target=host.connection.tell, args=(Publish(f"t{n}", {"payload": text}),)) for n in range(16)]
    for thread in threads:
        thread.start()
    topics = {host.heard()["params"]["topic"] for _ in threads}
    for thread in threads:
        thread.join()
    assert topics == {f"t{n}" for n in range(16)}
