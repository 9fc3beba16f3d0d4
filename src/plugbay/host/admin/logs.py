"""`PluginLogs`: the lines of each plugin for an operator: its stderr, its own log lines, and the notes of the host.

The journal and the stderr files are the sources; nothing is kept here.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from plugbay.host.journal import OWN_LINE, Journal, Note
from plugbay.host.recording.org_logs import LOG_EVENT
from plugbay.process.stderr import log_name

MAX_TAIL = 1000
"""Maximum number of past lines."""

TAIL_BYTES = 256 << 10
"""Bytes read from the end of a stderr file."""

_EVENT_TAG = f"[{LOG_EVENT}:"
"""Begins a line that a plugin sent as an event (`OrgLogs`)."""

LOG_POLL_SECONDS = 0.25
"""Seconds between polls of journal and stderr file."""


class LogLine(msgspec.Struct, frozen=True):
    """One line of one plugin."""

    at: str
    """RFC 3339, UTC."""
    source: str
    """`host`, `plugin` or `stderr`."""
    level: str
    text: str
    node: str = ""
    """The node that it is from; empty: this machine."""


class PluginLogs:
    """The lines of all plugins of one host."""

    def __init__(self, journal: Journal, log_dir: Path | None) -> None:
        self._journal = journal
        self._log_dir = log_dir

    def tail(self, plugin_id: str, count: int) -> list[LogLine]:
        """The last lines, oldest first."""
        notes, written = map(_note_line, self._journal.recent(plugin_id)), self.stderr(plugin_id, count)
        lines = sorted([*notes, *written], key=lambda line: line.at)
        return lines[-count:] if count else []

    def stderr_tail(self, plugin_id: str, count: int) -> tuple[list[LogLine], int]:
        """The last lines of its stderr, oldest first, and the place after them for `stderr_after`."""
        file = self._file(plugin_id)
        begin = file.at = max(0, file.size() - TAIL_BYTES)
        lines = file.lines(begin)[1 if begin else 0 :]  # the first may be the end of a line
        return (list(map(_stderr_line, lines[-count:])) if count else []), file.at

    def stderr_after(self, plugin_id: str, place: int) -> tuple[list[LogLine], int]:
        """The lines of its stderr after this place, at most the first `TAIL_BYTES`, and the place after them."""
        file = self._file(plugin_id)
        file.at = place
        return file.more(place), file.at

    def stderr(self, plugin_id: str, count: int) -> list[LogLine]:
        """The last lines of its stderr, oldest first."""
        return self.stderr_tail(plugin_id, count)[0]

    def stderr_size(self, plugin_id: str) -> int:
        """Where its stderr ends now, for `stderr_since`."""
        return self._file(plugin_id).size()

    def stderr_since(self, plugin_id: str, size: int) -> list[LogLine]:
        """The lines of its stderr after this place, at most the first `TAIL_BYTES`."""
        return self._file(plugin_id).more(size)

    async def follow(self, plugin_id: str) -> AsyncGenerator[LogLine, None]:
        """Lines from now on."""
        file = self._file(plugin_id)
        file.at = file.size()
        notes = self._journal.recent(plugin_id)
        last = notes[-1] if notes else None
        while True:
            notes = self._journal.recent(plugin_id)
            fresh = notes if last is None else _notes_after(notes, last)
            last = notes[-1] if notes else last
            for line in sorted([*map(_note_line, fresh), *file.more(file.at)], key=lambda line: line.at):
                yield line
            await asyncio.sleep(LOG_POLL_SECONDS)

    def _file(self, plugin_id: str) -> _StderrFile:
        return _StderrFile(None if self._log_dir is None else self._log_dir / log_name(plugin_id))


class _StderrFile:
    """The stderr file of a plugin. It may be missing or truncated."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self.at = 0

    def size(self) -> int:
        try:
            return 0 if self._path is None else os.stat(self._path).st_size
        except OSError:
            return 0

    def more(self, at: int) -> list[LogLine]:
        """Complete lines from offset `at`; updates the offset."""
        return list(map(_stderr_line, self.lines(at)))

    def lines(self, at: int) -> list[str]:
        """The same, as they are in the file."""
        size = self.size()
        if self._path is None or size == at:
            return []
        at = 0 if size < at else at  # truncated
        try:
            with open(self._path, "rb") as file:
                file.seek(at)
                data = file.read(TAIL_BYTES)
        except OSError:
            return []
        whole = data[: data.rfind(b"\n") + 1]
        self.at = at + len(whole)
        return whole.decode("utf-8", "replace").splitlines()


def _notes_after(notes: list[Note], last: Note) -> list[Note]:
    """Notes newer than this one, which may have been evicted."""
    return [note for note in notes if note.at > last.at]


def _note_line(note: Note) -> LogLine:
    return LogLine(
        _stamp(note.at), "plugin" if note.kind.startswith(OWN_LINE) else "host", note.level, _note_text(note)
    )


def _stamp(at: float) -> str:
    return datetime.fromtimestamp(round(at, 6), UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _note_text(note: Note) -> str:
    return note.text if note.kind.startswith(OWN_LINE) else f"{note.kind}: {note.text}"


def _stderr_line(line: str) -> LogLine:
    """A line of a file. Lines of stderr begin with the pid, so none of them looks like a log event."""
    at, _, text = line.partition(" ")
    if text.startswith(_EVENT_TAG):
        level, _, message = text.removeprefix(_EVENT_TAG).partition("] ")
        return LogLine(at, "plugin", level, message)
    return LogLine(at, "stderr", "info", text)
