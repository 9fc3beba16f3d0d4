"""plugbay.toml as commands change it: one list of grants at a time, everything else and every comment as it was.

Owns that the new text is valid before it is written, and that it is written in place: plugins that see the folder have
a mount over the file, and lose it when another file takes that name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import tomlkit
from tomlkit.items import Table

from plugbay.host.config import config as configuration
from plugbay.host.config.config import Config
from plugbay.packages.durable import rewrite


def change_grants(path: Path, journal: Path, plugin_id: str, change: Callable[[list[str]], Iterable[str]]) -> Config:
    """Put other grants in the place of a plugin's; the config as it is then. Raises `ConfigInvalid`.

    `journal` is for `durable.rewrite`.
    """
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    configuration.parse(text, str(path))  # what cannot be read is not written to either
    document = tomlkit.parse(text)
    plugin = _table(_table(document, "plugins"), plugin_id)
    plugin["grants"] = list(change(list(plugin.get("grants", []))))
    changed = tomlkit.dumps(document)
    configuration.parse(changed, str(path))
    rewrite(path, changed.encode(), journal)
    return configuration.load(path)


def _table(parent: Any, name: str) -> Any:
    """The table of this name, made if it is missing; `plugins` itself needs no header of its own."""
    if name not in parent:
        parent[name] = tomlkit.table(is_super_table=not isinstance(parent, Table))
    return parent[name]
