"""Changes that are whole or not there."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from plugbay.packages import durable


def test_a_file_takes_the_place_of_another_and_leaves_nothing_beside(tmp_path: Path) -> None:
    target = tmp_path / "f"
    durable.write_file(target, b"one")
    durable.write_file(target, b"two", 0o600)
    assert (target.read_bytes(), target.stat().st_mode & 0o777) == (b"two", 0o600)
    assert os.listdir(tmp_path) == ["f"]


def test_a_file_that_cannot_be_written_leaves_the_old_one(tmp_path: Path) -> None:
    (tmp_path / "f").mkdir()
    with pytest.raises(OSError):
        durable.write_file(tmp_path / "f", b"two")
    assert os.listdir(tmp_path) == ["f"]


def test_a_link_is_made_and_moved_in_one_step(tmp_path: Path) -> None:
    (tmp_path / "scratch").mkdir()
    for target in ("one", "two"):
        durable.point(tmp_path / "link", target, tmp_path / "scratch")
        assert os.readlink(tmp_path / "link") == target
    assert os.listdir(tmp_path / "scratch") == []


def test_a_link_never_takes_the_place_of_a_folder(tmp_path: Path) -> None:
    (tmp_path / "scratch").mkdir()
    (tmp_path / "link").mkdir()
    with pytest.raises(OSError):
        durable.point(tmp_path / "link", "one", tmp_path / "scratch")
    assert (os.listdir(tmp_path / "scratch"), (tmp_path / "link").is_symlink()) == ([], False)


def test_a_folder_is_moved_with_everything_in_it(tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "b" / "c").write_bytes(b"c")
    durable.sync_tree(tmp_path / "a")
    durable.move(tmp_path / "a", tmp_path / "z")
    assert (tmp_path / "z" / "b" / "c").read_bytes() == b"c"
    assert not (tmp_path / "a").exists()
