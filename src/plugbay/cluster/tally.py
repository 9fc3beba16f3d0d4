"""`Tally`: what became of the calls that a gateway gave to nodes: counts, calls per minute, durations.

Pure: times are parameters. Bounded: the newest durations of each node are kept.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Container

from plugbay.cluster.outcomes import FAILED, LOST, OUTCOMES, REFUSED, SUCCEEDED

SECONDS = 60
KEPT_DURATIONS = 200
"""Answered calls of a node whose durations are kept."""


class NodeTally:
    """The calls that were given to one node."""

    __slots__ = ("_at", "_durations", "_ring", "failed", "refused", "total")

    def __init__(self) -> None:
        self.total = 0
        """Calls that the node has taken."""
        self.failed = 0
        """Those that failed or whose answer was lost."""
        self.refused = 0
        """Further calls, which the node has not taken."""
        self._ring = [0] * SECONDS
        """Calls by the second in which they ended."""
        self._at = 0
        self._durations: deque[float] = deque(maxlen=KEPT_DURATIONS)

    def count(self, outcome: str, seconds: float, now: float) -> None:
        """Count a call that ended now."""
        if outcome == REFUSED:
            self.refused += 1
            return
        self.total += 1
        self.failed += outcome in (FAILED, LOST)
        self._turn(now)
        self._ring[self._at % SECONDS] += 1
        if outcome in (SUCCEEDED, FAILED):
            self._durations.append(seconds)

    def per_minute(self, now: float) -> int:
        """Calls that ended in the last minute."""
        self._turn(now)
        return sum(self._ring)

    @property
    def median(self) -> float | None:
        """Seconds of the middle one of the newest answered calls."""
        found = sorted(self._durations)
        return found[len(found) // 2] if found else None

    def _turn(self, now: float) -> None:
        """Empty the places of the seconds that have passed."""
        second = int(now)
        for passed in range(max(self._at + 1, second - SECONDS + 1), second + 1):
            self._ring[passed % SECONDS] = 0
        self._at = max(self._at, second)


class Tally:
    """All calls of a gateway to nodes."""

    def __init__(self) -> None:
        self.nodes: dict[str, NodeTally] = {}
        self.outcomes = dict.fromkeys(OUTCOMES, 0)

    def count(self, node: str, outcome: str, seconds: float, now: float) -> None:
        """Count a call that ended now."""
        self.outcomes[outcome] += 1
        self.nodes.setdefault(node, NodeTally()).count(outcome, seconds, now)

    def keep(self, nodes: Container[str]) -> None:
        """Forget the other nodes."""
        for name in [name for name in self.nodes if name not in nodes]:
            del self.nodes[name]
