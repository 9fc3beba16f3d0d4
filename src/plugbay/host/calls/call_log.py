"""Two call logs that need no other service: one in memory, one as JSON lines. Both are public doubles of the port."""

from __future__ import annotations

import os
from collections import deque
from pathlib import Path

import msgspec

from plugbay.host.ports import CallRecord

KEPT = 1_000
"""Calls remembered in memory; older ones are forgotten first."""


class MemoryCallLog:
    """The last calls, newest last."""

    def __init__(self, kept: int = KEPT) -> None:
        self.records: deque[CallRecord] = deque(maxlen=kept)

    def finished(self, record: CallRecord) -> None:
        self.records.append(record)


def _private(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_CLOEXEC, 0o600)


class JsonLinesCallLog:
    """One JSON object per call, appended to a file. What cannot be written is counted, never raised."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.lost = 0
        path.parent.mkdir(parents=True, exist_ok=True)

    def finished(self, record: CallRecord) -> None:
        try:
            line = msgspec.json.encode(record.to_json()) + b"\n"
            with open(self.path, "ab", buffering=0, opener=_private) as file:
                file.write(line)
        except (OSError, ValueError):
            self.lost += 1
