"""The MCP server on stdin and stdout: one client, until it closes its end.

`take_wire` moves the protocol to descriptors of its own and points stdout at stderr, so that nothing that code prints
reaches the client.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import stat
import struct
import termios
import threading
from typing import Any, NamedTuple

from plugbay.link.sender import MAX_UNSENT
from plugbay.link.stream import READ_SIZE, PipeStream
from plugbay.mcp_server.server import McpServer

DRAIN_SECONDS = 5.0
"""Grace for open calls after the end of input, so that piped requests get their answers. A client in a hurry sends a
signal."""


PROGRESS = b'{"jsonrpc":"2.0","method":"notifications/progress"'
"""How a progress message starts on the wire."""

RETRY_SECONDS = 0.001
MAX_RETRIES = 20
"""A message after progress waits until the client has read the progress, at most `MAX_RETRIES` times: a widespread
client loses progress that arrives in the same read as the answer."""


class Wire(NamedTuple):
    """Descriptors of the protocol, not inherited by children."""

    read_fd: int
    write_fd: int


def take_wire() -> Wire:
    """Take stdin and stdout for the protocol; afterwards descriptor 0 is /dev/null and descriptor 1 is stderr."""
    while (nothing := os.open(os.devnull, os.O_RDWR)) <= 2:  # some of them may have been closed at start
        os.set_inheritable(nothing, True)
    wire = Wire(os.dup(0), os.dup(1))
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    return wire


async def serve(server: McpServer, wire: Wire) -> None:
    """Serve one client until it closes its end, or until cancelled."""
    loop = asyncio.get_running_loop()
    stream = PipeStream(loop, _readable(wire.read_fd), _writable(wire.write_fd))
    client = _Client(server, stream, wire.write_fd)
    try:
        await client.input_closed.wait()
        await asyncio.wait_for(client.connection.finished(), DRAIN_SECONDS)
    except TimeoutError:
        pass
    finally:
        await client.close()


class _Client:
    """Connects the pipe and the connection; frames of one loop tick are written together."""

    def __init__(self, server: McpServer, stream: PipeStream, write_fd: int) -> None:
        self._server = server
        self._stream = stream
        self._write_fd = write_fd
        self._out: list[bytes] = []
        self._has_progress = False
        """Whether a frame in `_out` may be progress."""
        self._progressed = False
        """Whether the last write was progress."""
        self._retries = 0
        self._paused = False
        self._drained = asyncio.Event()
        self.input_closed = asyncio.Event()
        self.connection = server.connect(self)
        stream.open(self)

    async def close(self) -> None:
        """Write the waiting frames, as far as the client reads, and close."""
        self._server.disconnect(self.connection)
        self.connection.close()
        await self.connection.finished()
        while self._out:
            self._retries = MAX_RETRIES
            self._write()
        if self._stream.buffered:
            self._drained.clear()
            await asyncio.wait({asyncio.ensure_future(self._drained.wait())}, timeout=1.0)
        self._stream.close()

    # The transport of the connection.

    def has_room(self, origin: Any = None) -> bool:
        """Beyond `MAX_UNSENT` bytes, progress is dropped and no further requests are read."""
        return self._stream.buffered <= MAX_UNSENT

    def send(self, data: bytes, origin: Any) -> None:
        if not self._out:
            asyncio.get_running_loop().call_soon(self._write)
        self._out.append(data)
        self._has_progress = self._has_progress or data.startswith(PROGRESS)

    def drop_answer(self, origin: Any) -> None:
        pass

    def _write(self) -> None:
        """Write all frames; hold back those after progress until it was read."""
        if not self._has_progress and not self._progressed:
            self._stream.write(b"".join(self._out))
            self._out.clear()
        while self._out and not self._holds_back():
            self._progressed = self._out[0].startswith(PROGRESS)
            alike = next((at for at, data in enumerate(self._out) if self._is_other(data)), len(self._out))
            self._stream.write(b"".join(self._out[:alike]))
            del self._out[:alike]
        self._has_progress = self._has_progress and bool(self._out)
        if not self.has_room() and not self._paused:
            self._paused = True
            self._stream.pause()

    def _is_other(self, data: bytes) -> bool:
        return data.startswith(PROGRESS) is not self._progressed

    def _holds_back(self) -> bool:
        """Whether to try again in a moment."""
        if not self._progressed or self._out[0].startswith(PROGRESS) or not _unread(self._write_fd):
            self._retries = 0
            return False
        self._retries += 1
        if self._retries > MAX_RETRIES:
            self._retries = 0
            return False
        asyncio.get_running_loop().call_later(RETRY_SECONDS, self._write)
        return True

    # Callbacks of the stream.

    def data_received(self, data: bytes) -> None:
        self.connection.receive(data)

    def eof_received(self) -> None:
        self.input_closed.set()

    def write_drained(self) -> None:
        self._drained.set()
        if self._paused:
            self._paused = False
            self._stream.read_on()


def _unread(fd: int) -> int:
    """Bytes written to a pipe or socket that its other end has not read."""
    try:
        question = termios.TIOCOUTQ if stat.S_ISSOCK(os.fstat(fd).st_mode) else termios.FIONREAD
        return int(struct.unpack("i", fcntl.ioctl(fd, question, bytes(4)))[0])
    except OSError:
        return 0  # a file, or the other end is closed


def _is_pipe(fd: int) -> bool:
    mode = os.fstat(fd).st_mode
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)


def _writable(fd: int) -> int:
    """Non-blocking if it is a pipe; a file is always ready, and a terminal is shared with other processes."""
    if _is_pipe(fd):
        os.set_blocking(fd, False)
    return fd


def _readable(fd: int) -> int:
    """A descriptor that an event loop can wait for; a thread copies anything else into a pipe."""
    if _is_pipe(fd):
        os.set_blocking(fd, False)
        return fd
    taken, given = os.pipe()
    os.set_blocking(taken, False)
    threading.Thread(target=_copy_to_pipe, args=(fd, given), daemon=True, name="plugbay-stdin").start()
    return taken


def _copy_to_pipe(source: int, target: int) -> None:
    try:
        while data := os.read(source, READ_SIZE):
            while data:
                data = data[os.write(target, data) :]
    except OSError:
        pass  # the reader is gone
    finally:
        os.close(target)
