"""What a package is: id and version of its manifest, whatever the contract; the hashes of its files; its folder."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from plugbay.model.errors import ManifestInvalid
from plugbay.packages import archive
from plugbay.packages.errors import PackageRefused, Reason
from plugbay.packages.folder import SIGNATURE_NAME
from plugbay.packages.package import folder_name, open_archive, read_folder, tree_sha256
from tests.packages.builders import pack, plugin, tarball
from tests.support.ainb import write_ainb_plugin
from tests.support.kaged import write_kaged_plugin
from tests.support.nexo import write_nexo_plugin
from tests.support.requirements import requirement
from tests.support.vai import write_vai_plugin


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


def test_a_folder_to_pack_and_a_folder_as_it_is_differ_in_what_is_ignored(tmp_path: Path) -> None:
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
