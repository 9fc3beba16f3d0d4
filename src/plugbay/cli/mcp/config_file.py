"""`[mcp.NAME]` in plugbay.toml, written and taken out; everything else in the file stays as it is.

Owns how a server is declared there. A file that would not be read afterwards is not written, and a reader sees the old
file or the new one.
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


def place(named: Path | None) -> Path:
    """The file that is meant, whether it is there or not."""
    return named or Path(CONFIG_NAME)


def declared(path: Path) -> dict[str, Any]:
    """The servers in the file by name; raises `ConfigInvalid`."""
    section = _document(path).get(SECTION)
    return dict(section.unwrap()) if section is not None else {}


def declare(path: Path, servers: Mapping[str, Mapping[str, Any]]) -> None:
    """Write these servers, in the place of those of the same names; raises `ConfigInvalid`."""
    import tomlkit

    with _changing(path):
        document = _document(path)
        section = document.get(SECTION)
        if section is None:
            section = document[SECTION] = tomlkit.table(is_super_table=True)
        for name, entry in servers.items():
            section[name] = table = tomlkit.table()
            for key, value in entry.items():
                table[key] = _written(value)
        _write(path, document)


def withdraw(path: Path, name: str) -> bool:
    """Take one server out; whether it was there. Raises `ConfigInvalid`."""
    with _changing(path):
        document = _document(path)
        section = document.get(SECTION)
        if section is None or name not in section:
            return False
        del section[name]
        if not section:
            del document[SECTION]
        _write(path, document)
    return True


def _changing(path: Path) -> AbstractContextManager[None]:
    """Two commands at once must not lose what the other one writes."""
    from plugbay.host.config.settings_files import changing

    return changing(path.resolve().parent)


def _written(value: Any) -> Any:
    """A table as one line: variables are read together."""
    import tomlkit

    if not isinstance(value, dict):
        return value
    line = tomlkit.inline_table()
    line.update(value)
    return line


def _document(path: Path) -> TOMLDocument:
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
    from plugbay.host.config.settings_files import replace_at

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
