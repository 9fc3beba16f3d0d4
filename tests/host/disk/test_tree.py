"""Folders with hostile content: measured and removed without touching anything outside."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from plugbay.host.disk import tree
from tests.support.requirements import requirement

KIB = 1024


@pytest.fixture
def room(tmp_path: Path) -> Path:
    room = tmp_path / "rooms" / "inv_1"
    room.mkdir(parents=True)
    return room


@pytest.fixture
def outside(tmp_path: Path) -> Iterator[Path]:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "precious").write_text("mine")
    yield outside
    assert (outside / "precious").read_text() == "mine"


def dig(room: Path, levels: int) -> None:
    at = os.open(room, os.O_RDONLY)
    for _ in range(levels):
        os.mkdir("d" * 40, dir_fd=at)
        below = os.open("d" * 40, os.O_RDONLY, dir_fd=at)
        os.close(at)
        at = below
        os.close(os.open("file", os.O_CREAT | os.O_WRONLY, dir_fd=at))
    os.close(at)


@requirement("vai:host-scratch-removal")
def test_links_are_removed_and_never_followed(room: Path, outside: Path) -> None:
    (room / "folder").symlink_to(outside)
    (room / "file").symlink_to(outside / "precious")
    (room / "inner").mkdir()
    (room / "inner" / "up").symlink_to("../../..")
    os.link(outside / "precious", room / "hard")
    os.mkfifo(room / "pipe")
    assert tree.remove(room)
    assert not room.exists()


def test_a_folder_that_became_a_link_is_removed_and_its_target_is_not(room: Path, outside: Path) -> None:
    room.rmdir()
    room.symlink_to(outside)
    assert tree.remove(room)
    assert not os.path.lexists(room)


@requirement("vai:host-scratch-removal")
def test_a_tree_deeper_than_any_path_is_removed(room: Path) -> None:
    dig(room, 1_000)
    with pytest.raises(OSError, match="too long"):
        os.listdir(f"{room}{('/' + 'd' * 40) * 1_000}")
    assert tree.remove(room)
    assert not room.exists()


CLOSED = """
import os, sys
from pathlib import Path
from plugbay.host.disk import tree
os.chdir(sys.argv[1])
if os.geteuid() == 0:  # for whom nothing is closed
    os.chown(".", 65534, 65534)
    os.setgid(65534)
    os.setuid(65534)
room = Path("inv_2")
(room / "a" / "b").mkdir(parents=True)
(room / "a" / "b" / "file").write_text("x")
for folder in (room / "a" / "b", room / "a", room):
    folder.chmod(0)
try:
    os.listdir(room)
    sys.exit("the room is not closed to its owner, so this proves nothing")
except PermissionError:
    pass
sys.exit(0 if tree.remove(room) and not os.path.lexists(room) else "something is left")
"""


@requirement("vai:host-scratch-removal")
def test_folders_that_their_owner_closed_to_itself_are_removed(room: Path) -> None:
    subprocess.run([sys.executable, "-c", CLOSED, str(room.parent)], check=True)


def test_what_is_not_there_is_gone(tmp_path: Path) -> None:
    assert tree.remove(tmp_path / "never")
    assert tree.remove(tmp_path / "no" / "parent")
    assert tree.quota_problem(tmp_path / "never", 1) is None


@requirement("vai:host-scratch-quota")
def test_what_files_take_on_the_disk_is_measured(room: Path, outside: Path) -> None:
    (room / "a").mkdir()
    (room / "a" / "data").write_bytes(os.urandom(64 * KIB))
    (room / "link").symlink_to(outside)
    assert tree.quota_problem(room, 256 * KIB) is None
    assert "more than 32,768 bytes" in str(tree.quota_problem(room, 32 * KIB))


def test_a_sparse_file_takes_no_space(room: Path) -> None:
    with (room / "sparse").open("wb") as file:
        file.truncate(1 << 40)
    assert tree.quota_problem(room, KIB * KIB) is None


def test_too_many_levels_and_too_many_entries_are_too_much(room: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dig(room, tree.MAX_DEPTH - 2)
    assert tree.quota_problem(room, 1 << 30) is None
    monkeypatch.setattr(tree, "MAX_ENTRIES", 10)
    assert "more than 10 entries" in str(tree.quota_problem(room, 1 << 30))
    monkeypatch.undo()
    tree.remove(room)
    room.mkdir()
    dig(room, tree.MAX_DEPTH + 1)
    assert "deeper than" in str(tree.quota_problem(room, 1 << 30))


def test_a_folder_that_is_a_link_is_not_measured_but_refused(room: Path, outside: Path) -> None:
    room.rmdir()
    room.symlink_to(outside)
    assert "cannot be measured" in str(tree.quota_problem(room, 1 << 30))


@requirement("vai:host-scratch-removal")
def test_a_folder_that_becomes_a_link_while_it_is_removed_is_removed_as_one(
    room: Path, outside: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the look at a name and its opening, somebody swaps it; the rest of the room goes all the same."""
    for name in "abc":
        (room / name / "inner").mkdir(parents=True)
    look = tree._try_unlink

    def look_and_swap(at: int, name: str) -> bool:
        gone = look(at, name)
        if name in "abc" and not gone and not (room / "moved").exists():
            (room / name).rename(room / "moved")
            (room / name).symlink_to(outside)
        return gone

    monkeypatch.setattr(tree, "_try_unlink", look_and_swap)
    assert tree.remove(room)
    assert not room.exists()
