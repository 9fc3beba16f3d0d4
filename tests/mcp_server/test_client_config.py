"""Configuration files of MCP clients."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest

from plugbay.mcp_server.client_config import CLIENTS, PROJECT, USER, Client, Places, Unusable
from tests.support.requirements import requirement

LINUX = Places(Path("/home/ada"), Path("/src/app"), {}, "linux")
MACOS = Places(Path("/Users/ada"), Path("/src/app"), {}, "darwin")
COMMAND = ["/opt/plugbay", "mcp", "serve", "/plugins"]


def read(client: Client, text: str) -> Any:
    return tomllib.loads(text) if client.toml else json.loads(text)


@pytest.mark.parametrize(
    ("word", "scope", "file"),
    [
        ("claude-code", USER, "/home/ada/.claude.json"),
        ("claude-code", PROJECT, "/src/app/.mcp.json"),
        ("claude-desktop", USER, "/home/ada/.config/Claude/claude_desktop_config.json"),
        ("codex", USER, "/home/ada/.codex/config.toml"),
        ("codex", PROJECT, "/src/app/.codex/config.toml"),
        ("cursor", USER, "/home/ada/.cursor/mcp.json"),
        ("cursor", PROJECT, "/src/app/.cursor/mcp.json"),
        ("gemini", USER, "/home/ada/.gemini/settings.json"),
        ("gemini", PROJECT, "/src/app/.gemini/settings.json"),
        ("vscode", USER, "/home/ada/.config/Code/User/mcp.json"),
        ("vscode", PROJECT, "/src/app/.vscode/mcp.json"),
        ("windsurf", USER, "/home/ada/.codeium/windsurf/mcp_config.json"),
        ("zed", USER, "/home/ada/.config/zed/settings.json"),
        ("zed", PROJECT, "/src/app/.zed/settings.json"),
    ],
)
def test_where_each_client_looks(word: str, scope: str, file: str) -> None:
    assert CLIENTS[word].files[scope](LINUX) == Path(file)


def test_that_table_names_every_client_and_scope() -> None:
    assert sum(len(client.files) for client in CLIENTS.values()) == 14


def test_other_systems_and_variables_move_the_files() -> None:
    support = Path("/Users/ada/Library/Application Support")
    assert CLIENTS["claude-desktop"].files[USER](MACOS) == support / "Claude" / "claude_desktop_config.json"
    assert CLIENTS["vscode"].files[USER](MACOS) == support / "Code" / "User" / "mcp.json"
    assert CLIENTS["zed"].files[USER](MACOS) == Path("/Users/ada/.config/zed/settings.json")
    moved = Places(Path("/home/ada"), Path("/src"), {"CODEX_HOME": "/codex", "XDG_CONFIG_HOME": "/conf"}, "linux")
    assert CLIENTS["codex"].files[USER](moved) == Path("/codex/config.toml")
    assert CLIENTS["zed"].files[USER](moved) == Path("/conf/zed/settings.json")


@requirement("mcp:install-entry")
@pytest.mark.parametrize("word", list(CLIENTS))
def test_an_entry_is_read_back_as_it_was_meant(word: str) -> None:
    client = CLIENTS[word]
    entry = client.entry(COMMAND, {"LEVEL": "debug"})
    text = client.shown("plugbay", entry)
    assert read(client, text) == {client.table: {"plugbay": entry}}
    assert (entry["command"], entry["args"], entry["env"]) == (COMMAND[0], COMMAND[1:], {"LEVEL": "debug"})
    assert ("type" in entry) == (word in {"claude-code", "vscode"})
    assert client.present(text, "plugbay") == entry
    assert client.present("", "plugbay") is None


TOML = """\
# mine
model = "o9"  # the good one

[mcp_servers.other]
command = "x"  # stays

[tui]
theme = "dark"
"""


@requirement("mcp:install-keeps-the-rest")
@pytest.mark.parametrize("text", [TOML, "", "[mcp_servers]\n", 'mcp_servers = { other = { command = "x" } }\n'])
def test_toml_keeps_its_comments_and_everything_else(text: str) -> None:
    client = CLIENTS["codex"]
    entry = client.entry(COMMAND, {})
    after = client.changed(text, "plugbay", entry)
    before = tomllib.loads(text)
    assert tomllib.loads(after) == {**before, "mcp_servers": {**before.get("mcp_servers", {}), "plugbay": entry}}
    assert [line for line in text.splitlines() if "#" in line and line not in after] == []
    assert client.changed(after, "plugbay", entry) == after


@requirement("mcp:install-keeps-the-rest")
@pytest.mark.parametrize(
    ("word", "text", "why"),
    [
        ("cursor", '{"mcpServers": ', "line 1: a value was expected"),
        ("cursor", "[]", "it is not an object"),
        ("cursor", '{"mcpServers": []}', "mcpServers is not an object"),
        ("codex", "[mcp_servers", "line 1"),
        ("codex", "mcp_servers = 3\n", "mcp_servers is not an object"),
    ],
)
def test_a_file_that_cannot_be_read_is_not_changed(word: str, text: str, why: str) -> None:
    client = CLIENTS[word]
    with pytest.raises(Unusable, match=why):
        client.changed(text, "plugbay", client.entry(COMMAND, {}))
    with pytest.raises(Unusable):
        client.present(text, "plugbay")
