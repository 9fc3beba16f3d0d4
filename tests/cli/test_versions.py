"""A plugin's name with its version, where there is one."""

from __future__ import annotations

from pathlib import Path

from plugbay.cli.versions import known, named
from plugbay.contracts.mcp.spec import UNKNOWN_VERSION
from tests.cli.conftest import Run


def test_a_version_that_nobody_knows_is_left_out() -> None:
    assert (known("1.0.0"), named("weather", "1.0.0")) == ("1.0.0", "weather 1.0.0")
    assert (known(UNKNOWN_VERSION), named("weather", UNKNOWN_VERSION)) == ("", "weather")


def test_a_server_that_has_not_been_greeted_is_shown_without_one(run: Run, cwd: Path) -> None:
    (cwd / "plugbay.toml").write_text('[mcp.notes]\ncommand = ["true"]\n')
    assert run("inspect", "notes").out.startswith("notes\n")
    (cwd / "there").mkdir()
    (cwd / "there" / ".mcp.json").write_text('{"mcpServers": {"notes": {"command": "true"}}}')
    assert run("dev", "there", "--once").err.startswith("notes · mcp · ")
