"""Limits: concurrent calls of one plugin, concurrent starts of all plugins of a host, and rates.

Acquiring a free slot costs no await, because that is every call of a plugin that keeps up.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections import deque

from plugbay.host.admission import MIN_RETRY_SECONDS, RECENT_TURNS, expected_wait, retry_after
from plugbay.model.errors import Code, Failure

QUEUE_SECONDS = "queue_seconds"
"""Detail of a call that was refused because it would wait, or has waited, longer than its caller allows."""


def queue_failure(busy: str, patience: float, again: float) -> Failure:
    """The refusal of a call that may wait no longer than `patience`; `again` is when to call again, in seconds."""
    text = f"{busy}, so the call would wait too long; nothing was started"
    hint = f"call again in {again:.1f} s, make fewer calls at once, or raise the concurrency of the plugin"
    detail = {"hint": hint, QUEUE_SECONDS: round(patience, 3)}
    return Failure(Code.OVERLOADED, text, detail=detail, retryable=True, retry_after_ms=round(again * 1000))


class ConcurrencyLimit:
    """A fair, bounded number of concurrent calls of one plugin. Further calls queue until their own deadlines, or are
    refused as soon as they would wait longer than their caller allows."""

    __slots__ = ("_turns", "_waiters", "in_use", "limit")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.in_use = 0
        """Slots taken by running calls."""
        self._waiters: deque[asyncio.Future[None]] = deque()
        self._turns: deque[float] = deque(maxlen=RECENT_TURNS)
        """When the last slots were handed on, since the queue was empty."""

    def try_acquire(self) -> bool:
        """Take a slot if one is free and no call is queued for it."""
        if self.in_use >= self.limit or self._waiters:
            return False
        self.in_use += 1
        return True

    def queue_refusal(self, patience: float) -> Failure | None:
        """Why a call that may wait for `patience` seconds gets no slot; None: it gets one at once, or may wait."""
        if self.in_use < self.limit and not self._waiters:
            return None
        again = retry_after(len(self._waiters), self._turns, time.monotonic(), patience)
        return None if again is None else self._queue_failure(patience, again)

    async def acquire(self, seconds: float | None, patience: float | None = None) -> Failure | None:
        """Take a slot as soon as one is free; return a `Failure` if none is free within `seconds`.

        With `patience`, a call that would wait longer is refused at once, and one that has waited so long as well.
        """
        if self.try_acquire():
            return None
        if patience is not None and (seconds is None or patience < seconds):
            return self.queue_refusal(patience) or await self._wait_patiently(patience)
        if await self._wait(seconds):
            return None
        text = f"{self.limit} calls of this plugin are running, and none ended in time"
        hint = "raise concurrency in plugbay.toml, or make fewer calls at once"
        return Failure(Code.OVERLOADED, text, detail={"hint": hint}, retryable=True)

    async def _wait_patiently(self, patience: float) -> Failure | None:
        if await self._wait(patience):
            return None
        wait = expected_wait(len(self._waiters), self._turns, time.monotonic())
        return self._queue_failure(patience, max(patience, wait or 0.0, MIN_RETRY_SECONDS))

    def _queue_failure(self, patience: float, again: float) -> Failure:
        return queue_failure(
            f"{self.limit} calls of it are running and {len(self._waiters)} are waiting", patience, again
        )

    async def _wait(self, seconds: float | None) -> bool:
        """Queue for a slot; False if there was none in time."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        try:
            await asyncio.wait({waiter}, timeout=seconds)
        except BaseException:
            self._withdraw(waiter)
            raise
        if waiter.done():
            return True
        self._withdraw(waiter)
        return False

    def release(self) -> None:
        """End a call: its slot goes to the call that has waited longest."""
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)
                self._turns.append(time.monotonic())
                return
        self._turns.clear()
        self.in_use -= 1

    async def drain(self) -> None:
        """Take every slot, after the calls that are queued now. Later calls never get one."""
        for _ in range(self.limit):
            await self.acquire(None)

    def _withdraw(self, waiter: asyncio.Future[None]) -> None:
        """Leave the queue; a slot that was granted at the same moment goes on to the next call."""
        if waiter.done() and not waiter.cancelled():
            self.release()
        elif waiter in self._waiters:
            self._waiters.remove(waiter)


MIN_STARTS = 4
"""Concurrent starts on a machine with few processors: a starting program also waits for the disk."""

STARTS_PER_CORE = 2

MAX_START_SECONDS = 2.0
"""How long one start holds its slot: a program that hangs must not keep others from starting."""


def default_start_slots() -> int:
    """The number of concurrent starts for the processors that this process may use."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(MIN_STARTS, STARTS_PER_CORE * cores)


class StartSlot:
    """One slot of a `StartLimit`, held until it is released or its time is over."""

    __slots__ = ("_slots", "_timer")

    def __init__(self, slots: asyncio.Semaphore, seconds: float) -> None:
        self._slots: asyncio.Semaphore | None = slots
        self._timer = asyncio.get_running_loop().call_later(seconds, self.release)

    def release(self) -> None:
        """Let the next start go ahead. May be called twice."""
        self._timer.cancel()
        if self._slots is not None:
            self._slots.release()
            self._slots = None


class StartLimit:
    """Limits how many plugins of one host start at a time, from the spawn to the end of the greeting; first come, first
    served.

    A starting program needs more processor time than ever afterwards. If two hundred started at once, many would miss
    the timeout of their greeting; a few at a time, the last one is ready just as early.
    """

    __slots__ = ("_seconds", "_slots")

    def __init__(self, slots: int | None = None, seconds: float = MAX_START_SECONDS) -> None:
        self._slots = asyncio.Semaphore(default_start_slots() if slots is None else slots)
        self._seconds = seconds

    async def acquire(self) -> StartSlot:
        """Wait for a free slot."""
        await self._slots.acquire()
        return StartSlot(self._slots, self._seconds)


class SlidingWindow:
    """Allows `count` events in any `seconds`, bursts included. The caller has the clock."""

    __slots__ = ("_seconds", "_times")

    def __init__(self, count: int, seconds: float = 1.0) -> None:
        if count < 1:
            raise ValueError("a window needs a count of at least 1")
        self._seconds = seconds
        self._times: deque[float] = deque(maxlen=count)

    def take(self, now: float) -> bool:
        """Count an event at `now`, in seconds of any monotonic clock; False: the limit is reached."""
        times = self._times
        if len(times) == times.maxlen and now - times[0] < self._seconds:
            return False
        times.append(now)
        return True


class TokenBucket:
    """Allows `burst` events at once and `rate` per second in the long run. Starts full. The caller has the clock."""

    __slots__ = ("_at", "_burst", "_rate", "_tokens")

    def __init__(self, rate: float, burst: float) -> None:
        if rate <= 0 or burst < 1:
            raise ValueError("a token bucket needs a rate above 0 and a burst of at least 1")
        self._rate = rate
        self._burst = burst
        self._tokens = burst
        self._at: float | None = None

    def take(self, now: float) -> bool:
        """Take a token if there is one at `now`, in seconds of any monotonic clock; False: the limit is reached."""
        if self._at is None:
            self._at = now
        if now > self._at:  # a clock that went back adds no tokens
            self._tokens = min(self._burst, self._tokens + (now - self._at) * self._rate)
            self._at = now
        if self._tokens < 1:
            return False
        self._tokens -= 1
        return True
