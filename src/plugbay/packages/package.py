"""`Package`: identity, version and file hashes of a plugin folder or an unpacked archive.

Id and version come from the manifest, read by the host's own code. Links and special files are refused, never skipped
silently; the ignore list decides which files are packed.
"""

from __future__ import annotations

import fnmatch
import hashlib
import os
import stat
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import msgspec

from plugbay.contracts.registry import CONTRACTS, contract_of
from plugbay.host.discovery.folders import MAX_MANIFEST, inspect
from plugbay.host.disk.release import SIGNATURE_NAME as SIGNATURE_NAME
from plugbay.model.errors import ManifestInvalid, Problem
from plugbay.model.spec import PluginSpec
from plugbay.packages.errors import PackageRefused, Reason
from plugbay.packages.rules import DEFAULT_LIMITS, Limits, Names
from plugbay.packages.unpack import unpack_file
from plugbay.process.stderr import log_name

IGNORE_FILE = ".plugbayignore"

IGNORED = tuple(
    f"{IGNORE_FILE} .git .gitignore .gitattributes .hg .svn .DS_Store Thumbs.db .idea .vscode *.swp *~ .env *.key "
    "__pycache__ *.pyc *.pyo .venv venv .tox .nox .pytest_cache .mypy_cache .ruff_cache .hypothesis .coverage htmlcov "
    "*.egg-info".split()
)
"""Never packed: leftovers of tools, and files that are secret by name."""

CHUNK = 1 << 20

STAGED = "package"
"""Folder name of an archive until its plugin id is known."""


class Entry(NamedTuple):
    """One file."""

    name: str
    """Name in the package, with `/` as separator."""
    path: Path
    executable: bool
    size: int


def packed_files(root: Path) -> list[Entry]:
    """The files that `pack` takes, in package order."""
    return _sorted(_walk(root, _patterns(root)))


def would_be_packed(root: Path, path: Path) -> bool:
    """Whether `pack` would take a file at this path, whether or not it exists."""
    root, path = root.resolve(), path.resolve()
    parts = path.relative_to(root).parts if path.is_relative_to(root) else ()
    places = ["/".join(parts[:depth]) for depth in range(1, len(parts) + 1)]
    return bool(places) and not any(_is_ignored(place, _patterns(root)) for place in places)


def all_files(root: Path) -> list[Entry]:
    """All files of an unpacked package except the signature."""
    return _sorted(_walk(root, ()))


def hash_files(entries: list[Entry]) -> dict[str, str]:
    """SHA-256 in hex by name."""
    return {entry.name: _hash(entry.path) for entry in entries}


def read_signature(root: Path) -> bytes | None:
    """The signature file of a folder; None when there is none."""
    path = root / SIGNATURE_NAME
    return path.read_bytes() if path.is_file() and not path.is_symlink() else None


def _sorted(entries: Iterator[Entry]) -> list[Entry]:
    found = [entry for entry in entries if entry.name != SIGNATURE_NAME]
    return sorted(found, key=lambda entry: entry.name.encode("utf-8", "surrogateescape"))


def _patterns(root: Path) -> tuple[str, ...]:
    """Built-in patterns and those of the plugin's ignore file: one per line, `#` for comments."""
    try:
        lines = (root / IGNORE_FILE).read_text("utf-8", "surrogateescape").splitlines()
    except FileNotFoundError:
        return IGNORED
    return (*IGNORED, *(line.strip().rstrip("/") for line in lines if line.strip() and not line.startswith("#")))


def _is_ignored(name: str, patterns: tuple[str, ...]) -> bool:
    """A pattern without a slash matches any file or folder name, one with a slash a path from the root."""
    last = name.rpartition("/")[2]
    return any(fnmatch.fnmatchcase(name if "/" in pattern else last, pattern.lstrip("/")) for pattern in patterns)


def _walk(root: Path, patterns: tuple[str, ...]) -> Iterator[Entry]:
    for place, folders, files in os.walk(root, onerror=_raise):
        below = "" if place == str(root) else f"{Path(place).relative_to(root).as_posix()}/"
        kept = [name for name in (*folders, *files) if not _is_ignored(below + name, patterns)]
        folders[:] = [name for name in folders if name in kept and not os.path.islink(os.path.join(place, name))]
        yield from (_entry(below + name, Path(place, name)) for name in kept if name not in folders)


def _raise(error: OSError) -> None:
    raise error


