"""Which saved files are worth a reload: those of the author, not those that programs write on their own.

Owns the names that are passed over, how long saves are gathered, and the plugin that writes into its own folder: a file
that changes whenever the plugin is called would reload it for ever. Refuses to know what a reload is.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio

QUIET_MS = 80
"""Silence after which what was saved belongs together: an editor writes, renames and sets modes well within it."""

LONGEST_MS = 1000
"""After which a reload comes even when there is no silence, as during a long checkout."""

FOLDERS = frozenset("__pycache__ node_modules logs log target dist build venv env htmlcov".split())
"""Names of folders in which programs write; beside them, every name that begins with a dot."""

ENDINGS = tuple(".pyc .pyo .log .db .db-journal .db-wal .db-shm .sqlite .sqlite3 .swp .swx .tmp .bak .orig ~".split())

OWN_WRITES = 2
"""Calls in a row during which a file was written, and nothing else, until it is taken for the plugin's own."""


def matters(path: Path, root: Path) -> bool:
    """Whether a file may be the author's."""
    try:
        parts = path.relative_to(root).parts
    except ValueError:
        return False
    if not parts or any(part.startswith(".") or part in FOLDERS for part in parts[:-1]):
        return False
    name = parts[-1]
    return not name.startswith((".", "#")) and not name.endswith(ENDINGS) and not name.isdigit() and name not in FOLDERS


class OwnFiles:
    """The files that the plugin itself writes when it is called."""

    def __init__(self) -> None:
        self._suspects: dict[str, int] = {}
        self.known: set[str] = set()

    def called(self, written: Iterable[str]) -> list[str]:
        """What was written during a call that nobody but a save had asked for; those files that are now known."""
        names = set(written)
        self._suspects = {name: self._suspects.get(name, 0) + 1 for name in names}
        found = sorted(name for name, times in self._suspects.items() if times >= OWN_WRITES)
        self.known.update(found)
        return found

    def forget(self) -> None:
        """The author has saved something: whatever was suspected may be the author's too."""
        self._suspects.clear()


async def saves(root: Path, stop: asyncio.Event) -> AsyncIterator[list[str]]:
    """The files that were saved, relative to the root, gathered over a moment; ends when `stop` is set.

    The root is a real path, without links: that is what the system tells of.
    """
    from watchfiles import awatch

    changes = awatch(
        root,
        watch_filter=lambda _, path: matters(Path(path), root),
        debounce=LONGEST_MS,
        step=QUIET_MS,
        stop_event=stop,
        ignore_permission_denied=True,
    )
    async for batch in changes:
        yield sorted({str(Path(path).relative_to(root)) for _, path in batch})
