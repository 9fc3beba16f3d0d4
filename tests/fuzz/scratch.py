"""Folders in memory for targets that read or write files; the process removes them when it ends."""

from __future__ import annotations

import atexit
import shutil
from functools import cache
from pathlib import Path

from tests.support.memory import memory_folder


@cache
def _root() -> Path:
    folder = memory_folder("plugbay-fuzz-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


@cache
def scratch_folder(name: str) -> Path:
    """The folder of this name."""
    folder = _root() / name
    folder.mkdir()
    return folder
