"""`Meters`: how often and how long, by name and labels, for whoever looks. Counts; decides nothing, keeps no past.

    meters.count("invocations", kind="tool", status="succeeded")
    meters.observe("invocation_seconds", 0.2, kind="tool")

Labels must come from small sets: never an id of a request, a session or a person. How they are shown is `control`'s.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass, field

BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
"""Seconds at which durations are told apart: from a call to a child that is ready to a harness at work."""

MAX_SERIES = 10_000
"""Of one name: more would mean that somebody chose a label without bounds, so the rest is counted as one."""

Labels = tuple[tuple[str, str], ...]

REST: Labels = (("rest", "true"),)


@dataclass(slots=True)
class Spread:
    """How long things took: how many up to each bound, how many in all, how long together."""

    counts: list[int] = field(default_factory=lambda: [0] * (len(BOUNDS) + 1))
    total: float = 0.0

    def add(self, seconds: float) -> None:
        self.counts[bisect_left(BOUNDS, seconds)] += 1
        self.total += seconds


class Meters:
    """All meters of one gateway."""

    def __init__(self) -> None:
        self.counters: dict[str, dict[Labels, float]] = {}
        self.spreads: dict[str, dict[Labels, Spread]] = {}

    def count(self, name: str, times: float = 1, **labels: str) -> None:
        """It happened so many times more."""
        series = self.counters.setdefault(name, {})
        key = _key(labels, series)
        series[key] = series.get(key, 0) + times

    def observe(self, name: str, seconds: float, **labels: str) -> None:
        """It took so long."""
        series = self.spreads.setdefault(name, {})
        series.setdefault(_key(labels, series), Spread()).add(seconds)


def _key(labels: dict[str, str], series: Mapping[Labels, object]) -> Labels:
    key = tuple(sorted(labels.items()))
    return key if key in series or len(series) < MAX_SERIES else REST
