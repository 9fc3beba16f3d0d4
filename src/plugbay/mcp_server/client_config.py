"""Configuration files of known MCP clients: paths, formats, and the entry for a server.

Works on text and never touches files, so that the caller can show the change first.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec
import tomlkit
from tomlkit.exceptions import TOMLKitError
from tomlkit.items import InlineTable

from plugbay.mcp_server import jsonc

USER, PROJECT = "user", "project"


class Unusable(ValueError):
    """A configuration cannot be changed; nothing was written."""


class Places(msgspec.Struct, frozen=True):
    """Folders of this user and project."""

    home: Path
    project: Path
    environ: Mapping[str, str]
    platform: str = sys.platform

    def application_data(self) -> Path:
        """Settings folder of desktop applications."""
        if self.platform == "darwin":
            return self.home / "Library" / "Application Support"
        return self.config()

    def config(self) -> Path:
        """`$XDG_CONFIG_HOME` or `~/.config`."""
        return Path(self.environ.get("XDG_CONFIG_HOME") or self.home / ".config")


class Client(msgspec.Struct, frozen=True):
    """One client: its file per scope, and the table of servers in it."""

    title: str
    files: Mapping[str, Callable[[Places], Path]]
    table: str = "mcpServers"
    typed: bool = False
    """Whether an entry needs `"type": "stdio"`."""
    toml: bool = False

    def entry(self, command: list[str], env: Mapping[str, str]) -> dict[str, Any]:
        """The entry that starts a server."""
        return {
            **({"type": "stdio"} if self.typed else {}),
            "command": command[0],
            "args": command[1:],
            **({"env": dict(env)} if env else {}),
        }

    def shown(self, name: str, entry: Mapping[str, Any]) -> str:
        """The entry as a file of its own."""
        return self.changed("", name, entry)

    def present(self, text: str, name: str) -> Any:
        """The entry of that name in a file, or None; raises `Unusable`."""
        whole = self._read(text)
        table = whole.get(self.table) if isinstance(whole, dict) else None
        return table.get(name) if isinstance(table, dict) else None

    def changed(self, text: str, name: str, entry: Mapping[str, Any]) -> str:
        """The file with this entry; everything else stays unchanged. Raises `Unusable`."""
        before = self._read(text)
        try:
            after = _with_toml(text, self.table, name, entry) if self.toml else self._with_json(text, name, entry)
        except (jsonc.Unreadable, TOMLKitError) as error:
            raise Unusable(str(error)) from None
        wanted = {**before, self.table: {**before.get(self.table, {}), name: dict(entry)}}
        if self._read(after) != wanted:
            raise Unusable("it cannot be changed without a change of other entries")
        return after

    def _with_json(self, text: str, name: str, entry: Mapping[str, Any]) -> str:
        return jsonc.set_member(text, (self.table, name), dict(entry))

    def _read(self, text: str) -> Any:
        try:
            if self.toml:
                whole = tomlkit.parse(text).unwrap()
            else:
                whole = jsonc.read(text) if text.strip("\ufeff \t\r\n") else {}
        except (jsonc.Unreadable, TOMLKitError) as error:
            raise Unusable(str(error)) from None
        if not isinstance(whole, dict):
            raise Unusable("line 1: it is not an object")
        if not isinstance(whole.get(self.table, {}), dict):
            raise Unusable(f"{self.table} is not an object")
        return whole


def _with_toml(text: str, table: str, name: str, entry: Mapping[str, Any]) -> str:
    document = tomlkit.parse(text)
    if table not in document:
        document[table] = tomlkit.table(is_super_table=True)
    servers: Any = document[table]
    written = tomlkit.inline_table() if isinstance(servers, InlineTable) else tomlkit.table()
    for key, value in entry.items():
        written[key] = value
    servers[name] = written
    return tomlkit.dumps(document)


def _codex_home(places: Places) -> Path:
    return Path(places.environ.get("CODEX_HOME") or places.home / ".codex")


CLIENTS: dict[str, Client] = {
    "claude-code": Client(
        "Claude Code",
        {USER: lambda at: at.home / ".claude.json", PROJECT: lambda at: at.project / ".mcp.json"},
        typed=True,
    ),
    "claude-desktop": Client(
        "Claude Desktop", {USER: lambda at: at.application_data() / "Claude" / "claude_desktop_config.json"}
    ),
    "codex": Client(
        "Codex",
        {
            USER: lambda at: _codex_home(at) / "config.toml",
            PROJECT: lambda at: at.project / ".codex" / "config.toml",
        },
        table="mcp_servers",
        toml=True,
    ),
    "cursor": Client(
        "Cursor",
        {
            USER: lambda at: at.home / ".cursor" / "mcp.json",
            PROJECT: lambda at: at.project / ".cursor" / "mcp.json",
        },
    ),
    "gemini": Client(
        "Gemini CLI",
        {
            USER: lambda at: at.home / ".gemini" / "settings.json",
            PROJECT: lambda at: at.project / ".gemini" / "settings.json",
        },
    ),
    "vscode": Client(
        "Visual Studio Code",
        {
            USER: lambda at: at.application_data() / "Code" / "User" / "mcp.json",
            PROJECT: lambda at: at.project / ".vscode" / "mcp.json",
        },
        table="servers",
        typed=True,
    ),
    "windsurf": Client("Windsurf", {USER: lambda at: at.home / ".codeium" / "windsurf" / "mcp_config.json"}),
    "zed": Client(
        "Zed",
        {
            USER: lambda at: at.config() / "zed" / "settings.json",
            PROJECT: lambda at: at.project / ".zed" / "settings.json",
        },
        table="context_servers",
    ),
}
"""By command-line name."""


def places() -> Places:
    """Folders of the current user and working directory."""
    return Places(Path.home(), Path.cwd(), os.environ)
