"""`TokenBucket`: limits how often something may happen.

Pure: the clock comes in as a number, so every row of the decision is a row of a test table.
"""

from __future__ import annotations


class TokenBucket:
    """Allows `burst` events at once and `rate` per second in the long run. Starts full."""

    __slots__ = ("_at", "_burst", "_rate", "_tokens")

    def __init__(self, rate: float, burst: float) -> None:
        if rate <= 0 or burst < 1:
            raise ValueError("a token bucket needs a rate above 0 and a burst of at least 1, or nothing ever passes")
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
