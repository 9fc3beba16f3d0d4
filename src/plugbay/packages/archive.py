"""Packs a plugin folder into a reproducible archive: the same files make the same bytes.

The format is a gzipped tar of regular files, sorted by name, without times or owners, with mode 0644 or 0755. Every
archive is read back with the checks for untrusted archives before it gets its name.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import secrets
import tarfile
from pathlib import Path
from typing import BinaryIO, NamedTuple

from plugbay.packages.errors import PackageRefused, Reason
from plugbay.packages.package import IGNORE_FILE, Entry, Package, folder_name, packed_files, read_folder, read_signature
from plugbay.packages.rules import DEFAULT_LIMITS, Limits, Names
from plugbay.packages.unpack import Archive, Member

SUFFIX = ".tar.gz"
SIGNATURE_SUFFIX = ".signature.json"
"""Suffix of the signature file beside an archive."""

LEVEL = 9
"""Compression level: packed once, downloaded often."""

EPOCH = 0
"""Modification time of every file."""


class Packed(NamedTuple):
    """A written package."""

    path: Path
    package: Package
    digest: str
    size: int


def file_name(package: Package) -> str:
    """Default file name of a package."""
    return f"{folder_name(package.id)}-{folder_name(package.version)}{SUFFIX}"


def signature_path(archive: Path) -> Path:
    """Path of the signature of an archive: beside it, so that signing does not change its digest."""
    return archive.with_name(archive.name + SIGNATURE_SUFFIX)


def pack(root: Path, out: Path | None = None, limits: Limits = DEFAULT_LIMITS) -> Packed:
    """Pack the plugin in `root`; raises `ManifestInvalid`, or `PackageRefused` for content that cannot be unpacked
    safely.

    `out` is a file, or a folder for a file with the default name. The signature of a signed folder is written beside
    the archive.
    """
    package = read_folder(root, to_pack=True)
    entries = packed_files(root)
    _check(entries, limits)
    out = out or Path()
    path = out / file_name(package) if out.is_dir() else out
    temporary = path.with_name(f".{secrets.token_hex(8)}.tmp")
    try:
        with open(temporary, "xb") as file:
            _write(file, entries)
        digest, size, files = _read_back(temporary, limits)
        if files != package.files:
            raise PackageRefused(Reason.TAMPERED, f"{root} changed during packing", hint="try again")
        os.replace(temporary, path)
        signature = read_signature(root)
        if signature is not None:
            signature_path(path).write_bytes(signature)
    finally:
        temporary.unlink(missing_ok=True)
    return Packed(path, package, digest, size)


def _check(entries: list[Entry], limits: Limits) -> None:
    """Check names, count and sizes before anything is written."""
    names = Names()
    for entry in entries:
        names.add(entry.name)
    if len(names) > limits.files:
        text = f"{len(names):,} files and folders; a package has at most {limits.files:,}"
        hint = f"list unneeded files in {IGNORE_FILE}"
        raise PackageRefused(Reason.TOO_MANY_FILES, text, hint=hint, limit=limits.files)
    total = sum(entry.size for entry in entries)
    if total > limits.unpacked:
        text = f"{total:,} bytes; a package has at most {limits.unpacked:,}"
        hint = f"list unneeded files in {IGNORE_FILE}"
        raise PackageRefused(Reason.TOO_LARGE, text, hint=hint, limit=limits.unpacked)


def _write(file: BinaryIO, entries: list[Entry]) -> None:
    with (
        gzip.GzipFile("", "wb", LEVEL, file, mtime=EPOCH) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as tar,
    ):
        for entry in entries:
            data = _contents(entry)
            tar.addfile(_header(entry, len(data)), io.BytesIO(data))


def _contents(entry: Entry) -> bytes:
    with open(os.open(entry.path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC), "rb") as file:
        return file.read(entry.size + 1)


def _header(entry: Entry, size: int) -> tarfile.TarInfo:
    if size != entry.size:
        raise PackageRefused(Reason.TAMPERED, f"{entry.name!r} changed during packing", hint="try again")
    header = tarfile.TarInfo(entry.name)
    header.size, header.mtime = size, EPOCH
    header.mode = 0o755 if entry.executable else 0o644
    return header


def _read_back(path: Path, limits: Limits) -> tuple[str, int, dict[str, str]]:
    """Digest, size, and the hash of each file, read as from an untrusted archive."""
    with open(path, "rb") as file:
        archive = Archive(file, limits)
        files = {member.name: _hash(member) for member in archive}
        return archive.digest, archive.size, files


def _hash(member: Member) -> str:
    digest = hashlib.sha256()
    for data in member.body:
        digest.update(data)
    return digest.hexdigest()
