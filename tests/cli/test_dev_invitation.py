"""The line that is printed for each way to start a plugin."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from plugbay.cli.dev_invitation import invitation
from plugbay.model.spec import PluginSpec

ADDRESS = "unix:/run/x/socket#token"
SDK = "from plugbay.sdk import Plugin\n"


def words(root: Path, *command: str, here: Path | None = None) -> tuple[list[str], bool]:
    spec = PluginSpec(id="p", version="1", contract="rune", root=root, command=command)
    line, interactive = invitation(spec, ADDRESS, here or root)
    return shlex.split(line), interactive


def test_a_script_with_our_sdk_connects_itself_below_a_debugger(tmp_path: Path) -> None:
    (tmp_path / "plugin.py").write_text(SDK)
    said, interactive = words(tmp_path, "python3", "plugin.py")
    assert said[0] == f"PLUGBAY_ATTACH={ADDRESS}"
    assert said[2:] == ["-m", "pdb", "plugin.py"]
    assert interactive


def test_the_script_is_found_behind_a_launcher(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "plugin").write_text('#!/bin/sh\nexec python3 "${0%/*}"/../kit.py\n')
    (tmp_path / "kit.py").write_text("import sys\n" + SDK)
    said, interactive = words(tmp_path, "./bin/plugin")
    assert (said[-1], interactive) == ("kit.py", True)


def test_a_path_is_said_as_it_is_seen_from_where_the_author_stands(tmp_path: Path) -> None:
    (tmp_path / "weather").mkdir()
    (tmp_path / "weather" / "plugin.py").write_text(SDK)
    said, _ = words(tmp_path / "weather", "python3", "plugin.py", here=tmp_path)
    assert said[-1] == "weather/plugin.py"


@pytest.mark.parametrize("source", ["import json\n", "# from plugbay.sdk import Plugin\n", "\x00\xff"])
def test_anything_else_is_wrapped(tmp_path: Path, source: str) -> None:
    (tmp_path / "plugin.py").write_text(source)
    said, interactive = words(tmp_path, "python3", "plugin.py", "a b")
    assert said[-5:] == ["attach", "--", "python3", "plugin.py", "a b"]
    assert not interactive
