"""Plugins on disk: found, or reported; one broken folder never hides the others."""

from __future__ import annotations

from pathlib import Path

import pytest

from plugbay.host.discovery import MAX_MANIFEST, discover, inspect
from tests.support.plugins import write_manifest, write_plugin


def test_a_folder_of_plugins_and_a_plugin_folder_both_work(tmp_path: Path) -> None:
    write_plugin(tmp_path, "b")
    write_plugin(tmp_path, "a")
    (tmp_path / "not-a-plugin").mkdir()
    (tmp_path / "file.txt").write_text("x")
    (tmp_path / ".hidden").mkdir()
    assert [found.spec.id for found in discover([tmp_path]) if found.spec] == ["a", "b"]
    (one,) = discover([tmp_path / "a"])
    assert one.spec is not None
    assert one.contract == "rune"


def test_one_broken_manifest_is_reported_beside_the_good_ones(tmp_path: Path) -> None:
    write_plugin(tmp_path, "good")
    (write_plugin(tmp_path, "bad") / "rterm-plugin.json").write_text("{")
    bad, good = discover([tmp_path])
    assert good.spec is not None
    assert bad.spec is None
    assert bad.errors[0].code == "parse_error"


def test_two_plugins_with_one_id_are_both_refused_and_each_names_the_other(tmp_path: Path) -> None:
    write_plugin(tmp_path / "x", "same")
    write_plugin(tmp_path / "y", "same")
    write_plugin(tmp_path / "x", "other")
    found = discover([tmp_path / "x", tmp_path / "y"])
    assert [item.spec.id for item in found if item.spec] == ["other"]
    twins = [item for item in found if item.spec is None]
    assert [twin.errors[0].code for twin in twins] == ["duplicate_id", "duplicate_id"]
    assert str(tmp_path / "y" / "same") in twins[0].errors[0].message


def test_a_symlink_loop_is_a_problem_and_a_symlink_to_a_plugin_works(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    write_plugin(tmp_path / "elsewhere", "linked")
    (tmp_path / "z").symlink_to(tmp_path / "elsewhere" / "linked")
    loop, linked = [item for item in discover([tmp_path]) if item.root.name != "elsewhere"]
    assert "symbolic link" in loop.errors[0].message
    assert linked.spec is not None


@pytest.mark.parametrize(
    ("content", "code"),
    [(b"\xff\xfe", "parse_error"), (b" " * (MAX_MANIFEST + 1), "too_large")],
    ids=["not UTF-8", "too large"],
)
def test_a_manifest_that_cannot_be_read_is_one_problem(tmp_path: Path, content: bytes, code: str) -> None:
    (tmp_path / "rterm-plugin.json").write_bytes(content)
    assert [problem.code for problem in inspect(tmp_path).problems] == [code]


def test_a_manifest_that_is_no_regular_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "rterm-plugin.json").mkdir()
    assert inspect(tmp_path).problems[0].code == "unreadable"


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("./missing", "missing"),
        ("./folder", "folder"),
        ("no-such-program-anywhere", "no-such-program-anywhere"),
    ],
)
def test_a_command_that_cannot_start_is_warned_about_before_anybody_calls(
    tmp_path: Path, command: str, words: str
) -> None:
    (tmp_path / "folder").mkdir()
    write_manifest(tmp_path, "p", {"command": command})
    found = inspect(tmp_path)
    assert found.spec is not None
    assert [(problem.code, problem.severity) for problem in found.problems] == [("command_unusable", "warning")]
    assert words in found.problems[0].message


def test_a_working_directory_that_is_not_there_is_warned_about(tmp_path: Path) -> None:
    folder = write_plugin(tmp_path)
    write_manifest(folder, "p", {"command": "./run.sh", "dir": "nowhere"})
    assert inspect(folder).problems[0].path == "dir"


def test_a_folder_without_a_manifest_and_a_missing_one_are_not_found(tmp_path: Path) -> None:
    assert inspect(tmp_path).problems[0].code == "not_found"
    assert "rterm-plugin.json" in inspect(tmp_path).problems[0].message
    assert inspect(tmp_path / "missing").problems[0].code == "not_found"
    assert discover([tmp_path / "missing"])[0].problems[0].code == "not_found"


def test_a_plugin_reached_twice_is_one_plugin(tmp_path: Path) -> None:
    folder = write_plugin(tmp_path)
    (found,) = discover([tmp_path, folder, tmp_path / "." / "p"])
    assert found.spec is not None
    assert found.problems == ()
