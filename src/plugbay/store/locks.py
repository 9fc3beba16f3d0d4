"""An exclusive lock file with the process id of its holder.

The kernel releases the lock when the process ends. Imports no SQL: every command that looks for a running server uses
it.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from plugbay.model.errors import PlugbayError


class InUse(PlugbayError):
    """Another server holds the lock."""


@contextmanager
def locked(path: Path, what: str) -> Iterator[None]:
    """Lock a file for the duration of the block; raises `InUse`, which names `what` and the holder."""
    lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            pid = os.pread(lock, 32, 0).decode("ascii", "replace").strip() or "unknown"
            raise InUse(f"{what} is in use by another plugbay server, process {pid}") from None
        os.ftruncate(lock, 0)
        os.pwrite(lock, f"{os.getpid()}\n".encode(), 0)
        yield
    finally:
        os.close(lock)
