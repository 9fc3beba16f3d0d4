"""A screen written with the SDK: painted for each request, chunks collected. Runs on the core BENCH_CORE."""

from __future__ import annotations

import os

from bench.children.full_frame import MARKS, paint
from plugbay.sdk import Canvas, ChunkCollector, Key, Plugin, Snapshot

plugin = Plugin("ainb_sdk", version="1.0.0", capabilities=["event_bus"])
collector = ChunkCollector(version=1)
keys = 0


@plugin.screen("screen")
def draw(canvas: Canvas) -> None:
    """Every cell."""
    paint(canvas, MARKS[keys % len(MARKS)])


@plugin.on_key("screen")
def press(key: Key) -> None:
    """Any key."""
    global keys
    keys += 1


@plugin.on_snapshot("bench.storm")
def collect(snapshot: Snapshot) -> None:
    """What a subscriber does with a piece."""
    collector.add(snapshot)


if __name__ == "__main__":
    if "BENCH_CORE" in os.environ:
        os.sched_setaffinity(0, {int(os.environ["BENCH_CORE"])})
    plugin.run()
