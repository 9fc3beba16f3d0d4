"""`Outbox`: notifications that wait because the peer is not ready or not reading, under the contract's drop rule.

Pure bookkeeping: it never writes. Calls and answers do not pass through here and are never dropped.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from plugbay.contracts.base import Traffic

if TYPE_CHECKING:
    from plugbay.model.operations import Operation


MAX_UNSENT = 8 << 20
"""Bytes waiting for a peer that does not read; past this calls and progress are refused instead of queued."""

BURST = 32
"""Notifications of one tick that are sent together; then the pipe has to take them before there may be more."""


class Outbox:
    """A bounded queue in which urgent operations overtake the others and keep their own order."""

    __slots__ = ("_plain", "_traffic", "_urgent", "dropped")

    def __init__(self, traffic: Traffic) -> None:
        self._traffic = traffic
        self._urgent: deque[Operation] = deque()
        self._plain: deque[Operation] = deque()
        self.dropped = 0

    def __len__(self) -> int:
        return len(self._urgent) + len(self._plain)

    def offer(self, op: Operation) -> None:
        """Queue `op`; when the queue is full, one operation is dropped and counted."""
        lane = self._urgent if type(op) in self._traffic.urgent else self._plain
        if len(self) >= self._traffic.capacity:
            self.dropped += 1
            if self._traffic.drops == "newest":
                return
            (self._plain or self._urgent).popleft()
        lane.append(op)

    def take(self) -> Operation | None:
        """The next operation to send, if any waits."""
        if self._urgent:
            return self._urgent.popleft()
        return self._plain.popleft() if self._plain else None
