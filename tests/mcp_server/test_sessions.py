"""Sessions and single requests: which connection a message goes out on, and who is forgotten when."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from plugbay.mcp_server import names, sessions
from plugbay.mcp_server.conversation import ANSWER_SECONDS
from plugbay.mcp_server.exchange import Exchange
from plugbay.mcp_server.sessions import Clients, Session
from plugbay.model.operations import OfferExports
from tests.mcp_server.houses import declare, house
from tests.support.loops import Run
from tests.support.patience import until
from tests.support.plugins import write_plugin
from tests.support.requirements import requirement

OURS = "io.modelcontextprotocol/"


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def line(**message: Any) -> bytes:
    return json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n"


HELLO = line(id=0, method="initialize", params={"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {}})


def waiting(way: Exchange) -> list[Any]:
    return [json.loads(frame) for frame in way._queue]


@requirement("mcp:http-sessions")
def test_what_is_about_a_request_goes_back_with_it_and_the_rest_waits_for_a_reader(run: Run, tmp_path: Path) -> None:
    write_plugin(tmp_path / "plugins")

    async def main() -> None:
        async with house(tmp_path / "plugins") as (_, bridge):
            session = _begun(Clients(bridge))
            mine = Exchange(1)
            session.conversation.receive(line(id=1, method="ping"), mine)
            assert [message["id"] for message in waiting(mine)] == [1]
            gone = Exchange(1)
            gone.left()
            session.conversation.receive(line(id=2, method="ping"), gone)
            session.conversation.tell(OfferExports({"tools": []}))
            assert [message["method"] for message in waiting(session.mail)] == ["notifications/tools/list_changed"]
            assert waiting(session.read_again()) == waiting(session.mail)

    run(main)


def _begun(clients: Clients) -> Session:
    session = clients.new_session()
    assert session is not None
    session.conversation.receive(HELLO, Exchange(1))
    return session


@requirement("mcp:http-sessions")
def test_a_session_ends_when_it_was_idle_for_long(run: Run, tmp_path: Path) -> None:
    write_plugin(tmp_path / "plugins")

    async def main() -> None:
        async with house(tmp_path / "plugins") as (_, bridge):
            clock = Clock()
            clients = Clients(bridge, clock)
            idle, read, asking = _begun(clients), _begun(clients), _begun(clients)
            read.is_read, asking.open = True, 1
            clock.now += sessions.IDLE_SECONDS
            assert clients.session(idle.id) is idle
            clock.now += sessions.IDLE_SECONDS + 1
            assert clients.session(idle.id) is None
            assert idle.conversation.closed
            assert clients.session(read.id) is read
            assert clients.session(asking.id) is asking
            assert clients.session("made up") is None
            assert len({idle.id, read.id, asking.id}) == 3

    run(main)


@requirement("mcp:http-limits")
def test_a_new_session_takes_the_place_of_the_one_that_was_idle_for_longest(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sessions, "MAX_SESSIONS", 2)
    write_plugin(tmp_path / "plugins")

    async def main() -> None:
        async with house(tmp_path / "plugins") as (_, bridge):
            clock = Clock()
            clients = Clients(bridge, clock)
            one, two = _begun(clients), _begun(clients)
            clock.now += 1
            assert clients.session(one.id) is one
            three = _begun(clients)
            assert clients.session(two.id) is None
            one.open = three.open = 1
            assert clients.new_session() is None
            clients.close()
            assert one.conversation.closed and three.conversation.closed

    run(main)


def asking(number: int, **more: Any) -> bytes:
    meta = {f"{OURS}protocolVersion": "2026-07-28", f"{OURS}clientCapabilities": {"elicitation": {}}}
    return line(id=number, method="tools/call", params={"arguments": {}, "_meta": meta, **more})


@requirement("mcp:http-limits", "mcp:serve-elicitation")
def test_requests_that_wait_for_their_client_are_kept_for_a_while_and_not_too_many(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sessions, "MAX_PARKED", 1)

    async def main() -> None:
        async with house(declare(tmp_path / "plugins", one="modern", two="modern"), rule=names.full) as (_, bridge):
            clock = Clock()
            clients = Clients(bridge, clock)

            async def parked(number: int, tool: str) -> str:
                solo = clients.solo(None, Exchange(1))
                solo.conversation.receive(asking(number, name=tool))
                await until(lambda: solo.state is not None)
                assert solo.state is not None
                state = solo.state
                clients.finished(solo)
                return state

            one = await parked(1, "one__ask")
            result = {"q1": {"action": "accept", "content": {"name": "Ada"}}}
            again = Exchange(1)
            solo = clients.solo(one, again)
            solo.conversation.receive(asking(2, name="one__ask", inputResponses=result, requestState=one))
            await until(lambda: again.over)
            assert '"name": "Ada"' in waiting(again)[0]["result"]["content"][0]["text"]
            clients.finished(solo)
            assert solo.conversation.closed
            first, second = await parked(3, "one__ask"), await parked(4, "two__ask")
            assert clients.solo(first, Exchange(1)).conversation.busy == 0
            kept = clients.solo(second, Exchange(1))
            assert kept.conversation.busy == 1
            kept.state = second
            clients.finished(kept)
            clock.now += ANSWER_SECONDS + 1
            clients.finished(clients.solo(None, Exchange(1)))
            assert kept.conversation.closed
            assert clients.solo(second, Exchange(1)) is not kept

    run(main)
