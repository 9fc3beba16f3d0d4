"""Unpacking: new files in a new folder, and nothing anywhere else."""

from __future__ import annotations

import hashlib
import io
import os
import tarfile
from pathlib import Path

import pytest

from plugbay.packages.errors import PackageRefused, Reason
from plugbay.packages.rules import Limits
from plugbay.packages.unpack import unpack, unpack_file
from tests.packages.builders import entry, tarball
from tests.support.requirements import requirement


def test_files_are_written_with_plain_modes_whatever_the_archive_and_the_umask_say(tmp_path: Path) -> None:
    data = tarball(
        entry("bin/run", tarfile.REGTYPE, mode=0o6711, uid=1234), ("a/b/text", b"text"), entry("e", tarfile.DIRTYPE)
    )
    before = os.umask(0o077)
    try:
        unpacked = unpack(io.BytesIO(data), tmp_path / "out")
    finally:
        os.umask(before)
    modes = {str(p.relative_to(tmp_path)): p.stat().st_mode & 0o7777 for p in tmp_path.rglob("*")}
    assert modes == {
        "out": 0o755,
        "out/bin": 0o755,
        "out/bin/run": 0o755,
        "out/a": 0o755,
        "out/a/b": 0o755,
        "out/a/b/text": 0o644,
    }
    assert (tmp_path / "out/bin/run").stat().st_uid == os.getuid()
    assert unpacked.digest == f"sha256:{hashlib.sha256(data).hexdigest()}"
    assert unpacked.size == len(data)
    assert unpacked.files["a/b/text"] == hashlib.sha256(b"text").hexdigest()


def test_a_folder_that_is_there_already_is_never_unpacked_into(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    with pytest.raises(FileExistsError):
        unpack(io.BytesIO(tarball(("a", b"x"))), tmp_path / "out")
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(FileExistsError):
        unpack(io.BytesIO(tarball(("a", b"x"))), tmp_path / "link")
    assert not (tmp_path / "elsewhere").exists()


ESCAPES = {
    "dots": tarball(("../canary", b"x")),
    "dots-inside": tarball(("a/../../canary", b"x")),
    "link-then-through-it": tarball(entry("d", tarfile.SYMTYPE, linkname=".."), ("d/canary", b"x")),
    "hard-link-then-through-it": tarball(entry("d", tarfile.LNKTYPE, linkname="../secret"), ("d", b"x")),
}


@requirement("vai:package-unsafe-names", "vai:package-no-links")
@pytest.mark.parametrize("name", ESCAPES)
def test_nothing_is_written_outside(tmp_path: Path, name: str) -> None:
    (tmp_path / "secret").write_text("secret")
    with pytest.raises(PackageRefused):
        unpack(io.BytesIO(ESCAPES[name]), tmp_path / "out")
    assert sorted(os.listdir(tmp_path)) == ["out", "secret"]
    assert (tmp_path / "secret").read_text() == "secret"


@pytest.mark.parametrize("name", ["dots", "link-then-through-it"])
def test_the_same_archives_do_escape_from_an_extractor_that_trusts_them(tmp_path: Path, name: str) -> None:
    (tmp_path / "out").mkdir()
    with tarfile.open(fileobj=io.BytesIO(ESCAPES[name])) as tar:
        tar.extractall(tmp_path / "out", filter="fully_trusted")
    assert (tmp_path / "canary").exists()


def test_a_file_that_is_missing_or_a_folder_is_told_in_words(tmp_path: Path) -> None:
    with pytest.raises(PackageRefused, match="no file") as caught:
        unpack_file(tmp_path / "gone.tgz", tmp_path / "out")
    assert caught.value.reason is Reason.NOT_FOUND
    with pytest.raises(PackageRefused, match="plugbay pack"):
        unpack_file(tmp_path, tmp_path / "out")


def test_a_pipe_in_the_place_of_an_archive_does_not_hold_us_up(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(PackageRefused):
        unpack_file(tmp_path / "pipe", tmp_path / "out")


def test_limits_hold_and_each_file_is_told(tmp_path: Path) -> None:
    told: list[str] = []
    data = tarball(("a", b"x"), ("b", b"y"), ("c", b"z"))
    with pytest.raises(PackageRefused):
        unpack(io.BytesIO(data), tmp_path / "out", Limits(files=2), told.append)
    assert told == ["a", "b"]
