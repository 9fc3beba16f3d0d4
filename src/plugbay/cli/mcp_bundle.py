"""`.mcpb` bundles: a zip of an MCP server, unpacked by the same rules as every stranger's package.

Owns the zip. Which names, how many files and how many bytes are taken is `packages.rules`' to say; what is in the
manifest, the contract's.
"""

from __future__ import annotations

import hashlib
import lzma
import os
import shutil
import stat
import struct
import zipfile
import zlib
from pathlib import Path
from typing import IO

from plugbay.packages.errors import PackageRefused, Reason
from plugbay.packages.rules import Limits, Names

SUFFIXES = (".mcpb", ".dxt")
FOLDER = "mcp-bundles"
"""Below the state folder: what was unpacked."""

LIMITS = Limits(packed=200 << 20, unpacked=1 << 30, files=50_000)
"""Bundles bring everything they need: those with node modules have tens of thousands of files."""

CHUNK = 1 << 20

_BROKEN = (
    *(zipfile.BadZipFile, zlib.error, lzma.LZMAError, struct.error),
    *(NotImplementedError, EOFError, RuntimeError, ValueError),
)
"""What the standard library says of zips that are none, or whose parts are not what they say."""

_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


def is_bundle(word: str) -> bool:
    """Whether a word on the command line means a bundle and no command."""
    return word.lower().endswith(SUFFIXES)


def unpack(bundle: Path, state: Path, limits: Limits = LIMITS) -> Path:
    """The folder in which the bundle lies open now; raises `PackageRefused`, and then nothing of it is left."""
    try:
        with open(bundle, "rb") as file:
            digest = _digest(file, limits)
            into = state / FOLDER / f"{bundle.stem[:64]}-{digest[:12]}"
            fresh = into.with_name(f".{into.name}.{os.getpid()}")
            if into.exists():
                return into
            into.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            try:
                _unpack(file, fresh, limits)
                os.rename(fresh, into)
            finally:
                shutil.rmtree(fresh, ignore_errors=True)
    except OSError as error:
        reason = Reason.NOT_FOUND if isinstance(error, FileNotFoundError) else Reason.BAD_ARCHIVE
        raise PackageRefused(reason, f"{bundle} cannot be read: {error.strerror or error}") from None
    return into


def remove(folder: Path, state: Path) -> None:
    """Remove what was unpacked, if it was unpacked by us."""
    if (state / FOLDER).resolve() == folder.resolve().parent:
        shutil.rmtree(folder, ignore_errors=True)


def _digest(file: IO[bytes], limits: Limits) -> str:
    digest, size = hashlib.sha256(), 0
    while data := file.read(CHUNK):
        digest.update(data)
        size += len(data)
        if size > limits.packed:
            text = f"the bundle has more than {limits.packed:,} bytes"
            raise PackageRefused(Reason.TOO_LARGE, text, limit=limits.packed)
    file.seek(0)
    return digest.hexdigest()


def _unpack(file: IO[bytes], into: Path, limits: Limits) -> None:
    os.mkdir(into, 0o755)
    names, room = Names(), _Room(limits, os.fstat(file.fileno()).st_size)
    try:
        with zipfile.ZipFile(file) as archive:
            if len(archive.infolist()) > limits.files:
                text = f"the bundle has more than {limits.files:,} files"
                raise PackageRefused(Reason.TOO_MANY_FILES, text, limit=limits.files)
            for member in archive.infolist():
                _take(archive, member, into, names, room)
    except _BROKEN as error:
        raise PackageRefused(Reason.BAD_ARCHIVE, f"the bundle cannot be unpacked: {error}") from None


def _take(archive: zipfile.ZipFile, member: zipfile.ZipInfo, into: Path, names: Names, room: _Room) -> None:
    mode = member.external_attr >> 16
    name = member.filename.removeprefix("./")
    if stat.S_ISLNK(mode):
        raise PackageRefused(Reason.LINK, f"{name!r} is a link; a bundle has only files", file=name)
    if stat.S_IFMT(mode) not in (0, stat.S_IFREG, stat.S_IFDIR):
        raise PackageRefused(Reason.SPECIAL_FILE, f"{name!r} is no file; a bundle has nothing else", file=name)
    if member.is_dir():
        if name.rstrip("/"):
            names.add_folder(name.rstrip("/"))
            (into / name).mkdir(parents=True, exist_ok=True)
        return
    names.add(name)
    path = into / name
    path.parent.mkdir(parents=True, exist_ok=True)
    bits = 0o755 if mode & 0o111 else 0o644
    with archive.open(member) as packed, open(os.open(path, _NEW_FILE, bits), "wb") as file:
        while data := packed.read(CHUNK):
            room.take(len(data))
            file.write(data)


class _Room:
    """How much more a bundle may inflate to."""

    def __init__(self, limits: Limits, packed: int) -> None:
        self._limits = limits
        self._packed = packed
        self._taken = 0

    def take(self, size: int) -> None:
        self._taken += size
        if self._taken > self._limits.unpacked:
            text = f"the bundle unpacks to more than {self._limits.unpacked:,} bytes"
            raise PackageRefused(Reason.TOO_LARGE, text, limit=self._limits.unpacked)
        if self._taken > max(self._limits.unjudged, self._packed * self._limits.ratio):
            raise PackageRefused(Reason.BOMB, f"the bundle inflates more than {self._limits.ratio}-fold")
