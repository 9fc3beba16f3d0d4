"""Folders with hostile content: measured and removed without touching anything outside."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from plugbay.host.disk import tree
from tests.support.descriptors import no_free_descriptors
from tests.support.requirements import requirement

KIB = 1024


@pytest.fixture
def scratch(tmp_path: Path) -> Path:
    scratch = tmp_path / "instance" / "inv_1"
    scratch.mkdir(parents=True)
    return scratch


@pytest.fixture
def outside(tmp_path: Path) -> Iterator[Path]:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "precious").write_text("mine")
    yield outside
    assert (outside / "precious").read_text() == "mine"


def dig(scratch: Path, levels: int) -> None:
    at = os.open(scratch, os.O_RDONLY)
    for _ in range(levels):
        os.mkdir("d" * 40, dir_fd=at)
        below = os.open("d" * 40, os.O_RDONLY, dir_fd=at)
        os.close(at)
        at = below
        os.close(os.open("file", os.O_CREAT | os.O_WRONLY, dir_fd=at))
    os.close(at)


@requirement("vai:host-scratch-removal")
def test_links_are_removed_and_never_followed(scratch: Path, outside: Path) -> None:
    (scratch / "folder").symlink_to(outside)
    (scratch / "file").symlink_to(outside / "precious")
    (scratch / "inner").mkdir()
    (scratch / "inner" / "up").symlink_to("../../..")
    os.link(outside / "precious", scratch / "hard")
    os.mkfifo(scratch / "pipe")
    assert tree.remove(scratch)
    assert not scratch.exists()


def test_a_folder_that_became_a_link_is_removed_and_its_target_is_not(scratch: Path, outside: Path) -> None:
    scratch.rmdir()
    scratch.symlink_to(outside)
    assert tree.remove(scratch)
    assert not os.path.lexists(scratch)


@requirement("vai:host-scratch-removal")
def test_a_tree_deeper_than_any_path_is_removed(scratch: Path) -> None:
    dig(scratch, 1_000)
    with pytest.raises(OSError, match="too long"):
        os.listdir(f"{scratch}{('/' + 'd' * 40) * 1_000}")
    assert tree.remove(scratch)
    assert not scratch.exists()


CLOSED = """
import os, sys
from pathlib import Path
from plugbay.host.disk import tree
os.chdir(sys.argv[1])
if os.geteuid() == 0:  # for whom nothing is closed
    os.chown(".", 65534, 65534)
    os.setgid(65534)
    os.setuid(65534)
scratch = Path("inv_2")
(scratch / "a" / "b").mkdir(parents=True)
(scratch / "a" / "b" / "file").write_text("x")
for folder in (scratch / "a" / "b", scratch / "a", scratch):
    folder.chmod(0)
try:
    os.listdir(scratch)
    sys.exit("the scratch is not closed to its owner, so this proves nothing")
except PermissionError:
    pass
sys.exit(0 if tree.remove(scratch) and not os.path.lexists(scratch) else "something is left")
"""


@requirement("vai:host-scratch-removal")
def test_folders_that_their_owner_closed_to_itself_are_removed(scratch: Path) -> None:
    subprocess.run([sys.executable, "-c", CLOSED, str(scratch.parent)], check=True)


def test_a_missing_folder_counts_as_removed(tmp_path: Path) -> None:
    assert tree.remove(tmp_path / "never")
    assert tree.remove(tmp_path / "no" / "parent")
    assert tree.quota_problem(tmp_path / "never", 1) is None


@requirement("vai:host-scratch-quota")
def test_the_disk_space_of_files_is_measured(scratch: Path, outside: Path) -> None:
    (scratch / "a").mkdir()
    (scratch / "a" / "data").write_bytes(os.urandom(64 * KIB))
    (scratch / "link").symlink_to(outside)
    assert tree.quota_problem(scratch, 256 * KIB) is None
    assert "more than 32,768 bytes" in str(tree.quota_problem(scratch, 32 * KIB))


def test_a_sparse_file_takes_no_space(scratch: Path) -> None:
    with (scratch / "sparse").open("wb") as file:
        file.truncate(1 << 40)
    assert tree.quota_problem(scratch, KIB * KIB) is None


def test_too_many_levels_and_too_many_entries_are_too_much(scratch: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dig(scratch, tree.MAX_DEPTH - 2)
    assert tree.quota_problem(scratch, 1 << 30) is None
    monkeypatch.setattr(tree, "MAX_ENTRIES", 10)
    assert "more than 10 entries" in str(tree.quota_problem(scratch, 1 << 30))
    monkeypatch.undo()
    tree.remove(scratch)
    scratch.mkdir()
    dig(scratch, tree.MAX_DEPTH + 1)
    assert "deeper than" in str(tree.quota_problem(scratch, 1 << 30))


def test_a_folder_that_is_a_link_is_not_measured_but_refused(scratch: Path, outside: Path) -> None:
    scratch.rmdir()
    scratch.symlink_to(outside)
    assert "cannot be measured" in str(tree.quota_problem(scratch, 1 << 30))


@requirement("vai:host-scratch-removal")
def test_a_folder_that_becomes_a_link_while_it_is_removed_is_removed_as_one(
    scratch: Path, outside: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A name is swapped between the check and its opening; the rest of the scratch folder is removed."""
    for name in "abc":
        (scratch / name / "inner").mkdir(parents=True)
    look = tree._try_unlink

    def look_and_swap(at: int, name: str) -> bool:
        gone = look(at, name)
        if name in "abc" and not gone and not (scratch / "moved").exists():
            (scratch / name).rename(scratch / "moved")
            (scratch / name).symlink_to(outside)
        return gone

    monkeypatch.setattr(tree, "_try_unlink", look_and_swap)
    assert tree.remove(scratch)
    assert not scratch.exists()


@requirement("host:shortage")
def test_a_host_without_descriptors_finds_no_fault_with_a_folder(scratch: Path) -> None:
    (scratch / "file").write_bytes(bytes(64 * KIB))
    with no_free_descriptors():
        assert tree.quota_problem(scratch, KIB) is None
    assert tree.quota_problem(scratch, KIB) == "it has more than 1,024 bytes"
