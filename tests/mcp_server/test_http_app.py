"""Streamable HTTP over a real port, in both eras, said by hand."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

from plugbay.mcp_server import http_app
from plugbay.mcp_server.http_app import McpApp
from plugbay.mcp_server.http_rules import Guard
from tests.mcp_server.houses import declare, house
from tests.mcp_server.test_http_server import listening
from tests.support.loops import Run
from tests.support.patience import PATIENCE, until
from tests.support.plugins import write_plugin
from tests.support.requirements import requirement

OURS = "io.modelcontextprotocol/"
TOKEN = "0123456789abcdef"


class Client:
    """Says HTTP, and reads what comes back."""

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
        """Open a session."""
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
    """The messages of a stream, one after the other."""

    def __init__(self, response: httpx2.Response) -> None:
        self._lines = response.aiter_lines()

    async def next(self) -> Any:
        async for line in self._lines:
            if line.startswith("data: "):
                return json.loads(line.removeprefix("data: "))
        return None


def modern(id: Any, method: str, elicitation: bool = False, **params: Any) -> tuple[dict[str, Any], dict[str, str]]:
    """A request of the modern era, and its headers."""
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
    """A server that uses everything, behind a port."""
    async with (
        house(declare(tmp_path / "plugins", all=inner)) as (_, bridge),
        listening(bridge, TOKEN) as (url, _),
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
def test_a_session_of_the_handshake_era(run: Run, tmp_path: Path) -> None:
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
def test_nobody_waits_for_an_answer_that_will_never_come(run: Run, tmp_path: Path) -> None:
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
def test_requests_of_the_modern_era_stand_alone(run: Run, tmp_path: Path) -> None:
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
def test_questions_subscriptions_and_leaving_in_the_modern_era(run: Run, tmp_path: Path) -> None:
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
def test_bodies_that_nobody_could_answer_are_refused(run: Run, tmp_path: Path, body: bytes, status: int) -> None:
    write_plugin(tmp_path / "plugins")

    async def main() -> None:
        async with (
            house(tmp_path / "plugins") as (_, bridge),
            listening(bridge, TOKEN) as (url, _),
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
        async with house(tmp_path / "plugins") as (_, bridge):
            app = McpApp(bridge, Guard(None))
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
