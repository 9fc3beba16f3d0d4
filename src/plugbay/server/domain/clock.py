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


def stamp(at: float) -> str:
    """RFC 3339 in UTC with microseconds: `2026-03-12T20:00:00.000000Z`."""
    return datetime.fromtimestamp(round(at, 6), UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def moment(text: str) -> float:
    """Parse RFC 3339; raises `ValueError`. Without an offset it is UTC."""
    found = datetime.fromisoformat(text)
    return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()
