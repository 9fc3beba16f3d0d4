"""`Deadlines`: many timeouts, one timer.

A wheel of dictionaries: an entry lands in the bucket of its tick and leaves it when its call finishes, so memory
follows what is in flight. Costs a call about 1 us where `asyncio.timeout` costs 10. Owns the one `call_at` of its loop;
knows nothing about what expires.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable
from typing import Protocol

TICK = 0.005
"""Seconds per bucket. A deadline fires at most one tick late and never early."""


class Expiring(Protocol):
    """Something that is told when its time is over."""

    @property
    def expire(self) -> Callable[[], None]: ...


class Alarm:
    """Any callback as something that can expire."""

    __slots__ = ("expire",)

    def __init__(self, expire: Callable[[], None]) -> None:
        self.expire = expire


class Deadlines:
    """All deadlines of one event loop."""

    __slots__ = ("_buckets", "_loop", "_now", "_ticks", "_timer")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._now = loop.time
        self._buckets: dict[int, dict[Expiring, None]] = {}
        self._ticks: list[int] = []
        self._timer: tuple[int, asyncio.TimerHandle] | None = None

    def add(self, seconds: float, entry: Expiring) -> int:
        """Call `entry.expire()` in `seconds`; returns what `discard` needs."""
        tick = int((self._now() + seconds) / TICK) + 1
        bucket = self._buckets.get(tick)
        if bucket is None:
            bucket = self._buckets[tick] = {}
            heapq.heappush(self._ticks, tick)
            if self._timer is None or tick < self._timer[0]:
                self._arm(tick)
        bucket[entry] = None
        return tick

    def discard(self, tick: int, entry: Expiring) -> None:
        """Forget `entry`; harmless when it has expired already."""
        bucket = self._buckets.get(tick)
        if bucket is not None:
            bucket.pop(entry, None)
            if not bucket:
                del self._buckets[tick]

    def __len__(self) -> int:
        return sum(map(len, self._buckets.values()))

    def close(self) -> None:
        """Drop everything; nothing will expire any more."""
        if self._timer is not None:
            self._timer[1].cancel()
            self._timer = None
        self._buckets.clear()
        self._ticks.clear()

    def _arm(self, tick: int) -> None:
        if self._timer is not None:
            self._timer[1].cancel()
        self._timer = (tick, self._loop.call_at(tick * TICK, self._turn))

    def _turn(self) -> None:
        self._timer = None
        now = int(self._loop.time() / TICK)
        while self._ticks and self._ticks[0] <= now:
            for entry in self._buckets.pop(heapq.heappop(self._ticks), ()):
                entry.expire()
        while self._ticks and self._ticks[0] not in self._buckets:
            heapq.heappop(self._ticks)
        if self._ticks and self._timer is None:
            self._arm(self._ticks[0])
