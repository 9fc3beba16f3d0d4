"""`Clock`: wall clock and monotonic clock, and RFC 3339 timestamps.

Deadlines and backoff use `monotonic`; records use `now`.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Protocol


class Clock(Protocol):
    """Wall clock and monotonic clock."""

    def now(self) -> float:
        """Seconds since the epoch, UTC."""
        ...

    def monotonic(self) -> float:
        """Monotonic seconds."""
        ...


class SystemClock:
    """The clocks of the machine."""

    def now(self) -> float:
        return round(time.time(), 6)  # the precision of the database, so values read back are equal

    def monotonic(self) -> float:
        return time.monotonic()


class SharedClock:
    """The wall clock of a database that several gateways share; times of their records must agree.

    Between two comparisons it runs with a clock of this machine that is never set, and does not stop in a suspension.
    """

    def __init__(self) -> None:
        self._ahead = time.time() - boot_time()

    def follow(self, now: float, asked_at: float) -> None:
        """The database said `now` at a moment between the boot time `asked_at` and this one.

        A clock that may be right stays as it is, since an answer that took long is no reason to move it. Another one
        moves to the nearest time that may be right.
        """
        nearest = min(max(self._ahead, now - boot_time()), now - asked_at)
        if abs(nearest - self._ahead) > CLOCK_JITTER:
            self._ahead = nearest

    def now(self) -> float:
        return round(boot_time() + self._ahead, 6)

    def monotonic(self) -> float:
        return time.monotonic()


CLOCK_JITTER = 0.05
"""Seconds by which the clock may be wrong without being moved: clocks of machines never run at quite the same speed."""


def boot_time() -> float:
    """Seconds since the machine started, with the time of suspensions."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def stamp(at: float) -> str:
    """RFC 3339 in UTC with microseconds: `2026-03-12T20:00:00.000000Z`."""
    return datetime.fromtimestamp(round(at, 6), UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def moment(text: str) -> float:
    """Parse RFC 3339; raises `ValueError`. Without an offset it is UTC."""
    found = datetime.fromisoformat(text)
    return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()
