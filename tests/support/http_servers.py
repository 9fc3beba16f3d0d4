"""MCP servers on loopback for tests of remote servers: one of the official SDK as a process, and scripted ones."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import subprocess
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

from tests.support.commands import Command
from tests.support.patience import PATIENCE
from tests.support.ports import free_port

PROGRAM = Path(__file__).with_name("sdk_http_server.py")
WITH_OAUTH = Path(__file__).with_name("sdk_oauth_server.py")
SDK = ("mcp.server.mcpserver", "uvicorn.protocols.http.auto")
"""What these two programs load, which takes seconds."""


@contextmanager
def sdk_server(*options: str, port: int | None = None, program: Path = PROGRAM) -> Iterator[str]:
    """The URL of a running server of the official SDK; `options` as its program takes them."""
    port = port or free_port()
    with open(os.devnull, "r+b") as quiet:
        streams = (quiet.fileno(),) * 3
        code = program.read_text()
        process = Command([str(port), *options], streams, None, os.environ, code=code, libraries=SDK)
    with _running(process, port) as url:
        yield url


@contextmanager
def running_server(command: list[str], port: int, **env: str) -> Iterator[str]:
    """The URL of a server that a command starts at this port."""
    quiet = subprocess.DEVNULL
    process = subprocess.Popen(command, stdout=quiet, stderr=quiet, env={**os.environ, **env})
    with _running(process, port) as url:
        yield url


@contextmanager
def _running(process: Command | subprocess.Popen[bytes], port: int) -> Iterator[str]:
    try:
        _wait_for_port(port, process)
        yield f"http://127.0.0.1:{port}/mcp"
    finally:
        process.kill()
        process.wait(PATIENCE)


def _wait_for_port(port: int, process: Command | subprocess.Popen[bytes]) -> None:
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until and process.poll() is None:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        time.sleep(0.05)
    raise AssertionError("the server did not start")


Answer = Callable[[asyncio.StreamWriter, str, dict[str, str], bytes], Awaitable[None]]
"""Writes the response to one request: (writer, request line, headers by lower-case name, body)."""


@asynccontextmanager
async def scripted_server(answer: Answer) -> AsyncIterator[str]:
    """The URL of a server that answers each connection's one request with raw bytes."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            first, *lines = head.strip().split("\r\n")
            headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
            body = await reader.readexactly(int(headers.get("content-length", "0")))
            await answer(writer, first, headers, body)
            await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/mcp"
    finally:
        server.close()


def response(status: str, body: bytes = b"", **headers: str) -> bytes:
    """The bytes of a response with a body of known length."""
    named = {"content-length": str(len(body)), "connection": "close"}
    named |= {name.replace("_", "-"): value for name, value in headers.items()}
    head = "".join(f"{name}: {value}\r\n" for name, value in named.items())
    return f"HTTP/1.1 {status}\r\n{head}\r\n".encode() + body
