"""Packages: an archive is refused, or its files land in its folder and nowhere else, as another reader sees them."""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import shutil
import stat
import tarfile
from pathlib import Path

from plugbay.packages.errors import PackageRefused
from plugbay.packages.rules import Limits, name_problem
from plugbay.packages.unpack import BLOCK, unpack
from tests.fuzz.scratch import scratch_folder

LIMITS = Limits(packed=64 << 10, unpacked=128 << 10, files=16, unjudged=16 << 10)
CHECKSUM = slice(148, 156)
RAW, TAR, REPAIRED = range(3)


def check(data: bytes) -> None:
    """The first byte says what the others are: a packed archive, a tar, or a tar whose checksums are made right."""
    if not data:
        return
    packed = packed_archive(data)
    parent = scratch_folder("archives")
    into = parent / "into"
    try:
        unpacked = unpack(io.BytesIO(packed), into, LIMITS)
    except PackageRefused:
        unpacked = None
    try:
        assert os.listdir(parent) == ["into"], "something lies beside the folder of unpacking"
        files = _files(into)
        assert len(files) <= LIMITS.files and sum(map(len, files.values())) <= LIMITS.unpacked
        if unpacked is not None:
            assert unpacked.files == {name: hashlib.sha256(body).hexdigest() for name, body in files.items()}
            assert unpacked.digest == f"sha256:{hashlib.sha256(packed).hexdigest()}" and unpacked.size == len(packed)
            assert _files_of_another_reader(packed) in (files, None), "another reader sees other files"
    finally:
        shutil.rmtree(into)


def packed_archive(data: bytes) -> bytes:
    kind = data[0] % 3
    if kind == RAW:
        return data[1:]
    return gzip.compress(data[1:] if kind == TAR else _repaired(data[1:]), 1, mtime=0)


def _repaired(tar: bytes) -> bytes:
    """The tar with the right checksum in each header: chance would never find one."""
    blocks, at = bytearray(tar), 0
    while at + BLOCK <= len(blocks):
        header = blocks[at : at + BLOCK]
        if any(header):
            header[CHECKSUM] = b" " * 8
            header[CHECKSUM] = b"%06o\0 " % sum(header)
            blocks[at : at + BLOCK] = header
        digits = bytes(header[124:136]).strip(b" \0")
        size = int(digits, 8) if digits and all(0x30 <= digit <= 0x37 for digit in digits) else 0
        at += BLOCK + -(-size // BLOCK) * BLOCK
    return bytes(blocks)


def _files(root: Path) -> dict[str, bytes]:
    """The contents of the files below a folder, each of which is a plain file or folder with the modes of a package."""
    files = {}
    for path in root.rglob("*"):
        mode = path.lstat().st_mode
        assert stat.S_ISREG(mode) or stat.S_ISDIR(mode), f"{path} is neither a file nor a folder"
        assert stat.S_IMODE(mode) in ((0o644, 0o755) if stat.S_ISREG(mode) else (0o755,))
        name = path.relative_to(root).as_posix()
        assert name_problem(name) is None
        if stat.S_ISREG(mode):
            files[name] = path.read_bytes()
    return files


def _files_of_another_reader(packed: bytes) -> dict[str, bytes] | None:
    """The files that the standard library reads; None when it refuses the archive."""
    try:
        with tarfile.open(fileobj=io.BytesIO(packed), mode="r:gz") as tar:
            bodies = [(member.name.removeprefix("./"), tar.extractfile(member)) for member in tar]
            return {name: body.read() for name, body in bodies if body is not None}
    except tarfile.TarError:
        return None
