"""The connection of a gateway or node: made again when it ends, and nothing outlives it."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

import plugbay.cluster.wire as module
from plugbay.brokers.nats import NatsClient
from plugbay.cluster.wire import Wire
from plugbay.host.config.sections import ClusterConfig
from plugbay.model.errors import ConfigInvalid
from tests.support.loops import Run, run  # noqa: F401
from tests.support.nats_server import NatsServer, nats_server
from tests.support.nodes import PASSWORD, Cell
from tests.support.patience import PATIENCE, until
from tests.support.tiers import exhaustive

HEARD: list[bytes] = []


def wire(server: NatsServer, heard: list[bytes]) -> Wire:
    settings = ClusterConfig(nats=[server.url])
    return Wire(settings, {}, {"a.>": lambda subject, headers, data: heard.append(data)})


def test_messages_arrive_in_order_and_what_is_too_large_is_not_sent(tmp_path: Path, run: Run) -> None:  # noqa: F811
    async def main() -> None:
        heard: list[bytes] = []
        listening, speaking = wire(server, heard), wire(server, [])
        for each in (listening, speaking):
            each.begin()
            assert await each.joined(PATIENCE)
        for number in range(100):
            assert await speaking.publish("a.b", str(number).encode())
        assert not await speaking.publish("a.b", bytes(speaking.max_payload + 1))
        assert await speaking.round_trip() and await listening.round_trip()
        assert heard == [str(number).encode() for number in range(100)]
        await listening.stop_listening()
        assert await speaking.publish("a.b", b"late") and await speaking.round_trip()
        assert await listening.round_trip() and b"late" not in heard
        for each in (listening, speaking):
            await each.stop()
            assert not each.is_up

    with nats_server(tmp_path) as server:
        run(main)


@exhaustive
def test_a_subject_is_heard_over_all_connections_until_it_is_ignored(tmp_path: Path, run: Run) -> None:  # noqa: F811
    async def main() -> None:
        heard: list[bytes] = []
        listening, speaking = wire(server, []), wire(server, [])
        assert not await listening.listen("b.*", lambda subject, headers, data: heard.append(data)), "not connected yet"
        for each in (listening, speaking):
            each.begin()
            assert await each.joined(PATIENCE)
        assert await speaking.publish("b.c", b"1")
        await until(lambda: heard == [b"1"])
        server.kill()
        await until(lambda: not listening.is_up and not speaking.is_up)
        server.start()
        for each in (listening, speaking):
            assert await each.joined(PATIENCE)
        assert await speaking.publish("b.c", b"2")
        await until(lambda: heard == [b"1", b"2"])
        await listening.ignore("b.*")
        assert await speaking.publish("b.c", b"3") and await speaking.round_trip() and await listening.round_trip()
        assert len(heard) == 2
        for each in (listening, speaking):
            await each.stop()

    with nats_server(tmp_path) as server:
        run(main)


def test_a_message_that_was_not_sent_is_not_sent_later(tmp_path: Path, run: Run) -> None:  # noqa: F811
    async def main() -> None:
        heard: list[bytes] = []
        told: list[str] = []
        listening, speaking = wire(server, heard), wire(server, [])
        speaking.on_up, speaking.on_down = (lambda: told.append("up")), (lambda: told.append("down"))
        for each in (listening, speaking):
            each.begin()
            assert await each.joined(PATIENCE)
        server.kill()
        await until(lambda: not speaking.is_up and not listening.is_up)
        assert not await speaking.publish("a.b", b"while it was away")
        assert not speaking.post("a.b", b"while it was away") and speaking.unsent == 0
        assert not await speaking.round_trip() and speaking.max_payload == 0
        await asyncio.to_thread(server.start)
        await until(lambda: speaking.is_up and listening.is_up)
        assert await speaking.publish("a.b", b"after")
        await until(lambda: bool(heard))
        assert heard == [b"after"] and told == ["up", "down", "up"]
        for each in (listening, speaking):
            await each.stop()

    with nats_server(tmp_path) as server:
        run(main)


@pytest.mark.parametrize(("seconds", "most", "answers"), [(PATIENCE, 1, [True]), (0.0, 1, []), (PATIENCE, 0, [])])
def test_a_message_that_arrives_while_the_connection_is_made_is_answered_unless_it_waited_too_long(
    tmp_path: Path,
    run: Run,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
    seconds: float,
    most: int,
    answers: list[bool],
) -> None:
    monkeypatch.setattr(module, "EARLY_SECONDS", seconds)
    monkeypatch.setattr(module, "MAX_EARLY", most)

    async def main() -> None:
        sent: list[bool] = []
        subscribed, round_trip = asyncio.Event(), NatsClient.round_trip

        async def round_trip_with_a_message(client: NatsClient, limit: float) -> None:
            await round_trip(client, limit)
            if client is not speaking._client and not subscribed.is_set():
                subscribed.set()
                assert await speaking.publish("a.b", b"early") and await speaking.round_trip()
                await round_trip(client, limit)  # after this the message has arrived

        speaking = wire(server, [])
        speaking.begin()
        assert await speaking.joined(PATIENCE)
        monkeypatch.setattr(NatsClient, "round_trip", round_trip_with_a_message)
        listening = Wire(ClusterConfig(nats=[server.url]), {}, {})
        listening.add("a.>", lambda subject, headers, data: sent.append(listening.post("b.c", data)))
        listening.begin()
        assert await listening.joined(PATIENCE)
        assert subscribed.is_set() and sent == answers
        assert await speaking.publish("a.b", b"later") and await speaking.round_trip()
        await until(lambda: sent == [*answers, True])
        for each in (listening, speaking):
            await each.stop()

    with nats_server(tmp_path) as server:
        run(main)


def test_a_node_cannot_hear_the_calls_of_another(shared_cell: Cell, run: Run) -> None:  # noqa: F811
    async def main() -> None:
        heard: list[bytes] = []
        subjects = {"pb1.main.node.n2.call": lambda subject, headers, data: heard.append(data)}
        spying = Wire(shared_cell.settings("n1"), {"CELL_PASSWORD": PASSWORD}, subjects)
        spying.begin()
        assert await spying.joined(PATIENCE)
        await until(lambda: "pb1.main.node.n2.call" in spying.forbidden.lower())
        async with shared_cell.cluster() as cluster:
            await cluster.wire.publish("pb1.main.node.n2.call", b"secret")
            assert await cluster.wire.round_trip() and await spying.round_trip()
        assert heard == []
        await spying.stop()

    run(main)


def test_credentials_that_are_missing_are_reported_with_their_field() -> None:
    settings = ClusterConfig(nats=["nats://127.0.0.1:1"], token_env="NOT_SET")
    with pytest.raises(ConfigInvalid, match=r"cluster\.token_env"):
        Wire(settings, {}, {})