def _entry(name: str, path: Path) -> Entry:
    status = path.lstat()
    if stat.S_ISLNK(status.st_mode):
        hint = f"replace it with the file itself, or list it in {IGNORE_FILE}"
        raise PackageRefused(Reason.LINK, f"{name!r} is a symbolic link", hint=hint, file=name)
    if not stat.S_ISREG(status.st_mode):
        text = f"{name!r} is a pipe, a socket or a device"
        raise PackageRefused(Reason.SPECIAL_FILE, text, hint=f"list it in {IGNORE_FILE}", file=name)
    return Entry(name, path, bool(status.st_mode & 0o111), status.st_size)


def _hash(path: Path) -> str:
    digest = hashlib.sha256()
    with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC), "rb") as file:
        while data := file.read(CHUNK):
            digest.update(data)
    return digest.hexdigest()


class Package(msgspec.Struct, frozen=True):
    """One release of one plugin, unpacked."""

    root: Path
    spec: PluginSpec
    manifest: str
    """File name of the manifest."""
    files: Mapping[str, str]
    """SHA-256 in hex by name, without the signature."""

    @property
    def id(self) -> str:
        return self.spec.id

    @property
    def version(self) -> str:
        return self.spec.version

    @property
    def tree_sha256(self) -> str:
        """One hash over all names and contents."""
        return tree_sha256(self.files)


def tree_sha256(files: Mapping[str, str]) -> str:
    """SHA-256 over `<sha256>  <name>` lines, sorted by the bytes of the names."""
    names = sorted(files, key=str.encode)
    return hashlib.sha256("".join(f"{files[name]}  {name}\n" for name in names).encode()).hexdigest()


def folder_name(plugin_id: str) -> str:
    """Folder name of a plugin: safe and unique for any id, and the id itself where possible."""
    return log_name(plugin_id).removesuffix(".log")


def read_folder(root: Path, *, to_pack: bool) -> Package:
    """The package in a folder, or the one that packing it would make."""
    return _read_package(root, hash_files(packed_files(root) if to_pack else all_files(root)))


class Opened(NamedTuple):
    """An unpacked archive."""

    package: Package
    digest: str
    """Digest of the archive: `sha256:…`."""
    size: int
    signature: bytes | None
    """The signature inside the archive, if any."""


def open_archive(
    archive: Path, scratch: Path, limits: Limits = DEFAULT_LIMITS, wrote: Callable[[str], None] = lambda name: None
) -> Opened:
    """Unpack an archive below `scratch`, into a folder with the name of its plugin."""
    root = scratch / STAGED
    unpacked = unpack_file(archive, root, limits, wrote)
    try:
        root = _rename(root, _required_name(root, unpacked.files))
        root = _rename(root, folder_name(_read_package(root, unpacked.files).id))
        package = _read_package(root, unpacked.files)
    except ManifestInvalid as error:
        raise _about(archive, error) from None
    names = Names()
    for name in (SIGNATURE_NAME, *package.files):  # a file in the archive must not block the signature file
        names.add(name)
    return Opened(package, unpacked.digest, unpacked.size, read_signature(root))


def _about(archive: Path, error: ManifestInvalid) -> ManifestInvalid:
    """The same problems without the temporary path."""
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


def _read_package(root: Path, files: Mapping[str, str]) -> Package:
    """Raises `ManifestInvalid` when the manifest is invalid."""
    found = inspect(root)
    if found.spec is None:
        raise ManifestInvalid(str(root), found.errors)
    names = CONTRACTS[found.contract].manifest_files
    manifest = next((name for name in names if name in files), None)
    if manifest is None:
        text = f"the manifest, {' or '.join(names)}, is excluded from the package"
        raise PackageRefused(Reason.MISSING_FILE, text, hint=f"remove it from {IGNORE_FILE}")
    return Package(root, found.spec, manifest, {name: files[name] for name in files if name != SIGNATURE_NAME})


def _rename(root: Path, name: str) -> Path:
    return root if root.name == name else root.rename(root.with_name(name))


def _required_name(root: Path, files: Mapping[str, str]) -> str:
    """The folder name that the contract requires before the manifest can be read."""
    for name in files:
        contract = contract_of(name)
        if contract is not None and contract.folder_name is not None:
            text = (root / name).read_bytes()[:MAX_MANIFEST].decode("utf-8", "replace")
            return folder_name(contract.folder_name(text) or root.name)
    return root.name
