"""Files and folders that plugins may look at: those beneath the folders they were granted, and no others.

Owns the way from a path to an open file: every link is followed first, what that comes to is judged, and then exactly
that is opened, following no link at all. So whoever swaps a folder for a link in between gets an error instead of a
file. Refuses to know which plugin asks and what a grant is called. The work is done on threads of its own.
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
from plugbay.model.protected import Entry, Protected
from plugbay.model.sizes import MAX_PAYLOAD

MAX_FILE = MAX_PAYLOAD
"""Bytes of one file."""

PIECE = 1 << 20
"""Bytes read at once: what a file's size says may be out of date already."""

MAX_ENTRIES = 8_192
"""Entries of one folder: at 255 bytes a name they fit a frame even if every byte has to be escaped."""

MAX_PATH = 4_096
"""Bytes of a path, as Linux has it."""

THREADS = 8
"""Reads at the same time, for all plugins; a disk does not get faster with more."""

READ_SECONDS = 30.0
"""One read, the wait for a thread included. A network file system that hangs holds its thread for longer, but nobody
waits for it."""

TRIES = 5
"""How often a path is judged anew when it changed between the judgement and the opening."""

_CHANGED = frozenset({errno.ELOOP, errno.EAGAIN, errno.EXDEV, errno.ENOTDIR})
"""What the opening answers when the path is no longer the one that was judged."""

_OF_THE_KERNEL = tuple(map(PurePosixPath, ("/proc", "/sys", "/dev")))
"""Not files but the insides of this machine, the host's own memory among them; a grant of `/` is no grant of these."""

_FLAGS = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC

T = TypeVar("T")


NOTHING = Protected()


class Outside(Exception):
    """The path leads to where no grant does, or into `entry`, which no grant opens."""

    def __init__(self, path: str, entry: Entry | None = None) -> None:
        self.entry = entry
        super().__init__(path)


class Files:
    """Reads for all plugins of one host. Methods raise `CallFailed`, and `Outside` for what was not granted."""

    def __init__(self) -> None:
        self._threads = asyncio.Semaphore(THREADS)

    async def read(self, path: str, roots: Sequence[str], protected: Protected = NOTHING) -> bytes:
        """What a regular file holds; `roots` are granted folders or files, `~` for the home of whoever runs this.

        What is `protected` is not opened, wherever it lies.
        """
        return await self._run(path, lambda: _with_open(path, roots, protected, 0, _contents))

    async def entries(self, path: str, roots: Sequence[str], protected: Protected = NOTHING) -> list[dict[str, Any]]:
        """`{"name", "is_dir", "size"}` of what a folder holds, in the order of the file system; links as they are."""
        return await self._run(path, lambda: _with_open(path, roots, protected, os.O_DIRECTORY, _listed))

    def close(self) -> None:
        """Nobody waits for the threads any more; they end with what they do. Whoever reads next has others."""
        self._threads = asyncio.Semaphore(THREADS)

    async def _run(self, path: str, work: Callable[[], T]) -> T:
        _check_text(path)
        threads = self._threads
        try:
            async with asyncio.timeout(READ_SECONDS):
                await threads.acquire()
                done = on_thread(work, "plugbay-files")
                done.add_done_callback(lambda _: threads.release())
                return await asyncio.shield(done)
        except TimeoutError:
            raise CallFailed(Failure(Code.TIMEOUT, f"read {path}: not done within {READ_SECONDS:g} s")) from None


def _check_text(path: str) -> None:
    if not path.startswith("/") or "\0" in path:
        raise _refused(path, "the path must be absolute; ~ is not expanded")
    try:
        size = len(os.fsencode(path))
    except UnicodeEncodeError:
        raise _refused("", "the path is no Unicode text") from None
    if size > MAX_PATH:
        raise _refused(path[:40], f"the path has {size:,} bytes; at most {MAX_PATH:,}")


# Everything below runs on a thread.


def _with_open(path: str, roots: Sequence[str], protected: Protected, flags: int, use: Callable[[str, int], T]) -> T:
    try:
        fd = _open(path, roots, protected, flags)
        try:
            return use(path, fd)
        finally:
            os.close(fd)
    except OSError as error:
        raise _refused(path, error.strerror or str(error)) from None


def _open(path: str, roots: Sequence[str], protected: Protected, flags: int) -> int:
    """Judge and open. What is opened has the very name that was judged, for no link was followed on the way."""
    granted = [_real(root) for root in map(os.path.expanduser, roots) if os.path.isabs(root)]
    for left in reversed(range(TRIES)):
        # Before anything is looked up, `..` goes by the letters: /a/link/../b is /a/b, wherever the link leads.
        real = _real(os.path.normpath(path))
        if not any(real.is_relative_to(root) for root in granted) or any(map(real.is_relative_to, _OF_THE_KERNEL)):
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
    """Every link followed; what does not exist stands for itself."""
    return PurePosixPath(os.path.realpath(path))


def _contents(path: str, fd: int) -> bytes:
    status = os.fstat(fd)
    if not stat.S_ISREG(status.st_mode):
        raise _refused(path, "Is a directory" if stat.S_ISDIR(status.st_mode) else "not a regular file")
    contents = bytearray()
    while status.st_size <= MAX_FILE and len(contents) <= MAX_FILE and (piece := os.read(fd, PIECE)):
        contents += piece
    if status.st_size > MAX_FILE or len(contents) > MAX_FILE:
        raise _refused(path, f"the file has more than {MAX_FILE:,} bytes")
    return bytes(contents)


def _listed(path: str, fd: int) -> list[dict[str, Any]]:
    listed: list[dict[str, Any]] = []
    with os.scandir(fd) as entries:
        for entry in entries:
            if len(listed) == MAX_ENTRIES:
                raise _refused(path, f"the folder has more than {MAX_ENTRIES:,} entries")
            is_dir = entry.is_dir(follow_symlinks=False)
            name = os.fsencode(entry.name).decode("utf-8", "replace")
            listed.append({"name": name, "is_dir": is_dir, "size": 0 if is_dir else _size(entry)})
    return listed


def _size(entry: os.DirEntry[str]) -> int:
    try:
        return entry.stat(follow_symlinks=False).st_size
    except OSError:  # gone since it was listed
        return 0


def _refused(path: str, why: str) -> CallFailed:
    return CallFailed(Failure(Code.INVALID_INPUT, f"read {path}: {why}"))
