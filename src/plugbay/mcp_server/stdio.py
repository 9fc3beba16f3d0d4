"""A bridge on two descriptors: one client, for as long as it keeps its end open.

Owns the wire, and nobody else may have it: `take_wire` moves it to descriptors of its own and points stdout at stderr,
so that nothing anybody prints reaches the client. Refuses to know what is said.
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

from plugbay.link.stream import READ_SIZE, PipeStream
from plugbay.mcp_server.server import McpServer

MAX_UNSENT = 8 << 20
"""Bytes that wait for the client to read; past this it is neither told of progress nor asked what it wants next."""

LAST_SECONDS = 5.0
"""After the end of input, for calls that are being answered: what was piped in gets its answers, and a client that
wants us gone sooner says so with a signal."""


PROGRESS = b'{"jsonrpc":"2.0","method":"notifications/progress"'
"""How a machine begins to tell of progress."""

LOOK_SECONDS = 0.001
MOST_LOOKS = 20
"""What follows progress waits until the client has taken that, and not longer than this: a widespread client hears of
progress only when the answer is not in the same read (it hands notifications on a turn later than answers)."""


class Wire(NamedTuple):
    """Where the client speaks and listens, on descriptors that no child inherits."""

    read_fd: int
    write_fd: int


def take_wire() -> Wire:
    """Take stdin and stdout for the protocol; afterwards descriptor 0 is empty and descriptor 1 is stderr."""
    while (nothing := os.open(os.devnull, os.O_RDWR)) <= 2:  # a client may have started us with some of them closed
        os.set_inheritable(nothing, True)
    wire = Wire(os.dup(0), os.dup(1))
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    return wire


async def serve(bridge: McpServer, wire: Wire) -> None:
    """Answer one client until it closes its end, or until this is cancelled."""
    loop = asyncio.get_running_loop()
    stream = PipeStream(loop, _readable(wire.read_fd), _writable(wire.write_fd))
    client = _Client(bridge, stream, wire.write_fd)
    try:
        await client.left.wait()
        await asyncio.wait_for(client.conversation.finished(), LAST_SECONDS)
    except TimeoutError:
        pass
    finally:
        await client.close()


class _Client:
    """What is between the pipe and the conversation: what is sent in one tick of the loop goes out together."""

    def __init__(self, bridge: McpServer, stream: PipeStream, write_fd: int) -> None:
        self._bridge = bridge
        self._stream = stream
        self._write_fd = write_fd
        self._out: list[bytes] = []
        self._progressed = False
        """The last thing written was progress."""
        self._looks = 0
        self._paused = False
        self._drained = asyncio.Event()
        self.left = asyncio.Event()
        self.conversation = bridge.converse(self)
        stream.open(self)

    async def close(self) -> None:
        """Send what there is, as far as it is read, and let go."""
        self._bridge.leave(self.conversation)
        self.conversation.close()
        await self.conversation.finished()
        while self._out:
            self._looks = MOST_LOOKS
            self._write()
        if self._stream.buffered:
            self._drained.clear()
            await asyncio.wait({asyncio.ensure_future(self._drained.wait())}, timeout=1.0)
        self._stream.close()

    # The conversation's transport.

    def has_room(self, origin: Any = None) -> bool:
        return self._stream.buffered <= MAX_UNSENT

    def send(self, data: bytes, origin: Any) -> None:
        if not self._out:
            asyncio.get_running_loop().call_soon(self._write)
        self._out.append(data)

    def unanswered(self, origin: Any) -> None:
        pass

    def _write(self) -> None:
        """Everything; but what follows progress only when that has been taken."""
        while self._out and not self._holds_back():
            self._progressed = self._out[0].startswith(PROGRESS)
            alike = next((at for at, data in enumerate(self._out) if self._is_other(data)), len(self._out))
            self._stream.write(b"".join(self._out[:alike]))
            del self._out[:alike]
        if not self.has_room() and not self._paused:
            self._paused = True
            self._stream.pause()

    def _is_other(self, data: bytes) -> bool:
        return data.startswith(PROGRESS) is not self._progressed

    def _holds_back(self) -> bool:
        """Whether to look again in a moment."""
        if not self._progressed or self._out[0].startswith(PROGRESS) or not _unread(self._write_fd):
            self._looks = 0
            return False
        self._looks += 1
        if self._looks > MOST_LOOKS:
            self._looks = 0
            return False
        asyncio.get_running_loop().call_later(LOOK_SECONDS, self._write)
        return True

    # The stream's listener.

    def data_received(self, data: bytes) -> None:
        self.conversation.receive(data)

    def eof_received(self) -> None:
        self.left.set()

    def write_drained(self) -> None:
        self._drained.set()
        if self._paused:
            self._paused = False
            self._stream.read_on()


def _unread(fd: int) -> int:
    """Bytes that have been written to a pipe or a socket and not been read at its other end."""
    try:
        question = termios.TIOCOUTQ if stat.S_ISSOCK(os.fstat(fd).st_mode) else termios.FIONREAD
        return int(struct.unpack("i", fcntl.ioctl(fd, question, bytes(4)))[0])
    except OSError:
        return 0  # a file, or nobody is there any more


def _is_pipe(fd: int) -> bool:
    mode = os.fstat(fd).st_mode
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)


def _writable(fd: int) -> int:
    """What is no pipe is written as it comes: a file is always ready, and a terminal belongs to others as well."""
    if _is_pipe(fd):
        os.set_blocking(fd, False)
    return fd


def _readable(fd: int) -> int:
    """A descriptor that a loop can wait for; what is no pipe is carried into one by a thread."""
    if _is_pipe(fd):
        os.set_blocking(fd, False)
        return fd
    taken, given = os.pipe()
    os.set_blocking(taken, False)
    threading.Thread(target=_carry, args=(fd, given), daemon=True, name="plugbay-stdin").start()
    return taken


def _carry(source: int, target: int) -> None:
    try:
        while data := os.read(source, READ_SIZE):
            while data:
                data = data[os.write(target, data) :]
    except OSError:
        pass  # nobody reads any more
    finally:
        os.close(target)
