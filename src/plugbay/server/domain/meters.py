"""`Meters`: counters and histograms by name and labels.

    meters.count("invocations", kind="tool", status="succeeded")
    meters.observe("call_seconds", 0.2, plugin="weather", export="forecast")

Labels must come from small sets: never a request, session or person id. `/metrics` renders them.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping

import msgspec

BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
"""Upper bounds of the buckets, in seconds."""

MAX_SERIES = 10_000
"""Label sets per name; further ones are counted together, because some label is unbounded."""

Labels = tuple[tuple[str, str], ...]

OVERFLOW: Labels = (("rest", "true"),)


class Histogram(msgspec.Struct):
    """A histogram: counts per bucket and the sum."""

    counts: list[int] = msgspec.field(default_factory=lambda: [0] * (len(BOUNDS) + 1))
    total: float = 0.0

    def add(self, seconds: float) -> None:
        self.counts[bisect_left(BOUNDS, seconds)] += 1
        self.total += seconds


class Meters:
    """All meters of one gateway."""

    def __init__(self) -> None:
        self.counters: dict[str, dict[Labels, float]] = {}
        self.histograms: dict[str, dict[Labels, Histogram]] = {}

    def count(self, name: str, times: float = 1, **labels: str) -> None:
        """Add to a counter."""
        series = self.counters.setdefault(name, {})
        key = _series_key(labels, series)
        series[key] = series.get(key, 0) + times

    def observe(self, name: str, seconds: float, **labels: str) -> None:
        """Add a duration to a histogram."""
        series = self.histograms.setdefault(name, {})
        key = _series_key(labels, series)
        histogram = series.get(key)
        if histogram is None:
            histogram = series[key] = Histogram()
        histogram.add(seconds)


def _series_key(labels: dict[str, str], series: Mapping[Labels, object]) -> Labels:
    key = tuple(sorted(labels.items()))
    return key if key in series or len(series) < MAX_SERIES else OVERFLOW
