"""`Clock`: wall clock and monotonic clock, and RFC 3339 timestamps.

Deadlines and backoff use `monotonic`; records use `now`.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Protocol


class Clock(Protocol):
    """Two clocks."""

    def now(self) -> float:
        """Seconds since the epoch, UTC."""
        ...

    def monotonic(self) -> float:
        """Seconds that only ever grow."""
        ...


class SystemClock:
    """The machine's."""

    def now(self) -> float:
        return round(time.time(), 6)  # as databases keep it, so what is read back is equal

    def monotonic(self) -> float:
        return time.monotonic()


def stamp(at: float) -> str:
    """A moment as RFC 3339 in UTC, to the microsecond: `2026-03-12T20:00:00.000000Z`."""
    return datetime.fromtimestamp(round(at, 6), UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def maybe_stamp(at: float | None) -> str | None:
    """The same for a moment that may not have come yet."""
    return None if at is None else stamp(at)


def moment(text: str) -> float:
    """The moment that an RFC 3339 text names; raises `ValueError`. Without an offset it is UTC."""
    found = datetime.fromisoformat(text)
    return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()
