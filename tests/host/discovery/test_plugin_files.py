"""Files below a plugin's folder are read; what lies outside is not, whatever leads there."""

from __future__ import annotations

import os
import platform
import sys
from pathlib import Path

import pytest

from plugbay.contracts.vai.platforms import named
from plugbay.host.discovery.plugin_files import PluginFiles
from plugbay.model.errors import Problem
from tests.support.requirements import requirement


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "secret").write_text("secret")
    folder = tmp_path / "plugin"
    (folder / "bin").mkdir(parents=True)
    (folder / "bin" / "run").write_text("#!/bin/sh\n")
    (folder / "bin" / "run").chmod(0o755)
    (folder / "data").write_bytes(b"0123456789")
    return folder


def code(found: bytes | Problem) -> str:
    assert isinstance(found, Problem)
    return found.code


def test_a_file_is_read_up_to_its_limit(root: Path) -> None:
    files = PluginFiles(root)
    assert files.read("data", 10) == b"0123456789"
    assert files.read("./bin/../data", 11) == b"0123456789"
    assert code(files.read("data", 9)) == "too_large"


@requirement("vai:manifest-schema-paths")
def test_links_are_followed_inside_and_never_out(root: Path) -> None:
    (root / "inside").symlink_to("bin/../data")
    (root / "out").symlink_to("../outside/secret")
    (root / "folder").symlink_to("../outside")
    (root / "absolute").symlink_to(root.parent / "outside" / "secret")
    (root / "loop").symlink_to("loop")
    files = PluginFiles(root)
    assert files.read("inside", 100) == b"0123456789"
    for path in ("out", "folder/secret", "absolute", "../outside/secret"):
        assert code(files.read(path, 100)) == "path_escape"
        assert "leads out" in (files.program_problem(path) or "")
    assert code(files.read("loop", 100)) == "file_missing"


def test_a_folder_that_is_reached_through_a_link_is_the_folder_itself(root: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(root)
    assert PluginFiles(tmp_path / "link").read("data", 100) == b"0123456789"


def test_what_is_no_regular_file_is_missing_and_holds_nobody_up(root: Path) -> None:
    os.mkfifo(root / "pipe")
    files = PluginFiles(root)
    for path in ("pipe", "bin", "gone", "data/below", "a" * 300):
        assert code(files.read(path, 100)) == "file_missing"


@requirement("vai:manifest-entrypoint")
def test_a_program_must_be_there_and_executable(root: Path) -> None:
    files = PluginFiles(root)
    assert files.program_problem("./bin/run") is None
    assert "does not exist" in (files.program_problem("./bin/gone") or "")
    assert "not executable" in (files.program_problem("./data") or "")
    assert "is a directory" in (files.program_problem("./bin") or "")


def test_this_machine_is_named_as_python_names_it(root: Path) -> None:
    assert PluginFiles(root).platform == named(sys.platform, platform.machine())
