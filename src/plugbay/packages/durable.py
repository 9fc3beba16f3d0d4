"""Changes that are there or not there after a power cut, never half: files, folders and links.

Owns the order of write, fsync and rename. Refuses to know what is written.
"""

from __future__ import annotations

import os
import secrets
from pathlib import Path


def sync_folder(folder: Path) -> None:
    """Make the names in a folder last."""
    at = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(at)
    finally:
        os.close(at)


def sync_tree(root: Path) -> None:
    """Make everything in a folder last: contents first, then the names that lead to them."""
    for folder, _, files in os.walk(root, topdown=False):
        for name in files:
            _sync_file(Path(folder, name))
        sync_folder(Path(folder))


def _sync_file(path: Path) -> None:
    at = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        os.fsync(at)
    finally:
        os.close(at)


def write_file(path: Path, data: bytes, mode: int = 0o644) -> None:
    """Put `data` in the place of `path`; a reader sees the old file or the new one."""
    temporary = path.with_name(f".{secrets.token_hex(8)}.tmp")
    try:
        with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode), "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def move(source: Path, target: Path) -> None:
    """Rename within one file system; both folders know it once this returns."""
    os.rename(source, target)
    sync_folder(target.parent)
    sync_folder(source.parent)


def point(link: Path, target: str, scratch: Path) -> None:
    """Make `link` a symbolic link to `target`, in one step whether or not there was one; `scratch` is a folder of the
    same file system for what is not there yet.
    """
    temporary = scratch / secrets.token_hex(8)
    os.symlink(target, temporary)
    try:
        os.replace(temporary, link)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    sync_folder(link.parent)
