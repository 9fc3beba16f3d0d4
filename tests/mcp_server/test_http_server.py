"""HTTP limits (slow clients, many connections, ambiguous requests) and the server, with real sockets."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
import uvicorn
from fastapi import FastAPI

from plugbay.mcp_server.http_server import MAX_AHEAD, BoundedHttp, HttpServer, NotAllowed
from plugbay.mcp_server.server import McpServer
from plugbay.server.server import _uvicorn_config, bind_socket
from tests.mcp_server.running_servers import running_server
from tests.support.loops import Run
from tests.support.patience import PATIENCE, until
from tests.support.plugins import write_plugin
from tests.support.requirements import requirement

REQUEST = b"GET / HTTP/1.1\r\nhost: x\r\n\r\n"
UPLOAD = b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 4\r\n\r\n"


SMUGGLED = b"GET /smuggled HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n"


def post(*headers: bytes, body: bytes = b"", end: bytes = b"\r\n") -> bytes:
    return end.join([b"POST / HTTP/1.1", b"host: x", *headers, b"", b""]) + body


CHUNKED, CHUNKS = b"transfer-encoding: chunked", b"0\r\n\r\n"

UNCLEAR = {
    "chunks and a length": post(b"content-length: 5", CHUNKED, body=CHUNKS),
    "a length and chunks": post(CHUNKED, b"content-length: 5", body=CHUNKS),
    "two equal lengths": post(b"content-length: 2", b"content-length: 2", body=b"{}"),
    "two lengths": post(b"content-length: 2", b"Content-Length: 3", body=b"{} "),
    "a list of lengths": post(b"content-length: 2, 2", body=b"{}"),
    "a length with a sign": post(b"content-length: +2", body=b"{}"),
    "a negative length": post(b"content-length: -2", body=b"{}"),
    "a length in hex": post(b"content-length: 0x2", body=b"{}"),
    "a length with a space": post(b"content-length : 2", body=b"{}"),
    "an unknown coding": post(b"transfer-encoding: xchunked", body=CHUNKS),
    "a coding before chunked": post(b"transfer-encoding: gzip, chunked", body=CHUNKS),
    "chunked twice": post(CHUNKED, CHUNKED, body=CHUNKS),
    "a folded coding": post(b"transfer-encoding:\r\n chunked", body=CHUNKS),
    "a folded header": post(b"x-note: a\r\n\tb", b"content-length: 2", body=b"{}"),
    "a bare LF": post(b"x-note: a\ncontent-length: 2", body=b"{}"),
    "only bare LF": post(b"content-length: 2", body=b"{}", end=b"\n"),
    "a bare CR": post(b"x-note: a\rcontent-length: 2", b"content-length: 0"),
    "a NUL": post(b"x-note: a\0", b"content-length: 0"),
    "a chunk without a size": post(CHUNKED, body=b"x\r\n" + CHUNKS),
    "a chunk with a sign": post(CHUNKED, body=b"+0\r\n\r\n"),
    "a chunk that ends late": post(CHUNKED, body=b"2\r\n{}}\r\n" + CHUNKS),
    "a chunk size with a bare LF": post(CHUNKED, body=b"0\n\r\n"),
    "trailers with a bare LF": post(CHUNKED, body=b"0\r\n\n"),
    "a line that is not a request": b"GET /\r\nhost: x\r\n\r\n",
    "no host": b"GET / HTTP/1.1\r\n\r\n",
    "two hosts": b"GET / HTTP/1.1\r\nhost: x\r\nhost: y\r\n\r\n",
    "chunks of HTTP/1.0": b"POST / HTTP/1.0\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
    "another version": b"GET / HTTP/2.0\r\nhost: x\r\n\r\n",
    "a fragment": b"GET /#a HTTP/1.1\r\nhost: x\r\n\r\n",
    "a tunnel": b"CONNECT x:80 HTTP/1.1\r\nhost: x\r\n\r\n",
}
"""Requests that a proxy may read differently, or that are invalid."""


class Reading:
    """An application that reads each body and records the paths."""

    def __init__(self) -> None:
        self.paths: list[str] = []
        self.headers: list[list[tuple[bytes, bytes]]] = []
        self.bodies: list[bytes] = []

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.paths.append(scope["path"])
        self.headers.append(scope["headers"])
        body, more = b"", True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                return
            body, more = body + message["body"], message["more_body"]
        self.bodies.append(body)
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
        await send({"type": "http.response.body", "body": b"ok"})


class Waiting:
    """An application that answers when the test allows it."""

    def __init__(self) -> None:
        self.answers = asyncio.Event()
        self.answers.set()
        self.asked = 0

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.asked += 1
        await self.answers.wait()
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
        await send({"type": "http.response.body", "body": b"ok"})


@asynccontextmanager
async def serving(app: Any) -> AsyncIterator[int]:
    config = _uvicorn_config(FastAPI())
    config.app = app
    server = uvicorn.Server(config)
    server.capture_signals = contextlib.nullcontext  # type: ignore[method-assign, assignment]
    with contextlib.closing(bind_socket("127.0.0.1", 0)) as listener:
        running = asyncio.ensure_future(server.serve(sockets=[listener]))
        await until(lambda: server.started or running.done())
        try:
            yield listener.getsockname()[1]
        finally:
            server.should_exit = True
            await running


async def came_to(port: int, *pieces: bytes) -> bytes:
    """The response to a client that sends only this and then waits."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
        return await reader.read()
    finally:
        writer.close()


