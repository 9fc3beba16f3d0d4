"""Files that cross between host and room: inside, no links, and exactly what was said."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Any

import pytest

from plugbay.host.invocations import artifacts
from plugbay.host.invocations.artifacts import Artifacts, BadArtifact
from tests.support.machine import needs_root
from tests.support.requirements import requirement


@pytest.fixture
def room(tmp_path: Path) -> Path:
    room = tmp_path / "inv_1"
    (room / "out").mkdir(parents=True)
    (room / "out" / "report.md").write_bytes(b"# Done\n")
    (tmp_path / "secret").write_bytes(b"# Done\n")
    return room


@pytest.fixture
def kept(tmp_path: Path) -> Artifacts:
    return Artifacts(lambda: tmp_path / "kept")


def ref(path: str = "out/report.md", data: bytes = b"# Done\n", **more: Any) -> dict[str, Any]:
    digest = hashlib.sha256(data).hexdigest()
    return {"path": path, "media_type": "text/markdown", "size_bytes": len(data), "sha256": digest, **more}


@requirement("vai:host-harness-artifacts")
def test_an_artifact_is_kept_under_its_hash_and_outlives_the_room(room: Path, kept: Artifacts) -> None:
    (found,) = kept.collect(room, [ref()])
    (room / "out" / "report.md").unlink()
    assert found == {**ref(), "asset_id": f"asset_{ref()['sha256']}"}
    assert kept.path(found["asset_id"]).read_bytes() == b"# Done\n"
    assert [path.name for path in kept.path(found["asset_id"]).parent.iterdir()] == [found["asset_id"]]


@requirement("vai:host-harness-artifacts")
@pytest.mark.parametrize(
    ("said", "why"),
    [
        (ref("../secret"), "does not stay inside"),
        (ref("out/../../secret"), "does not stay inside"),
        (ref("/etc/hostname"), "does not stay inside"),
        (ref("link"), "cannot be read"),
        (ref("folder/secret"), "cannot be read"),
        (ref("out"), "is not a file"),
        (ref("pipe", b""), "is not a file"),
        (ref("never"), "cannot be read"),
        (ref(size_bytes=6), "has 7 bytes, not 6"),
        (ref(size_bytes=-1), "must have its size_bytes"),
        (ref(size_bytes=True), "must have its size_bytes"),
        (ref(sha256="0" * 64), "does not match its sha256"),
        (ref(sha256="xyz"), "must have its sha256"),
        (ref(""), "must have a path"),
        (ref("a\0b"), "must have a path"),
        (ref("."), "does not stay inside"),
        (ref("a/" * 3_000), "^'.{0,120}cannot be read"),
        ("out/report.md", "must be an object"),
    ],
)
def test_an_artifact_that_is_not_what_it_says_is_refused(room: Path, kept: Artifacts, said: Any, why: str) -> None:
    (room / "link").symlink_to("../secret")
    (room / "folder").symlink_to("..")
    os.mkfifo(room / "pipe")
    assert (room / "link").read_bytes() == b"# Done\n"  # only the guard is in the way
    with pytest.raises(BadArtifact, match=why):
        kept.collect(room, [said])
    assert not list((room.parent / "kept").glob("*"))


@pytest.mark.parametrize("said", ["report.md", {"path": "x"}, [ref()] * (artifacts.MAX_ARTIFACTS + 1)])
def test_artifacts_are_a_list_of_bounded_length(room: Path, kept: Artifacts, said: Any) -> None:
    with pytest.raises(BadArtifact, match="must be a list"):
        kept.collect(room, said)


@requirement("vai:host-harness-artifacts")
def test_a_file_that_is_mostly_holes_does_not_fill_the_disk(room: Path, kept: Artifacts) -> None:
    """It takes nothing of the room's quota and would take all of its size where it is kept."""
    os.truncate(room / "out" / "report.md", artifacts.MAX_BYTES + 1)
    assert (room / "out" / "report.md").stat().st_blocks < 100
    with pytest.raises(BadArtifact, match="together"):
        kept.collect(room, [ref(size_bytes=artifacts.MAX_BYTES + 1)])
    half = artifacts.MAX_BYTES // 2
    with pytest.raises(BadArtifact, match="together"):
        kept.collect(room, [ref(size_bytes=half), ref(size_bytes=half), ref(size_bytes=1)])
    with pytest.raises(BadArtifact, match="bytes, not"):  # the positive control: two halves alone are not too many
        kept.collect(room, [ref(size_bytes=half), ref(size_bytes=half)])
    assert not (room.parent / "kept").exists()


