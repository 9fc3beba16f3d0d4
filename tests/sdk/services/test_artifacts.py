"""Files in a scratch folder, by reference."""

from __future__ import annotations

import os
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from plugbay.sdk.services.artifacts import ArtifactInvalid, read_artifact, refer_to
from tests.support.requirements import requirement

DATA = b"# report"


@pytest.fixture
def scratch(tmp_path: Path) -> Path:
    """A folder with a file, another in a folder, and ways out of it."""
    folder = tmp_path / "scratch"
    (folder / "sub").mkdir(parents=True)
    (folder / "report.md").write_bytes(DATA)
    (folder / "sub" / "a.bin9").write_bytes(b"")
    (tmp_path / "secret").write_bytes(DATA)
    (folder / "link").symlink_to(tmp_path / "secret")
    (folder / "inside").symlink_to(folder / "report.md")
    (folder / "out").symlink_to(tmp_path)
    os.mkfifo(folder / "pipe")
    return folder


def ref(path: str, **more: Any) -> dict[str, Any]:
    return {"path": path, "size_bytes": len(DATA), "sha256": sha256(DATA).hexdigest(), **more}


@requirement("vai:sdk-artifacts")
def test_a_reference_leads_to_the_bytes_it_was_made_of(scratch: Path) -> None:
    made = refer_to(str(scratch), "report.md")
    assert made == {**ref("report.md"), "media_type": "text/markdown"}
    assert read_artifact(str(scratch), made) == DATA
    assert refer_to(str(scratch), scratch / "report.md") == made
    assert refer_to(str(scratch), Path("sub/a.bin9"))["media_type"] == "application/octet-stream"


@requirement("vai:sdk-artifacts")
@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("../secret", "leads out of"),
        ("link", "leads out of"),
        ("inside", "leads out of"),
        ("out/secret", "leads out of"),
        ("sub/../report.md", "roundabout"),
        ("pipe", "no plain file"),
        ("sub", "no plain file"),
        ("gone", "cannot be read: No such file"),
    ],
)
def test_nothing_but_plain_files_of_the_folder_are_read(scratch: Path, path: str, why: str) -> None:
    with pytest.raises(ArtifactInvalid, match=why):
        read_artifact(str(scratch), ref(path))


@pytest.mark.parametrize("path", ["../secret", "link", "out/secret", "pipe"])
def test_nothing_else_is_handed_out_either(scratch: Path, path: str) -> None:
    with pytest.raises(ArtifactInvalid):
        refer_to(str(scratch), path)


def test_a_whole_path_in_a_reference_is_none_of_the_folder(scratch: Path) -> None:
    with pytest.raises(ArtifactInvalid, match="leads out of"):
        read_artifact(str(scratch), ref(str(scratch / "report.md")))


@pytest.mark.parametrize("wrong", [{"size_bytes": 7}, {"size_bytes": "8"}, {"sha256": "0" * 64}, {"sha256": None}])
def test_other_bytes_than_the_reference_says_are_refused(scratch: Path, wrong: dict[str, Any]) -> None:
    with pytest.raises(ArtifactInvalid, match="that its reference says"):
        read_artifact(str(scratch), ref("report.md", **wrong))


def test_without_a_folder_there_are_no_files() -> None:
    with pytest.raises(ArtifactInvalid, match="no file that it could be of"):
        read_artifact(None, ref("report.md"))
    with pytest.raises(ArtifactInvalid, match="no scratch folder"):
        refer_to(None, "report.md")
