"""The end of a group: everything in it is killed, then its folders are removed, in bounded time.

Owns the order of these steps. Refuses to know whose group it is. A group is a list of folders, one in each hierarchy;
folders that somebody made below them, such as a plugin that hosts plugins itself, go with it.

Version 2 has one file that kills a whole tree at once, and hosts with version 1 limits usually have version 2 mounted
beside it. Where it is missing, or a process was put into some of the folders only, forking is forbidden first
(`pids.max` 0) and then each process is killed. That needs no freezer, which a process in an uninterruptible wait
would hold up.
"""

from __future__ import annotations

import errno
import os
import signal
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from plugbay.process.sandbox.cgroup_files import Files

FIRST_PAUSE_SECONDS = 0.001
LONGEST_PAUSE_SECONDS = 0.05
"""Between two looks, doubled each time: a killed process is usually gone after one millisecond."""

HANDFUL = 64
"""Processes signalled in one go; each needs a descriptor meanwhile, and a host may have few left."""

_GONE = (errno.ENOENT, errno.ENODEV)
"""ENODEV: the folder was removed while its file was open."""


def kill(files: Files, folders: Sequence[Path]) -> bool:
    """SIGKILL to all that is in the group; whether some of it is still dying. Never waits, never raises OSError."""
    for folder in folders:
        _attempt(files, folder / "cgroup.kill", "1")
    found = members(files, folders)
    if found:
        for folder in folders:
            _attempt(files, folder / "pids.max", "0")
        _signal(files, folders, found)
    return bool(found)


def destroy(files: Files, folders: Sequence[Path], deadline: float) -> bool:
    """Kill and remove until nothing is left; False when something still is at the deadline, a monotonic time."""
    pause = FIRST_PAUSE_SECONDS
    while True:
        alive = kill(files, folders)
        # Not removed one by one while something lives: the folder that can kill would go before the others are empty.
        left = alive or not all(_removed(files, folder) for folder in folders)
        if not left or time.monotonic() >= deadline:
            return not left
        time.sleep(pause)
        pause = min(pause * 2, LONGEST_PAUSE_SECONDS)


def members(files: Files, folders: Iterable[Path]) -> set[int]:
    """The processes in the group and below, without those that we cannot name."""
    found: set[int] = set()
    for folder in folders:
        for each in _tree(files, folder):
            try:
                found.update(files.members(each))
            except OSError:
                continue
    return found - {0}


def _tree(files: Files, folder: Path) -> Iterator[Path]:
    """The folder and all below it, the deepest first."""
    try:
        below = files.folders(folder)
    except OSError:
        return
    for each in below:
        yield from _tree(files, each)
    yield folder


def _removed(files: Files, folder: Path) -> bool:
    for each in _tree(files, folder):
        try:
            files.remove(each)
        except OSError as error:
            if error.errno not in _GONE:
                return False
    return not folder.exists()


def _signal(files: Files, folders: Sequence[Path], found: set[int]) -> None:
    """Reaches only what is in the group: first a pidfd is taken, then the group is read again.

    If the number was reused before that, the pidfd belongs to a process that is not in the group, and nothing is sent.
    """
    pids = sorted(found - {os.getpid()})
    for start in range(0, len(pids), HANDFUL):
        held = {pid: fd for pid in pids[start : start + HANDFUL] if (fd := _open(pid)) is not None}
        try:
            for pid in held.keys() & members(files, folders):
                _send(held[pid])
        finally:
            for fd in held.values():
                os.close(fd)


def _open(pid: int) -> int | None:
    try:
        return os.pidfd_open(pid)
    except OSError:
        return None


def _send(pidfd: int) -> None:
    try:
        signal.pidfd_send_signal(pidfd, signal.SIGKILL)
    except OSError:  # it is gone, or not ours to kill: then the group stays and the caller learns of it
        return


def _attempt(files: Files, path: Path, text: str) -> None:
    try:
        files.write(path, text)
    except OSError:
        return
