"""Bundles are strangers' archives: unpacked whole, or not at all."""

from __future__ import annotations

import os
import stat
import zipfile
from pathlib import Path

import pytest

from plugbay.cli import mcp_bundle
from plugbay.packages.errors import PackageRefused, Reason
from plugbay.packages.rules import Limits
from tests.support.requirements import requirement


def bundle(folder: Path, files: dict[str, bytes], modes: dict[str, int] | None = None) -> Path:
    path = folder / "b.mcpb"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            member = zipfile.ZipInfo(name)
            member.compress_type = zipfile.ZIP_DEFLATED
            member.external_attr = ((modes or {}).get(name, stat.S_IFREG | 0o644)) << 16
            archive.writestr(member, data)
    return path


def reason_of(path: Path, state: Path, limits: Limits = mcp_bundle.LIMITS) -> Reason:
    with pytest.raises(PackageRefused) as caught:
        mcp_bundle.unpack(path, state, limits)
    folder = state / mcp_bundle.FOLDER
    assert not folder.exists() or os.listdir(folder) == []
    return caught.value.reason


@requirement("mcp:host-bundle")
def test_a_bundle_is_unpacked_with_plain_modes_and_found_again(tmp_path: Path) -> None:
    path = bundle(tmp_path, {"a/run": b"x", "b.txt": b"y"}, {"a/run": stat.S_IFREG | 0o4775})
    folder = mcp_bundle.unpack(path, tmp_path / "state")
    assert (folder / "b.txt").read_bytes() == b"y"
    assert stat.S_IMODE((folder / "a/run").stat().st_mode) & 0o7111 == 0o0111
    assert mcp_bundle.unpack(path, tmp_path / "state") == folder
    mcp_bundle.remove(folder, tmp_path / "state")
    assert not folder.exists()


def test_only_what_was_unpacked_here_is_removed(tmp_path: Path) -> None:
    own = tmp_path / "mine"
    own.mkdir()
    mcp_bundle.remove(own, tmp_path / "state")
    assert own.exists()


@requirement("mcp:host-bundle")
@pytest.mark.parametrize(
    ("name", "mode", "reason"),
    [
        ("../x", stat.S_IFREG | 0o644, Reason.UNSAFE_NAME),
        ("/x", stat.S_IFREG | 0o644, Reason.UNSAFE_NAME),
        ("x", stat.S_IFLNK | 0o777, Reason.LINK),
        ("x", stat.S_IFIFO | 0o644, Reason.SPECIAL_FILE),
    ],
)
def test_what_is_not_safe_is_refused(tmp_path: Path, name: str, mode: int, reason: Reason) -> None:
    assert reason_of(bundle(tmp_path, {"ok": b"", name: b"target"}, {name: mode}), tmp_path / "state") == reason


def test_two_names_that_some_systems_take_for_one_are_refused(tmp_path: Path) -> None:
    assert reason_of(bundle(tmp_path, {"A": b"", "a": b""}), tmp_path / "state") == Reason.DUPLICATE_NAME


def test_what_is_too_much_is_refused(tmp_path: Path) -> None:
    path, state = bundle(tmp_path, {"a": b"\0" * 100_000, "b": b""}), tmp_path / "state"
    assert reason_of(path, state, Limits(packed=10)) == Reason.TOO_LARGE
    assert reason_of(path, state, Limits(unpacked=50_000)) == Reason.TOO_LARGE
    assert reason_of(path, state, Limits(files=1)) == Reason.TOO_MANY_FILES
    assert reason_of(path, state, Limits(ratio=2, unjudged=10)) == Reason.BOMB


def test_what_is_no_zip_and_what_is_not_there_are_refused(tmp_path: Path) -> None:
    (tmp_path / "b.mcpb").write_bytes(b"not a zip")
    assert reason_of(tmp_path / "b.mcpb", tmp_path / "state") == Reason.BAD_ARCHIVE
    assert reason_of(tmp_path / "none.mcpb", tmp_path / "state") == Reason.NOT_FOUND
    assert (mcp_bundle.is_bundle("A.MCPB"), mcp_bundle.is_bundle("npx")) == (True, False)


@pytest.mark.parametrize("method", [zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_a_broken_part_is_a_refusal_however_it_is_packed(tmp_path: Path, method: int) -> None:
    path = tmp_path / "b.mcpb"
    with zipfile.ZipFile(path, "w", method) as archive:
        archive.writestr("a", b"hello" * 1_000)
    data = bytearray(path.read_bytes())
    data[45:60] = b"\xff" * 15
    path.write_bytes(data)
    assert reason_of(path, tmp_path / "state") == Reason.BAD_ARCHIVE
    assert not any((tmp_path / "state" / mcp_bundle.FOLDER).iterdir())