@pytest.mark.parametrize("asset_id", ["../secret", "/etc/passwd", "", "asset_", "asset_../secret", "asset_" + "A" * 64])
def test_only_an_asset_id_names_an_asset(kept: Artifacts, asset_id: str) -> None:
    with pytest.raises(BadArtifact, match="is not an asset_id"):
        kept.path(asset_id)


def test_a_file_for_the_plugin_is_private_and_new(room: Path) -> None:
    said = artifacts.write(room, "projection.json", b"{}", "application/json")
    assert said == ref("projection.json", b"{}", media_type="application/json")
    assert (room / "projection.json").stat().st_mode & 0o777 == 0o600
    with pytest.raises(FileExistsError):
        artifacts.write(room, "projection.json", b"{}", "application/json")


@needs_root
def test_a_file_in_the_room_of_another_user_is_that_users(room: Path) -> None:
    os.chown(room, 2_000_000_001, 2_000_000_001)
    artifacts.write(room, "projection.json", b"{}", "application/json")
    facts = (room / "projection.json").stat()
    assert (facts.st_uid, facts.st_mode & 0o777) == (2_000_000_001, 0o600)


@requirement("host:nodes-large")
def test_files_go_from_one_folder_into_another_with_their_paths(room: Path, tmp_path: Path) -> None:
    found = artifacts.read(room, [ref(), ref(), ref("never"), {"path": "out"}], 7)
    assert found == [("out/report.md", b"# Done\n")]
    (tmp_path / "other").mkdir()
    artifacts.put(tmp_path / "other", *found[0])
    assert (tmp_path / "other" / "out" / "report.md").read_bytes() == b"# Done\n"
    with pytest.raises(FileExistsError):
        artifacts.put(tmp_path / "other", *found[0])


@pytest.mark.parametrize(("size", "data"), [(3, b"# Do"), (6, b"# Done\n"), (9, b"# Done\n")])
def test_a_file_with_another_size_than_it_says_still_has_another_one_at_its_goal(
    room: Path, size: int, data: bytes
) -> None:
    assert artifacts.read(room, [ref(size_bytes=size)], 100) == [("out/report.md", data)]


def test_files_that_are_too_large_together_are_refused_unread(room: Path) -> None:
    os.truncate(room / "out" / "report.md", 1 << 40)
    for references in ([ref(size_bytes=1 << 40)], [ref(size_bytes=7), ref("out/./report.md", size_bytes=7)]):
        with pytest.raises(BadArtifact, match="too large"):
            artifacts.read(room, references, 7)


@pytest.mark.parametrize("path", ["../x", "/x", "out/../../x", "", "a\0b", "link/x"])
def test_no_file_is_put_outside_of_its_folder(room: Path, tmp_path: Path, path: str) -> None:
    (room / "link").symlink_to(tmp_path)
    with pytest.raises((BadArtifact, OSError)):
        artifacts.put(room, path, b"x")
    assert not (tmp_path / "x").exists()


@needs_root
def test_files_and_folders_that_are_put_belong_to_the_owner_of_the_folder(room: Path) -> None:
    os.chown(room, 12345, 12345)
    artifacts.put(room, "a/b/c", b"x")
    assert {(room / each).stat().st_uid for each in ("a", "a/b", "a/b/c")} == {12345}
