"""`Bridge` between a host in memory and scripted servers: bounds, resumption, order, redaction, failures."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest

from plugbay.contracts.mcp.messages import FAILURE, MAX_LINE
from plugbay.contracts.mcp.remote import read_url
from plugbay.mcp_remote import bridge as bridges
from plugbay.mcp_remote.bridge import Bridge
from plugbay.mcp_remote.http import HttpClient
from plugbay.model.errors import Code
from plugbay.model.fetch import Url
from tests.support.http_servers import Answer, response, scripted_server
from tests.support.loops import Run
from tests.support.patience import until
from tests.support.requirements import requirement

JSON = "application/json"
STREAM = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n"
WELCOME = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": {"name": "s", "version": "1"}}


def result(id: Any, **value: Any) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": id, "result": value}).encode()


class Talk:
    """The host's end of a bridge."""

    def __init__(self, bridge: Bridge, written: list[dict[str, Any]]) -> None:
        self.bridge = bridge
        self.written = written

    def send(self, method: str, id: Any = None, **params: Any) -> None:
        message = {"jsonrpc": "2.0", "method": method, "params": params, **({} if id is None else {"id": id})}
        self.bridge.take(json.dumps(message).encode() + b"\n")

    async def ask(self, method: str, id: Any = 1, **params: Any) -> dict[str, Any]:
        """Send a request and wait for its answer."""
        self.send(method, id, **params)
        await until(lambda: any(message.get("id") == id for message in self.written))
        return next(message for message in self.written if message.get("id") == id)


@asynccontextmanager
async def talking(answer: Answer, headers: Mapping[str, str] | None = None) -> AsyncIterator[Talk]:
    written: list[dict[str, Any]] = []

    async def send(line: bytes) -> None:
        assert line.count(b"\n") == 1 and line.endswith(b"\n")
        written.append(json.loads(line))

    async with scripted_server(answer) as text:
        url, http = read_url(text), HttpClient({})
        assert isinstance(url, Url)
        bridge = Bridge("far", url, headers or {}, http, send)
        try:
            yield Talk(bridge, written)
        finally:
            await bridge.close()
            await http.aclose()


def always(raw: bytes) -> Answer:
    async def answer(writer: asyncio.StreamWriter, *_: object) -> None:
        writer.write(raw)

    return answer


def failure_in(message: dict[str, Any]) -> dict[str, Any]:
    failure: dict[str, Any] = message["error"]["data"][FAILURE]
    return failure


@requirement("mcp:remote-errors", "mcp:remote-bounds")
@pytest.mark.parametrize(
    ("raw", "code", "words"),
    [
        (response("200 OK", b"<html>", content_type="text/html"), Code.MALFORMED_RESPONSE, "a web page"),
        (response("200 OK", b"{}"), Code.MALFORMED_RESPONSE, "no content type"),
        (response("200 OK", b"{", content_type=JSON), Code.MALFORMED_RESPONSE, "cannot be read"),
        (response("200 OK", b"[1]", content_type=JSON), Code.MALFORMED_RESPONSE, "not an object"),
        (response("200 OK", result(9), content_type=JSON), Code.MALFORMED_RESPONSE, "not the answer"),
        (response("202 Accepted"), Code.MALFORMED_RESPONSE, "202"),
        (response("200 OK", b"x" * (MAX_LINE + 1), content_type=JSON), Code.FRAME_TOO_LARGE, "bytes"),
        (STREAM + b"data: " + b"x" * (MAX_LINE + 1), Code.FRAME_TOO_LARGE, "event"),
        (STREAM + b"data: {}\n\n", Code.UNAVAILABLE, "ended before the answer"),
        (response("400 Bad", b"you are wrong"), Code.INVALID_INPUT, "status 400: you are wrong"),
        (response("401 No"), Code.CAPABILITY_NOT_ALLOWED, "plugbay mcp login far"),
        (response("403 No"), Code.CAPABILITY_NOT_ALLOWED, "refused access"),
        (response("404 Gone", b"<html>"), Code.NOT_FOUND, "status 404"),
        (response("418 Tea"), Code.PLUGIN_ERROR, "status 418"),
        (response("429 Slow"), Code.OVERLOADED, "status 429"),
        (response("500 Oh"), Code.UNAVAILABLE, "status 500"),
        (response("504 Late"), Code.TIMEOUT, "status 504"),
    ],
)
def test_a_bad_response_is_the_failure_of_its_request_alone(run: Run, raw: bytes, code: str, words: str) -> None:
    async def answer(writer: asyncio.StreamWriter, line: str, headers: Any, body: bytes) -> None:
        good = json.loads(body)["id"] == 2
        writer.write(response("200 OK", result(2), content_type=JSON) if good else raw)

    async def main() -> None:
        async with talking(answer) as talk:
            failure = failure_in(await talk.ask("tools/list"))
            assert failure["code"] == code and words in failure["message"]
            assert (await talk.ask("tools/list", 2))["result"] == {}

    run(main)


@requirement("mcp:remote-errors")
def test_the_error_of_the_server_in_an_http_error_is_passed_on(run: Run) -> None:
    error = {"code": -32022, "message": "no such revision", "data": {"supported": ["2026-07-28"]}}
    body = json.dumps({"jsonrpc": "2.0", "id": None, "error": error}).encode()

    async def main() -> None:
        async with talking(always(response("400 Bad", body, content_type=JSON))) as talk:
            assert (await talk.ask("initialize"))["error"] == error

    run(main)


