"""Measures and removes folders with untrusted content, without following links.

Works relative to open descriptors, so that swapping a name for a link meanwhile reaches nothing outside. A tree may be
deeper than the maximum path length and closed to its own owner; any depth and size need only a few descriptors. Blocks:
run it on a thread.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from plugbay.model.errors import PASSING
from plugbay.process.diagnose import error_name
from plugbay.process.usage import BLOCK

MAX_DEPTH = 64
"""Maximum depth of a measured folder."""

MAX_ENTRIES = 100_000
"""Maximum number of files and folders: even an empty one takes disk space."""

ROUNDS = 8
"""Attempts to empty a folder, because a process may still write into it."""

LEVELS = 32
"""Folders open at a time during removal; deeper ones are moved up first."""

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_HOLD = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
"""Needs no read permission, on systems with `O_PATH`."""


def quota_problem(folder: Path, quota: int, beside: int = 0) -> str | None:
    """Why the folder is over its quota; None if it is not. A missing folder is empty.

    `beside`: bytes that count too, but belong to no entry. While the host lacks descriptors or memory, nothing is
    measured: that is not the fault of the owner of the folder.
    """
    try:
        at = os.open(folder, _FOLDER)
        try:
            return _Measure(quota, beside).take(at, 1)
        finally:
            os.close(at)
    except FileNotFoundError:
        return None
    except OSError as error:
        return None if error_name(error) in PASSING else f"it cannot be measured: {error.strerror}"


class _Measure:
    """The sum of one walk, which stops as soon as a limit is exceeded."""

    __slots__ = ("_bytes", "_entries", "_quota")

    def __init__(self, quota: int, beside: int) -> None:
        self._quota = quota
        self._bytes = beside
        self._entries = 0

    def take(self, at: int, depth: int) -> str | None:
        if depth > MAX_DEPTH:
            return f"it is deeper than {MAX_DEPTH} levels"
        inner = []
        with os.scandir(at) as entries:
            for entry in entries:
                facts = _facts(entry)
                if facts is None:
                    continue
                self._entries += 1
                self._bytes += facts.st_blocks * BLOCK
                if self._entries > MAX_ENTRIES:
                    return f"it has more than {MAX_ENTRIES:,} entries"
                if self._bytes > self._quota:
                    return f"it has more than {self._quota:,} bytes"
                if stat.S_ISDIR(facts.st_mode):
                    inner.append(entry.name)
        return next((why for name in inner if (why := self._inside(at, name, depth))), None)

    def _inside(self, at: int, name: str, depth: int) -> str | None:
        try:
            below = os.open(name, _FOLDER, dir_fd=at)
        except FileNotFoundError:
            return None
        try:
            return self.take(below, depth + 1)
        finally:
            os.close(below)


def _facts(entry: os.DirEntry[str]) -> os.stat_result | None:
    """None for an entry that was removed meanwhile."""
    try:
        return entry.stat(follow_symlinks=False)
    except FileNotFoundError:
        return None


def remove(folder: Path) -> bool:
    """Remove a folder and its content; False if something is left. Never raises."""
    try:
        with _opened(folder.parent) as parent:
            _remove(parent, folder.name)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True


def _remove(parent: int, name: str) -> None:
    if _try_unlink(parent, name):
        return
    with _opened(name, parent) as top:
        for _ in range(ROUNDS):
            deep = _empty(top, top, LEVELS)
            while deep:
                deep += _empty_inner(top, deep.pop(), top, LEVELS)
            if not os.listdir(top):
                break
    os.rmdir(name, dir_fd=parent)


def _empty(at: int, top: int, levels: int) -> list[str]:
    """Remove the content of a folder; folders that are too deep are moved to `top` and returned."""
    deep: list[str] = []
    for name in os.listdir(at):
        if _try_unlink(at, name):
            continue
        deep += _empty_inner(at, name, top, levels - 1) if levels else [_move_up(at, name, top)]
    return deep


def _empty_inner(at: int, name: str, top: int, levels: int) -> list[str]:
    with suppress(OSError), _opened(name, at) as inner:  # removed or replaced meanwhile: the next round handles it
        deep = _empty(inner, top, levels)
        with suppress(OSError):  # a new entry appeared: the same
            os.rmdir(name, dir_fd=at)
        return deep
    return []


def _move_up(at: int, name: str, top: int) -> str:
    """Move a folder to `top`. Moving a folder needs write permission on it."""
    new = f"~{os.urandom(8).hex()}"
    with suppress(OSError), _opened(name, at):
        os.rename(name, new, src_dir_fd=at, dst_dir_fd=top)
    return new


def _try_unlink(at: int, name: str) -> bool:
    """Remove an entry; False for a folder that is not empty."""
    try:
        os.unlink(name, dir_fd=at)
    except FileNotFoundError:
        return True
    except (IsADirectoryError, PermissionError):  # other systems report PermissionError for a folder
        try:
            os.rmdir(name, dir_fd=at)
        except OSError:
            return False
    return True


@contextmanager
def _opened(name: str | Path, parent: int | None = None) -> Iterator[int]:
    """Open a folder, with all permissions for its owner. Refuses links, also one that just replaced a folder."""
    held = os.open(name, _HOLD, dir_fd=parent)
    try:
        if parent is not None and os.fstat(held).st_mode & 0o700 != 0o700:
            os.chmod(f"/proc/self/fd/{held}" if hasattr(os, "O_PATH") else held, 0o700)
        at = os.open(".", _FOLDER, dir_fd=held)
    finally:
        os.close(held)
    try:
        yield at
    finally:
        os.close(at)
