"""Edits the `[mcp.NAME]` sections of plugbay.toml and leaves the rest of the file untouched.

The new text is validated before it replaces the file, and the replacement is atomic.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from plugbay.cli.paths import CONFIG_NAME
from plugbay.model.errors import ConfigInvalid, Problem

if TYPE_CHECKING:
    from tomlkit import TOMLDocument

SECTION = "mcp"


def resolve_path(named: Path | None) -> Path:
    """The given file, or plugbay.toml in this directory; it need not exist."""
    return named or Path(CONFIG_NAME)


def read_servers(path: Path) -> dict[str, Any]:
    """The declared servers by name; raises `ConfigInvalid`."""
    section = _parse(path).get(SECTION)
    return dict(section.unwrap()) if section is not None else {}


def write_servers(path: Path, servers: Mapping[str, Mapping[str, Any]]) -> None:
    """Add these servers, replacing those of the same names; raises `ConfigInvalid`."""
    import tomlkit

    with _locked(path):
        document = _parse(path)
        section = document.get(SECTION)
        if section is None:
            section = document[SECTION] = tomlkit.table(is_super_table=True)
        for name, entry in servers.items():
            section[name] = table = tomlkit.table()
            for key, value in entry.items():
                table[key] = _to_toml(value)
        _write(path, document)


def remove_server(path: Path, name: str) -> bool:
    """Remove a server; False if it was not declared. Raises `ConfigInvalid`."""
    with _locked(path):
        document = _parse(path)
        section = document.get(SECTION)
        if section is None or name not in section:
            return False
        del section[name]
        if not section:
            del document[SECTION]
        _write(path, document)
    return True


def _locked(path: Path) -> AbstractContextManager[None]:
    """Lock the folder, so that concurrent commands do not overwrite each other's changes."""
    from plugbay.host.config.settings import changing

    return changing(path.resolve().parent)


def _to_toml(value: Any) -> Any:
    """Write a dict as an inline table, so that the variables of a server stay on one line."""
    import tomlkit

    if not isinstance(value, dict):
        return value
    line = tomlkit.inline_table()
    line.update(value)
    return line


def _parse(path: Path) -> TOMLDocument:
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


def _write(path: Path, document: TOMLDocument) -> None:
    import tomlkit

    from plugbay.host.config import config
    from plugbay.host.disk.durable import replace_at

    text = tomlkit.dumps(document)
    config.parse(text, str(path))
    target = path.resolve()  # a link stays a link
    try:
        mode = target.stat().st_mode & 0o777 if target.exists() else 0o644
        at = os.open(target.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            replace_at(at, target.name, text.encode(), mode)
        finally:
            os.close(at)
    except OSError as error:
        raise ConfigInvalid(str(path), [Problem("unwritable", "", f"cannot be written: {error.strerror}")]) from None
