"""Responses, sessions, modern requests, and the ASGI application over a real port."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

from plugbay.mcp_server import http_app, listing
from plugbay.mcp_server.connection import ANSWER_SECONDS
from plugbay.mcp_server.http_app import HttpClients, McpApp, ResponseStream, Session, accept, frames, refuse
from plugbay.mcp_server.http_checks import Guard, Refusal
from plugbay.model.operations import OfferExports
from tests.mcp_server.running_servers import declare, running_server
from tests.mcp_server.test_http_server import listening
from tests.support.loops import Run
from tests.support.patience import PATIENCE, until
from tests.support.plugins import write_plugin
from tests.support.requirements import requirement

ANSWER = b'{"jsonrpc":"2.0","id":1,"result":{}}'
NOTE = b'{"jsonrpc":"2.0","method":"notifications/progress","params":{}}'


class Wire:
    """Records what an ASGI application sends."""

    def __init__(self) -> None:
        self.status = 0
        self.headers: dict[str, str] = {}
        self.body = b""
        self.done = False

    async def send(self, message: http_app.Message) -> None:
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
        wire, way = Wire(), ResponseStream(1)
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
        wire, way = Wire(), ResponseStream(1, {-32601: 404})
        way.push(b'{"jsonrpc":"2.0","id":1,"error":{"code":-32601,"message":"m"}}')
        await way.respond(wire.send)
        assert wire.status == 404

    run(main)


@requirement("mcp:http-streams")
def test_a_message_before_the_answer_opens_a_stream(run: Run) -> None:
    async def main() -> None:
        wire, way = Wire(), ResponseStream(2)
        way.push(NOTE)
        writing = asyncio.ensure_future(way.respond(wire.send))
        await until(lambda: len(wire.events) == 1)
        way.push(ANSWER)
        way.push(ANSWER)
        way.push(NOTE)  # nothing follows the last answer
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
    monkeypatch.setattr(http_app, "STREAM_AFTER", 0.01)
    monkeypatch.setattr(http_app, "KEEP_ALIVE", 0.01)

    async def main() -> None:
        wire, way = Wire(), ResponseStream(1)
        writing = asyncio.ensure_future(way.respond(wire.send))
        await until(lambda: b":\n\n" in wire.body)
        way.push(ANSWER)
        await writing
        assert len(wire.events) == 1

    run(main)


def test_a_request_that_was_called_off_is_accepted_and_no_more(run: Run) -> None:
    async def main() -> None:
        wire, way = Wire(), ResponseStream(1)
        way.drop_answer()
        await way.respond(wire.send)
        assert (wire.status, wire.body) == (202, b"")

    run(main)


@requirement("mcp:http-streams")
def test_a_client_that_leaves_ends_the_writing(run: Run) -> None:
    async def main() -> None:
        wire, way = Wire(), ResponseStream(1)
        writing = asyncio.ensure_future(way.respond(wire.send))
        await asyncio.sleep(0)
        way.disconnect()
        await writing
        way.push(ANSWER)
        assert (wire.status, way.has_room) == (0, False)

    run(main)


@requirement("mcp:http-limits")
def test_an_endless_stream_forgets_the_oldest_and_goes_on_elsewhere(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_app, "MAX_WAITING", 3)

    async def main() -> None:
        way = ResponseStream(0, lossy=True)
        for number in range(5):
            way.push(b'{"method":"m%d"}' % number)
        wire, after = Wire(), way.reopen()
        writing = asyncio.ensure_future(after.stream(wire.send))
        await until(lambda: len(wire.events) == 3)
        after.end()
        await writing
        assert [event["method"] for event in wire.events] == ["m2", "m3", "m4"]

    run(main)


@requirement("mcp:http-limits")
def test_unread_messages_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_app, "MAX_UNREAD", 100)

    async def main() -> None:
        way = ResponseStream(0, lossy=True)
        for number in range(5):
            way.push(b'{"method":"m%d","params":"%b"}' % (number, b"x" * 60))
        assert [frame[:14] for frame in way._queue] == [b'{"method":"m3"', b'{"method":"m4"']

    asyncio.run(main())


@requirement("mcp:http-limits")
def test_there_is_no_room_for_progress_when_too_much_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_app, "MAX_UNREAD", 10)

    async def main() -> None:
        way = ResponseStream(2)
        assert way.has_room
        way.push(NOTE)
        assert not way.has_room

    asyncio.run(main())


def test_refusals_and_acceptances_are_whole_responses(run: Run) -> None:
    async def main() -> None:
        wire = Wire()
        await refuse(wire.send, Refusal(401, "no", headers=(("www-authenticate", "Bearer"),), data=[1]), 7)
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


OURS = "io.modelcontextprotocol/"


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def line(**message: Any) -> bytes:
    return json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n"


HELLO = line(id=0, method="initialize", params={"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {}})


def waiting(way: ResponseStream) -> list[Any]:
    return [json.loads(frame) for frame in way._queue]


@requirement("mcp:http-sessions")
def test_what_is_about_a_request_goes_back_with_it_and_the_rest_waits_for_a_reader(run: Run, tmp_path: Path) -> None:
    write_plugin(tmp_path / "plugins")

    async def main() -> None:
        async with running_server(tmp_path / "plugins") as (_, server):
            session = _begun(HttpClients(server))
            mine = ResponseStream(1)
            session.connection.receive(line(id=1, method="ping"), mine)
            assert [message["id"] for message in waiting(mine)] == [1]
            gone = ResponseStream(1)
            gone.disconnect()
            session.connection.receive(line(id=2, method="ping"), gone)
            session.connection.notify(OfferExports({"tools": []}))
            assert [message["method"] for message in waiting(session.mailbox)] == ["notifications/tools/list_changed"]
            assert waiting(session.reopen_mailbox()) == waiting(session.mailbox)

    run(main)


def _begun(clients: HttpClients) -> Session:
    session = clients.new_session()
    assert session is not None
    session.connection.receive(HELLO, ResponseStream(1))
    return session


@requirement("mcp:http-sessions")
def test_a_session_ends_when_it_was_idle_for_long(run: Run, tmp_path: Path) -> None:
    write_plugin(tmp_path / "plugins")

    async def main() -> None:
        async with running_server(tmp_path / "plugins") as (_, server):
            clock = Clock()
            clients = HttpClients(server, clock)
            idle, read, asking = _begun(clients), _begun(clients), _begun(clients)
            read.has_reader, asking.open = True, 1
            clock.now += http_app.IDLE_SECONDS
            assert clients.session(idle.id) is idle
            clock.now += http_app.IDLE_SECONDS + 1
            assert clients.session(idle.id) is None
            assert idle.connection.closed
            assert clients.session(read.id) is read
            assert clients.session(asking.id) is asking
            assert clients.session("made up") is None
            assert len({idle.id, read.id, asking.id}) == 3

    run(main)


@requirement("mcp:http-limits")
def test_a_new_session_takes_the_place_of_the_one_that_was_idle_for_longest(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_app, "MAX_SESSIONS", 2)
    write_plugin(tmp_path / "plugins")

    async def main() -> None:
        async with running_server(tmp_path / "plugins") as (_, server):
            clock = Clock()
            clients = HttpClients(server, clock)
            one, two = _begun(clients), _begun(clients)
            clock.now += 1
            assert clients.session(one.id) is one
            three = _begun(clients)
            assert clients.session(two.id) is None
            one.open = three.open = 1
            assert clients.new_session() is None
            clients.close()
            assert one.connection.closed and three.connection.closed

    run(main)


def asking(number: int, **more: Any) -> bytes:
    meta = {f"{OURS}protocolVersion": "2026-07-28", f"{OURS}clientCapabilities": {"elicitation": {}}}
    return line(id=number, method="tools/call", params={"arguments": {}, "_meta": meta, **more})


@requirement("mcp:http-limits", "mcp:serve-elicitation")
def test_requests_that_wait_for_their_client_are_kept_for_a_while_and_not_too_many(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_app, "MAX_PARKED", 1)

    async def main() -> None:
        async with running_server(
            declare(tmp_path / "plugins", one="modern", two="modern"), rule=listing.qualified_name
        ) as (
            _,
            server,
        ):
            clock = Clock()
            clients = HttpClients(server, clock)

            async def parked(number: int, tool: str) -> str:
                request = clients.request(None, ResponseStream(1))
                request.connection.receive(asking(number, name=tool))
                await until(lambda: request.state is not None)
                assert request.state is not None
                state = request.state
                clients.finished(request)
                return state

            one = await parked(1, "one__ask")
            result = {"q1": {"action": "accept", "content": {"name": "Ada"}}}
            again = ResponseStream(1)
            request = clients.request(one, again)
            request.connection.receive(asking(2, name="one__ask", inputResponses=result, requestState=one))
            await until(lambda: again.over)
            assert '"name": "Ada"' in waiting(again)[0]["result"]["content"][0]["text"]
            clients.finished(request)
            assert request.connection.closed
            first, second = await parked(3, "one__ask"), await parked(4, "two__ask")
            assert clients.request(first, ResponseStream(1)).connection.busy == 0
            kept = clients.request(second, ResponseStream(1))
            assert kept.connection.busy == 1
            kept.state = second
            clients.finished(kept)
            clock.now += ANSWER_SECONDS + 1
            clients.finished(clients.request(None, ResponseStream(1)))
            assert kept.connection.closed
            assert clients.request(second, ResponseStream(1)) is not kept

    run(main)


TOKEN = "0123456789abcdef"


class Client:
    """An HTTP client for MCP."""

    def __init__(self, http: httpx2.AsyncClient, url: str) -> None:
        self.http = http
        self.url = url
        self.headers = {
            "Authorization": f"Bearer {TOKEN}",
            "Accept": "application/json, text/event-stream",
            "Content-Type": "application/json",
        }

    async def post(self, message: Any, **headers: str) -> httpx2.Response:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return await self.http.post(self.url, content=json.dumps(message), headers={**self.headers, **named})

    async def begin(self, **capabilities: Any) -> None:
        """Start a session."""
        params = {"protocolVersion": "2025-11-25", "capabilities": capabilities, "clientInfo": {"name": "c"}}
        answer = await self.post({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params})
        assert answer.json()["result"]["protocolVersion"] == "2025-11-25"
        self.headers |= {"Mcp-Session-Id": answer.headers["mcp-session-id"], "MCP-Protocol-Version": "2025-11-25"}
        assert (await self.post({"jsonrpc": "2.0", "method": "notifications/initialized"})).status_code == 202

    async def modern(self, id: Any, method: str, **params: Any) -> httpx2.Response:
        message, headers = modern(id, method, **params)
        return await self.post(message, **headers)

    @asynccontextmanager
    async def stream(self, method: str, message: Any = None, **headers: str) -> AsyncIterator[Events]:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        body = None if message is None else json.dumps(message)
        async with self.http.stream(method, self.url, content=body, headers={**self.headers, **named}) as response:
            assert response.headers["content-type"] == "text/event-stream", await response.aread()
            yield Events(response)


class Events:
    """The messages of a stream."""

    def __init__(self, response: httpx2.Response) -> None:
        self._lines = response.aiter_lines()

    async def next(self) -> Any:
        async for line in self._lines:
            if line.startswith("data: "):
                return json.loads(line.removeprefix("data: "))
        return None


def modern(id: Any, method: str, elicitation: bool = False, **params: Any) -> tuple[dict[str, Any], dict[str, str]]:
    """Send a modern request with its headers."""
    meta = {
        f"{OURS}protocolVersion": "2026-07-28",
        f"{OURS}clientCapabilities": {"elicitation": {}} if elicitation else {},
        **params.pop("_meta", {}),
    }
    headers = {"MCP_Protocol_Version": "2026-07-28", "Mcp_Method": method}
    if "name" in params or "uri" in params:
        headers["Mcp_Name"] = params.get("name") or params["uri"]
    return {"jsonrpc": "2.0", "id": id, "method": method, "params": {**params, "_meta": meta}}, headers


@asynccontextmanager
async def served(tmp_path: Path, inner: str = "handshake") -> AsyncIterator[Client]:
    """The `everything` server behind a port."""
    async with (
        running_server(declare(tmp_path / "plugins", all=inner)) as (_, server),
        listening(server, TOKEN) as (url, _),
        httpx2.AsyncClient(timeout=PATIENCE) as http,
    ):
        yield Client(http, url)


def call(id: Any, name: str, arguments: Any = None, token: Any = None) -> dict[str, Any]:
    meta = {} if token is None else {"_meta": {"progressToken": token}}
    return {
        "jsonrpc": "2.0",
        "id": id,
        "method": "tools/call",
        "params": {"name": name, "arguments": arguments or {}, **meta},
    }


@requirement("mcp:http-sessions", "mcp:http-streams")
def test_a_session_with_a_handshake(run: Run, tmp_path: Path) -> None:
    async def main() -> None:
        async with served(tmp_path) as client:
            assert (await client.post(call(1, "echo"))).status_code == 400
            await client.begin(elicitation={})
            answer = await client.post(call(1, "echo", {"text": "tea"}))
            assert (answer.status_code, answer.headers["content-type"]) == (200, "application/json")
            assert answer.json()["result"]["content"][0]["text"] == '{"text": "tea"}'
            unknown = await client.post({"jsonrpc": "2.0", "id": 2, "method": "nonsense"})
            assert (unknown.status_code, unknown.json()["error"]["code"]) == (200, -32601)
            async with client.stream("POST", call(3, "report", token=9)) as events:
                said = [await events.next() for _ in range(3)]
                assert [each.get("method", "answer") for each in said] == ["notifications/progress"] * 2 + ["answer"]
                assert await events.next() is None
            async with client.stream("POST", call(4, "ask")) as events:
                question = await events.next()
                assert question["method"] == "elicitation/create"
                ada = {"action": "accept", "content": {"name": "Ada"}}
                reply = await client.post({"jsonrpc": "2.0", "id": question["id"], "result": ada})
                assert reply.status_code == 202
                assert "Ada" in (await events.next())["result"]["content"][0]["text"]
            batch = [call(5, "echo", {"text": "a"}), {"jsonrpc": "2.0", "id": 6, "method": "ping"}]
            async with client.stream("POST", batch) as events:
                assert {(await events.next())["id"], (await events.next())["id"]} == {5, 6}

    run(main)


@requirement("mcp:http-limits")
def test_requests_with_an_invalid_id_are_refused_and_notifications_accepted(run: Run, tmp_path: Path) -> None:
    async def main() -> None:
        async with served(tmp_path) as client:
            await client.begin()
            odd: list[tuple[Any, int]] = [({}, 400), (True, 400), (None, 200), (1.5, 200)]
            for id, status in odd:
                ping = await client.post({"jsonrpc": "2.0", "id": id, "method": "ping"})
                found = await client.modern(id, "server/discover")
                assert [ping.status_code, found.status_code] == [status, status]
            told = {"jsonrpc": "2.0", "id": None, "method": "notifications/initialized"}
            assert (await client.post(told)).status_code == 202
            message, headers = modern(None, "notifications/cancelled")
            assert (await client.post(message, **headers)).status_code == 202

    run(main)


@requirement("mcp:http-sessions", "mcp:serve-list-changed", "mcp:serve-cancel")
def test_the_rest_of_a_session_its_stream_its_cancellations_and_its_end(run: Run, tmp_path: Path) -> None:
    async def main() -> None:
        async with served(tmp_path) as client:
            assert (await client.http.get(client.url, headers=client.headers)).status_code == 405
            await client.begin()
            async with client.stream("GET") as events:
                twice = await client.http.get(client.url, headers=client.headers)
                assert twice.status_code == 409
                await client.post(call(1, "grow"))
                assert (await events.next())["method"] == "notifications/tools/list_changed"
            async with client.stream("POST", call(2, "wait", token=1)) as events:
                assert (await events.next())["method"] == "notifications/progress"
                await client.post({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 2}})
                assert await events.next() is None
            number = 3
            while (await client.post(call(number, "cancellations"))).json()["result"]["content"][0]["text"] == "0":
                number += 1
            wrong = await client.post(call(99, "echo"), **{"Mcp_Session_Id": "made-up"})
            assert (wrong.status_code, wrong.json()["id"]) == (404, 99)
            assert (await client.http.delete(client.url, headers=client.headers)).status_code == 204
            assert (await client.post(call(100, "echo"))).status_code == 404
            assert (await client.http.delete(client.url, headers=client.headers)).status_code == 404

    run(main)


@requirement("mcp:http-modern", "mcp:http-statuses", "mcp:http-headers")
def test_modern_requests_are_independent(run: Run, tmp_path: Path) -> None:
    async def main() -> None:
        async with served(tmp_path) as client:
            found = await client.modern("d", "server/discover")
            assert found.json()["result"]["supportedVersions"] == ["2026-07-28"]
            assert "mcp-session-id" not in found.headers
            answer = await client.modern(1, "tools/call", name="echo", arguments={"text": "tea"})
            assert answer.json()["result"]["resultType"] == "complete"
            unknown = await client.modern(2, "nonsense")
            assert (unknown.status_code, unknown.json()["error"]["code"]) == (404, -32601)
            message, headers = modern(3, "tools/list")
            mismatch = await client.post(message, **{**headers, "Mcp_Method": "tools/call"})
            assert (mismatch.status_code, mismatch.json()["error"]["code"]) == (400, -32020)
            assert mismatch.json()["id"] == 3
            old = await client.post(message, **{**headers, "MCP_Protocol_Version": "1900-01-01"})
            assert (old.status_code, old.json()["error"]["code"]) == (400, -32022)
            note = {"jsonrpc": "2.0", "method": "notifications/x"}
            assert (await client.post(note, MCP_Protocol_Version="2026-07-28")).status_code == 202
            message, headers = modern(4, "tools/call", name="report", arguments={}, _meta={"progressToken": "p"})
            async with client.stream("POST", message, **headers) as events:
                said = [await events.next() for _ in range(3)]
                assert [each.get("method", "answer") for each in said] == ["notifications/progress"] * 2 + ["answer"]

    run(main)


@requirement("mcp:http-modern", "mcp:serve-elicitation", "mcp:serve-cancel", "mcp:serve-resource-updates")
def test_modern_questions_subscriptions_and_disconnects(run: Run, tmp_path: Path) -> None:
    async def main() -> None:
        async with served(tmp_path, "modern") as client:
            asked = (await client.modern(1, "tools/call", name="ask", arguments={}, elicitation=True)).json()["result"]
            assert asked["resultType"] == "input_required"
            answers = {key: {"action": "accept", "content": {"name": "Ada"}} for key in asked["inputRequests"]}
            again = {"inputResponses": answers, "requestState": asked["requestState"]}
            told = await client.modern(2, "tools/call", name="ask", arguments={}, elicitation=True, **again)
            assert "Ada" in told.json()["result"]["content"][0]["text"]
            stale = await client.modern(3, "tools/call", name="ask", arguments={}, elicitation=True, **again)
            assert stale.json()["error"]["code"] == -32602
            wanted = {"toolsListChanged": True, "resourceSubscriptions": ["memo://one"]}
            message, headers = modern(4, "subscriptions/listen", notifications=wanted)
            async with client.stream("POST", message, **headers) as events:
                assert (await events.next())["method"] == "notifications/subscriptions/acknowledged"
                touching = asyncio.ensure_future(_touch(client))
                assert (await events.next())["params"]["uri"] == "memo://one"
                touching.cancel()
            message, headers = modern(5, "tools/call", name="wait", arguments={}, _meta={"progressToken": 1})
            async with client.stream("POST", message, **headers) as events:
                await events.next()
            while (
                "0"
                in (await client.modern(6, "tools/call", name="cancellations", arguments={})).text.partition("text")[2][
                    :20
                ]
            ):
                pass

    run(main)


async def _touch(client: Client) -> None:
    while True:
        await client.modern("t", "tools/call", name="touch", arguments={"uri": "memo://one"})


@requirement("mcp:http-limits")
@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"{", 400),
        (b"7", 400),
        (b'{"jsonrpc":"2.0","id":NaN}', 400),
        (b'{"jsonrpc":"2.0","id":{},"method":"ping"}', 400),
        (b'{"jsonrpc":"2.0","method":"initialize"}', 400),
        (b" " * (16 * 1024 * 1024 + 1), 413),
        (b'{"id":"a","method":"ping","params":{"x":[%b]}}' % b",     ".join([b"1e15"] * 1_000_000), 413),
    ],
)
def test_bodies_without_a_possible_answer_are_refused(run: Run, tmp_path: Path, body: bytes, status: int) -> None:
    write_plugin(tmp_path / "plugins")

    async def main() -> None:
        async with (
            running_server(tmp_path / "plugins") as (_, server),
            listening(server, TOKEN) as (url, _),
            httpx2.AsyncClient() as http,
        ):
            answer = await http.post(url, content=body, headers=Client(http, url).headers)
            assert answer.status_code == status
            assert answer.json()["error"]["message"]

    run(main)


@requirement("mcp:http-limits")
def test_slow_bodies_and_too_many_requests_are_refused(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_app, "BODY_SECONDS", 0.01)
    write_plugin(tmp_path / "plugins")
    headers = [(b"host", b"localhost"), (b"content-type", b"application/json")]
    scope = {"type": "http", "method": "POST", "headers": headers}

    async def main() -> None:
        async with running_server(tmp_path / "plugins") as (_, server):
            app = McpApp(server, Guard(None))
            sent: list[Any] = []

            async def send(message: Any) -> None:
                sent.append(message)

            async def never() -> Any:
                await asyncio.Event().wait()

            await app(scope, never, send)
            assert sent[0]["status"] == 408
            monkeypatch.setattr(http_app, "BODY_SECONDS", 60.0)
            monkeypatch.setattr(http_app, "MAX_REQUESTS", 1)
            first = asyncio.ensure_future(app(scope, never, send))
            await until(lambda: app._requests == 1)
            await app(scope, never, send)
            assert sent[2]["status"] == 503
            first.cancel()
            await asyncio.wait({first})
            with pytest.raises(ValueError, match="speaks HTTP"):
                await app({"type": "websocket"}, never, send)
            app.close()

    run(main)
