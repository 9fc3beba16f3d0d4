"""Changes that are there or not there after a power cut, never half: files, folders and links.

Owns the order of write, fsync and rename. Refuses to know what is written.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from plugbay.host.settings_files import replace_at


@contextmanager
def _opened(path: Path, flags: int = 0) -> Iterator[int]:
    at = os.open(path, os.O_RDONLY | os.O_CLOEXEC | flags)
    try:
        yield at
    finally:
        os.close(at)


def sync_folder(folder: Path) -> None:
    """Make the names in a folder last."""
    with _opened(folder, os.O_DIRECTORY) as at:
        os.fsync(at)


def sync_tree(root: Path) -> None:
    """Make everything in a folder last: contents first, then the names that lead to them."""
    for folder, _, files in os.walk(root, topdown=False):
        for name in files:
            with _opened(Path(folder, name), os.O_NOFOLLOW) as at:
                os.fsync(at)
        sync_folder(Path(folder))


def write_file(path: Path, data: bytes, mode: int = 0o644) -> None:
    """Put `data` in the place of `path`; a reader sees the old file or the new one."""
    with _opened(path.parent, os.O_DIRECTORY) as at:
        replace_at(at, path.name, data, mode)


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
