"""Packing is reproducible, and refuses what cannot be unpacked."""

from __future__ import annotations

import os
import subprocess
import tarfile
from pathlib import Path

import pytest

from plugbay.model.errors import ManifestInvalid
from plugbay.packages import archive
from plugbay.packages.archive import signature_path
from plugbay.packages.errors import PackageRefused, Reason
from plugbay.packages.package import IGNORE_FILE, SIGNATURE_NAME
from plugbay.packages.rules import Limits
from tests.packages.builders import plugin
from tests.support.requirements import requirement


@requirement("vai:package-deterministic")
def test_the_same_files_make_the_same_bytes_whatever_their_times_order_and_modes(tmp_path: Path) -> None:
    one, two = plugin(tmp_path / "one"), plugin(tmp_path / "two")
    for folder, names in ((one, ["x", "y", "été"]), (two, ["été", "y", "x"])):
        for name in names:
            (folder / "data" / name).parent.mkdir(exist_ok=True)
            (folder / "data" / name).write_text(name)
    os.utime(two / "run.sh", (1, 1))
    (two / "run.sh").chmod(0o700)
    (two / "data" / "x").chmod(0o600)
    first = archive.pack(one, tmp_path / "a.tar.gz")
    second = archive.pack(two, tmp_path / "b.tar.gz")
    assert (tmp_path / "a.tar.gz").read_bytes() == (tmp_path / "b.tar.gz").read_bytes()
    assert (first.digest, first.size) == (second.digest, (tmp_path / "a.tar.gz").stat().st_size)


@requirement("vai:package-deterministic")
def test_one_other_byte_or_one_other_right_to_run_makes_another_digest(tmp_path: Path) -> None:
    folder = plugin(tmp_path)
    digests = [archive.pack(folder, tmp_path).digest]
    (folder / "more").write_text("1")
    digests.append(archive.pack(folder, tmp_path).digest)
    (folder / "more").write_text("2")
    digests.append(archive.pack(folder, tmp_path).digest)
    (folder / "more").chmod(0o755)
    digests.append(archive.pack(folder, tmp_path).digest)
    assert len(set(digests)) == 4


@requirement("vai:package-manifest-at-root")
def test_other_programs_read_the_archive_and_find_the_manifest_at_its_root(tmp_path: Path) -> None:
    packed = archive.pack(plugin(tmp_path), tmp_path)
    listed = subprocess.run(["tar", "tzvf", packed.path], capture_output=True, text=True, check=True).stdout
    assert [line.split()[-1] for line in listed.splitlines()] == ["rterm-plugin.json", "run.sh"]
    with tarfile.open(packed.path) as tar:
        facts = {(m.name, m.mode, m.mtime, m.uid, m.gid, m.uname, m.gname) for m in tar.getmembers()}
    assert facts == {("rterm-plugin.json", 0o644, 0, 0, 0, "", ""), ("run.sh", 0o755, 0, 0, 0, "", "")}


def test_a_package_is_named_after_its_plugin_unless_a_file_is_named(tmp_path: Path) -> None:
    folder = plugin(tmp_path, "1.2.3+build")
    assert archive.pack(folder, tmp_path).path == tmp_path / "acme.notes-1.2.3%2Bbuild.tar.gz"
    assert archive.pack(folder, tmp_path / "x.tgz").path == tmp_path / "x.tgz"


def test_the_signature_of_a_folder_goes_beside_the_archive_and_changes_nothing(tmp_path: Path) -> None:
    folder = plugin(tmp_path)
    unsigned = archive.pack(folder, tmp_path / "x.tgz")
    assert not signature_path(unsigned.path).exists()
    (folder / SIGNATURE_NAME).write_bytes(b"{}")
    assert archive.pack(folder, tmp_path / "x.tgz").digest == unsigned.digest
    assert signature_path(unsigned.path).read_bytes() == b"{}"


def test_a_folder_that_is_no_plugin_is_not_packed(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(ManifestInvalid):
        archive.pack(tmp_path / "empty", tmp_path)


def test_a_manifest_that_would_be_left_out_is_noticed(tmp_path: Path) -> None:
    folder = plugin(tmp_path)
    (folder / IGNORE_FILE).write_text("*.json\n")
    with pytest.raises(PackageRefused) as caught:
        archive.pack(folder, tmp_path)
    assert caught.value.reason is Reason.MISSING_FILE


@pytest.mark.parametrize(
    ("names", "reason"),
    [
        (["nul.txt"], Reason.UNSAFE_NAME),
        (["a:b"], Reason.UNSAFE_NAME),
        (["README", "readme"], Reason.DUPLICATE_NAME),
    ],
)
def test_names_that_could_not_be_unpacked_everywhere_are_refused(
    tmp_path: Path, names: list[str], reason: Reason
) -> None:
    folder = plugin(tmp_path)
    for name in names:
        (folder / name).write_text("x")
    with pytest.raises(PackageRefused) as caught:
        archive.pack(folder, tmp_path)
    assert caught.value.reason is reason
    assert list(tmp_path.glob("*.tar.gz")) == []


@requirement("vai:package-limits")
@pytest.mark.parametrize(
    ("limits", "reason"),
    [
        (Limits(files=1), Reason.TOO_MANY_FILES),
        (Limits(unpacked=100), Reason.TOO_LARGE),
        (Limits(packed=100), Reason.TOO_LARGE),
        (Limits(ratio=2, unjudged=0), Reason.BOMB),
    ],
)
def test_a_package_that_cannot_be_unpacked_is_not_written(tmp_path: Path, limits: Limits, reason: Reason) -> None:
    folder = plugin(tmp_path)
    (folder / "zeros").write_bytes(bytes(1000))
    with pytest.raises(PackageRefused) as caught:
        archive.pack(folder, tmp_path, limits)
    assert caught.value.reason is reason
    assert [path.name for path in tmp_path.iterdir() if path.is_file()] == []
    archive.pack(folder, tmp_path)
