"""`Outbox`: notifications that wait because the peer is not ready or not reading, in lanes, under the contract's rules.

Pure bookkeeping: it never writes. Calls and answers do not pass through here and are never dropped. It keeps operations
and not frames, so subscribers of one large snapshot share its bytes however many of them are slow.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from plugbay.contracts.base import Traffic
from plugbay.model.operations import DeliverSnapshot

if TYPE_CHECKING:
    from plugbay.model.operations import Operation


LIGHT = 2_048
"""Bytes that any notification counts for, whatever it holds: the size of a middling event."""

BURST = 65_536
"""Bytes of notifications of one tick that are sent together, as many as a pipe takes; then the pipe has to take them
before there may be more. One large snapshot is a burst of its own."""


def weight(op: Operation) -> int:
    """About how many bytes `op` holds on to. What has no bytes of its own is bounded by its number."""
    return LIGHT + len(op.data) if type(op) is DeliverSnapshot else LIGHT


class Lane:
    """One bounded queue in order of arrival. What does not fit is dropped, at the end the contract names."""

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

    A dropped snapshot may be one piece of many: whoever puts pieces together sees the gap and drops the rest.
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
