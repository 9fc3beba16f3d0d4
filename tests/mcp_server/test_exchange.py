"""An answer alone is JSON; with anything before it, it is the end of a stream."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from plugbay.mcp_server import exchange
from plugbay.mcp_server.exchange import Exchange, accept, frames, refuse
from plugbay.mcp_server.http_rules import Refused
from tests.support.loops import Run
from tests.support.patience import until
from tests.support.requirements import requirement

ANSWER = b'{"jsonrpc":"2.0","id":1,"result":{}}'
NOTE = b'{"jsonrpc":"2.0","method":"notifications/progress","params":{}}'


class Wire:
    """What an ASGI server would have sent."""

    def __init__(self) -> None:
        self.status = 0
        self.headers: dict[str, str] = {}
        self.body = b""
        self.done = False

    async def send(self, message: exchange.Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self.headers = {name.decode(): value.decode() for name, value in message["headers"]}
        else:
            self.body += message["body"]
            self.done = not message["more_body"]

    @property
    def events(self) -> list[Any]:
        parts = [part for part in self.body.decode().split("\n\n") if part.startswith("event: message\ndata: ")]
        return [json.loads(part.removeprefix("event: message\ndata: ")) for part in parts]


def test_an_answer_that_is_all_there_is_goes_as_json(run: Run) -> None:
    async def main() -> None:
        wire, way = Wire(), Exchange(1)
        way.push(ANSWER)
        await way.respond(wire.send, [("mcp-session-id", "abc")])
        assert (wire.status, wire.body, wire.done) == (200, ANSWER, True)
        assert wire.headers == {
            "mcp-session-id": "abc",
            "content-type": "application/json",
            "content-length": str(len(ANSWER)),
        }

    run(main)


@requirement("mcp:http-statuses")
def test_an_error_may_have_a_status_of_its_own(run: Run) -> None:
    async def main() -> None:
        wire, way = Wire(), Exchange(1, {-32601: 404})
        way.push(b'{"jsonrpc":"2.0","id":1,"error":{"code":-32601,"message":"m"}}')
        await way.respond(wire.send)
        assert wire.status == 404

    run(main)


@requirement("mcp:http-streams")
def test_what_is_said_before_an_answer_opens_a_stream(run: Run) -> None:
    async def main() -> None:
        wire, way = Wire(), Exchange(2)
        way.push(NOTE)
        writing = asyncio.ensure_future(way.respond(wire.send))
        await until(lambda: len(wire.events) == 1)
        way.push(ANSWER)
        way.push(ANSWER)
        way.push(NOTE)  # nothing is said after the last answer
        await writing
        assert [event.get("method", "answer") for event in wire.events] == [
            "notifications/progress",
            "answer",
            "answer",
        ]
        assert (wire.headers["content-type"], wire.headers["x-accel-buffering"]) == ("text/event-stream", "no")
        assert wire.done

    run(main)


@requirement("mcp:http-streams")
def test_an_answer_that_takes_long_comes_on_a_stream_that_is_kept_alive(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exchange, "STREAM_AFTER", 0.01)
    monkeypatch.setattr(exchange, "KEEP_ALIVE", 0.01)

    async def main() -> None:
        wire, way = Wire(), Exchange(1)
        writing = asyncio.ensure_future(way.respond(wire.send))
        await until(lambda: b":\n\n" in wire.body)
        way.push(ANSWER)
        await writing
        assert len(wire.events) == 1

    run(main)


def test_a_request_that_was_called_off_is_accepted_and_no_more(run: Run) -> None:
    async def main() -> None:
        wire, way = Wire(), Exchange(1)
        way.drop()
        await way.respond(wire.send)
        assert (wire.status, wire.body) == (202, b"")

    run(main)


@requirement("mcp:http-streams")
def test_a_client_that_leaves_ends_the_writing(run: Run) -> None:
    async def main() -> None:
        wire, way = Wire(), Exchange(1)
        writing = asyncio.ensure_future(way.respond(wire.send))
        await asyncio.sleep(0)
        way.left()
        await writing
        way.push(ANSWER)
        assert (wire.status, way.has_room) == (0, False)

    run(main)


@requirement("mcp:http-limits")
def test_an_endless_stream_forgets_the_oldest_and_goes_on_elsewhere(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exchange, "MAX_WAITING", 3)

    async def main() -> None:
        way = Exchange(0, lossy=True)
        for number in range(5):
            way.push(b'{"method":"m%d"}' % number)
        wire, after = Wire(), way.continued()
        writing = asyncio.ensure_future(after.stream(wire.send))
        await until(lambda: len(wire.events) == 3)
        after.end()
        await writing
        assert [event["method"] for event in wire.events] == ["m2", "m3", "m4"]

    run(main)


@requirement("mcp:http-limits")
def test_what_nobody_reads_does_not_pile_up_however_large_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exchange, "MAX_UNREAD", 100)

    async def main() -> None:
        way = Exchange(0, lossy=True)
        for number in range(5):
            way.push(b'{"method":"m%d","params":"%b"}' % (number, b"x" * 60))
        assert [frame[:14] for frame in way._queue] == [b'{"method":"m3"', b'{"method":"m4"']

    asyncio.run(main())


@requirement("mcp:http-limits")
def test_there_is_no_room_for_progress_when_too_much_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exchange, "MAX_UNREAD", 10)

    async def main() -> None:
        way = Exchange(2)
        assert way.has_room
        way.push(NOTE)
        assert not way.has_room

    asyncio.run(main())


def test_refusals_and_acceptances_are_whole_responses(run: Run) -> None:
    async def main() -> None:
        wire = Wire()
        await refuse(wire.send, Refused(401, "no", headers=(("www-authenticate", "Bearer"),), data=[1]), 7)
        assert (wire.status, wire.headers["www-authenticate"]) == (401, "Bearer")
        assert json.loads(wire.body) == {
            "jsonrpc": "2.0",
            "id": 7,
            "error": {"code": -32600, "message": "no", "data": [1]},
        }
        wire = Wire()
        await accept(wire.send, 204)
        assert (wire.status, wire.body, wire.done) == (204, b"", True)

    run(main)


def test_frames_are_lines() -> None:
    assert frames(ANSWER + b"\n" + NOTE + b"\n") == [ANSWER, NOTE]
    assert frames(b"") == []
