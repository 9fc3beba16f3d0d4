"""How often something may happen: a bucket of tokens that fills at a steady rate. Decides with values.

Pure: the clock comes in as a number, so every row of the decision is a row of a test table.
"""

from __future__ import annotations


class Bucket:
    """Lets `burst` through at once and `rate` per second for good. Starts full."""

    __slots__ = ("_at", "_burst", "_rate", "_tokens")

    def __init__(self, rate: float, burst: float) -> None:
        if rate <= 0 or burst < 1:
            raise ValueError("a bucket needs a rate above 0 and room for 1, or nothing ever passes")
        self._rate = rate
        self._burst = burst
        self._tokens = burst
        self._at: float | None = None

    def take(self, now: float) -> bool:
        """Whether one more may happen at `now`, in seconds of any steady clock; if so, it counts."""
        if self._at is None:
            self._at = now
        if now > self._at:  # a clock that went back brings nothing
            self._tokens = min(self._burst, self._tokens + (now - self._at) * self._rate)
            self._at = now
        if self._tokens < 1:
            return False
        self._tokens -= 1
        return True
