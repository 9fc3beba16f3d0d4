"""Files in scratch folders: written for a plugin to read, or collected after a plugin wrote them.

    {"path": "report.md", "media_type": "text/markdown", "size_bytes": 120, "sha256": "…"}

A path must stay inside the folder, no part of it may be a link, and size and hash must be the declared ones. Collected
files are stored under their hash and outlive the folder. All functions block: call them on a thread.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
import stat
from collections.abc import Callable
from pathlib import Path, PurePosixPath
from typing import Any

CHUNK = 1 << 20
"""Bytes read at a time."""

MAX_ARTIFACTS = 256
"""Files one result may name."""

MAX_BYTES = 256 << 20
"""Of all files of one result together: the quota of a scratch folder. A sparse file is larger than the space it takes,
and a result may name the same file many times, so the quota alone does not bound them."""

PREFIX = "asset_"

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_WRITE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class BadArtifact(ValueError):
    """An artifact that cannot be collected; the text says why."""


def write(folder: Path, name: str, data: bytes, media_type: str) -> dict[str, Any]:
    """Write a new file into a folder, owned by the folder's owner; returns the reference to it."""
    put(folder, name, data)
    return {
        "path": name,
        "media_type": media_type,
        "size_bytes": len(data),
        "sha256": hashlib.sha256(data).hexdigest(),
    }


def put(folder: Path, path: str, data: bytes) -> None:
    """Write a new file below a folder, owned by the folder's owner.

    Raises OSError, and `BadArtifact` for a path that leads out of the folder.
    """
    parts = _inside(path).parts
    at = os.open(folder, _FOLDER)
    try:
        owner = os.fstat(at).st_uid
        for part in parts[:-1]:
            with contextlib.suppress(FileExistsError):
                os.mkdir(part, 0o700, dir_fd=at)
            below = os.open(part, _FOLDER, dir_fd=at)
            os.close(at)
            at = below
            _give_to(owner, at)
        fd = os.open(parts[-1], _WRITE, 0o600, dir_fd=at)
    finally:
        os.close(at)
    with open(fd, "wb") as file:
        _give_to(owner, fd)
        file.write(data)


def _give_to(owner: int, fd: int) -> None:
    if owner != os.geteuid():
        os.fchown(fd, owner, owner)


def read(folder: Path, references: Any, most: int) -> list[tuple[str, bytes]]:
    """The files of artifacts, by path. One that cannot be read is left out, and one that is too large is cut off one
    byte too late: so `collect` reports them.

    Raises `BadArtifact` when they have more than `most` bytes together.
    """
    found: dict[str, bytes] = {}
    for reference in references[:MAX_ARTIFACTS] if isinstance(references, list) else ():
        try:
            path, size, _ = _reference(reference)
            source = _open_file(folder, path)
        except BadArtifact:
            continue
        with open(source, "rb") as file:
            if str(path) not in found:
                found[str(path)] = data = file.read(min(size, most) + 1)
                most -= len(data)
        if most < 0:
            raise BadArtifact("the artifacts of the result are too large for the way from a node")
    return list(found.items())


class Artifacts:
    """The artifacts of invocations, by content. `store` gives their folder; it is made with the first artifact."""

    def __init__(self, store: Callable[[], Path]) -> None:
        self._store = store

    def path(self, asset_id: str) -> Path:
        """The file of an asset; raises `BadArtifact` for a text that is not an asset id."""
        if not asset_id.startswith(PREFIX) or not _is_digest(asset_id.removeprefix(PREFIX)):
            raise BadArtifact(f"{asset_id!r:.100} is not an asset_id")
        return self._store() / asset_id

    def collect(self, folder: Path, references: Any) -> list[dict[str, Any]]:
        """Store the artifacts of a result; returns the references with their `asset_id`. Raises `BadArtifact`."""
        if not isinstance(references, list) or len(references) > MAX_ARTIFACTS:
            raise BadArtifact(f"artifacts must be a list of at most {MAX_ARTIFACTS}")
        read = [_reference(ref) for ref in references]
        if sum(size for _, size, _ in read) > MAX_BYTES:
            raise BadArtifact(f"artifacts must have at most {MAX_BYTES:,} bytes together")
        return [self._keep(folder, ref, *parts) for ref, parts in zip(references, read, strict=True)]

    def _keep(self, folder: Path, ref: Any, path: PurePosixPath, size: int, digest: str) -> dict[str, Any]:
        source = _open_file(folder, path)
        try:
            if (found := os.fstat(source).st_size) != size:
                raise BadArtifact(f"{path} has {found:,} bytes, not {size:,}")
            self._copy(source, path, size, digest)
        finally:
            os.close(source)
        return {**ref, "asset_id": _asset_id(digest)}

    def _copy(self, source: int, path: PurePosixPath, size: int, digest: str) -> None:
        """Copy at most the declared size; the file gets its name only when size and hash are right."""
        folder = self._store()
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        draft = folder / f".{secrets.token_hex(8)}"
        hashed, left = hashlib.sha256(), size
        try:
            with open(os.open(draft, _WRITE, 0o600), "wb") as file:
                while left > 0 and (data := os.read(source, min(CHUNK, left))):
                    hashed.update(data)
                    file.write(data)
                    left -= len(data)
            if left or hashed.hexdigest() != digest:
                raise BadArtifact(f"{path} does not match its sha256")
            os.replace(draft, folder / _asset_id(digest))
        finally:
            draft.unlink(missing_ok=True)


def _asset_id(digest: str) -> str:
    return PREFIX + digest


def _is_digest(text: Any) -> bool:
    return isinstance(text, str) and len(text) == 64 and not text.strip("0123456789abcdef")


def _reference(ref: Any) -> tuple[PurePosixPath, int, str]:
    if not isinstance(ref, dict):
        raise BadArtifact("an artifact must be an object with path, size_bytes and sha256")
    path, size, digest = ref.get("path"), ref.get("size_bytes"), ref.get("sha256")
    parts = _inside(path)
    if type(size) is not int or size < 0:
        raise BadArtifact(f"{path!r:.100} must have its size_bytes")
    if not isinstance(digest, str) or not _is_digest(digest):
        raise BadArtifact(f"{path!r:.100} must have its sha256, in 64 lower-case digits")
    return parts, size, digest


def _inside(path: Any) -> PurePosixPath:
    """The path of an artifact; raises `BadArtifact` for one that may lead out of its folder."""
    if not isinstance(path, str) or not path or "\0" in path or "\\" in path:
        raise BadArtifact("an artifact must have a path")
    parts = PurePosixPath(path)
    if parts.is_absolute() or ".." in parts.parts or not parts.parts:
        raise BadArtifact(f"{path!r:.100} does not stay inside the scratch directory")
    return parts


def _open_file(folder: Path, path: PurePosixPath) -> int:
    """Open a regular file; the caller closes it."""
    source = _open_beneath(folder, path)
    if not stat.S_ISREG(os.fstat(source).st_mode):
        os.close(source)
        raise BadArtifact(f"{path} is not a file")
    return source


def _open_beneath(folder: Path, path: PurePosixPath) -> int:
    """Open part by part, following no link."""
    at = os.open(folder, _FOLDER)
    try:
        for part in path.parts[:-1]:
            below = os.open(part, _FOLDER, dir_fd=at)
            os.close(at)
            at = below
        return os.open(path.name, _READ, dir_fd=at)
    except OSError as error:
        raise BadArtifact(f"{str(path)!r:.100} cannot be read: {error.strerror}") from None
    finally:
        os.close(at)
