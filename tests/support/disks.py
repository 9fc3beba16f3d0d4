"""Disks that fail: files of a process that may not grow any more."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def failing_disk(pid: int = 0, size: int = 0) -> Iterator[None]:
    """While it lasts, each write of the process beyond `size` bytes of a file fails with EFBIG.

    Unlike a full disk (ENOSPC), this is an input or output error to SQLite: `SQLITE_IOERR_WRITE`.
    """
    target = pid or os.getpid()
    soft, hard = resource.prlimit(target, resource.RLIMIT_FSIZE)
    resource.prlimit(target, resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.prlimit(target, resource.RLIMIT_FSIZE, (soft, hard))
