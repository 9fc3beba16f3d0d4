"""Clients that take their time, and too many of them. Real sockets, and the servers as they are configured."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import uvicorn
from fastapi import FastAPI

from plugbay.bridge.http_protocol import BoundedHttp
from plugbay.control.server import _config, bound
from tests.support.loops import Run
from tests.support.patience import until

REQUEST = b"GET / HTTP/1.1\r\nhost: x\r\n\r\n"
UPLOAD = b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 4\r\n\r\n"


class Waiting:
    """An application that answers when it is let."""

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
    config = _config(FastAPI())
    config.app = app
    server = uvicorn.Server(config)
    server.capture_signals = contextlib.nullcontext  # type: ignore[method-assign, assignment]
    with contextlib.closing(bound("127.0.0.1", 0)) as listener:
        running = asyncio.ensure_future(server.serve(sockets=[listener]))
        await until(lambda: server.started or running.done())
        try:
            yield listener.getsockname()[1]
        finally:
            server.should_exit = True
            await running


async def came_to(port: int, *pieces: bytes) -> bytes:
    """What a client hears that sends only this, and then waits for whatever comes."""
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
            while not heard.done():
                writer.write(b"x")
                await asyncio.wait({heard}, timeout=0.01)
            writer.close()
            (end,) = heard.result()  # a byte that crosses the refusal on its way resets the connection
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


def test_who_waits_for_an_answer_and_who_asks_again_is_left_alone(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
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
