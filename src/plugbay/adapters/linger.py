"""`python -m plugbay.adapters.linger SOCKET`: the host process that stays between the calls of adapters for rune.

Reads the pin from stdin, serves calls on the socket, and ends when none has come for `IDLE_SECONDS`. One process serves
an address: it holds a lock, as long as its socket is there. A connection has one call, and its end cancels the call.
"""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import msgspec

from plugbay.adapters.failures import SourceFailed
from plugbay.adapters.linger_client import READY
from plugbay.adapters.pin import MAX_BYTES, Pin, PinnedExport, parse
from plugbay.adapters.source import HostedSource
from plugbay.model.errors import Code, Failure, Origin
from plugbay.sdk.errors import HandlerError

IDLE_SECONDS = 60.0
"""Without a call; a person who uses a tool again within a minute pays no second start."""

IDLE_VARIABLE = "PLUGBAY_ADAPTER_IDLE"
"""Environment variable with other seconds."""


class Lingering:
    """The calls of one socket."""

    def __init__(self, pin: Pin, idle: float) -> None:
        self._source = HostedSource(pin, _note)
        self._exports = {(export.full_name, export.kind): export for export in pin.exports}
        self._idle = idle
        self._open: set[asyncio.StreamWriter] = set()
        """One for each connection."""
        self._idle_timer: asyncio.TimerHandle | None = None
        self._quiet = asyncio.Event()
        """Set while no connection is open."""
        self._quiet.set()
        self.ended = asyncio.Event()
        """Set by a signal, or when nothing has come for a while."""
        self.stopping = False

    async def serve(self, address: str, unlock: Callable[[], None]) -> None:
        """Serve until it is idle or `ended` is set; then leave no process behind.

        `unlock` is called when the socket is gone: from then on another process may serve the address.
        """
        with suppress(FileNotFoundError):
            os.unlink(address)
        server = await asyncio.start_unix_server(self._answer, address, limit=MAX_BYTES)
        os.chmod(address, 0o600)
        try:
            await self._source.start()
            self._wait_idle()
            await self.ended.wait()
        finally:
            with suppress(FileNotFoundError):
                os.unlink(address)
            server.close()
            unlock()
            if not self.stopping:  # a call may have come at the last moment
                await self._quiet.wait()
            await self._source.stop()

    def stop(self) -> None:
        """End now; open calls fail."""
        self.stopping = True
        self.ended.set()
        for writer in self._open:
            writer.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.stopping:
            writer.close()  # before READY: the caller looks for another process
            return
        self._open.add(writer)
        self._quiet.clear()
        if self._idle_timer is not None:
            self._idle_timer.cancel()
        try:
            writer.write(READY)
            line = await reader.readline()
            if line.endswith(b"\n"):
                await self._make_call(line, reader, writer)
        except (OSError, ValueError):
            pass  # the adapter was killed, or its line is too long
        finally:
            writer.close()
            self._open.discard(writer)
            self._wait_idle()

    async def _make_call(self, line: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        call = asyncio.ensure_future(self._call(line))
        gone = asyncio.ensure_future(reader.read(1))
        await asyncio.wait({call, gone}, return_when=asyncio.FIRST_COMPLETED)
        if not call.done():
            call.cancel()
            await asyncio.wait({call})
            return
        gone.cancel()
        writer.write(msgspec.json.encode(call.result()) + b"\n")
        await writer.drain()

    async def _call(self, line: bytes) -> dict[str, Any]:
        try:
            request = json.loads(line)
            export: PinnedExport = self._exports[request["export"], request["kind"]]
            return {"value": await self._source.call(export, request["input"], None)}
        except HandlerError as error:
            return {"failure": error.failure().to_json()}
        except (ValueError, KeyError, TypeError) as error:
            failure = Failure(Code.PLUGIN_ERROR, f"the call cannot be read: {error!r}", origin=Origin.PLUGIN)
            return {"failure": SourceFailed(failure).failure().to_json()}

    def _wait_idle(self) -> None:
        if not self._open:
            self._quiet.set()
            self._idle_timer = asyncio.get_running_loop().call_later(self._idle, self._end_idle)

    def _end_idle(self) -> None:
        if not self._open:
            self.ended.set()


def _note(text: str) -> None:
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


async def _run(pin: Pin, address: str, idle: float, unlock: Callable[[], None]) -> None:
    lingering, loop = Lingering(pin, idle), asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        loop.add_signal_handler(number, lingering.stop)
    await lingering.serve(address, unlock)


def main(address: str) -> None:
    """Serve the pin on stdin, unless another process serves the address."""
    lock = os.open(f"{address}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return
    pin = parse(sys.stdin.buffer.read(MAX_BYTES))
    idle = float(os.environ.get(IDLE_VARIABLE) or IDLE_SECONDS)
    asyncio.run(_run(pin, address, idle, lambda: os.close(lock)))


if __name__ == "__main__":
    main(sys.argv[1])
