"""Which files of a folder make a package."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from plugbay.packages.errors import PackageRefused, Reason
from plugbay.packages.folder import (
    IGNORE_FILE,
    SIGNATURE_NAME,
    all_files,
    hashes,
    packed_files,
    read_signature,
    would_be_packed,
)
from tests.support.requirements import requirement

LEFT_OUT = (
    ".git/HEAD",
    "sub/.git/HEAD",
    "__pycache__/a.cpython-311.pyc",
    "lib/b.pyc",
    ".venv/bin/python",
    ".env",
    "acme.key",
    "notes.txt~",
    "x.egg-info/PKG-INFO",
)


def fill(root: Path, *names: str) -> Path:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(name)
    return root


@requirement("vai:package-no-secrets")
def test_what_tools_leave_behind_and_what_is_secret_by_name_is_not_packed(tmp_path: Path) -> None:
    fill(tmp_path, "plugin.py", "lib/b.py", *LEFT_OUT)
    assert [entry.name for entry in packed_files(tmp_path)] == ["lib/b.py", "plugin.py"]
    assert {entry.name for entry in all_files(tmp_path)} == {"plugin.py", "lib/b.py", *LEFT_OUT}


def test_a_plugin_names_more_to_leave_out(tmp_path: Path) -> None:
    fill(tmp_path, "a.py", "tests/t.py", "docs/x.md", "sub/docs/y.md", "big.bin", "sub/big.bin", IGNORE_FILE)
    (tmp_path / IGNORE_FILE).write_text("# what nobody needs\ntests/\n/docs\n\n*.bin\n")
    assert [entry.name for entry in packed_files(tmp_path)] == ["a.py", "sub/docs/y.md"]


def test_the_order_is_that_of_the_names_bytes(tmp_path: Path) -> None:
    fill(tmp_path, "b", "a/z", "a.b", "é", "Z")
    assert [entry.name for entry in all_files(tmp_path)] == ["Z", "a.b", "a/z", "b", "é"]


def test_the_signature_is_no_part_of_what_it_signs(tmp_path: Path) -> None:
    assert read_signature(fill(tmp_path, "a", f"sub/{SIGNATURE_NAME}")) is None
    fill(tmp_path, SIGNATURE_NAME)
    assert [entry.name for entry in all_files(tmp_path)] == ["a", f"sub/{SIGNATURE_NAME}"]
    assert read_signature(tmp_path) == SIGNATURE_NAME.encode()


def test_a_signature_that_is_a_link_is_none(tmp_path: Path) -> None:
    fill(tmp_path, "a")
    (tmp_path / SIGNATURE_NAME).symlink_to("a")
    assert read_signature(tmp_path) is None


def test_modes_and_hashes_are_those_of_the_files(tmp_path: Path) -> None:
    fill(tmp_path, "a", "b")
    (tmp_path / "b").chmod(0o700)
    entries = all_files(tmp_path)
    assert [(entry.executable, entry.size) for entry in entries] == [(False, 1), (True, 1)]
    assert hashes(entries)["a"] == "ca978112ca1bbdcafac231b39a23dc4da786eff8147c4e72b9807785afee48bb"


@requirement("vai:package-no-links")
@pytest.mark.parametrize("target", ["a", "sub", "/etc/passwd", "nowhere"])
def test_a_link_is_refused_not_followed_and_not_left_out(tmp_path: Path, target: str) -> None:
    fill(tmp_path, "a", "sub/b")
    (tmp_path / "link").symlink_to(target)
    with pytest.raises(PackageRefused) as caught:
        packed_files(tmp_path)
    assert (caught.value.reason, caught.value.detail["file"]) == (Reason.LINK, "link")
    (tmp_path / IGNORE_FILE).write_text("link\n")
    assert [entry.name for entry in packed_files(tmp_path)] == ["a", "sub/b"]


@requirement("vai:package-no-devices")
def test_a_pipe_or_a_socket_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a").mkdir()
    os.mkfifo(tmp_path / "a" / "pipe")
    (tmp_path / "b").mkdir()
    monkeypatch.chdir(tmp_path / "b")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("socket")
        for name in "ab":
            with pytest.raises(PackageRefused) as caught:
                packed_files(tmp_path / name)
            assert caught.value.reason is Reason.SPECIAL_FILE


def test_a_file_lies_where_it_would_be_packed_or_it_does_not(tmp_path: Path) -> None:
    root = tmp_path / "p"
    root.mkdir()
    (root / IGNORE_FILE).write_bytes(b"dist\n\xff\n")
    for inside in ("x.tar.gz", "sub/x.tar.gz"):
        assert would_be_packed(root, root / inside)
    for outside in (root, tmp_path / "x.tar.gz", root / "../x.tar.gz", root / "dist/x.tar.gz", root / ".git/a/x"):
        assert not would_be_packed(root, outside)
