"""Folders in memory for targets that read or write files; the process removes them when it ends."""

from __future__ import annotations

import tempfile
from functools import cache
from pathlib import Path

MEMORY = Path("/dev/shm")


@cache
def _root() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="plugbay-fuzz-", dir=MEMORY if MEMORY.is_dir() else None)


@cache
def scratch_folder(name: str) -> Path:
    """The folder of this name."""
    folder = Path(_root().name, name)
    folder.mkdir()
    return folder
