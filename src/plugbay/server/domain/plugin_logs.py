"""What a plugin of the host wrote and what happened to it: the last lines, and those that follow.

Owns two sources in one form: the journal (the host's remarks, lines a plugin logged) and the file with what it wrote to
stderr. Lines are printable already, whoever wrote them.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

from plugbay.host.journal import OWN_LINE, Journal, Note
from plugbay.process.stderr import log_name
from plugbay.server.domain.clock import stamp

MAX_TAIL = 1000
"""Lines that are shown of the past."""

TAIL_BYTES = 256 << 10
"""Read from the end of a file for them."""

LOOK_EVERY = 0.25
"""Seconds between looks at what may have grown: a person watches, and cannot tell."""


@dataclass(frozen=True, slots=True)
class Line:
    """One line of one plugin."""

    at: str
    """RFC 3339, UTC."""
    source: str
    """`host`, `plugin` or `stderr`: who wrote it."""
    level: str
    text: str


class PluginLogs:
    """The lines of all plugins of one host."""

    def __init__(self, journal: Journal, log_dir: Path | None) -> None:
        self._journal = journal
        self._log_dir = log_dir

    def tail(self, plugin_id: str, count: int) -> list[Line]:
        """The last lines, oldest first."""
        file = self._file(plugin_id)
        begin = max(0, file.size() - TAIL_BYTES)
        written = file.more(begin)[1 if begin else 0 :]  # the first may be the end of a line
        lines = sorted([*map(_line, self._journal.recent(plugin_id)), *written], key=lambda line: line.at)
        return lines[-count:] if count else []

    async def follow(self, plugin_id: str) -> AsyncIterator[Line]:
        """Every line from now on, for as long as somebody reads."""
        file = self._file(plugin_id)
        file.at = file.size()
        notes = self._journal.recent(plugin_id)
        last = notes[-1] if notes else None
        while True:
            notes = self._journal.recent(plugin_id)
            fresh = notes if last is None else _after(notes, last)
            last = notes[-1] if notes else last
            for line in sorted([*map(_line, fresh), *file.more(file.at)], key=lambda line: line.at):
                yield line
            await asyncio.sleep(LOOK_EVERY)

    def _file(self, plugin_id: str) -> _File:
        return _File(None if self._log_dir is None else self._log_dir / log_name(plugin_id))


class _File:
    """What a plugin wrote to stderr. A file that is not there, or was begun anew, is no error."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self.at = 0

    def size(self) -> int:
        try:
            return 0 if self._path is None else os.stat(self._path).st_size
        except OSError:
            return 0

    def more(self, at: int) -> list[Line]:
        """The whole lines from there on; `at` is where those end."""
        size = self.size()
        if self._path is None or size == at:
            return []
        at = 0 if size < at else at  # begun anew
        try:
            with open(self._path, "rb") as file:
                file.seek(at)
                data = file.read(TAIL_BYTES)
        except OSError:
            return []
        whole = data[: data.rfind(b"\n") + 1]
        self.at = at + len(whole)
        return [_stderr(line) for line in whole.decode("utf-8", "replace").splitlines()]


def _after(notes: list[Note], last: Note) -> list[Note]:
    """Those that were made after this one, which may have been pushed out."""
    return [note for note in notes if note.at > last.at]


def _line(note: Note) -> Line:
    return Line(stamp(note.at), "plugin" if note.kind.startswith(OWN_LINE) else "host", note.level, _text(note))


def _text(note: Note) -> str:
    return note.text if note.kind.startswith(OWN_LINE) else f"{note.kind}: {note.text}"


def _stderr(line: str) -> Line:
    at, _, text = line.partition(" ")
    return Line(at, "stderr", "info", text)
