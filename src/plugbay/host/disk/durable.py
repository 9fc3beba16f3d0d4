"""Atomic changes of files, folders and links that survive a power failure.

The order of write, fsync and rename is what makes them atomic: keep it.
"""

from __future__ import annotations

import os
import secrets
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_WRITE_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC

EDITED_AFTER = 10.0
"""A file changed later than this after its journal was edited by someone else, not by the rewrite."""

PROBE_BYTES = 1 << 20
"""Room that a disk must have so that it is not full."""


@contextmanager
def _opened(path: Path, flags: int = 0) -> Iterator[int]:
    at = os.open(path, os.O_RDONLY | os.O_CLOEXEC | flags)
    try:
        yield at
    finally:
        os.close(at)


def sync_folder(folder: Path) -> None:
    """Sync the names in a folder."""
    with _opened(folder, os.O_DIRECTORY) as at:
        os.fsync(at)


def sync_tree(root: Path) -> None:
    """Sync a folder tree: contents first, then the names."""
    for folder, _, files in os.walk(root, topdown=False):
        for name in files:
            with _opened(Path(folder, name), os.O_NOFOLLOW) as at:
                os.fsync(at)
        sync_folder(Path(folder))


def replace_at(at: int, name: str, data: bytes, mode: int) -> None:
    """Replace a file of the open folder `at` atomically; once this returns, a power cut does not undo it."""
    temporary = f".{secrets.token_hex(8)}.tmp"
    try:
        with open(os.open(temporary, _WRITE_FLAGS, mode, dir_fd=at), "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, name, src_dir_fd=at, dst_dir_fd=at)
    except BaseException:
        with suppress(FileNotFoundError):
            os.unlink(temporary, dir_fd=at)
        raise
    os.fsync(at)


def write_file(path: Path, data: bytes, mode: int = 0o644) -> None:
    """Replace a file; a reader sees the old or the new contents."""
    with _opened(path.parent, os.O_DIRECTORY) as at:
        replace_at(at, path.name, data, mode)


def rewrite(path: Path, data: bytes, journal: Path) -> None:
    """Rewrite a file in place, so that a bind mount over it stays valid.

    `journal`, in a private folder, holds the new contents until they are written; `finish_rewrite` completes the
    rewrite after a power failure.
    """
    write_file(journal, os.fsencode(path) + b"\0" + data, 0o600)
    finish_rewrite(journal)


def finish_rewrite(journal: Path) -> None:
    """Complete an interrupted rewrite from its journal, unless the file was edited since."""
    try:
        name, _, data = journal.read_bytes().partition(b"\0")
    except FileNotFoundError:
        return
    path = Path(os.fsdecode(name))
    with open(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600), "r+b") as file:
        if os.fstat(file.fileno()).st_mtime < journal.stat().st_mtime + EDITED_AFTER:
            file.write(data)
            file.truncate()
            file.flush()
            os.fsync(file.fileno())
    sync_folder(path.parent)
    journal.unlink()
    sync_folder(journal.parent)


def room_problem(folder: Path) -> str | None:
    """Why no file can be stored in a folder now; None when it can: there is room for `PROBE_BYTES`."""
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            os.posix_fallocate(file.fileno(), 0, PROBE_BYTES)
    except OSError as error:
        return f"nothing can be stored in {folder}: {error.strerror}"
    return None


def move(source: Path, target: Path) -> None:
    """Rename within one file system, and sync both folders."""
    os.rename(source, target)
    sync_folder(target.parent)
    sync_folder(source.parent)


def point(link: Path, target: str, scratch: Path) -> None:
    """Create or replace a symbolic link in one step; `scratch` is a folder on the same file system."""
    temporary = scratch / secrets.token_hex(8)
    os.symlink(target, temporary)
    try:
        os.replace(temporary, link)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    sync_folder(link.parent)
