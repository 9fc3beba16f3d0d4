"""Package files: unpacked aside, judged, kept, and held against their hash."""

from __future__ import annotations

import shutil
from datetime import UTC, datetime
from pathlib import Path

import pytest

from plugbay.packages.archive import pack
from plugbay.packages.errors import PackageRefused, Reason
from plugbay.server.domain.releases import Releases
from tests.support.packaged import Publisher
from tests.support.plugins import ECHO_SH, write_plugin

NOW = datetime(2026, 11, 15, 12, 0, tzinfo=UTC)


@pytest.fixture
def releases(tmp_path: Path) -> Releases:
    (tmp_path / "data").mkdir()
    return Releases(tmp_path / "data", lambda: NOW)


def test_a_release_is_kept_whole_and_read_only_and_says_what_its_manifest_says(
    releases: Releases, tmp_path: Path
) -> None:
    publisher = Publisher(tmp_path / "data", tmp_path)
    packed = publisher.pack()
    with releases.arriving(packed.path, publisher.sign(packed)) as arrived:
        assert arrived.posture.status == "verified" and arrived.posture.key_id == publisher.key_id
        assert arrived.manifest["package_id"] == "acme/p" and arrived.digest == packed.digest
        releases.keep(arrived)
    with releases.arriving(packed.path) as again:
        releases.keep(again)  # nothing happens to what is there
    root = releases.folder(packed.digest, "acme/p")
    assert (root / "bin" / "plugin").stat().st_mode & 0o777 == 0o555
    found = releases.intact(packed.digest, "acme/p", packed.package.tree_sha256)
    assert found.spec is not None and found.spec.id == "acme/p"
    assert releases.found(packed.digest, "acme/p") is found


def test_files_that_were_changed_after_they_were_verified_are_not_started(releases: Releases, tmp_path: Path) -> None:
    publisher = Publisher(tmp_path / "data", tmp_path)
    packed = publisher.pack()
    with releases.arriving(packed.path) as arrived:
        assert arrived.posture.status == "missing"
        releases.keep(arrived)
    program = releases.folder(packed.digest, "acme/p") / "bin" / "plugin"
    program.chmod(0o755)
    program.write_text(program.read_text() + "\n")
    with pytest.raises(PackageRefused) as caught:
        releases.intact(packed.digest, "acme/p", packed.package.tree_sha256)
    assert caught.value.reason is Reason.TAMPERED
    with pytest.raises(PackageRefused) as caught:
        releases.found("sha256:" + "0" * 64, "acme/p")
    assert caught.value.reason is Reason.MISSING_FILE


def test_a_false_signature_is_refused_and_one_of_a_stranger_counts_for_nothing(
    releases: Releases, tmp_path: Path
) -> None:
    publisher, stranger = Publisher(tmp_path / "data", tmp_path), Publisher(tmp_path, tmp_path, "acme")
    packed, other = publisher.pack(), publisher.pack(version="2.0.0")
    with releases.arriving(packed.path, stranger.sign(packed)) as arrived:
        assert arrived.posture.status == "untrusted" and arrived.posture.why
    for signature in (publisher.sign(other), b"{}", publisher.sign(packed).replace(b'"1.0.0"', b'"1.0.1"')):
        with pytest.raises(PackageRefused), releases.arriving(packed.path, signature):
            pass


def test_only_packages_of_this_contract_are_taken(releases: Releases, tmp_path: Path) -> None:
    packed = pack(write_plugin(tmp_path / "src", "acme.notes", script=ECHO_SH), tmp_path)
    with pytest.raises(PackageRefused, match="is a plugin of rune"), releases.arriving(packed.path):
        pass


def test_what_a_killed_upload_left_is_swept_and_releases_stay(releases: Releases, tmp_path: Path) -> None:
    publisher = Publisher(tmp_path / "data", tmp_path)
    packed = publisher.pack()
    with releases.arriving(packed.path) as arrived:
        releases.keep(arrived)
    left = tmp_path / "data" / "packages" / "tmp" / "left"
    shutil.copytree(releases.folder(packed.digest, "acme/p"), left / "acme")
    releases.sweep()
    assert not left.exists() and releases.found(packed.digest, "acme/p").spec is not None
