"""`ToxicProxy`: a TCP proxy that harms the connections through it.

    with ToxicProxy(("127.0.0.1", 5432)) as proxy:
        proxy.inject("latency")            every piece comes late
        proxy.heal()                       new connections are sound, and those that were not harmed stay

It runs on a loop and a thread of its own, so clients can be synchronous and a busy test does not slow it down.

| toxic | a connection |
|---|---|
| `latency` | passes each piece on after `DELAY` |
| `slicer` | passes pieces of `SLICE` bytes on, with a `PAUSE` after each |
| `reset` | is reset by its next piece, in either direction |
| `cut` | is reset after `LIMIT` more bytes of the server |
| `drop` | stays open; from now on it passes nothing on, in either direction |
| `stall` | keeps all bytes back, and passes them on when it is healed, as a network does that was cut for a while |
| `mute`, `deaf` | the same in one direction: the server gets nothing from the client, or the client from the server |
| `half_open` | loses its server; the client is not told |
| `down` | is reset, and so is each new one at once |
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

from tests.support.patience import PATIENCE

TOXICS = ("latency", "slicer", "reset", "cut", "drop", "stall", "mute", "deaf", "half_open", "down")

HELD = {False: ("stall", "mute"), True: ("stall", "deaf")}
"""Toxics that keep bytes back: those for the server, and those for the client."""

DELAY = 0.02
SLICE = 7
PAUSE = 0.0005
LIMIT = 100
PIECE = 1 << 16


State = Callable[[], tuple[str, asyncio.Event]]
"""The toxic of now, and an event that is set when it changes."""


class ToxicProxy:
    """A proxy in front of one server: an address, or the path of a unix socket."""

    def __init__(self, server: tuple[str, int] | Path) -> None:
        self._upstream = server
        self._toxic = ""
        self._links: set[_Link] = set()
        self._changed = asyncio.Event()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="toxic proxy", daemon=True)
        self.accepted = 0
        """Connections until now."""

    def __enter__(self) -> Self:
        self._thread.start()
        self._server = self._run(asyncio.start_server(self._accept, "127.0.0.1", 0))
        self.port: int = self._server.sockets[0].getsockname()[1]
        return self

    def __exit__(self, *_: object) -> None:
        self._run(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(PATIENCE)
        self._loop.close()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def inject(self, toxic: str) -> None:
        """Harm the open connections and new ones from now on."""
        assert toxic in TOXICS
        self._run(self._set(toxic))

    def heal(self) -> None:
        """Reset the harmed connections: what they had swallowed is lost."""
        self._run(self._set(""))

    async def _set(self, toxic: str) -> None:
        before, self._toxic = self._toxic, toxic
        self._changed.set()
        self._changed = asyncio.Event()
        for link in list(self._links):
            if toxic == "down" or (not toxic and before in ("drop", "half_open", "cut")):
                link.reset()
            elif toxic == "half_open":
                link.lose_server()

    def _run(self, work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(PATIENCE)

    async def _close(self) -> None:
        self._server.close()
        own = asyncio.current_task()
        while others := asyncio.all_tasks() - {own}:  # among them connections that have just been accepted
            for link in list(self._links):
                link.reset()
            await asyncio.wait(others, timeout=0.05)
        await asyncio.sleep(0)  # the ends of connections

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.accepted += 1
        link = _Link(writer)
        self._links.add(link)
        try:
            if self._toxic != "down":
                await link.pass_on(reader, await self._connect(), lambda: (self._toxic, self._changed))
        except OSError:  # the server is away
            pass
        finally:
            link.reset()
            self._links.discard(link)

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if isinstance(self._upstream, Path):
            return await asyncio.open_unix_connection(str(self._upstream))
        return await asyncio.open_connection(*self._upstream)


class _Link:
    """One connection of a client, and its connection to the server."""

    def __init__(self, client: asyncio.StreamWriter) -> None:
        self._client = client
        self._server: asyncio.StreamWriter | None = None
        self._left = LIMIT
        self._gone = asyncio.Event()

    async def pass_on(
        self,
        client: asyncio.StreamReader,
        server: tuple[asyncio.StreamReader, asyncio.StreamWriter],
        state: State,
    ) -> None:
        """Pass bytes on in both directions until one end closes, or the link is reset."""
        reader, self._server = server
        if state()[0] == "half_open":
            self.lose_server()
        ways = [self._pump(client, self._server, state, back=False), self._pump(reader, self._client, state, back=True)]
        tasks = [asyncio.ensure_future(way) for way in (*ways, _wait(self._gone))]
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _pump(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, state: State, *, back: bool
    ) -> None:
        """One direction; returns at the end of the stream. A link without a server, or that drops, has no end."""
        with contextlib.suppress(ConnectionError):
            while piece := await reader.read(PIECE):
                name, changed = state()
                while name in HELD[back]:
                    await changed.wait()
                    name, changed = state()
                if name == "latency":
                    await asyncio.sleep(DELAY)
                elif name == "reset" or (name == "cut" and back and self._spend(len(piece))):
                    return self.reset()
                if name not in ("drop", "half_open"):
                    await self._write(writer, piece, SLICE if name == "slicer" else PIECE)
        if state()[0] in ("drop", "half_open"):
            await self._gone.wait()
        await self._finish(writer)

    def _spend(self, size: int) -> bool:
        self._left -= size
        return self._left < 0

    async def _write(self, writer: asyncio.StreamWriter, piece: bytes, size: int) -> None:
        for at in range(0, len(piece), size):
            writer.write(piece[at : at + size])
            await writer.drain()
            if size == SLICE:
                await asyncio.sleep(PAUSE)

    async def _finish(self, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            writer.close()
            await writer.wait_closed()

    def lose_server(self) -> None:
        """Close the connection to the server, and tell the client nothing."""
        if self._server is not None:
            self._server.transport.abort()

    def reset(self) -> None:
        """End both connections with RST."""
        for writer in (self._client, self._server):
            if writer is None:
                continue
            end: socket.socket = writer.get_extra_info("socket")
            with contextlib.suppress(OSError):  # it is closed
                if end.family != socket.AF_UNIX:
                    end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            # Also one that is closing: it stays open as long as the peer does not read what was written.
            writer.transport.abort()
        self._gone.set()


async def _wait(event: asyncio.Event) -> None:
    await event.wait()