@requirement("mcp:remote-scopes")
def test_a_missing_scope_is_named_with_the_command(run: Run) -> None:
    challenge = 'Bearer error="insufficient_scope", scope="files:read files:write"'

    async def main() -> None:
        async with talking(always(response("403 No", www_authenticate=challenge))) as talk:
            failure = failure_in(await talk.ask("tools/list"))
            assert failure["detail"]["hint"] == 'plugbay mcp login far --scope "files:read files:write"'

    run(main)


@requirement("mcp:remote-headers")
def test_a_credential_that_the_server_repeats_is_hidden(run: Run) -> None:
    headers = {"Authorization": "Bearer sesame-sesame", "X-Region": "northern"}
    said = b"sesame-sesame in northern"

    async def main() -> None:
        async with talking(always(response("400 Bad", said)), headers) as talk:
            message = failure_in(await talk.ask("tools/list"))["message"]
            assert message.endswith("*** in northern")

    run(main)


@requirement("mcp:remote-resume")
def test_a_broken_stream_is_continued_after_its_last_event(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bridges, "FIRST_DELAY", 0.01)
    gets: list[str] = []

    async def answer(writer: asyncio.StreamWriter, line: str, headers: Any, body: bytes) -> None:
        progress = b'{"jsonrpc":"2.0","method":"notifications/progress","params":{}}'
        if line.startswith("POST"):
            writer.write(STREAM + b"retry: 5\nid: a\ndata: " + progress + b"\n\n")
            return
        gets.append(headers["last-event-id"])
        if len(gets) == 1:
            writer.write(STREAM + b"id: b\ndata: " + progress + b"\n\n")
        else:
            writer.write(STREAM + b"id: c\ndata: " + result(1, done=True) + b"\n\n")

    async def main() -> None:
        async with talking(answer) as talk:
            assert (await talk.ask("tools/call"))["result"] == {"done": True}
            assert gets == ["a", "b"]
            assert len(talk.written) == 3

    run(main)


@requirement("mcp:remote-resume")
def test_a_stream_that_is_never_continued_fails_the_call(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bridges, "FIRST_DELAY", 0.01)

    async def answer(writer: asyncio.StreamWriter, line: str, headers: Any, body: bytes) -> None:
        writer.write(STREAM + b"id: a\n\n" + (b"data: {}\n\n" if line.startswith("POST") else b""))

    async def main() -> None:
        async with talking(answer) as talk:
            assert failure_in(await talk.ask("tools/call"))["code"] == Code.UNAVAILABLE

    run(main)


def server(seen: list[tuple[str, str]], respond: Callable[[str], bytes | None] = lambda method: None) -> Answer:
    """A server of the handshake era with a session, which notes (HTTP method, JSON-RPC method)."""

    async def answer(writer: asyncio.StreamWriter, line: str, headers: Any, body: bytes) -> None:
        message = json.loads(body) if body else {}
        method = message.get("method", "")
        seen.append((line.split()[0], method))
        raw = respond(method)
        if raw is None and method == "initialize":
            raw = response("200 OK", result(message["id"], **WELCOME), content_type=JSON, mcp_session_id="s1")
        elif raw is None and line.startswith("GET"):
            raw = response("405 None")
        elif raw is None:
            assert headers["mcp-session-id"] == "s1"
            assert headers["mcp-protocol-version"] == "2025-11-25"
            known = "id" in message
            raw = response("200 OK", result(message["id"]), content_type=JSON) if known else response("202 Accepted")
        if method == "notifications/initialized":
            await asyncio.sleep(0.1)
        writer.write(raw)

    return answer


@requirement("mcp:remote-transport")
def test_a_request_waits_for_the_notification_before_it_and_the_session_is_ended(run: Run) -> None:
    seen: list[tuple[str, str]] = []

    async def main() -> None:
        async with talking(server(seen)) as talk:
            await talk.ask("initialize")
            talk.send("notifications/initialized")
            await talk.ask("tools/list", 2)
        posts = [method for verb, method in seen if verb == "POST"]
        assert posts == ["initialize", "notifications/initialized", "tools/list"]
        assert seen[-1] == ("DELETE", "") and ("GET", "") in seen

    run(main)


@requirement("mcp:remote-session")
def test_a_session_with_state_of_the_host_is_not_replaced(run: Run) -> None:
    seen: list[tuple[str, str]] = []
    gone = False

    def respond(method: str) -> bytes | None:
        return response("404 Gone") if gone else None

    async def main() -> None:
        nonlocal gone
        async with talking(server(seen, respond)) as talk:
            await talk.ask("initialize")
            await talk.ask("resources/subscribe", 2, uri="memo://one")
            gone = True
            failure = failure_in(await talk.ask("tools/call", 3))
            assert failure["code"] == Code.UNAVAILABLE and failure["retryable"] is True
            assert talk.bridge.gone.is_set()
            assert [method for _, method in seen].count("initialize") == 1

    run(main)


@requirement("mcp:remote-cancel")
def test_a_cancelled_request_has_no_answer(run: Run) -> None:
    seen: list[tuple[str, str]] = []
    closed = asyncio.Event()

    async def answer(writer: asyncio.StreamWriter, line: str, headers: Any, body: bytes) -> None:
        seen.append((line.split()[0], json.loads(body)["method"]))
        writer.write(STREAM)
        await writer.drain()
        while not writer.is_closing():
            writer.write(b": still here\n\n")
            await writer.drain()
            await asyncio.sleep(0.01)

    async def main() -> None:
        async with talking(answer) as talk:
            talk.send("tools/call", 1, _meta={"io.modelcontextprotocol/protocolVersion": "2026-07-28"})
            await until(lambda: bool(seen))
            talk.send("notifications/cancelled", requestId=1)
            await asyncio.sleep(0.2)
            assert talk.written == [] and len(seen) == 1
        closed.set()

    run(main)
