"""Edits of plugbay.toml that keep its comments: grants of plugins, and MCP servers.

    with editing.locked(path):
        document = editing.read(path)
        editing.declare_servers(document, {"files": {"command": ["files-server"]}})
        text = editing.to_text(document, path)

The caller writes the text: a command replaces the file, a server rewrites it in place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from plugbay.host.config import config, settings
from plugbay.model.errors import ConfigInvalid, Problem

if TYPE_CHECKING:
    from tomlkit import TOMLDocument

SERVERS = "mcp"
PLUGINS = "plugins"


def locked(path: Path) -> AbstractContextManager[None]:
    """Lock the folder, so that concurrent processes do not overwrite each other's changes."""
    return settings.changing(path.resolve().parent)


def read(path: Path) -> TOMLDocument:
    """The file, or an empty document; raises `ConfigInvalid`."""
    import tomlkit
    from tomlkit.exceptions import ParseError

    try:
        return tomlkit.parse(path.read_text("utf-8"))
    except FileNotFoundError:
        return tomlkit.document()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigInvalid(str(path), [Problem("unreadable", "", f"cannot be read: {error}")]) from None
    except ParseError as error:
        raise ConfigInvalid(str(path), [Problem("parse_error", "", str(error), line=error.line)]) from None


def to_text(document: TOMLDocument, path: Path) -> str:
    """The new text of the file; raises `ConfigInvalid` when plugbay could not read it."""
    import tomlkit

    text = tomlkit.dumps(document)
    config.parse(text, str(path))
    return text


def set_grants(document: TOMLDocument, plugin_id: str, change: Callable[[list[str]], Iterable[str]]) -> None:
    """Replace the grants of a plugin by what `change` makes of them."""
    plugin = _table(_table(document, PLUGINS), plugin_id)
    plugin["grants"] = list(change(list(plugin.get("grants", []))))


def servers(document: TOMLDocument) -> dict[str, Any]:
    """The declared MCP servers by name."""
    section = document.get(SERVERS)
    return dict(section.unwrap()) if section is not None else {}


def declare_servers(document: TOMLDocument, entries: Mapping[str, Mapping[str, Any]]) -> None:
    """Add MCP servers, replacing those of the same names."""
    import tomlkit

    section = _table(document, SERVERS)
    for name, entry in entries.items():
        section[name] = table = tomlkit.table()
        for key, value in entry.items():
            table[key] = _to_toml(value)


def remove_server(document: TOMLDocument, name: str) -> bool:
    """Remove an MCP server; False if it was not declared."""
    section = document.get(SERVERS)
    if section is None or name not in section:
        return False
    del section[name]
    if not section:
        del document[SERVERS]
    return True


def _table(parent: Any, name: str) -> Any:
    """The table of this name, created if missing; a section of tables gets no header of its own."""
    import tomlkit
    from tomlkit.items import Table

    if name not in parent:
        parent[name] = tomlkit.table(is_super_table=not isinstance(parent, Table))
    return parent[name]


def _to_toml(value: Any) -> Any:
    """Write a dict as an inline table, so that the variables of a server stay on one line."""
    import tomlkit

    if not isinstance(value, dict):
        return value
    line = tomlkit.inline_table()
    line.update(value)
    return line
