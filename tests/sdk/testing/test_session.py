"""A plugin served in memory: how it begins, how it ends, and what it must not leave behind."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from threading import Thread
from typing import Any

import pytest

from plugbay.contracts.base import Role
from plugbay.contracts.nexo.machine import NexoMachine
from plugbay.model.errors import Failure
from plugbay.model.operations import DeliverEvent, InvokeTool
from plugbay.sdk import Plugin, testing
from plugbay.sdk.testing import CallFailed
from plugbay.sdk.testing.session import CapturedStderr, HostConnection, MemoryWire, Pending, Pipe
from plugbay.wire.strict_json import stdlib_codec
from tests.support.patience import PATIENCE


def test_on_ready_runs_before_the_test_and_on_shutdown_after_it() -> None:
    plugin, seen = Plugin("p"), list[str]()
    plugin.tool("t")(lambda: seen.append("t"))
    plugin.on_ready(lambda: seen.append("ready"))
    plugin.on_shutdown(lambda: seen.append("over"))
    with testing.host(plugin) as host:
        assert seen == ["ready"]
        host.call("t")
    assert seen == ["ready", "t", "over"]


def test_an_on_ready_that_fails_is_heard_of() -> None:
    plugin = Plugin("p")
    plugin.tool("t")(lambda: 1)
    plugin.on_ready(lambda: 1 // 0)
    with pytest.raises(CallFailed, match="division"), testing.host(plugin):
        raise AssertionError("it was not ready")


def test_what_the_plugin_raises_outside_of_handlers_is_raised() -> None:
    plugin = Plugin("p")
    plugin.screen("here")(lambda canvas: None)
    plugin.on_key("elsewhere", "a")(lambda key: None)
    with pytest.raises(ValueError, match="'elsewhere', which is not a screen"), testing.host(plugin, "ainb"):
        raise AssertionError("it was served")


def test_the_hosts_services_are_there_outside_of_handlers_only_while_it_is_served() -> None:
    plugin = Plugin("p", capabilities=["memory.recall"])
    plugin.tool("t")(lambda: 1)
    with testing.host(plugin) as host:
        host.memory.put("ada", "tea")
        assert len(plugin.host.memory.recall("ada", "tea")) == 1
    with pytest.raises(Exception, match=r"does not offer ctx\.memory"):
        plugin.host.memory.recall("ada", "tea")


def test_one_plugin_can_be_served_again_and_again() -> None:
    plugin = Plugin("p")
    plugin.tool("t")(lambda: 1)
    for contract in ("nexo", "nexo", "kaged"):
        with testing.host(plugin, contract) as host:
            assert host.call("t") == 1


def test_what_passes_through_a_stream_is_kept(capsys: pytest.CaptureFixture[str]) -> None:
    stream = CapturedStderr(sys.stderr)
    stream.write("one\ntwo")
    assert stream.lines == ["one", "two"] and stream.writable()
    assert capsys.readouterr().err == "one\ntwo"


HELLO = (
    b'{"jsonrpc":"2.0","id":1,"result":{"manifest":{"plugin":{"id":"p","version":"1.0.0","name":"P","description":"d"}}'
    b',"server_version":"p-1","tools":[{"name":"p_t","description":"d","input_schema":{"type":"object"}}]}}\n'
)


class HostServices:
    def __init__(self) -> None:
        self.told: list[Any] = []

    def answer(self, op: Any, progress: Any) -> Any:
        return Failure("unavailable", "nothing here")

    def notified(self, op: Any) -> None:
        self.told.append(op)


class Talk:
    def __init__(self) -> None:
        self.wire, self.desk = MemoryWire(), HostServices()
        machine = NexoMachine(Role.HOST, stdlib_codec(), plugin_id="p", tools=("p_t",))
        self.connection = HostConnection(machine, self.wire, self.desk)

    def say(self, data: bytes) -> None:
        self.wire.output.write(data)


@pytest.fixture
def talk() -> Iterator[Talk]:
    talk = Talk()
    yield talk
    talk.connection.end()


def greeted(talk: Talk) -> None:
    talk.say(HELLO)
    assert talk.connection.open(5) is None


def test_a_peer_that_answers_the_greeting_is_ready(talk: Talk) -> None:
    greeted(talk)
    assert talk.connection.hello["tools"][0]["name"] == "p_t"


def test_a_peer_that_says_nothing_times_out(talk: Talk) -> None:
    failure = talk.connection.open(0.01)
    assert failure is not None and failure.code == "timeout"


def test_a_peer_with_another_id_is_refused(talk: Talk) -> None:
    talk.say(HELLO.replace(b'"id":"p"', b'"id":"q"'))
    failure = talk.connection.open(5)
    assert failure is not None and failure.code == "handshake_failed"


def test_a_call_has_its_answer(talk: Talk) -> None:
    greeted(talk)
    call = Pending(talk.connection, InvokeTool("p_t", {}), 5)
    talk.say(b'{"jsonrpc":"2.0","id":2,"result":{"a":1}}\n')
    assert call.finished().value == {"a": 1}


def test_a_call_whose_time_is_over_times_out_and_a_late_answer_is_dropped(talk: Talk) -> None:
    greeted(talk)
    late = Pending(talk.connection, InvokeTool("p_t", {}), 0.01).finished()
    assert late.failure is not None and late.failure.code == "timeout"
    talk.say(b'{"jsonrpc":"2.0","id":2,"result":{}}\n')
    again = Pending(talk.connection, InvokeTool("p_t", {}), 5)
    talk.say(b'{"jsonrpc":"2.0","id":3,"result":3}\n')
    assert again.finished().value == 3


def test_what_is_said_besides_is_kept(talk: Talk) -> None:
    greeted(talk)
    talk.say(b"printed\n")
    talk.say(b'{"jsonrpc":"2.0","method":"broker.publish","params":{"topic":"t","event":{}}}\n')
    assert talk.wire.output.wait_until_read(5)
    assert len(talk.connection.noise) == 1 and talk.desk.told[0].topic == "t"


def test_when_the_peer_is_gone_waiting_and_later_calls_fail(talk: Talk) -> None:
    greeted(talk)
    call = Pending(talk.connection, InvokeTool("p_t", {}), 5)
    talk.wire.output.close()
    failure = call.finished().failure
    assert failure is not None and failure.code == "crashed"
    assert talk.connection.over.wait(PATIENCE)
    assert Pending(talk.connection, InvokeTool("p_t", {}), 5).finished().failure == talk.connection.fault
    assert talk.connection.notify(DeliverEvent("t", {})) == talk.connection.fault


def test_what_is_written_is_read_in_order_and_then_comes_the_end() -> None:
    pipe = Pipe()
    pipe.write(b"one ")
    pipe.write(b"two")
    assert pipe.read() == b"one two"
    pipe.close()
    assert pipe.read() == b""
    with pytest.raises(BrokenPipeError):
        pipe.write(b"three")


def test_a_pipe_is_read_when_its_reader_comes_back_for_more() -> None:
    pipe = Pipe()
    pipe.write(b"one")
    assert not pipe.wait_until_read(0)
    reader = Thread(target=lambda: [pipe.read(), pipe.read()])
    reader.start()
    assert pipe.wait_until_read(5)
    pipe.close()
    reader.join()


def test_to_leave_ends_the_conversation_and_not_the_process() -> None:
    wire = MemoryWire()
    gone: list[str] = []
    with pytest.raises(SystemExit):
        wire.leave(3, lambda: gone.append("workers"))
    assert (wire.status, gone, wire.output.read()) == (3, ["workers"], b"")
    assert not wire.has_reader() and wire.output.wait_until_closed(0)
    with pytest.raises(SystemExit):
        wire.read()


def test_a_wire_without_a_resident_plugin_is_settled_when_it_is_read() -> None:
    wire = MemoryWire()
    assert not wire.settle(0)
    reader = Thread(target=wire.read)
    reader.start()
    assert wire.settle(5)
    wire.input.close()
    reader.join()
