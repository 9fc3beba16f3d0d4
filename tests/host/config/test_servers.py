"""`[mcp.NAME]` of plugbay.toml."""

from __future__ import annotations

from pathlib import Path

import pytest

from plugbay.host.config import config
from plugbay.host.config.servers import ServerConfig, names_problem
from plugbay.model.errors import ConfigInvalid
from tests.support.requirements import requirement


@requirement("mcp:host-sources")
def test_a_server_is_a_command_with_what_belongs_to_it(tmp_path: Path) -> None:
    file = tmp_path / "plugbay.toml"
    file.write_text('[mcp.x]\ncommand = ["run", "-v"]\nenv = { A = "b" }\ncwd = "sub"\nera = "modern"\n')
    loaded = config.load(file)
    server = loaded.mcp["x"]
    assert (server.command, server.env, server.cwd) == (["run", "-v"], {"A": "b"}, str(tmp_path / "sub"))
    assert (loaded.eras, loaded.folder) == ({"x": "modern"}, tmp_path)


@pytest.mark.parametrize(
    "text",
    [
        "[mcp.x]",
        "[mcp.x]\ncommand = []",
        '[mcp.x]\ncommand = ["a"]\nbundle = "b"',
        '[mcp.x]\nbundle = "b"\ncwd = "c"',
        '[mcp.x]\ncommand = ["a"]\nera = "stone"',
        '[mcp.x]\ncommand = ["a"]\nenv = { "A=B" = "c" }',
        '[mcp.x]\ncommand = ["a"]\nurl = "https://x.example"',
        '[mcp."a/b"]\ncommand = ["a"]',
    ],
)
def test_what_cannot_be_a_server_is_refused(text: str) -> None:
    with pytest.raises(ConfigInvalid):
        config.parse(text)


def test_a_name_is_a_plugins_id() -> None:
    server = ServerConfig(command=["a"])
    assert names_problem({"ok": server}) is None
    assert "'..'" in str(names_problem({"..": server}))
