"""Releases before a start: unchanged files pass, and every change is found, however it was made."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from plugbay.host.disk import release
from plugbay.host.disk.release import LIST, SIGNATURE_NAME, format_list, is_listed, is_release, verify
from plugbay.process.diagnose import LaunchFailed

FILES = {"run.sh": b"#!/bin/sh\n", "lib/util.py": b"x = 1\n", "été.txt": b""}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "store" / "plugin"
    for name, data in FILES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    hashes = {name: hashlib.sha256(data).hexdigest() for name, data in FILES.items()}
    (folder.parent / LIST).write_bytes(format_list(hashes))
    return folder


def problem(root: Path, place: str | None = None) -> str | None:
    try:
        verify(root, place)
    except LaunchFailed as failed:
        assert failed.hint and failed.detail["reason"] == "tampered"
        return failed.message
    return None


def test_an_unchanged_release_passes_and_a_signature_may_be_beside_its_files(root: Path) -> None:
    (root / SIGNATURE_NAME).write_text("{}")
    assert is_release(root) and problem(root) is None
    assert not is_release(root / "lib")


def test_the_list_can_be_checked_by_other_programs(root: Path) -> None:
    done = subprocess.run(
        ["sha256sum", "--check", "--strict", f"../{LIST}"], cwd=root, capture_output=True, check=False
    )
    assert done.returncode == 0, done


def change(root: Path) -> None:
    (root / "lib/util.py").write_bytes(b"x = 2\n")


def change_and_set_the_time_back(root: Path) -> None:
    path = root / "lib/util.py"
    before = path.stat()
    path.write_bytes(b"x = 2\n")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def put_another_file_in_its_place(root: Path) -> None:
    (root / "new").write_bytes(b"x = 2\n")
    (root / "new").rename(root / "lib/util.py")


def link(root: Path) -> None:
    (root.parent / "same").write_bytes(FILES["lib/util.py"])
    (root / "lib/util.py").unlink()
    (root / "lib/util.py").symlink_to(root.parent / "same")


def make_a_pipe(root: Path) -> None:
    (root / "lib/util.py").unlink()
    os.mkfifo(root / "lib/util.py")


CHANGES = [change, change_and_set_the_time_back, put_another_file_in_its_place, link, make_a_pipe]


@pytest.mark.parametrize("settled", [0.0, release.SETTLED_SECONDS])
@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_a_changed_file_is_found_also_after_a_check(
    root: Path, change: Callable[[Path], None], settled: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(release, "SETTLED_SECONDS", settled)  # 0: the first check is remembered
    assert problem(root) is None
    change(root)
    found = problem(root)
    assert found is not None and "'lib/util.py' was changed" in found


def test_a_missing_and_an_added_file_are_found(root: Path) -> None:
    (root / "lib/json.py").write_text("")
    assert "'lib/json.py' is not part of the installed package" in str(problem(root))
    (root / "lib/json.py").unlink()
    assert problem(root) is None
    (root / "lib/util.py").unlink()
    assert "'lib/util.py' of the package is missing" in str(problem(root))


def test_a_folder_that_is_a_link_is_no_folder_of_the_release(root: Path) -> None:
    (root / "lib").rename(root.parent / "lib")
    (root / "lib").symlink_to(root.parent / "lib")
    assert "'lib' is not part of the installed package" in str(problem(root))


def test_contents_are_those_of_the_list_or_not(root: Path) -> None:
    assert is_listed(root, "run.sh", FILES["run.sh"])
    assert not is_listed(root, "run.sh", b"other")
    assert not is_listed(root, "other", FILES["run.sh"])
    assert is_listed(root / "lib", "util.py", b"anything"), "no release"


def test_a_release_that_is_gone_is_refused(root: Path) -> None:
    root.rename(root.parent / "gone")
    assert "cannot be read" in str(problem(root))


def test_an_unchanged_release_is_hashed_once(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hashed: list[str] = []
    real = release._hash

    def counting(path: str) -> str:
        hashed.append(path)
        return real(path)

    monkeypatch.setattr(release, "_hash", counting)
    for settled, times in ((3600.0, 2), (0.0, 1)):
        monkeypatch.setattr(release, "SETTLED_SECONDS", settled)
        hashed.clear()
        verify(root)
        verify(root)
        assert len(hashed) == times * len(FILES)


def test_the_number_of_known_releases_is_bounded(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(release, "SETTLED_SECONDS", 0.0)
    monkeypatch.setattr(release, "MAX_KNOWN", 1)
    monkeypatch.setattr(release, "_known", {"another": ()})
    verify(root)
    assert list(release._known) == [str(root)]


@pytest.mark.skipif(sys.platform != "linux", reason="descriptors have paths on Linux only")
def test_the_files_that_are_checked_are_those_behind_a_descriptor(root: Path) -> None:
    """The folder is swapped after it was opened: the name is good, the open folder is not; and the other way round."""
    good = os.open(root, os.O_PATH | os.O_DIRECTORY)
    bad = root.parent / "bad"
    bad.mkdir()
    shown = os.open(bad, os.O_PATH | os.O_DIRECTORY)
    try:
        assert problem(root) is None
        assert "is missing" in str(problem(root, f"/proc/self/fd/{shown}"))
        root.rename(root.parent / "moved")
        bad.rename(root)
        assert "is missing" in str(problem(root))
        assert problem(root, f"/proc/self/fd/{good}") is None
    finally:
        os.close(good)
        os.close(shown)
