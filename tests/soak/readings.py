"""Readings of a process under steady load, and the decision whether anything in it grows. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import TypeVar

MIB = 1 << 20

MEMORY_SHARE, MEMORY_SLACK = 0.05, 12 * MIB
"""Growth of memory that counts as noise: caches and the arenas of the allocator fill slowly."""
COUNT_SLACK = 12
"""Growth of descriptors and threads that counts as noise: processes and connections come and go."""
RECORD_BYTES, DISK_SLACK = 16 << 10, 96 * MIB
"""Disk that one record may take, with its indexes and logs; and the room of SQLite's write-ahead log."""
HEAP_SLACK, NODE_SLACK, LISTENER_SLACK, RENDERER_SLACK = 2 * MIB, 1_500, 50, 48 * MIB
"""Growth of the pages of a browser that counts as noise: charts get a point each minute until an hour is full, and a
browser counts the nodes of a process for each of its pages; and of the processes that render them, whose allocator
keeps what it once had."""


@dataclass(frozen=True, slots=True)
class Reading:
    """One look at a process and its data folder."""

    seconds: float
    memory: int
    """Bytes that no other process shares."""
    descriptors: int
    threads: int
    disk: int
    """Bytes of the data folder."""
    records: int
    """Requests that the server has recorded so far."""


@dataclass(frozen=True, slots=True)
class PageReading:
    """One look at a server and at the browser that views its pages."""

    seconds: float
    memory: int
    descriptors: int
    threads: int
    heap: int
    """Bytes of values of scripts, on all open pages."""
    nodes: int
    listeners: int
    renderers: int
    """Resident bytes of the processes that render pages."""


R = TypeVar("R", Reading, PageReading)


def find_growth(readings: Sequence[Reading]) -> list[str]:
    """What grew between the second third of the readings and the last; the first third is the warm-up."""
    third = len(readings) // 3
    if not third:
        return [_too_few(readings)]
    problems = _grown_memory(readings, "memory", MEMORY_SLACK, MEMORY_SHARE)
    problems += _grown(readings, "descriptors", COUNT_SLACK) + _grown(readings, "threads", COUNT_SLACK)
    added = readings[-1].disk - readings[third].disk
    allowed = (readings[-1].records - readings[third].records) * RECORD_BYTES + DISK_SLACK
    if added > allowed:
        problems.append(f"the data folder grew by {added / MIB:.1f} MiB; its records explain {allowed / MIB:.1f}")
    return problems


def find_page_growth(readings: Sequence[PageReading]) -> list[str]:
    """The same for page views."""
    if len(readings) < 3:
        return [_too_few(readings)]
    return [
        *_grown_memory(readings, "memory", MEMORY_SLACK, MEMORY_SHARE),
        *_grown(readings, "descriptors", COUNT_SLACK),
        *_grown(readings, "threads", COUNT_SLACK),
        *_grown_memory(readings, "heap", HEAP_SLACK),
        *_grown(readings, "nodes", NODE_SLACK),
        *_grown(readings, "listeners", LISTENER_SLACK),
        *_grown_memory(readings, "renderers", RENDERER_SLACK),
    ]


def _grown(readings: Sequence[R], name: str, slack: float) -> list[str]:
    before, after = _medians(readings, name)
    return [f"{name} grew from {before:g} to {after:g}"] if after - before > slack else []


def _grown_memory(readings: Sequence[R], name: str, slack: float, share: float = 0.0) -> list[str]:
    before, after = _medians(readings, name)
    if after - before <= max(before * share, slack):
        return []
    return [f"{name} grew from {before / MIB:.1f} to {after / MIB:.1f} MiB"]


def _medians(readings: Sequence[R], name: str) -> tuple[float, float]:
    third = len(readings) // 3
    middle, last = (
        median(getattr(each, name) for each in part) for part in (readings[third : 2 * third], readings[2 * third :])
    )
    return middle, last


def _too_few(readings: Sequence[object]) -> str:
    return f"{len(readings)} readings are too few to see growth"
