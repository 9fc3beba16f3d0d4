"""`memory_pair`: two `ByteStream`s joined in memory, a double of the pipes of a child.

With a HOST link on one end and a PLUGIN link on the other, a whole conversation runs without a process. `capacity`
makes the pair push back like a full pipe.
"""

from __future__ import annotations

import asyncio

from plugbay.link.stream import Listener

PIPE_CAPACITY = 65_536


class MemoryStream:
    """One end; made by `memory_pair`."""

    def __init__(self, loop: asyncio.AbstractEventLoop, capacity: int) -> None:
        self._loop = loop
        self._capacity = capacity
        self._listener: Listener | None = None
        self._peer: MemoryStream | None = None
        self._inbox = bytearray()
        self._out = bytearray()
        self._reading = False
        self._ended = False
        self._write_closed = False
        self._blocked = False
        self.sent = 0
        self.stalled = False
        """If set, this end stops reading: the writes of its peer queue up."""

    @property
    def buffered(self) -> int:
        return len(self._out)

    def open(self, listener: Listener) -> None:
        self._listener = listener
        self._reading = True
        self._loop.call_soon(self.read_available)

    def write(self, data: bytes) -> None:
        if not self._write_closed:
            self._out += data
            self._push()
            self._blocked = bool(self._out)

    def _push(self) -> None:
        assert self._peer is not None
        room = 0 if self._peer.stalled else self._capacity - len(self._peer._inbox)
        if room <= 0 or not self._out:
            return
        self._peer._inbox += self._out[:room]
        self.sent += min(room, len(self._out))
        del self._out[:room]
        self._loop.call_soon(self._peer.read_available)
        if self._blocked and not self._out and self._listener is not None:
            self._blocked = False
            self._loop.call_soon(self._listener.write_drained)

    def resume(self) -> None:
        """Take bytes again after `stalled`."""
        assert self._peer is not None
        self.stalled = False
        self._peer._push()

    def read_available(self) -> None:
        assert self._peer is not None
        if not self._reading or self._listener is None or self.stalled:
            return
        if self._inbox:
            data = bytes(self._inbox)
            self._inbox.clear()
            self._listener.data_received(data)
            self._peer._refill()
        elif self._ended:
            self._reading = False
            self._listener.eof_received()

    def _refill(self) -> None:
        assert self._peer is not None
        self._push()
        if self._write_closed and not self._out:
            self._peer._end()

    def _end(self) -> None:
        self._ended = True
        self._loop.call_soon(self.read_available)

    def pause(self) -> None:
        self._reading = False

    def read_on(self) -> None:
        self._reading = True
        self._loop.call_soon(self.read_available)

    def close_write(self) -> None:
        self._write_closed = True
        assert self._peer is not None
        if not self._out:
            self._peer._end()

    def close(self) -> None:
        self.pause()
        self._out.clear()
        self.close_write()


def memory_pair(loop: asyncio.AbstractEventLoop, capacity: int = PIPE_CAPACITY) -> tuple[MemoryStream, MemoryStream]:
    """Two ends; bytes that one writes, the other receives."""
    one, other = MemoryStream(loop, capacity), MemoryStream(loop, capacity)
    one._peer, other._peer = other, one
    return one, other
