"""Reads files and lists folders for plugins, beneath their granted folders only.

A path is resolved first, the result is checked, and exactly that path is opened without following any link. So a folder
that is swapped for a link in between is an error, never another file. Runs on threads.
"""

from __future__ import annotations

import asyncio
import errno
import os
import stat
from collections.abc import Callable, Sequence
from pathlib import PurePosixPath
from typing import Any, TypeVar

from plugbay.host.disk.open_beneath import open_beneath
from plugbay.host.services.threads import on_thread
from plugbay.model.errors import CallFailed, Code, Failure
from plugbay.model.gate import invalid, is_readable, path_problem
from plugbay.model.protected import Entry, Protected
from plugbay.model.sizes import MAX_PAYLOAD

MAX_FILE = MAX_PAYLOAD
"""Bytes of one file."""

PIECE = 1 << 20
"""Bytes of one read: a file may grow while it is read."""

MAX_ENTRIES = 8_192
"""Entries of one folder: with 255-byte names they fit a frame even if every byte is escaped."""

THREADS = 8
"""Concurrent reads of all plugins; a disk is not faster with more."""

READ_SECONDS = 30.0
"""Timeout of one read, with the wait for a thread. A hanging network file system holds its thread longer, but no
caller waits for it."""

MAX_TRIES = 5
"""How often a path is checked again when it changed between the check and the opening."""

_CHANGED = frozenset({errno.ELOOP, errno.EAGAIN, errno.EXDEV, errno.ENOTDIR})
"""Errors of opening a path that changed since its check."""

_FLAGS = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC

T = TypeVar("T")


NOTHING = Protected()


class Outside(Exception):
    """The path is outside the granted folders, or inside the protected `entry`."""

    def __init__(self, path: str, entry: Entry | None = None) -> None:
        self.entry = entry
        super().__init__(path)


class Files:
    """File access of all plugins of one host. Methods raise `CallFailed`, and `Outside` for a path without a grant."""

    def __init__(self) -> None:
        self._threads = asyncio.Semaphore(THREADS)

    async def read(self, path: str, roots: Sequence[str], protected: Protected = NOTHING) -> bytes:
        """The contents of a regular file; `roots` are granted folders or files, `~` is the home of the host's user.

        A `protected` path is never opened.
        """
        return await self._run(path, lambda: _with_open(path, roots, protected, 0, _read))

    async def entries(self, path: str, roots: Sequence[str], protected: Protected = NOTHING) -> list[dict[str, Any]]:
        """`{"name", "is_dir", "size"}` of the entries of a folder, in file system order; links unresolved."""
        return await self._run(path, lambda: _with_open(path, roots, protected, os.O_DIRECTORY, _list))

    def close(self) -> None:
        """Stop waiting for running threads; they end by themselves. Later reads get new ones."""
        self._threads = asyncio.Semaphore(THREADS)

    async def _run(self, path: str, work: Callable[[], T]) -> T:
        problem = path_problem(path)
        if problem is not None:
            raise CallFailed(invalid(problem))
        threads = self._threads
        try:
            async with asyncio.timeout(READ_SECONDS):
                await threads.acquire()
                done = on_thread(work, "plugbay-files")
                done.add_done_callback(lambda _: threads.release())
                return await asyncio.shield(done)
        except TimeoutError:
            raise CallFailed(Failure(Code.TIMEOUT, f"read {path}: not finished within {READ_SECONDS:g} s")) from None


# All functions below run on threads.


def _with_open(path: str, roots: Sequence[str], protected: Protected, flags: int, use: Callable[[str, int], T]) -> T:
    try:
        fd = _open(path, roots, protected, flags)
        try:
            return use(path, fd)
        finally:
            os.close(fd)
    except OSError as error:
        raise _invalid(path, error.strerror or str(error)) from None


def _open(path: str, roots: Sequence[str], protected: Protected, flags: int) -> int:
    """Check and open. The opened file has exactly the checked path, because no link is followed."""
    granted = [_real(root) for root in map(os.path.expanduser, roots) if os.path.isabs(root)]
    for left in reversed(range(MAX_TRIES)):
        # `..` is removed textually first: /a/link/../b is /a/b, wherever the link leads.
        real = _real(os.path.normpath(path))
        if not is_readable(real, granted):
            raise Outside(path)
        entry = protected.around(str(real))
        if entry is not None:
            raise Outside(path, entry)
        try:
            return open_beneath("/", str(real.relative_to("/")), _FLAGS | flags)
        except OSError as error:
            if error.errno not in _CHANGED or not left:
                raise
    raise AssertionError("the last try opens or raises")


def _real(path: str) -> PurePosixPath:
    """The path with all links resolved; missing parts stay as they are."""
    return PurePosixPath(os.path.realpath(path))


def _read(path: str, fd: int) -> bytes:
    status = os.fstat(fd)
    if not stat.S_ISREG(status.st_mode):
        raise _invalid(path, "Is a directory" if stat.S_ISDIR(status.st_mode) else "not a regular file")
    contents = bytearray()
    while status.st_size <= MAX_FILE and len(contents) <= MAX_FILE and (piece := os.read(fd, PIECE)):
        contents += piece
    if status.st_size > MAX_FILE or len(contents) > MAX_FILE:
        raise _invalid(path, f"the file has more than {MAX_FILE:,} bytes")
    return bytes(contents)


def _list(path: str, fd: int) -> list[dict[str, Any]]:
    listed: list[dict[str, Any]] = []
    with os.scandir(fd) as entries:
        for entry in entries:
            if len(listed) == MAX_ENTRIES:
                raise _invalid(path, f"the folder has more than {MAX_ENTRIES:,} entries")
            is_dir = entry.is_dir(follow_symlinks=False)
            name = os.fsencode(entry.name).decode("utf-8", "replace")
            listed.append({"name": name, "is_dir": is_dir, "size": 0 if is_dir else _size(entry)})
    return listed


def _size(entry: os.DirEntry[str]) -> int:
    try:
        return entry.stat(follow_symlinks=False).st_size
    except OSError:  # gone since it was listed
        return 0


def _invalid(path: str, why: str) -> CallFailed:
    return CallFailed(Failure(Code.INVALID_INPUT, f"read {path}: {why}"))
