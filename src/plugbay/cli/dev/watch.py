"""Watches a plugin's folder for saved files.

Ignores files that programs write (caches, builds, logs), and files that the plugin itself writes during its calls: they
would reload it forever.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio

DEBOUNCE_MS = 80
"""Quiet time after which saved files form one batch; an editor writes, renames and sets modes well within it."""

MAX_DELAY_MS = 1000
"""A batch ends after this time even without a quiet moment, as during a long checkout."""

FOLDERS = frozenset("__pycache__ node_modules logs log target dist build venv env htmlcov".split())
"""Ignored folder names; names that begin with a dot are ignored too."""

ENDINGS = tuple(".pyc .pyo .log .db .db-journal .db-wal .db-shm .sqlite .sqlite3 .swp .swx .tmp .bak .orig ~".split())

OWN_WRITES = 2
"""Consecutive calls that wrote a file before it counts as the plugin's own."""


def is_watched(path: Path, root: Path) -> bool:
    """Whether a change of this file may be a save of the author."""
    try:
        parts = path.relative_to(root).parts
    except ValueError:
        return False
    if not parts or any(part.startswith(".") or part in FOLDERS for part in parts[:-1]):
        return False
    name = parts[-1]
    return not name.startswith((".", "#")) and not name.endswith(ENDINGS) and not name.isdigit() and name not in FOLDERS


class PluginWrites:
    """Learns which files the plugin itself writes during its calls."""

    def __init__(self) -> None:
        self._suspects: dict[str, int] = {}
        self.known: set[str] = set()

    def record(self, written: Iterable[str]) -> list[str]:
        """Note the files written during a repeated call; return those now known as the plugin's own."""
        names = set(written)
        self._suspects = {name: self._suspects.get(name, 0) + 1 for name in names}
        found = sorted(name for name, times in self._suspects.items() if times >= OWN_WRITES)
        self.known.update(found)
        return found

    def forget(self) -> None:
        """Clear the suspects: the author has saved a file, so any of them may be the author's."""
        self._suspects.clear()


async def watch_saves(root: Path, stop: asyncio.Event) -> AsyncIterator[list[str]]:
    """Yield batches of saved files, relative to the root; ends when `stop` is set.

    The root must be a real path without symbolic links, because the system reports real paths.
    """
    from watchfiles import awatch

    changes = awatch(
        root,
        watch_filter=lambda _, path: is_watched(Path(path), root),
        debounce=MAX_DELAY_MS,
        step=DEBOUNCE_MS,
        stop_event=stop,
        ignore_permission_denied=True,
    )
    async for batch in changes:
        yield sorted({str(Path(path).relative_to(root)) for _, path in batch})
