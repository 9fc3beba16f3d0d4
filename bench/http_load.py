"""An HTTP client that costs less than any server: persistent connections, one prepared request for all of them."""

from __future__ import annotations

import asyncio
from typing import Any

from bench.harness import PAYLOAD, BenchFailed

_END, _LENGTH = b"\r\n\r\n", b"content-length:"


class Connection(asyncio.Protocol):
    """One connection; `ask` again when it was answered."""

    def __init__(self, request: bytes) -> None:
        self._request = request
        self._loop = asyncio.get_running_loop()
        self._got = bytearray()
        self._answered: asyncio.Future[None] = self._loop.create_future()
        self._transport: Any = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    async def ask(self) -> None:
        """Send the request and wait for a whole answer, which has the text in it that was sent."""
        self._answered = self._loop.create_future()
        self._got.clear()
        self._transport.write(self._request)
        await self._answered
        if PAYLOAD.encode() not in self._got:
            raise BenchFailed(self._got.decode(errors="replace"))

    def data_received(self, data: bytes) -> None:
        self._got += data
        end = self._got.find(_END)
        if end < 0:
            return
        head = bytes(self._got[:end]).lower()
        if len(self._got) - end - len(_END) >= int(head.partition(_LENGTH)[2].partition(b"\r\n")[0]):
            self._answered.set_result(None)

    def connection_lost(self, error: Exception | None) -> None:
        if not self._answered.done():
            self._answered.set_exception(BenchFailed("the server has closed a connection"))

    def close(self) -> None:
        self._transport.close()


async def connected(where: dict[str, Any], number: int) -> list[Connection]:
    """Connections to a server, described by its port, path, token and body."""
    body = where["body"].encode()
    head = (
        f"POST {where['path']} HTTP/1.1\r\nHost: 127.0.0.1:{where['port']}\r\nContent-Type: application/json\r\n"
        f"Authorization: Bearer {where['token']}\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    request, loop = head.encode() + body, asyncio.get_running_loop()
    opened = [loop.create_connection(lambda: Connection(request), "127.0.0.1", where["port"]) for _ in range(number)]
    return [connection for _, connection in await asyncio.gather(*opened)]
