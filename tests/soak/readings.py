"""Readings of a process under steady load, and the decision whether anything in it grows. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median

MIB = 1 << 20

MEMORY_SHARE, MEMORY_SLACK = 0.05, 12 * MIB
"""Growth of memory that counts as noise: caches and the arenas of the allocator fill slowly."""
COUNT_SLACK = 12
"""Growth of descriptors and threads that counts as noise: processes and connections come and go."""
RECORD_BYTES, DISK_SLACK = 16 << 10, 96 * MIB
"""Disk that one record may take, with its indexes and logs; and the room of SQLite's write-ahead log."""


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


def find_growth(readings: Sequence[Reading]) -> list[str]:
    """What grew between the second third of the readings and the last; the first third is the warm-up."""
    third = len(readings) // 3
    if not third:
        return [f"{len(readings)} readings are too few to see growth"]
    middle, last = readings[third : 2 * third], readings[2 * third :]

    def grew(value: Callable[[Reading], int]) -> tuple[float, float]:
        before, after = (median(map(value, part)) for part in (middle, last))
        return before, after

    problems = []
    before, after = grew(lambda reading: reading.memory)
    if after - before > max(before * MEMORY_SHARE, MEMORY_SLACK):
        problems.append(f"memory grew from {before / MIB:.1f} to {after / MIB:.1f} MiB")
    for name in ("descriptors", "threads"):
        before, after = grew(lambda reading, name=name: getattr(reading, name))  # type: ignore[misc]
        if after - before > COUNT_SLACK:
            problems.append(f"{name} grew from {before:g} to {after:g}")
    added = readings[-1].disk - readings[third].disk
    allowed = (readings[-1].records - readings[third].records) * RECORD_BYTES + DISK_SLACK
    if added > allowed:
        problems.append(f"the data folder grew by {added / MIB:.1f} MiB; its records explain {allowed / MIB:.1f}")
    return problems
