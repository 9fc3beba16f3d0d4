"""Folders in memory for targets that read or write files; the process removes them when it ends."""

from __future__ import annotations

import atexit
import shutil
import tempfile
from functools import cache
from pathlib import Path

MEMORY = Path("/dev/shm")


@cache
def _root() -> Path:
    folder = tempfile.mkdtemp(prefix="plugbay-fuzz-", dir=MEMORY if MEMORY.is_dir() else None)
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return Path(folder)


@cache
def scratch_folder(name: str) -> Path:
    """The folder of this name."""
    folder = _root() / name
    folder.mkdir()
    return folder
