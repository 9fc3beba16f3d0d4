"""Servers are added to and removed from plugbay.toml, and the rest of the file stays."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from plugbay.cli.mcp import config_file
from plugbay.host.config import config
from plugbay.model.errors import ConfigInvalid

TEXT = '# mine\n[host]\nlog_level = "debug"  # loud\n\n[mcp.old]\ncommand = ["a"]\n\n[plugins.x]\nenabled = false\n'


def test_a_server_is_written_and_everything_else_stays(tmp_path: Path) -> None:
    file = tmp_path / "plugbay.toml"
    file.write_text(TEXT)
    file.chmod(0o640)
    config_file.write_servers(file, {"new.one": {"command": ["npx", "-y"], "env": {"A": "b"}}})
    text = file.read_text()
    assert "# mine" in text and "# loud" in text and "[plugins.x]" in text
    assert set(config.load(file).mcp) == {"old", "new.one"}
    assert config.load(file).mcp["new.one"].env == {"A": "b"}
    assert file.stat().st_mode & 0o777 == 0o640


def test_a_file_that_is_not_there_yet_is_made(tmp_path: Path) -> None:
    file = tmp_path / "plugbay.toml"
    assert config_file.read_servers(file) == {}
    config_file.write_servers(file, {"x": {"command": ["a"]}})
    assert config_file.read_servers(file) == {"x": {"command": ["a"]}}


def test_a_server_is_taken_out(tmp_path: Path) -> None:
    file = tmp_path / "plugbay.toml"
    file.write_text(TEXT)
    assert (config_file.remove_server(file, "old"), config_file.remove_server(file, "old")) == (True, False)
    assert config.load(file).mcp == {}
    assert "# loud" in file.read_text()


@pytest.mark.parametrize("text", ["[mcp", '[host]\nunknown = 1\n[mcp.x]\ncommand = ["a"]\n'])
def test_a_file_of_no_use_is_refused_and_kept(tmp_path: Path, text: str) -> None:
    file = tmp_path / "plugbay.toml"
    file.write_text(text)
    with pytest.raises(ConfigInvalid):
        config_file.write_servers(file, {"y": {"command": ["b"]}})
    assert file.read_text() == text


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    real = tmp_path / "real.toml"
    real.write_text("")
    link = tmp_path / "plugbay.toml"
    link.symlink_to(real)
    config_file.write_servers(link, {"x": {"command": ["a"]}})
    assert link.is_symlink() and "[mcp.x]" in real.read_text()
    assert config_file.resolve_path(None) == Path("plugbay.toml")


def test_two_commands_at_once_lose_nothing(tmp_path: Path) -> None:
    file = tmp_path / "plugbay.toml"
    names = [f"s{number}" for number in range(16)]
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda name: config_file.write_servers(file, {name: {"command": ["a"]}}), names))
    assert sorted(config_file.read_servers(file)) == sorted(names)
