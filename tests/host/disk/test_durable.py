"""Atomic changes on disk."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from plugbay.host.disk import durable


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


def test_a_file_is_rewritten_in_place_and_leaves_no_journal(tmp_path: Path) -> None:
    (tmp_path / "private").mkdir()
    target, journal = tmp_path / "f", tmp_path / "private" / "new"
    target.write_bytes(b"a longer text than the next")
    number = target.stat().st_ino
    durable.rewrite(target, b"next", journal)
    assert (target.read_bytes(), target.stat().st_ino, journal.exists()) == (b"next", number, False)


@pytest.mark.parametrize(("later", "expected"), [(0.0, b"next"), (60.0, b"half")], ids=["torn", "edited since"])
def test_a_rewrite_that_a_power_cut_ended_is_completed_unless_the_file_was_edited(
    tmp_path: Path, later: float, expected: bytes
) -> None:
    target, journal = tmp_path / "f", tmp_path / "new"
    journal.write_bytes(os.fsencode(target) + b"\0next")
    target.write_bytes(b"half")
    os.utime(target, (journal.stat().st_mtime + later,) * 2)
    durable.finish_rewrite(journal)
    assert (target.read_bytes(), journal.exists()) == (expected, False)
    durable.finish_rewrite(journal)


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
