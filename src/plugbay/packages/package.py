"""A package as the rest sees it: which plugin in which version, and the hash of each of its files.

Owns identity: it comes from the manifest, read as a host reads it, for every contract alike. Knows neither keys nor
stores.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from plugbay.contracts.registry import CONTRACTS, contract_of
from plugbay.host.discovery.folders import MAX_MANIFEST, inspect
from plugbay.model.errors import ManifestInvalid, Problem
from plugbay.model.spec import PluginSpec
from plugbay.packages import folder
from plugbay.packages.errors import PackageRefused, Reason
from plugbay.packages.folder import SIGNATURE_NAME
from plugbay.packages.rules import DEFAULT_LIMITS, Limits, Names
from plugbay.packages.unpack import unpack_file
from plugbay.process.stderr import log_name

ARRIVED = "package"
"""The folder of an archive until it is known whose it is."""


@dataclass(frozen=True, slots=True)
class Package:
    """One release of one plugin, on disk and looked through."""

    root: Path
    spec: PluginSpec
    manifest: str
    """The name of the manifest's file."""
    files: Mapping[str, str]
    """SHA-256 in hex by name; the signature is not among them."""

    @property
    def id(self) -> str:
        return self.spec.id

    @property
    def version(self) -> str:
        return self.spec.version

    @property
    def tree_sha256(self) -> str:
        """One hash for all names and contents, whatever carried them."""
        return tree_sha256(self.files)


def tree_sha256(files: Mapping[str, str]) -> str:
    """SHA-256 over `<sha256>  <name>` lines, sorted by the bytes of the names."""
    names = sorted(files, key=str.encode)
    return hashlib.sha256("".join(f"{files[name]}  {name}\n" for name in names).encode()).hexdigest()


def folder_name(plugin_id: str) -> str:
    """The folder of a plugin: safe for any id, never the same for two, and the id itself where that is safe."""
    return log_name(plugin_id).removesuffix(".log")


def read_folder(root: Path, *, to_pack: bool) -> Package:
    """The package that a folder is, or that packing it would make."""
    return _identified(root, folder.hashes(folder.packed_files(root) if to_pack else folder.all_files(root)))


class Opened(NamedTuple):
    """An archive that was unpacked and looked through."""

    package: Package
    digest: str
    """Of the packed bytes, as a registry names them: `sha256:…`."""
    size: int
    signature: bytes | None
    """The signature it carried inside, if any."""


def open_archive(
    archive: Path, scratch: Path, limits: Limits = DEFAULT_LIMITS, wrote: Callable[[str], None] = lambda name: None
) -> Opened:
    """Unpack an archive below `scratch`, into a folder with the plugin's name, and say what it is."""
    root = scratch / ARRIVED
    unpacked = unpack_file(archive, root, limits, wrote)
    try:
        root = _renamed(root, _demanded_name(root, unpacked.files))
        root = _renamed(root, folder_name(_identified(root, unpacked.files).id))
        package = _identified(root, unpacked.files)
    except ManifestInvalid as error:
        raise _about(archive, error) from None
    names = Names()
    for name in (SIGNATURE_NAME, *package.files):  # the signature, which may come later, is never in a file's way
        names.add(name)
    return Opened(package, unpacked.digest, unpacked.size, folder.read_signature(root))


def _about(archive: Path, error: ManifestInvalid) -> ManifestInvalid:
    """The same problems; the folder that the archive was in for a moment means nothing to anybody."""
    problems = [
        Problem(
            item.code,
            item.path,
            item.message.replace(error.source, archive.name),
            line=item.line,
            severity=item.severity,
        )
        for item in error.problems
    ]
    return ManifestInvalid(str(archive), problems)


def _identified(root: Path, files: Mapping[str, str]) -> Package:
    """Raises `ManifestInvalid` for a manifest that no host would take."""
    found = inspect(root)
    if found.spec is None:
        raise ManifestInvalid(str(root), found.errors)
    names = CONTRACTS[found.contract].manifest_files
    manifest = next((name for name in names if name in files), None)
    if manifest is None:
        text = f"the manifest, {' or '.join(names)}, would not be in the package"
        raise PackageRefused(Reason.MISSING_FILE, text, hint=f"take it out of {folder.IGNORE_FILE}")
    return Package(root, found.spec, manifest, {name: files[name] for name in files if name != SIGNATURE_NAME})


def _renamed(root: Path, name: str) -> Path:
    return root if root.name == name else root.rename(root.with_name(name))


def _demanded_name(root: Path, files: Mapping[str, str]) -> str:
    """The name that the folder must have before its manifest can be judged."""
    for name in files:
        contract = contract_of(name)
        if contract is not None and contract.folder_name is not None:
            text = (root / name).read_bytes()[:MAX_MANIFEST].decode("utf-8", "replace")
            return folder_name(contract.folder_name(text) or root.name)
    return root.name
