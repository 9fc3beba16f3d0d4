"""`Protection`: the paths of the host and of other plugins, which no plugin may reach.

Lists the data of plugbay for this user, the files of this host, and the folders of plugins. The list for one plugin
leaves out its own folder. The sandbox and the host's file service enforce it.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from plugbay.host.config.config import FILE_NAME, Config
from plugbay.host.discovery.folders import MULTI_PLUGIN_MANIFESTS, Found, sibling_plugins
from plugbay.host.disk.sqlite_files import IN_MEMORY, JOURNALS
from plugbay.model.protected import DATABASE, FILE, SETTINGS, Entry, Protected
from plugbay.model.spec import PluginSpec

KEY_FILE = "PLUGBAY_SECRET_KEY_FILE"
"""The environment variable with the file of the master key, for a server that keeps it apart from its data."""

OPERATOR_TOKEN_FILE = "PLUGBAY_OPERATOR_TOKEN_FILE"
"""The same for the token of the operator, which several gateways have in common."""

VECTORS = ".vectors.db"
"""Suffix of the vector database beside the memory database."""


def user_folders() -> dict[str, Path]:
    """The default folders of plugbay for this user: keys, trust, packages, data, state, logs."""
    from platformdirs import PlatformDirs  # imported only by hosts that confine

    dirs = PlatformDirs("plugbay", appauthor=False)
    names = ("config", "data", "state", "cache", "log")
    return {f"plugbay's own {name} folder": getattr(dirs, f"user_{name}_path") for name in names}


def database(path: str | Path, what: str) -> list[Entry]:
    """A SQLite file and its journal files."""
    return [Entry(f"{path}{suffix}", what, DATABASE) for suffix in ("", *JOURNALS)]


class Protection:
    """The protected paths of one host."""

    def __init__(
        self,
        config: Config,
        state_dir: Path | None = None,
        log_dir: Path | None = None,
        more: Iterable[Entry] = (),
        found: Iterable[Found] = (),
    ) -> None:
        """`more`: further paths that the creator of the host knows, such as the database of a server."""
        self._named = (*_host_entries(config, state_dir, log_dir), *more)
        self._folder = os.path.realpath(config.folder)
        self._plugins: dict[str, Entry] = {}
        self._plugin_folders: set[str] = set()
        self._files: dict[str, Entry] = {}
        self._siblings: dict[str, tuple[int, tuple[str, ...]]] = {}
        """By folder: its modification time, and the plugins in it."""
        self._everything: dict[tuple[str, ...], dict[str, Entry]] = {}
        """By the plugins of a folder: the protected paths, their own folders included."""
        for item in found:
            self.add(item)

    def add(self, item: Found) -> None:
        """Protect a plugin of this host from all others."""
        if not item.contract:  # no plugin was found there
            return
        self._everything.clear()
        if item.plugins_folder is not None:
            self._plugin_folders.add(os.path.realpath(item.plugins_folder))
        root = os.path.realpath(item.root)
        declared = [
            os.path.join(root, name) for name in MULTI_PLUGIN_MANIFESTS if item.entry and (item.root / name).is_file()
        ]
        for path in declared:
            self._files[path] = Entry(path, "the file that declares servers", FILE)
        if not declared and not (
            item.entry and root == self._folder
        ):  # a server that is only a command has no folder of its own
            name = item.root.name if item.spec is None else item.spec.id
            self._plugins[root] = Entry(root, f"the folder of the plugin {name}")

    def refresh(self) -> None:
        """Resolve the links in protected paths again."""
        self._everything.clear()

    @property
    def everything(self) -> tuple[Entry, ...]:
        """Every entry, the folders of all plugins included; another host of the same operator protects them too."""
        named = [each for entry in self._named for each in _spellings(entry)]
        return (*named, *self._files.values(), *self._plugins.values())

    def of(self, spec: PluginSpec) -> Protected:
        """The paths that one plugin must not reach."""
        root = os.path.realpath(spec.root)
        plugins = self._neighbours(root)
        whole = self._everything.get(plugins)
        if whole is None:
            others = [Entry(path, f"the folder of the plugin in {path}") for path in plugins]
            whole = self._everything[plugins] = {entry.path: entry for entry in (*others, *self.everything)}
        # Its own folder is left out, even if another plugin has the same: one folder may serve several contracts.
        entries = tuple([entry for path, entry in whole.items() if path != root])
        return Protected(entries, (root,), tuple(sorted(self._plugin_folders)))

    def _neighbours(self, root: str) -> tuple[str, ...]:
        """This plugin and those in the same folder, which this host may not have loaded."""
        above = os.path.dirname(root)
        try:
            changed = os.stat(above).st_mtime_ns
        except OSError:
            return (root,)
        known = self._siblings.get(above)
        if known is None or known[0] != changed:
            found = sorted(os.path.realpath(path) for path in sibling_plugins(Path(root)))
            known = self._siblings[above] = changed, (root, *found)
        return known[1]


def _host_entries(config: Config, state_dir: Path | None, log_dir: Path | None) -> Iterator[Entry]:
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
    if os.environ.get(OPERATOR_TOKEN_FILE):
        yield Entry(os.path.abspath(os.environ[OPERATOR_TOKEN_FILE]), "the operator's token", FILE)


def _spellings(entry: Entry) -> list[Entry]:
    """The path with links resolved, and as written: a link in it must not be replaced either."""
    real, written = os.path.realpath(entry.path), os.path.normpath(entry.path)
    return [replace(entry, path=path) for path in dict.fromkeys((real, written))]