async def answer(reader: asyncio.StreamReader) -> bytes:
    return await reader.readuntil(b"ok")


@pytest.mark.parametrize("sent", [b"", b"G", REQUEST[:-1]])
def test_a_head_that_does_not_come_is_not_waited_for(sent: bytes, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(BoundedHttp, "head_seconds", 0.2)

    async def main() -> None:
        app = Waiting()
        async with serving(app) as port:
            assert (await came_to(port, sent)).startswith(b"HTTP/1.1 408 ")
            assert app.asked == 0

    run(main)


def test_a_head_that_comes_a_byte_at_a_time_gains_no_time_by_that(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(BoundedHttp, "head_seconds", 0.3)

    async def main() -> None:
        async with serving(Waiting()) as port:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            heard = asyncio.ensure_future(asyncio.gather(reader.read(), return_exceptions=True))
            writer.write(b"GET / HTTP/1.1\r\nx-note: ")
            while not heard.done():
                writer.write(b"x")
                await asyncio.wait({heard}, timeout=0.01)
            writer.close()
            (end,) = heard.result()  # a byte that crosses the refusal resets the connection
            assert isinstance(end, ConnectionError) or (isinstance(end, bytes) and end.startswith(b"HTTP/1.1 408 "))

    run(main)


def test_a_body_that_does_not_come_is_not_waited_for_answered_or_not(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(BoundedHttp, "body_seconds", 0.2)

    async def main() -> None:
        app = Waiting()
        async with serving(app) as port:
            assert b"200 OK" in await came_to(port, UPLOAD, b"12"), "it had its answer, and the rest is waited for"
            app.answers.clear()
            assert (await came_to(port, UPLOAD, b"12")).startswith(b"HTTP/1.1 408 ")
            app.answers.set()

    run(main)


def test_a_body_that_moves_has_all_the_time_it_takes(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(BoundedHttp, "head_seconds", 0.4)
    monkeypatch.setattr(BoundedHttp, "body_seconds", 1.0)

    async def main() -> None:
        app = Waiting()
        async with serving(app) as port:
            app.answers.clear()
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(UPLOAD)
            for piece in b"1234":
                assert (await came_to(port)).startswith(b"HTTP/1.1 408 "), "a clock of 0.4 s"
                writer.write(bytes([piece]))
            app.answers.set()
            assert b"200 OK" in await answer(reader), "1.6 s, and never a second of silence"
            writer.close()

    run(main)


def test_a_connection_that_waits_for_an_answer_or_a_next_request_stays_open(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(BoundedHttp, "head_seconds", 0.2)
    monkeypatch.setattr(BoundedHttp, "body_seconds", 0.2)

    async def main() -> None:
        app = Waiting()
        async with serving(app) as port:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            app.answers.clear()
            writer.write(UPLOAD + b"1234")
            assert (await came_to(port)).startswith(b"HTTP/1.1 408 "), "longer than a head may take"
            app.answers.set()
            await answer(reader)
            for _ in range(3):
                assert (await came_to(port)).startswith(b"HTTP/1.1 408 "), "the rest between two requests"
                writer.write(REQUEST)
                await answer(reader)
            writer.write(b"GET / HT")
            assert (await reader.read()).startswith(b"HTTP/1.1 408 "), "a further head has no more time than the first"
            writer.close()

    run(main)


def test_too_many_connections_cost_the_longest_idle_one_its_place_and_never_one_that_is_served(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(BoundedHttp, "max_connections", 3)

    async def main() -> None:
        app = Waiting()
        async with serving(app) as port:
            idle = [await asyncio.open_connection("127.0.0.1", port) for _ in range(3)]
            app.answers.clear()
            busy = [await asyncio.open_connection("127.0.0.1", port) for _ in range(3)]
            for _, writer in busy:
                writer.write(REQUEST)
            for reader, writer in idle:
                assert (await reader.read()).startswith(b"HTTP/1.1 503 ")
                writer.close()
            await until(lambda: app.asked == 3)
            assert (await came_to(port)).startswith(b"HTTP/1.1 503 "), "nobody can make room"
            app.answers.set()
            for reader, writer in busy:
                await answer(reader)
                writer.close()

    run(main)


def test_requests_that_follow_each_other_on_one_connection_are_served(run: Run) -> None:
    async def main() -> None:
        app = Reading()
        async with serving(app) as port:
            first = post(CHUNKED, body=b"2\r\n{}\r\n0\r\nx-sum: 1\r\n\r\n")
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(first + post(b"content-length: 2", body=b"{}") + SMUGGLED)
            assert [b"200 OK" in await answer(reader) for _ in range(3)] == [True] * 3
            writer.close()
        assert app.paths == ["/", "/", "/smuggled"] and app.bodies == [b"{}", b"{}", b""]
        assert app.headers[0] == [(b"host", b"x"), (b"transfer-encoding", b"chunked")], "trailers are no headers"

    run(main)


@pytest.mark.parametrize("broken", [b"GET / HT\0P", post(CHUNKED, CHUNKED), REQUEST * 40])
def test_a_request_that_was_complete_is_answered_whatever_comes_after_it(run: Run, broken: bytes) -> None:
    async def main() -> None:
        app = Waiting()
        async with serving(app) as port:
            app.answers.clear()
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(REQUEST + broken + SMUGGLED)
            await until(lambda: app.asked == 1)
            app.answers.set()
            said = await reader.read()
            writer.close()
        assert said.startswith(b"HTTP/1.1 200 OK") and b"HTTP/1.1 4" not in said
        assert said.count(b"HTTP/1.1") == app.asked <= MAX_AHEAD + 1

    run(main)


def test_a_request_for_another_protocol_is_answered_in_this_one(run: Run) -> None:
    async def main() -> None:
        app = Reading()
        upgrade = (b"connection: Upgrade, HTTP2-Settings", b"upgrade: h2c", b"http2-settings: AAM")
        async with serving(app) as port:
            for request in (
                post(*upgrade, b"content-length: 2", body=b"{}"),
                post(*upgrade, CHUNKED, body=b"2\r\n{}\r\n0\r\n\r\n"),
            ):
                for pieces in ([request + SMUGGLED], [request[:-3], request[-3:] + SMUGGLED]):
                    assert (await came_to(port, *pieces)).count(b"HTTP/1.1 200 OK") == 2
        assert (app.paths, app.bodies) == (["/", "/smuggled"] * 4, [b"{}", b""] * 4)
        assert app.headers[0][:2] == [(b"host", b"x"), (b"connection", b"HTTP2-Settings")]

    run(main)


def test_trailers_and_sizes_of_chunks_without_end_are_refused(run: Run) -> None:
    async def main() -> None:
        app, long = Reading(), b"a" * (600 << 10)  # more than one read
        async with serving(app) as port:
            for endless in (b"0\r\nx-note: " + long, b"2;" + long, b"0\r\n" + b"x: y\r\n" * (8 << 10)):
                said = await last_words(port, post(CHUNKED) + endless)
                assert said.startswith((b"HTTP/1.1 431 ", b"HTTP/1.1 400 ")), said
        assert app.bodies == []

    run(main)


def test_a_client_that_leaves_is_noticed_though_it_has_sent_a_further_request(run: Run) -> None:
    async def main() -> None:
        left = asyncio.Event()

        async def app(scope: Any, receive: Any, send: Any) -> None:
            while (await receive())["type"] != "http.disconnect":
                pass
            left.set()

        async with serving(app) as port:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(REQUEST + REQUEST)
            await writer.drain()
            writer.transport.abort()
            await asyncio.wait_for(left.wait(), PATIENCE)

    run(main)


def test_bytes_after_a_request_of_unclear_length_are_not_served(run: Run) -> None:
    async def main() -> None:
        app, wrong = Reading(), {}
        async with serving(app) as port:
            for name, request in UNCLEAR.items():
                app.paths.clear()
                said = await last_words(port, request + SMUGGLED)
                if not said.startswith(b"HTTP/1.1 400 ") or said.count(b"HTTP/1.1") > 1 or "/smuggled" in app.paths:
                    wrong[name] = said
        assert wrong == {} and app.bodies == []

    run(main)


@pytest.mark.parametrize("end", [b"", b"\r\n\r\n"])
@pytest.mark.parametrize("size", [17 << 10, 40 << 10, 100 << 10])
def test_a_head_that_is_too_large_is_refused_whether_it_ends_or_not(run: Run, size: int, end: bytes) -> None:
    async def main() -> None:
        app = Reading()
        head = b"GET / HTTP/1.1\r\nhost: x\r\nx-note: " + b"a" * size + end
        async with serving(app) as port:
            said = await last_words(port, head)
            assert said.startswith((b"HTTP/1.1 431 ", b"HTTP/1.1 400 (reset)")), said
            fits = b"GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\nx-note: " + b"a" * (15 << 10) + b"\r\n\r\n"
            assert b"200 OK" in await last_words(port, fits)
        assert app.paths == ["/"]

    run(main)


async def last_words(port: int, data: bytes) -> bytes:
    """The response; a server that closes before it has read everything may reset the connection."""
    try:
        return await came_to(port, data)
    except ConnectionError:
        return b"HTTP/1.1 400 (reset)"


def test_a_body_that_breaks_while_it_is_answered_ends_the_connection_without_a_second_answer(run: Run) -> None:
    async def main() -> None:
        app = Waiting()
        async with serving(app) as port:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(post(CHUNKED, body=b"2\r\n{}\r\n"))
            assert b"200 OK" in await answer(reader)
            writer.write(b"x\r\n\r\n" + SMUGGLED)
            assert await reader.read() == b""
            writer.close()
        assert app.asked == 1

    run(main)


@asynccontextmanager
async def listening(server: McpServer, token: str | None = None) -> AsyncIterator[tuple[str, str]]:
    """A running server: its address and token."""
    said: list[str] = []
    door = HttpServer("127.0.0.1:0", token, say=said.append)
    serving = asyncio.ensure_future(door.serve(server))
    try:
        await until(lambda: bool(said) or serving.done())
        if serving.done():
            serving.result()
        yield said[0].removeprefix("listening at "), door.token
    finally:
        serving.cancel()
        await asyncio.wait({serving})
    assert serving.cancelled()
    assert [line.removeprefix("token    ") for line in said[1:]] == ([] if token else [door.token])


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"address": "8765"}, "is not a HOST:PORT"),
        ({"address": "localhost:eighty"}, "is not a HOST:PORT"),
        ({"address": "localhost:70000"}, "is not a HOST:PORT"),
        ({"address": "0.0.0.0:8765"}, "give the host name that they use with --allow-host"),
        ({"address": "example.com:8765"}, "give the host name that they use with --allow-host"),
        ({"address": "localhost:0", "token": "short"}, "16 printable ASCII characters"),
        ({"address": "localhost:0", "token": "with a line\nbreak in it"}, "16 printable ASCII characters"),
    ],
)
@requirement("mcp:http-guard")
def test_mistakes_are_found_before_anything_is_started(options: dict[str, Any], why: str) -> None:
    with pytest.raises(NotAllowed, match=why):
        HttpServer(**options)


def test_other_machines_may_come_by_the_names_that_are_allowed() -> None:
    assert HttpServer("0.0.0.0:8765", hosts=["plugins.example"]).token != HttpServer("[::1]:8765").token


@requirement("mcp:http-guard")
def test_it_serves_one_path_to_clients_with_the_token(run: Run, tmp_path: Path) -> None:
    write_plugin(tmp_path / "plugins")

    async def main() -> None:
        async with running_server(tmp_path / "plugins") as (_, server), listening(server) as (url, token):
            assert url.startswith("http://127.0.0.1:") and url.endswith("/mcp")
            async with httpx2.AsyncClient() as client:
                headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
                ping = b'{"jsonrpc":"2.0","id":1,"method":"ping"}'
                assert (await client.post(url, content=ping)).status_code == 401
                assert (await client.post(url, content=ping, headers=headers)).status_code == 400
                assert (await client.post(f"{url}/else", content=ping, headers=headers)).status_code == 404
                evil = await client.post(url, content=ping, headers={**headers, "Host": "evil.example"})
                assert evil.status_code == 421
                rebound = await client.post(url, content=ping, headers={**headers, "Origin": "http://evil.example"})
                assert rebound.status_code == 403
                assert (await client.put(url, content=ping, headers=headers)).status_code == 405

    run(main)


@requirement("mcp:http-modern")
def test_a_stream_that_is_open_when_it_stops_ends_in_good_order(run: Run, tmp_path: Path) -> None:
    write_plugin(tmp_path / "plugins")
    ours = "io.modelcontextprotocol/"
    meta = {f"{ours}protocolVersion": "2026-07-28", f"{ours}clientCapabilities": {}}
    params = {"notifications": {"toolsListChanged": True}, "_meta": meta}
    wanted = {"jsonrpc": "2.0", "id": 1, "method": "subscriptions/listen", "params": params}
    named = {"MCP-Protocol-Version": "2026-07-28", "Mcp-Method": "subscriptions/listen"}

    async def main() -> None:
        async with running_server(tmp_path / "plugins") as (_, server), httpx2.AsyncClient(timeout=PATIENCE) as client:
            said: list[str] = []
            door = HttpServer("127.0.0.1:0", say=said.append)
            serving = asyncio.ensure_future(door.serve(server))
            await until(lambda: bool(said))
            url, headers = said[0].removeprefix("listening at "), {"Authorization": f"Bearer {door.token}", **named}
            async with client.stream("POST", url, json=wanted, headers=headers) as response:
                heard = response.aiter_lines()
                while "acknowledged" not in await anext(heard):
                    pass
                serving.cancel()
                rest = "".join([line async for line in heard])
            assert '"id":1,"result":{"resultType":"complete"' in rest
            await asyncio.wait({serving})

    run(main)


def test_a_port_in_use_is_reported(run: Run, tmp_path: Path) -> None:
    write_plugin(tmp_path / "plugins")

    async def main() -> None:
        async with (
            running_server(tmp_path / "plugins") as (_, server),
            listening(server, "a token of our own") as (url, _),
        ):
            port = url.rpartition(":")[2].partition("/")[0]
            with pytest.raises(NotAllowed, match="cannot be used for listening"):
                await HttpServer(f"127.0.0.1:{port}").serve(server)

    run(main)


def test_no_answer_waits_for_an_acknowledgement() -> None:
    with HttpServer("127.0.0.1:0")._listen() as listening, socket.create_connection(listening.getsockname()):
        accepted, _ = listening.accept()
        with accepted:
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def test_a_client_that_sends_nothing_does_not_stay(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(BoundedHttp, "head_seconds", 0.2)

    async def main() -> None:
        async with running_server(tmp_path) as (_, server), listening(server) as (url, _):
            port = int(url.rpartition(":")[2].removesuffix("/mcp"))
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            assert (await reader.read()).startswith(b"HTTP/1.1 408 ")
            writer.close()

    run(main)
