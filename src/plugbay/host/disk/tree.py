"""Folders that somebody else filled: measured and removed without following a link, however they were left.

Everything is done relative to open descriptors, so nothing outside can be reached by swapping a name for a link while
we work. A tree may be deeper than a path can be long and closed to its own owner; neither its depth nor its size costs
more than a few descriptors. Blocks: for a thread of its own.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from plugbay.process.unlinked import BLOCK

MAX_DEPTH = 64
"""Levels of a folder that is still measured."""

MAX_ENTRIES = 100_000
"""Files and folders in it: each costs the disk something, also when it is empty."""

ROUNDS = 8
"""Times an emptied folder is looked at again, for somebody may still be writing into it."""

LEVELS = 32
"""Folders open at the same time while a tree is removed; what is deeper is first moved up."""

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_HOLD = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
"""Needs no right to read, where the system has such a thing."""


def overfull(folder: Path, quota: int, beside: int = 0) -> str | None:
    """Why the folder holds more than it may; None when it does not. A folder that is not there holds nothing.

    `beside`: bytes that count as well and are in no entry of it.
    """
    try:
        at = os.open(folder, _FOLDER)
    except FileNotFoundError:
        return None
    except OSError as error:
        return f"it cannot be measured: {error.strerror}"
    try:
        return _Measure(quota, beside).take(at, 1)
    except OSError as error:
        return f"it cannot be measured: {error.strerror}"
    finally:
        os.close(at)


class _Measure:
    """The sum of one walk, which ends as soon as it is too much."""

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
    """None for what was removed while we looked."""
    try:
        return entry.stat(follow_symlinks=False)
    except FileNotFoundError:
        return None


def remove(folder: Path) -> bool:
    """Remove a folder with all that is in it; False when something of it is left. Never raises."""
    try:
        with _opened(folder.parent) as parent:
            _remove(parent, folder.name)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True


def _remove(parent: int, name: str) -> None:
    if _unlinked(parent, name):
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
    """Remove all that is in a folder; what is too deep becomes an entry of `top`, and is returned."""
    deep: list[str] = []
    for name in os.listdir(at):
        if _unlinked(at, name):
            continue
        deep += _empty_inner(at, name, top, levels - 1) if levels else [_moved_up(at, name, top)]
    return deep


def _empty_inner(at: int, name: str, top: int, levels: int) -> list[str]:
    with suppress(OSError), _opened(name, at) as inner:  # it is gone, or something else by now: the next round has it
        deep = _empty(inner, top, levels)
        with suppress(OSError):  # somebody has put something there: the same
            os.rmdir(name, dir_fd=at)
        return deep
    return []


def _moved_up(at: int, name: str, top: int) -> str:
    """A folder can only be moved by who may write into it."""
    new = f"~{os.urandom(8).hex()}"
    with suppress(OSError), _opened(name, at):
        os.rename(name, new, src_dir_fd=at, dst_dir_fd=top)
    return new


def _unlinked(at: int, name: str) -> bool:
    """Whether it was removed, because it is no folder, or an empty one."""
    try:
        os.unlink(name, dir_fd=at)
    except FileNotFoundError:
        return True
    except (IsADirectoryError, PermissionError):  # the second is what other systems say of a folder
        try:
            os.rmdir(name, dir_fd=at)
        except OSError:
            return False
    return True


@contextmanager
def _opened(name: str | Path, parent: int | None = None) -> Iterator[int]:
    """A folder, opened, with every right for its owner. A link is refused, also one that was a folder before."""
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
