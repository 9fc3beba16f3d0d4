"""How much memory a process and its descendants use, and their sockets, as /proc tells it.

For hosts without control groups, and for what those do not count. Sees what the kernel shows to the host's user. Not
seen: buffers of unix sockets, descriptors on their way through one, and System V segments that nobody has attached;
pipes are limited for each user by the kernel itself. Blocks, for about a millisecond for each process.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from plugbay.process.unlinked import BLOCK, descendants

KIB = 1024

IN_MEMORY = ("tmp", "dev/shm")
"""Folders of a sandbox that are file systems in memory."""

INODE_BYTES = 1024
"""What a file in memory takes that is empty."""

FEW_SOCKETS = 16
"""So few are not looked at one by one: the kernel takes milliseconds to list them, and what they hold is bounded."""

SOCKET_BYTES = 32 * KIB
"""What a socket counts at least: tiny packets take far more than the bytes in them."""

_LISTENS = "0A"
_SMALL = ("03", "05", "06")
"""Half open and closed connections, of which the kernel keeps little more than the addresses."""
_TABLES = ("tcp", "tcp6", "udp", "udp6")


def of_tree(pid: int) -> int:
    """Bytes of memory of a process and its descendants, shared pages in proportion (PSS), with files in memory."""
    mapped = shared = 0
    files: dict[tuple[int, int], int] = {}
    folders: dict[int, int] = {}
    for process in descendants(pid):
        with suppress(OSError):  # it has ended
            found, part = _mapped(process)
            mapped, shared = mapped + found, shared + part
        with suppress(OSError):
            _add_files(process, files)
        with suppress(OSError):
            _add_folders(process, folders)
    # What is mapped of a file is counted as mapped; what is not mapped of it is counted here.
    return mapped + max(0, sum(files.values()) + sum(folders.values()) - shared)


def of_sockets(pid: int) -> int:
    """Bytes that wait in the TCP and UDP sockets of a process's network; 0 for `FEW_SOCKETS`, or when it is gone."""
    try:
        if _sockets_in_use(pid) <= FEW_SOCKETS:
            return 0
        return sum(_queued(pid, table) for table in _TABLES)
    except OSError:
        return 0


def _mapped(pid: int) -> tuple[int, int]:
    """Bytes of one process, and how many of them are shared memory or files in memory. Raises OSError."""
    try:
        found = _sizes(pid, "smaps_rollup")
        return found["Pss"], found.get("Pss_Shmem", 0)
    except (PermissionError, FileNotFoundError, KeyError):  # not ours to look at, a kernel before 4.14, a zombie
        found = _sizes(pid, "status")
        shared = found.get("RssShmem", 0)
        return found.get("RssAnon", 0) + shared, shared


def _sizes(pid: int, file: str) -> dict[str, int]:
    """The lines like `Pss:  12 kB`, in bytes."""
    lines = Path(f"/proc/{pid}/{file}").read_text(encoding="utf-8", errors="replace").splitlines()
    words = [line.split() for line in lines if line.endswith(" kB")]
    return {name.rstrip(":"): int(value) * KIB for name, value, *_ in words}


def _add_files(pid: int, files: dict[tuple[int, int], int]) -> None:
    """Files that exist only in memory and have no folder (memfd_create), by what the kernel calls them."""
    for number in os.listdir(f"/proc/{pid}/fd"):
        path = f"/proc/{pid}/fd/{number}"
        with suppress(OSError):  # closed meanwhile
            if os.readlink(path).startswith("/memfd:"):
                facts = os.stat(path)
                files[facts.st_dev, facts.st_ino] = facts.st_blocks * BLOCK


def _add_folders(pid: int, folders: dict[int, int]) -> None:
    """What a sandbox's folders in memory hold, by what the kernel calls them. On the machine's own they are shared."""
    root = f"/proc/{pid}/root"
    if os.stat(root).st_dev == os.stat("/").st_dev:
        return
    for folder in IN_MEMORY:
        with suppress(OSError):
            facts = os.statvfs(f"{root}/{folder}")
            used = (facts.f_blocks - facts.f_bfree) * facts.f_frsize
            folders[os.stat(f"{root}/{folder}").st_dev] = used + (facts.f_files - facts.f_ffree) * INODE_BYTES


def _sockets_in_use(pid: int) -> int:
    """Sockets of all kinds in a network, from the line `sockets: used 3`. Raises OSError."""
    return int(Path(f"/proc/{pid}/net/sockstat").read_text(encoding="ascii").split(maxsplit=3)[2])


def _queued(pid: int, table: str) -> int:
    """What the sockets of one table hold. Raises OSError."""
    held = 0
    with suppress(FileNotFoundError), open(f"/proc/{pid}/net/{table}", encoding="ascii") as lines:
        next(lines, None)
        for line in lines:
            _, _, _, state, queues, *_ = line.split()
            sent, _, received = queues.partition(":")
            # Of one that listens, the second number counts connections.
            waiting = 0 if state == _LISTENS else int(sent, 16) + int(received, 16)
            held += max(waiting, 0 if state in _SMALL else SOCKET_BYTES)
    return held
