"""What of this machine is the host's own or another plugin's, and so out of reach of a confined plugin.

Owns the list: what plugbay keeps for this user, what this host was made with, and the folders of plugins. `Protection`
is made once for a host; the list for one plugin leaves out that plugin's own folder. What the list means to a sandbox
and to the host's own file access is decided by those who enforce it.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from plugbay.host.config.config import FILE_NAME, Config
from plugbay.host.discovery.folders import SEVERAL, Found, beside
from plugbay.host.disk.sqlite import IN_MEMORY, JOURNALS
from plugbay.model.protected import DATABASE, FILE, SETTINGS, Entry, Protected
from plugbay.model.spec import PluginSpec

KEY_FILE = "PLUGBAY_SECRET_KEY_FILE"
"""The variable that names the file with the key of all secrets, for a server that keeps it apart from its data."""

VECTORS = ".vectors.db"
"""Beside the memory, instead of its suffix."""


def user_folders() -> dict[str, Path]:
    """What plugbay keeps for this user where nobody says otherwise: keys, trust, packages, data, state, logs."""
    from platformdirs import PlatformDirs  # not for those who never confine anything

    dirs = PlatformDirs("plugbay", appauthor=False)
    names = ("config", "data", "state", "cache", "log")
    return {f"plugbay's own {name} folder": getattr(dirs, f"user_{name}_path") for name in names}


def database(path: str | Path, what: str) -> list[Entry]:
    """A SQLite file, and what lies beside it."""
    return [Entry(f"{path}{suffix}", what, DATABASE) for suffix in ("", *JOURNALS)]


class Protection:
    """What one host protects."""

    def __init__(
        self,
        config: Config,
        state_dir: Path | None = None,
        log_dir: Path | None = None,
        more: Iterable[Entry] = (),
        found: Iterable[Found] = (),
    ) -> None:
        """`more` is known only to whoever makes the host: the data of a server, its database."""
        self._named = (*_of_host(config, state_dir, log_dir), *more)
        self._folder = os.path.realpath(config.folder)
        self._plugins: dict[str, Entry] = {}
        self._shelves: set[str] = set()
        self._files: dict[str, Entry] = {}
        self._beside: dict[str, tuple[int, tuple[str, ...]]] = {}
        """By folder: when it was changed last, and the plugins in it."""
        self._everything: dict[tuple[str, ...], dict[str, Entry]] = {}
        """By the plugins of a folder: what is protected from one of them, its own folder included."""
        for item in found:
            self.add(item)

    def add(self, item: Found) -> None:
        """Protect a plugin of this host from all others."""
        if not item.contract:  # there is no plugin
            return
        self._everything.clear()
        if item.shelf is not None:
            self._shelves.add(os.path.realpath(item.shelf))
        root = os.path.realpath(item.root)
        declared = [os.path.join(root, name) for name in SEVERAL if item.entry and (item.root / name).is_file()]
        for path in declared:
            self._files[path] = Entry(path, "the file that declares servers", FILE)
        if not declared and not (item.entry and root == self._folder):  # a server's command has no folder of its own
            name = item.root.name if item.spec is None else item.spec.id
            self._plugins[root] = Entry(root, f"the folder of the plugin {name}")

    def refresh(self) -> None:
        """Follow the links on the way to protected paths anew."""
        self._everything.clear()

    @property
    def everything(self) -> tuple[Entry, ...]:
        """Every entry, no plugin's own left out: what another host of the same operator protects as well."""
        named = [each for entry in self._named for each in _spellings(entry)]
        return (*named, *self._files.values(), *self._plugins.values())

    def of(self, spec: PluginSpec) -> Protected:
        """What is out of reach for one plugin."""
        root = os.path.realpath(spec.root)
        plugins = self._neighbours(root)
        whole = self._everything.get(plugins)
        if whole is None:
            others = [Entry(path, f"the folder of the plugin in {path}") for path in plugins]
            whole = self._everything[plugins] = {entry.path: entry for entry in (*others, *self.everything)}
        # Its own folder is not, also where it is another's as well: one folder may serve several contracts.
        entries = tuple([entry for path, entry in whole.items() if path != root])
        return Protected(entries, (root,), tuple(sorted(self._shelves)))

    def _neighbours(self, root: str) -> tuple[str, ...]:
        """This plugin and those beside it: it is perhaps the only one that this host was told of."""
        above = os.path.dirname(root)
        try:
            changed = os.stat(above).st_mtime_ns
        except OSError:
            return (root,)
        known = self._beside.get(above)
        if known is None or known[0] != changed:
            found = sorted(os.path.realpath(path) for path in beside(Path(root)))
            known = self._beside[above] = changed, (root, *found)
        return known[1]


def _of_host(config: Config, state_dir: Path | None, log_dir: Path | None) -> Iterator[Entry]:
    for what, path in user_folders().items():
        yield Entry(str(path), what)
    for what, named in (("the host's state folder", state_dir), ("the host's log folder", log_dir)):
        if named is not None:
            yield Entry(str(named.absolute()), what)
    if config.file is not None:
        yield Entry(str(config.file), FILE_NAME, SETTINGS)
    if config.memory is not None and config.memory.path != IN_MEMORY:
        memory = Path(config.memory.path).absolute()
        yield from database(memory, "the memory of all agents")
        yield from database(memory.with_suffix(VECTORS), "the memory of all agents")
    if config.broker is not None and config.broker.credentials is not None:
        yield Entry(os.path.abspath(config.broker.credentials), "the credentials for the broker", FILE)
    if os.environ.get(KEY_FILE):
        yield Entry(os.path.abspath(os.environ[KEY_FILE]), "the key of all secrets", FILE)


def _spellings(entry: Entry) -> list[Entry]:
    """The path without links, and as it was written: a link on the way must not be moved either."""
    real, written = os.path.realpath(entry.path), os.path.normpath(entry.path)
    return [replace(entry, path=path) for path in dict.fromkeys((real, written))]
