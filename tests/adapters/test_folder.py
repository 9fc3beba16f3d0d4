"""The folder of an adapter is a plugin of its target, which a host finds without errors."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from plugbay.adapters import folder as adapter_folder
from plugbay.adapters.mapping import CONTRACTS, Row
from plugbay.adapters.pin import Pin, PinnedExport, Settings, Source, load
from plugbay.host.discovery.folders import inspect
from tests.support.patience import PATIENCE

SCHEMA = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}


def pinned(target: str) -> Pin:
    echo = PinnedExport("example.source", "tool", "echo", "tool", "echo", effect="read_only", input_schema=SCHEMA)
    echo.description, echo.timeout = "Say it again.", 9.0
    sources = [Source("example.source", "mcp", "/plugins/.mcp.json")]
    id = "example_source"
    return Pin(target, id, "1.2.3", sources, [echo], Settings(), name="Source", description="Tools.")


ROWS = [
    Row("example.source", "tool", "echo", "tool", "echo"),
    Row("example.source", "prompt", "greet", note="there are no prompts"),
]


@pytest.mark.parametrize("target", CONTRACTS)
def test_the_folder_is_a_plugin_of_its_target(target: str, tmp_path: Path) -> None:
    pin = pinned(target)
    folder = tmp_path / adapter_folder.folder_name(pin)
    paths = adapter_folder.write(pin, ROWS, folder)
    found = inspect(folder, target)
    assert not found.problems
    assert found.spec is not None
    assert found.contract == target
    assert {"adapter.json", "README.md"} < set(paths)
    assert load(str(folder / "adapter.json")).target == target
    programs = [path for path in paths if os.access(folder / path, os.X_OK)]
    assert len(programs) == 1
    assert f"exec {sys.executable} -P -m plugbay.adapters" in (folder / programs[0]).read_text()
    name = Path(programs[0])
    silent = subprocess.run(
        ["sh", name.name], cwd=folder / name.parent, stdin=subprocess.DEVNULL, capture_output=True, timeout=PATIENCE
    )
    assert b"cannot be read" not in silent.stderr
    readme = (folder / "README.md").read_text()
    assert "tool `example.source/echo` | tool `echo`" in readme
    assert "prompt `example.source/greet`: there are no prompts" in readme


def test_the_entry_for_mcp_clients_has_absolute_paths(tmp_path: Path) -> None:
    adapter_folder.write(pinned("mcp"), ROWS, tmp_path)
    (entry,) = json.loads((tmp_path / ".mcp.json").read_text())["mcpServers"].values()
    assert entry == {"command": sys.executable, "args": ["-P", "-m", "plugbay.adapters", f"{tmp_path}/adapter.json"]}


def test_the_adapter_of_rune_says_how_it_is_installed(tmp_path: Path) -> None:
    adapter_folder.write(pinned("rune"), ROWS, tmp_path)
    assert "from a git repository or a zip archive, not from a folder" in (tmp_path / "README.md").read_text()


def source_at(path: Path) -> Source:
    return Source("example.source", "nexo", str(path))


def test_the_folder_of_a_source_is_no_place_for_its_adapter(tmp_path: Path) -> None:
    home = tmp_path / "plugins" / "source"
    home.mkdir(parents=True)
    (tmp_path / "link").symlink_to(home)
    sources = [source_at(home / "nexo-plugin.toml")]
    for folder in (home, tmp_path / "link", home.parent, home / "adapter", home / ".." / "source"):
        assert adapter_folder.conflicting(folder, sources) == str(home)
    assert not adapter_folder.conflicting(tmp_path / "plugins" / "source-nexo", sources)
    project = [source_at(home / ".mcp.json")]
    assert not adapter_folder.conflicting(home / "adapter", project)
    assert adapter_folder.conflicting(home, project)
    program = str(home / "adapter" / "adapter.json")
    assert adapter_folder.conflicting(home / "adapter", [], [sys.executable, program]) == program


def test_adapters_of_adapters_make_no_circle(tmp_path: Path) -> None:
    first, second = pinned("nexo"), pinned("nexo")
    first.sources = (source_at(tmp_path / "two" / "nexo-plugin.toml"),)
    second.sources = (source_at(tmp_path / "one" / "nexo-plugin.toml"),)
    adapter_folder.write(first, ROWS, tmp_path / "one")
    assert adapter_folder.conflicting(tmp_path / "two", second.sources) == str(tmp_path / "two")
    adapter_folder.write(second, ROWS, tmp_path / "two")
    assert not adapter_folder.conflicting(tmp_path / "three", second.sources)


def test_a_folder_is_written_again(tmp_path: Path) -> None:
    first = adapter_folder.write(pinned("nexo"), ROWS, tmp_path)
    before = {path: (tmp_path / path).read_text() for path in first}
    assert adapter_folder.write(pinned("nexo"), ROWS, tmp_path) == first
    assert {path: (tmp_path / path).read_text() for path in first} == before
