"""A question without an answer is a failure that says so."""

from __future__ import annotations

import asyncio

import pytest

from plugbay.cluster import envelope
from plugbay.cluster.asking import ACTION_SECONDS, CHAT_SECONDS, REQUEST_SECONDS, Asker, _seconds_for
from plugbay.cluster.subjects import Subjects
from plugbay.cluster.wire import Wire
from plugbay.host.config.sections import ClusterConfig
from plugbay.model.errors import Code, Failure
from plugbay.model.operations import CompleteChat, GetStored, InvokeAction, Publish
from tests.support.loops import Run, run  # noqa: F401
from tests.support.patience import PATIENCE, until


class Silent(Wire):
    """Sends to no one; keeps the ids of questions."""

    def __init__(self) -> None:
        super().__init__(ClusterConfig(nats=["nats://127.0.0.1:1"]), {}, {})
        self.sent: list[envelope.Ask] = []

    async def publish(self, subject: str, data: bytes, reply: str = "") -> bool:
        self.sent.append(envelope.unpack(envelope.Ask, data)[0])
        return True


def asker(wire: Wire) -> Asker:
    return Asker(wire, Subjects("main"), "n1", "a1b2c3d4")


def test_without_a_connection_nothing_is_asked(run: Run) -> None:  # noqa: F811
    async def main() -> None:
        found = await asker(Wire(ClusterConfig(nats=["nats://127.0.0.1:1"]), {}, {})).ask("renew", PATIENCE, {})
        assert isinstance(found, Failure) and found.code == Code.UNAVAILABLE and found.retryable

    run(main)


def test_late_and_lost_answers_are_unknown(run: Run) -> None:  # noqa: F811
    async def main() -> None:
        wire = Silent()
        made = asker(wire)
        late = await made.ask("renew", 0.01, {})
        assert isinstance(late, Failure) and "unknown" in late.message
        task = asyncio.create_task(made.ask("renew", PATIENCE, {}))
        await until(lambda: len(wire.sent) == 2)
        made.lose()
        lost = await task
        assert isinstance(lost, Failure) and "connection to NATS was lost" in lost.message
        refused = await made.request("", 0, "p", Publish("a", {}), lambda _: None)
        assert isinstance(refused, Failure) and refused.code == Code.MALFORMED_RESPONSE

    run(main)


@pytest.mark.parametrize("data", [b"", b"{}\n", b'{"v":1}\n1', b"\xff\n"])
def test_a_malformed_answer_is_one(data: bytes, run: Run) -> None:  # noqa: F811
    async def main() -> None:
        wire = Silent()
        made = asker(wire)
        task = asyncio.create_task(made.ask("renew", PATIENCE, {}))
        await until(lambda: len(wire.sent) == 1)
        made._on_answer(b"pb1.main.re.node.n1.0000", b"", data)
        assert not task.done(), "it is for another question"
        made._on_answer(f"pb1.main.re.node.n1.{wire.sent[0].id}".encode(), b"", data)
        found = await task
        assert isinstance(found, Failure) and found.code == Code.MALFORMED_RESPONSE

    run(main)


def test_a_request_may_take_as_long_as_its_kind() -> None:
    assert _seconds_for(GetStored("k")) == REQUEST_SECONDS
    assert _seconds_for(CompleteChat("p", "m", [])) == CHAT_SECONDS
    assert _seconds_for(InvokeAction("a")) == ACTION_SECONDS + 1
    assert _seconds_for(InvokeAction("a", timeout_ms=2_000)) == 3.0
