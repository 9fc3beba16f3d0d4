"""`Protected`: paths that no plugin reaches, whatever a manifest or a grant says: the host's own, and other plugins'.

The rule: of the protected paths and the plugin's own, the deepest one that contains a path decides. Compares text only,
so the caller must have resolved all links.
"""

from __future__ import annotations

from collections.abc import Container, Iterable
from dataclasses import dataclass

FOLDER, FILE, DATABASE, SETTINGS = "folder", "file", "database", "settings"


def is_within(path: str, folder: str) -> bool:
    """Whether a path is a folder or lies below it."""
    return path == folder or path.startswith(f"{folder.rstrip('/')}/")


def protecting(path: str, protected: Container[str], own: Iterable[str] = ()) -> str | None:
    """The protected path that holds `path`, unless one of the plugin's own does and lies as deep or deeper."""
    around = path
    while around not in protected:  # from the path up: a set of hundreds is asked a few times
        if around in ("", "/"):
            return None
        around = around.rpartition("/")[0] or "/"
    return None if any(len(mine) >= len(around) and is_within(path, mine) for mine in own) else around


@dataclass(frozen=True, slots=True)
class Entry:
    """One protected path."""

    path: str
    """Absolute."""
    what: str
    """For messages: `the folder of the plugin notes`."""
    kind: str = FOLDER
    """`DATABASE`: a SQLite file, which a process that writes beside it can change through its journal. `SETTINGS`:
    a file that the host reads at its next start if it exists."""


@dataclass(frozen=True, slots=True)
class Protected:
    """The paths that one plugin never reaches."""

    entries: tuple[Entry, ...] = ()
    own: tuple[str, ...] = ()
    """Paths of the plugin's own, wherever they are; without links."""
    plugin_folders: tuple[str, ...] = ()
    """Folders in which the host looks for plugins: never written, because a writer could add a plugin."""

    @property
    def paths(self) -> tuple[str, ...]:
        return tuple([entry.path for entry in self.entries])

    def around(self, path: str) -> Entry | None:
        """The entry that holds `path`, if the plugin must not reach it."""
        known = {entry.path: entry for entry in self.entries}
        found = protecting(path, known, self.own)
        return None if found is None else known[found]

    def below(self, path: str) -> list[Entry]:
        """The entries that lie in a folder, and that no other entry in it holds."""
        prefix = f"{path.rstrip('/')}/"
        inside = [entry for entry in self.entries if entry.path.startswith(prefix)]
        return [
            entry
            for entry in inside
            if not any(entry.path != other.path and is_within(entry.path, other.path) for other in inside)
        ]
