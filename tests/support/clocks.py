"""A clock that tests turn."""

from __future__ import annotations


class TurnedClock:
    """Stands still until it is turned. Both clocks go together unless only one is set."""

    def __init__(self, now: float = 1_770_000_000.0) -> None:
        self.wall = now
        self.steady = 1_000.0

    def now(self) -> float:
        return self.wall

    def monotonic(self) -> float:
        return self.steady

    def turn(self, seconds: float) -> None:
        self.wall += seconds
        self.steady += seconds
