"""A file that is locked in somebody's name, so that whoever comes second is refused and told who was first.

The system lets go of the lock however its holder ends. Knows nothing of SQL: every command that looks for a server
comes by here, and should not load a database for it.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from plugbay.model.errors import PlugbayError


class InUse(PlugbayError):
    """Another gateway has it."""


@contextmanager
def locked(path: Path, what: str) -> Iterator[None]:
    """A file that is locked as long as this lasts, in the name of something; raises `InUse`."""
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
