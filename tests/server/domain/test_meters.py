"""Counters and histograms by name and labels."""

from __future__ import annotations

from plugbay.server.domain.meters import BOUNDS, MAX_SERIES, OVERFLOW, Meters


def test_counts_are_kept_by_labels() -> None:
    meters = Meters()
    meters.count("calls", plugin="p", status="failed")
    meters.count("calls", 2, status="failed", plugin="p")
    meters.count("calls", plugin="q", status="failed")
    assert meters.counters["calls"][(("plugin", "p"), ("status", "failed"))] == 3
    assert len(meters.counters["calls"]) == 2


def test_durations_are_counted_in_buckets() -> None:
    meters = Meters()
    for seconds in (0.0, BOUNDS[0], BOUNDS[0] * 1.01, 10_000.0):
        meters.observe("call_seconds", seconds)
    spread = meters.histograms["call_seconds"][()]
    assert (spread.counts[0], spread.counts[1], spread.counts[-1]) == (2, 1, 1)
    assert spread.total == BOUNDS[0] * 2.01 + 10_000.0


def test_labels_without_bounds_are_counted_as_one() -> None:
    meters = Meters()
    for number in range(MAX_SERIES + 5):
        meters.count("calls", id=str(number))
    assert len(meters.counters["calls"]) == MAX_SERIES + 1
    assert meters.counters["calls"][OVERFLOW] == 5
