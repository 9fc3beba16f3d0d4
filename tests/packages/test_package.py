"""Files of a package, and its identity."""

from __future__ import annotations

import hashlib
import os
import socket
from pathlib import Path

import pytest

from plugbay.model.errors import ManifestInvalid
from plugbay.packages import archive
from plugbay.packages.errors import PackageRefused, Reason
from plugbay.packages.package import (
    IGNORE_FILE,
    SIGNATURE_NAME,
    all_files,
    folder_name,
    hash_files,
    open_archive,
    packed_files,
    read_folder,
    read_signature,
    tree_sha256,
    would_be_packed,
)
from tests.packages.builders import pack, plugin, tarball
from tests.support.ainb import write_ainb_plugin
from tests.support.kaged import write_kaged_plugin
from tests.support.nexo import write_nexo_plugin
from tests.support.requirements import requirement
from tests.support.vai import write_vai_plugin

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
def test_leftovers_of_tools_and_files_that_are_secret_by_name_are_not_packed(tmp_path: Path) -> None:
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


def test_the_signature_is_no_part_of_the_signed_files(tmp_path: Path) -> None:
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
    assert hash_files(entries)["a"] == "ca978112ca1bbdcafac231b39a23dc4da786eff8147c4e72b9807785afee48bb"


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


@requirement("vai:package-every-contract")
def test_a_plugin_of_any_contract_is_packed_and_opened(tmp_path: Path) -> None:
    folders = {
        "rune": plugin(tmp_path / "rune"),
        "nexo": write_nexo_plugin(tmp_path / "nexo", "notes"),
        "kaged": write_kaged_plugin(tmp_path / "kaged", "notes"),
        "ainb": write_ainb_plugin(tmp_path / "ainb", "notes"),
        "vai": write_vai_plugin(tmp_path / "vai", package="acme/notes"),
    }
    for contract, folder in folders.items():
        packed = archive.pack(folder, tmp_path)
        (tmp_path / contract / "scratch").mkdir()
        opened = open_archive(packed.path, tmp_path / contract / "scratch")
        spec = opened.package.spec
        assert (spec.contract, spec.id, spec.version) == (contract, packed.package.id, packed.package.version)
        assert opened.package.root.name == folder_name(spec.id)
        assert opened.package.files == packed.package.files
        assert (opened.digest, opened.size) == (packed.digest, packed.size)


def test_the_tree_has_one_hash_by_the_names_bytes() -> None:
    files = {"é": "1" * 64, "Z": "2" * 64, "a": "3" * 64}
    lines = f"{'2' * 64}  Z\n{'3' * 64}  a\n{'1' * 64}  é\n"
    assert tree_sha256(files) == hashlib.sha256(lines.encode()).hexdigest()


def test_a_folder_to_pack_and_an_installed_folder_differ_in_ignored_files(tmp_path: Path) -> None:
    folder = plugin(tmp_path)
    (folder / ".env").write_text("x")
    assert set(read_folder(folder, to_pack=True).files) == {"rterm-plugin.json", "run.sh"}
    assert set(read_folder(folder, to_pack=False).files) == {"rterm-plugin.json", "run.sh", ".env"}


@pytest.mark.parametrize("plugin_id", ["acme/devkit", "..", ".hidden", "a b", "x" * 300])
def test_any_id_has_a_safe_folder_of_its_own(plugin_id: str) -> None:
    name = folder_name(plugin_id)
    assert "/" not in name and not name.startswith(".") and len(name) < 250
    assert folder_name("example.notes-2") == "example.notes-2"


@requirement("vai:package-manifest-at-root")
def test_an_archive_without_a_manifest_at_its_root_is_no_package(tmp_path: Path) -> None:
    manifest = (plugin(tmp_path) / "rterm-plugin.json").read_bytes()
    (tmp_path / "x.tgz").write_bytes(tarball(("inside/rterm-plugin.json", manifest)))
    (tmp_path / "scratch").mkdir()
    with pytest.raises(ManifestInvalid, match=r"no plugin manifest in x\.tgz") as caught:
        open_archive(tmp_path / "x.tgz", tmp_path / "scratch")
    assert caught.value.source == str(tmp_path / "x.tgz")
    assert "scratch" not in str(caught.value)


def test_a_signature_inside_an_archive_is_found_and_is_no_file_of_the_package(tmp_path: Path) -> None:
    folder = plugin(tmp_path)
    members = [(name, (folder / name).read_bytes()) for name in ("rterm-plugin.json", "run.sh")]
    (tmp_path / "x.tgz").write_bytes(tarball(*members, (SIGNATURE_NAME, b"{}")))
    (tmp_path / "scratch").mkdir()
    opened = open_archive(tmp_path / "x.tgz", tmp_path / "scratch")
    assert (opened.signature, set(opened.package.files)) == (b"{}", {"rterm-plugin.json", "run.sh"})


@pytest.mark.parametrize("name", [f"{SIGNATURE_NAME}/x", SIGNATURE_NAME.upper()])
def test_no_file_is_in_the_way_of_the_signature(tmp_path: Path, name: str) -> None:
    manifest = (plugin(tmp_path) / "rterm-plugin.json").read_bytes()
    (tmp_path / "x.tgz").write_bytes(tarball(("rterm-plugin.json", manifest), (name, b"x")))
    (tmp_path / "scratch").mkdir()
    with pytest.raises(PackageRefused) as caught:
        open_archive(tmp_path / "x.tgz", tmp_path / "scratch")
    assert caught.value.reason is Reason.DUPLICATE_NAME


def test_an_archive_without_a_signature_has_none(tmp_path: Path) -> None:
    (tmp_path / "scratch").mkdir()
    assert open_archive(pack(tmp_path), tmp_path / "scratch").signature is None
