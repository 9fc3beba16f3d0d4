"""`Sender`: decides when the bytes of one link go out; `Outbox`: notifications that wait for a peer.

A single frame goes out at once, many frames of one tick go out together. Calls and answers are sent as they come and
are never dropped. Notifications are sent only as fast as the peer's pipe takes them, so an urgent one never waits
behind more than the frame under way. The outbox keeps operations and not frames: subscribers of one large snapshot
share its bytes, however many of them are slow.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from time import monotonic
from typing import TYPE_CHECKING

from plugbay.contracts.base import Machine, Traffic
from plugbay.link.incoming import Incoming
from plugbay.link.stream import ByteStream, Tap
from plugbay.model.errors import Failure
from plugbay.model.operations import DeliverSnapshot

if TYPE_CHECKING:
    from plugbay.model.operations import Operation

LIGHT = 2_048
"""Bytes that each notification counts for at least: the size of an average event."""
BURST = 65_536
"""Bytes of notifications of one tick that are sent together, as many as a pipe takes; then the pipe has to take them
before there may be more. One large snapshot is a burst of its own."""


def weight(op: Operation) -> int:
    """About how many bytes `op` keeps in memory. Operations without bytes of their own are bounded by number."""
    return LIGHT + len(op.data) if type(op) is DeliverSnapshot else LIGHT


class Lane:
    """One bounded queue in order of arrival. A full one drops the oldest or the newest, as the contract says."""

    __slots__ = ("_bytes", "_capacity", "_drops", "_max_bytes", "_ops", "dropped")

    def __init__(self, capacity: int, drops: str, max_bytes: int | None = None) -> None:
        self._capacity = capacity
        self._drops = drops
        self._max_bytes = float("inf") if max_bytes is None else max_bytes
        self._ops: deque[Operation] = deque()
        self._bytes = 0
        self.dropped = 0

    def __len__(self) -> int:
        return len(self._ops)

    def offer(self, op: Operation) -> None:
        """Queue `op`, or drop it, or drop others for it."""
        size = weight(op)
        while self._drops == "oldest" and size <= self._max_bytes and not self._fits(size):
            self.take()
            self.dropped += 1
        if self._fits(size):
            self._ops.append(op)
            self._bytes += size
        else:
            self.dropped += 1

    def _fits(self, size: int) -> bool:
        return len(self._ops) < self._capacity and self._bytes + size <= self._max_bytes

    def take(self) -> Operation:
        """The oldest; there must be one."""
        op = self._ops.popleft()
        self._bytes -= weight(op)
        return op


class Outbox:
    """Lanes in the order in which they are emptied: those of urgent operations, then the one of all others.

    A dropped snapshot may be one chunk of many: the collector sees the gap and drops the rest.
    """

    __slots__ = ("_lanes", "_plain", "_urgent")

    def __init__(self, traffic: Traffic) -> None:
        self._plain = Lane(traffic.capacity, traffic.drops, traffic.max_bytes)
        self._urgent = {kind: Lane(traffic.urgent_capacity, "oldest") for kind in traffic.urgent}
        self._lanes = (*self._urgent.values(), self._plain)

    def __len__(self) -> int:
        return sum(map(len, self._lanes))

    @property
    def dropped(self) -> int:
        """Operations lost for want of room, or because they could not have been sent; the urgent ones not counted."""
        return self._plain.dropped

    @property
    def urgent_dropped(self) -> int:
        return sum(lane.dropped for lane in self._urgent.values())

    def offer(self, op: Operation) -> None:
        """Queue `op`; when its lane is full, one end of the lane gives way and is counted."""
        self._lane(op).offer(op)

    def lost(self, op: Operation) -> None:
        """Count an operation that was taken, or never queued, and could not be sent."""
        self._lane(op).dropped += 1

    def take(self) -> Operation | None:
        """The next operation to send, if any waits."""
        return next((lane.take() for lane in self._lanes if lane), None)

    def take_urgent(self) -> list[Operation]:
        """Every urgent operation that waits: they go before a call that is made now."""
        return [lane.take() for lane in self._urgent.values() for _ in range(len(lane))]

    def _lane(self, op: Operation) -> Lane:
        return self._urgent.get(type(op), self._plain)


FEW = 2
"""Up to so many at once, each is sent as it is made. A peer with more to do does not wait for it, and a write for each
costs more than all the rest of a call."""
BATCH = 16
"""Frames of one tick that are sent together: enough to make a write cheap, few enough that the peer works meanwhile."""
MAX_UNSENT = 8 << 20
"""Bytes waiting for a peer that does not read; past this calls and progress are refused instead of queued."""
MAX_UNREAD = 16 << 20
"""Bytes waiting for a peer, past which its output is not read either: answers are never dropped, so a peer that only
asks has to wait. Twice the limit of calls, because a peer that does one thing at a time must get its answers out."""


class Sender:
    """The output of one link."""

    __slots__ = tuple(
        "_burst _flush_scheduled _handed_over _held _incoming _loop _machine _muted _ready _refused _stream _trace "
        "outbox over tap".split()
    )

    def __init__(
        self,
        machine: Machine,
        stream: ByteStream,
        incoming: Incoming,
        refused: Callable[[Operation, Failure], None],
        trace: Callable[[str], object] | None = None,
    ) -> None:
        """`incoming` is paused while too much waits for the peer. `refused` gets operations that cannot be sent."""
        self._machine = machine
        self._stream = stream
        self._incoming = incoming
        self._refused = refused
        self._trace = trace
        self._loop = asyncio.get_running_loop()
        self._flush_scheduled = False
        self._burst = 0
        self._held = 0
        """Frames of this tick that wait for its end."""
        self._handed_over = 0
        """Bytes that the pipe did not take at once when the stream was last given notifications."""
        self._ready = False
        self.outbox = Outbox(machine.TRAFFIC)
        self._muted: tuple[float, int] | None = None
        """Since when the peer is not read, because too much waits for it, and all that it had taken by then."""
        self.over = False
        """If set, nothing more is sent."""
        self.tap: Tap | None = None
        """Called with every byte before it is written."""

    def send(self, at_once: int = 0) -> None:
        """Send the output of the machine: now if few calls are under way, else with the rest of the tick.

        `at_once`: how many calls or answers like this one are under way.
        """
        if self.over:
            return
        if at_once <= FEW:
            self._write(self._machine.outgoing())
            return
        self._held += 1
        if self._held == BATCH:
            self._held = 0
            self._write(self._machine.outgoing())
        elif not self._flush_scheduled:
            self._flush_scheduled = True
            self._loop.call_soon(self._flush)

    def send_now(self) -> None:
        """Send the output of the machine now, after all read bytes were processed."""
        self._write(self._machine.outgoing())

    def _flush(self) -> None:
        self._burst = self._held = 0
        self._flush_scheduled = False
        if not self.over:
            self._write(self._machine.outgoing())

    def _write(self, data: bytes) -> None:
        if not data:
            return
        if self._trace is not None:
            self._trace("stream.write")
        if self.tap is not None:
            self.tap.sent(data)
        self._stream.write(data)
        if self._stream.buffered > MAX_UNREAD and self._muted is None:
            self._muted = (monotonic(), self._stream.sent)
            self._incoming.pause()

    # Calls.

    def has_room(self) -> bool:
        """Whether the peer reads well enough to be asked more. A large notification is not held against calls."""
        return self._stream.buffered <= MAX_UNSENT + self._handed_over

    def admits_call(self) -> bool:
        """The same, before a call while bytes wait: urgent notifications go before it.

        So a rendered screen shows the keys that were pressed until then.
        """
        if not self.has_room():
            return False
        if self._ready:
            for op in self.outbox.take_urgent():
                self._tell(op)
        return True

    @property
    def unread(self) -> tuple[float, int] | None:
        """While the peer is not read because too much waits for it: since when, and how much it has taken since."""
        return None if self._muted is None else (self._muted[0], self._stream.sent - self._muted[1])

    # Notifications.

    def notify(self, op: Operation) -> None:
        """Send a notification, in order; it waits in a bounded lane while the peer is not ready or not reading."""
        if self.over:
            return
        if not self._ready or self.outbox or self._stream.buffered:
            self.outbox.offer(op)
            return
        self._tell(op)
        self._burst += weight(op)
        if self._burst < BURST:
            self.send(FEW + 1)
        else:
            self._hand_over()

    def ready(self) -> None:
        """The handshake is complete: send the waiting notifications."""
        self._ready = True
        self._drain()

    def drained(self) -> None:
        """The peer's pipe has taken everything: there is room for more."""
        self._handed_over = 0
        if self._muted is not None:
            self._muted = None
            self._incoming.read_on()
        self._drain()

    def _drain(self) -> None:
        while self._ready and not (self.over or self._stream.buffered) and (op := self.outbox.take()):
            self._tell(op)
            if not self._hand_over():
                return

    def _hand_over(self) -> bool:
        """False when not a byte was taken or kept: the pipe is closed, and the rest need not be written for it."""
        self._burst = 0
        data, sent = self._machine.outgoing(), self._stream.sent
        self._write(data)
        self._handed_over = self._stream.buffered
        return not data or self._stream.sent > sent or self._stream.buffered > 0

    def _tell(self, op: Operation) -> None:
        refusal = self._machine.notify(op)
        if refusal is not None:
            self.outbox.lost(op)
            self._refused(op, refusal)
