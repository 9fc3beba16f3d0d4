"""`ByteStream`: the bytes that a link reads and writes; `PipeStream`: over two pipe descriptors; `Tap`: an observer.

Owns non-blocking reads and writes and the bytes that could not be written yet. Callbacks run in the event loop; there
is no task and no thread per stream, so an idle plugin costs a few hundred bytes here. A link without a tap pays for one
attribute test each way.
"""

from __future__ import annotations

import asyncio
import os
from time import monotonic, thread_time
from typing import Protocol

READ_SIZE = 65_536
"""The size of a pipe. asyncio's own 256 KiB reads cross glibc's mmap threshold and cost 25 us each."""

MOMENT = 0.002
"""Seconds that the bytes of one read may block the loop. A peer whose bytes take longer is read in smaller pieces: the
rest stays in its pipe until the loop has served the others."""
SMALLEST_READ = 1_024
FINAL_READS = 16
"""A pipe's largest size, 1 MiB, in reads: a child that holds the other end must not keep the loop busy for ever."""
FINAL_SECONDS = 0.05
"""Seconds of work on the output that a dead peer left: more than the largest answer takes, less than a flood."""

EXIT_NOTICE = 1.0
"""Seconds to wait at most, after end of output, for the exit status that explains it. A process that ends is noticed at
once; one that closes its output and goes on is rare, and so is a machine that takes as long as this."""


class Listener(Protocol):
    """Called with the events of a stream."""

    def data_received(self, data: bytes) -> None: ...
    def eof_received(self) -> None: ...
    def write_drained(self) -> None: ...


class ByteStream(Protocol):
    """Two directions of bytes."""

    @property
    def buffered(self) -> int:
        """Bytes accepted by `write` that the peer's pipe has not taken yet."""

    @property
    def sent(self) -> int:
        """Bytes the peer's pipe has taken so far: grows as long as the peer reads."""

    def open(self, listener: Listener) -> None:
        """Start reading."""

    def write(self, data: bytes) -> None:
        """Send now as much as fits, keep the rest; never blocks, and never raises if the peer is gone."""

    def read_available(self) -> None:
        """Read the bytes that have arrived, without waiting; also called when the peer has died."""

    def pause(self) -> None:
        """Stop reading; the peer's pipe fills up and the peer waits."""

    def read_on(self) -> None:
        """Read again after a `pause`."""

    def close_write(self) -> None:
        """End the output; the peer sees the end of input after the buffered bytes."""

    def close(self) -> None:
        """Close both directions at once."""


class PipeStream:
    """A `ByteStream` over a readable and a writable descriptor, both non-blocking; owns and closes them."""

    __slots__ = (
        "_bite",
        "_closing_write",
        "_listener",
        "_loop",
        "_out",
        "_read_fd",
        "_reading",
        "_write_fd",
        "buffered",
        "sent",
    )

    def __init__(self, loop: asyncio.AbstractEventLoop, read_fd: int, write_fd: int) -> None:
        self._loop = loop
        self._read_fd = read_fd
        self._write_fd = write_fd
        self._listener: Listener | None = None
        self._out = bytearray()
        self._bite = READ_SIZE
        """Bytes of the next read."""
        self.sent = 0
        self.buffered = 0
        self._reading = False
        self._closing_write = False

    def open(self, listener: Listener) -> None:
        self._listener = listener
        self._reading = True
        self._loop.add_reader(self._read_fd, self._read_once)

    def _read_once(self) -> bool:
        """One read; False when nothing is there now."""
        assert self._listener is not None
        try:
            data = os.read(self._read_fd, self._bite)
        except BlockingIOError:
            return False
        except OSError:
            data = b""
        if data:
            began = monotonic()
            self._listener.data_received(data)
            took = monotonic() - began
            if took > MOMENT:
                self._bite = max(SMALLEST_READ, self._bite // 2)
            elif self._bite < READ_SIZE and took < MOMENT / 4:
                self._bite *= 2
            return self._reading
        self.pause()
        self._listener.eof_received()
        return False

    def read_available(self) -> None:
        enough = thread_time() + FINAL_SECONDS
        for _ in range(FINAL_READS):
            self._bite = READ_SIZE
            if not (self._reading and self._read_once()) or thread_time() > enough:
                return

    def write(self, data: bytes) -> None:
        if self._write_fd < 0 or self._closing_write:
            return
        if self.buffered:
            self._out += data
            self.buffered = len(self._out)
            return
        sent = self._write_some(data)
        if 0 <= sent < len(data):
            self._out += memoryview(data)[sent:]
            self.buffered = len(self._out)
            self._loop.add_writer(self._write_fd, self._writable)

    def _write_some(self, data: bytes | bytearray) -> int:
        """Bytes taken by the pipe; -1 when the peer has closed it: its death is reported by other means."""
        try:
            taken = os.write(self._write_fd, data)
        except BlockingIOError:
            return 0
        except OSError:
            self._drop_write()
            return -1
        self.sent += taken
        return taken

    def _writable(self) -> None:
        sent = self._write_some(self._out)
        if sent < 0:
            return
        del self._out[:sent]
        self.buffered = len(self._out)
        if self.buffered:
            return
        self._loop.remove_writer(self._write_fd)
        if self._closing_write:
            self._drop_write()
        elif self._listener is not None:
            self._listener.write_drained()

    def pause(self) -> None:
        if self._reading:
            self._reading = False
            self._loop.remove_reader(self._read_fd)

    def read_on(self) -> None:
        if not self._reading and self._read_fd >= 0:
            self._reading = True
            self._loop.add_reader(self._read_fd, self._read_once)

    def close_write(self) -> None:
        self._closing_write = True
        if not self.buffered:
            self._drop_write()

    def _drop_write(self) -> None:
        if self._write_fd < 0:
            return
        if self.buffered:
            self._loop.remove_writer(self._write_fd)
            self._out.clear()
            self.buffered = 0
        os.close(self._write_fd)
        self._write_fd = -1
        if self._listener is not None:
            self._listener.write_drained()

    def close(self) -> None:
        self.pause()
        self._drop_write()
        if self._read_fd >= 0:
            os.close(self._read_fd)
            self._read_fd = -1


class Tap(Protocol):
    """Called in the link's loop, in the middle of a call: it must not block, raise or take long."""

    def sent(self, data: bytes) -> None:
        """Whole messages that are about to be written."""

    def received(self, data: bytes, pending: int) -> None:
        """Bytes that were just read; `pending` bytes of an unfinished message came before them."""
