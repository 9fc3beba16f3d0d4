"""The host's end of a conversation in memory, with a plugin that a test plays."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from plugbay.contracts.base import Role
from plugbay.contracts.nexo.machine import NexoMachine
from plugbay.model.errors import Failure
from plugbay.model.operations import DeliverEvent, InvokeTool
from plugbay.sdk.testing.line import Conversation, Pending
from plugbay.sdk.testing.wire import MemoryWire
from plugbay.wire.strict_json import stdlib_codec
from tests.support.patience import PATIENCE

HELLO = (
    b'{"jsonrpc":"2.0","id":1,"result":{"manifest":{"plugin":{"id":"p","version":"1.0.0","name":"P","description":"d"}}'
    b',"server_version":"p-1","tools":[{"name":"p_t","description":"d","input_schema":{"type":"object"}}]}}\n'
)


class Desk:
    def __init__(self) -> None:
        self.told: list[Any] = []

    def answer(self, op: Any, progress: Any) -> Any:
        return Failure("unavailable", "nothing here")

    def notified(self, op: Any) -> None:
        self.told.append(op)


class Talk:
    def __init__(self) -> None:
        self.wire, self.desk = MemoryWire(), Desk()
        machine = NexoMachine(Role.HOST, stdlib_codec(), plugin_id="p", tools=("p_t",))
        self.line = Conversation(machine, self.wire, self.desk)

    def say(self, data: bytes) -> None:
        self.wire.said.write(data)


@pytest.fixture
def talk() -> Iterator[Talk]:
    talk = Talk()
    yield talk
    talk.line.end()


def greeted(talk: Talk) -> None:
    talk.say(HELLO)
    assert talk.line.open(5) is None


def test_a_peer_that_answers_the_greeting_is_ready(talk: Talk) -> None:
    greeted(talk)
    assert talk.line.hello["tools"][0]["name"] == "p_t"


def test_a_peer_that_says_nothing_times_out(talk: Talk) -> None:
    failure = talk.line.open(0.01)
    assert failure is not None and failure.code == "timeout"


def test_a_peer_that_is_somebody_else_is_refused(talk: Talk) -> None:
    talk.say(HELLO.replace(b'"id":"p"', b'"id":"q"'))
    failure = talk.line.open(5)
    assert failure is not None and failure.code == "handshake_failed"


def test_a_call_has_its_answer(talk: Talk) -> None:
    greeted(talk)
    call = Pending(talk.line, InvokeTool("p_t", {}), 5)
    talk.say(b'{"jsonrpc":"2.0","id":2,"result":{"a":1}}\n')
    assert call.finished().value == {"a": 1}


def test_a_call_whose_time_is_over_times_out_and_a_late_answer_is_dropped(talk: Talk) -> None:
    greeted(talk)
    late = Pending(talk.line, InvokeTool("p_t", {}), 0.01).finished()
    assert late.failure is not None and late.failure.code == "timeout"
    talk.say(b'{"jsonrpc":"2.0","id":2,"result":{}}\n')
    again = Pending(talk.line, InvokeTool("p_t", {}), 5)
    talk.say(b'{"jsonrpc":"2.0","id":3,"result":3}\n')
    assert again.finished().value == 3


def test_what_is_said_besides_is_kept(talk: Talk) -> None:
    greeted(talk)
    talk.say(b"printed\n")
    talk.say(b'{"jsonrpc":"2.0","method":"broker.publish","params":{"topic":"t","event":{}}}\n')
    assert talk.wire.said.wait_until_read(5)
    assert len(talk.line.noise) == 1 and talk.desk.told[0].topic == "t"


def test_when_the_peer_is_gone_whoever_waits_is_told_and_so_is_whoever_asks_later(talk: Talk) -> None:
    greeted(talk)
    call = Pending(talk.line, InvokeTool("p_t", {}), 5)
    talk.wire.said.close()
    failure = call.finished().failure
    assert failure is not None and failure.code == "crashed"
    assert talk.line.over.wait(PATIENCE)
    assert Pending(talk.line, InvokeTool("p_t", {}), 5).finished().failure == talk.line.fault
    assert talk.line.tell(DeliverEvent("t", {})) == talk.line.fault
