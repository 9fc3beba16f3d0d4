"""Folders in memory, for files that nobody needs tomorrow."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

MEMORY = Path("/dev/shm")

ROOM = 1 << 30
"""Bytes that must be free there; containers may have less."""


def memory_folder(prefix: str) -> Path:
    """A new folder, which the caller removes; on disk where there is too little memory."""
    has_room = MEMORY.is_dir() and shutil.disk_usage(MEMORY).free >= ROOM
    return Path(tempfile.mkdtemp(prefix=prefix, dir=MEMORY if has_room else None))
