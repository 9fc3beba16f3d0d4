"""Changes that are there or not there after a power cut, never half: files, folders and links.

Owns the order of write, fsync and rename. Refuses to know what is written.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from plugbay.host.config.settings import replace_at

EDITED_AFTER = 10.0
"""Seconds after its journal at which a change of a file was not the rewrite itself."""


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


def rewrite(path: Path, data: bytes, journal: Path) -> None:
    """Give a file other contents in place, so that a mount over it stays, as no new file takes its name.

    `journal` lies in a private folder and holds the new contents until they are written; `finish_rewrite` completes
    from it after a power cut.
    """
    write_file(journal, os.fsencode(path) + b"\0" + data, 0o600)
    finish_rewrite(journal)


def finish_rewrite(journal: Path) -> None:
    """Complete a rewrite that a power cut interrupted, unless the file was edited since; does nothing without one."""
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
