"""Folders in memory, for files that nobody needs tomorrow.

Whoever makes one removes it. What a killed test process leaves is removed with the process that collected (`shared`).
"""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from pathlib import Path

from tests.support.shared import SESSION

MEMORY = Path("/dev/shm")

ROOM = 1 << 30
"""Bytes that must be free there; containers may have less."""


def memory_folder(prefix: str) -> Path:
    """A new folder; on disk where there is too little memory."""
    has_room = MEMORY.is_dir() and shutil.disk_usage(MEMORY).free >= ROOM
    return Path(tempfile.mkdtemp(prefix=f"{prefix}{SESSION}-", dir=MEMORY if has_room else None))


@atexit.register
def _remove() -> None:
    if os.getpid() == SESSION:
        for left in MEMORY.glob(f"plugbay-*-{SESSION}-*"):
            shutil.rmtree(left, ignore_errors=True)
