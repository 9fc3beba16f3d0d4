"""Files that take long to make, made once for all test processes of a session: by the first that needs them.

Test processes are forks of the process that collected (see `jobs.py`), which loads this module. The folder is removed
with that process, not with a fork.
"""

from __future__ import annotations

import atexit
import fcntl
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

SESSION = os.getpid()
"""The process that collected."""

FOLDER = Path(tempfile.mkdtemp(prefix="plugbay-tests-"))


def shared(name: str, make: Callable[[Path], object], folder: Path = FOLDER) -> Path:
    """The file or folder of this name. `make` writes it, in one process, at a path that is renamed afterwards."""
    path = folder / name
    with open(folder / f"{name}.lock", "wb") as lock:  # closing it unlocks it, and so does the end of this process
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not path.exists():
            unfinished = folder / f"{name}.new"
            make(unfinished)
            unfinished.rename(path)
    return path


@atexit.register
def _remove() -> None:
    if os.getpid() == SESSION:
        shutil.rmtree(FOLDER, ignore_errors=True)
