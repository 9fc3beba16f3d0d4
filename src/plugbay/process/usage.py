"""Measures from /proc what a process and its descendants use: memory, CPU, sockets, and unlinked files on the disk.

For hosts without control groups, and for uses that those do not count. Sees the processes that the kernel shows to the
host's user. Not counted: buffers of unix sockets, and System V segments without a process; files that only a descriptor
in flight keeps are noticed, but their size is not known. Every function blocks for about a millisecond per process.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import NamedTuple

BLOCK = 512
"""Bytes in the unit of `st_blocks`."""

MAX_PROCESSES = 4096
"""More are not examined; a sandbox has far fewer."""

_DELETED = " (deleted)"
_IN_FLIGHT = "scm_fds:"
"""The line of a unix socket's fdinfo with the number of descriptors that wait in it (Linux 5.6)."""


OOM_KILLS = Path("/proc/vmstat")
GROUPS = Path("/sys/fs/cgroup")


def oom_kills() -> int | None:
    """How many processes the kernel has killed for lack of memory, on the whole machine; None: it does not tell."""
    with suppress(OSError, ValueError):
        with open(OOM_KILLS, "rb", buffering=0) as file:  # at each start of a plugin, so without decoding 4 KiB
            _, found, rest = file.read().partition(b"\noom_kill ")
        return int(rest.partition(b"\n")[0]) if found else None
    return None


def memory_limit(own: Path = Path("/proc/self/cgroup"), groups: Path = GROUPS) -> int | None:
    """The least limit of memory of the control groups that this process is in; None: no group limits it."""
    limits: list[int] = []
    with suppress(OSError):
        for _, controllers, place in (line.split(":", 2) for line in own.read_text().splitlines()):
            v2 = not controllers
            if not v2 and "memory" not in controllers.split(","):
                continue
            tops = [groups, groups / "unified"] if v2 else [groups / "memory"]
            name = "memory.max" if v2 else "memory.limit_in_bytes"
            paths = [Path(top, *parts[1:]) for top in tops for parts in _ancestors(place)]
            limits += [limit for path in paths if (limit := _number(path / name)) is not None]
    return min((limit for limit in limits if limit < NO_LIMIT), default=None)


def _ancestors(place: str) -> list[tuple[str, ...]]:
    """The parts of a path and of all paths above it."""
    return [path.parts for path in (PurePosixPath(place), *PurePosixPath(place).parents)]


def _number(path: Path) -> int | None:
    with suppress(OSError, ValueError):  # not mounted, or `max`
        return int(path.read_text())
    return None


NO_LIMIT = 1 << 60
"""Version 1 of control groups has a number for `no limit`, near 2**63."""


class Unlinked(NamedTuple):
    """The unlinked files of a folder that processes keep."""

    bytes: int
    hidden: bool
    """Whether there may be files whose size the host cannot read: with descriptors in flight through a unix socket, or
    with a mapping and no descriptor, which only root may look at."""


File = tuple[str, int]
"""Name and inode of a file."""


def unlinked(pid: int, folder: Path) -> Unlinked:
    """The unlinked files of `folder` that a process and its descendants keep, each file once."""
    places = tuple({f"{folder}/", f"{os.path.realpath(folder)}/"})
    sizes: dict[File, int] = {}
    mapped: dict[File, int] = {}
    in_flight = False
    for process in descendants(pid):
        with suppress(OSError):  # it has ended, or the host may not look at it
            for path in (*_descriptors(process), f"/proc/{process}/exe"):
                name, size = _kept_by(path, places)
                sizes.update({} if size is None else {name: size})
                in_flight = in_flight or _holds_descriptors(path, name[0])
        with suppress(OSError):
            _add_mapped(process, places, sizes, mapped)
    unknown = {file: size for file, size in mapped.items() if file not in sizes}
    return Unlinked(sum(sizes.values()) + sum(unknown.values()), in_flight or bool(unknown))


def descendants(pid: int) -> Iterator[int]:
    """A process and its descendants, as far as /proc shows them."""
    found = [pid]
    for process in found:
        yield process
        with suppress(OSError):
            for thread in os.listdir(f"/proc/{process}/task"):
                children = Path(f"/proc/{process}/task/{thread}/children").read_text(encoding="ascii")
                found += map(int, children.split())
        del found[MAX_PROCESSES:]


def _descriptors(pid: int) -> list[str]:
    return [f"/proc/{pid}/fd/{number}" for number in os.listdir(f"/proc/{pid}/fd")]


def _kept_by(path: str, places: tuple[str, ...]) -> tuple[File, int | None]:
    """The file behind a link of /proc, and its size on the disk if it is an unlinked one of these places."""
    name, inode = "", 0
    with suppress(OSError):  # closed meanwhile
        name = os.readlink(path)
        facts = os.stat(path) if _is_unlinked(name, places) else None
        inode = 0 if facts is None else facts.st_ino
        if facts is not None and facts.st_nlink == 0 and stat.S_ISREG(facts.st_mode):
            return (name, inode), facts.st_blocks * BLOCK
    return (name, inode), None


def _holds_descriptors(path: str, name: str) -> bool:
    """Whether descriptors wait in the unix socket behind a descriptor; False for anything else."""
    if not name.startswith("socket:"):
        return False
    try:
        with open(path.replace("/fd/", "/fdinfo/"), encoding="ascii") as lines:
            return any(line.startswith(_IN_FLIGHT) and int(line.split()[1]) > 0 for line in lines)
    except OSError:
        return False


def _add_mapped(pid: int, places: tuple[str, ...], sizes: dict[File, int], mapped: dict[File, int]) -> None:
    """Add the unlinked files that a process maps: with their sizes on the disk, or with those of their mappings."""
    text = Path(f"/proc/{pid}/maps").read_text(encoding="utf-8", errors="surrogateescape")
    for line in text.splitlines():
        area, _, _, _, inode, *name = line.split(maxsplit=5)
        if not name or not _is_unlinked(name[0], places):
            continue
        begin, end = (int(number, 16) for number in area.split("-"))
        file = (name[0], int(inode))
        try:
            sizes[file] = os.stat(f"/proc/{pid}/map_files/{begin:x}-{end:x}").st_blocks * BLOCK
        except OSError:
            mapped[file] = mapped.get(file, 0) + end - begin


def _is_unlinked(name: str, places: tuple[str, ...]) -> bool:
    return name.endswith(_DELETED) and name.startswith(places)


# Memory.

KIB = 1024

IN_MEMORY = ("tmp", "dev/shm")
"""Folders of a sandbox that are file systems in memory."""

INODE_BYTES = 1024
"""Memory of an empty file in memory."""

FEW_SOCKETS = 16
"""So few are not counted: the kernel takes milliseconds to list them, and their buffers are bounded."""

SOCKET_BYTES = 32 * KIB
"""The least that a socket counts: tiny packets take far more memory than their bytes."""

_LISTENS = "0A"
_SMALL = ("03", "05", "06")
"""Half open and closed connections, of which the kernel keeps little more than the addresses."""
_TABLES = ("tcp", "tcp6", "udp", "udp6")

_TIMES = slice(11, 15)
"""The times of a process and of its ended children among the fields of /proc/PID/stat, after the name."""
_TICKS = os.sysconf("SC_CLK_TCK")


def memory_of_tree(pid: int) -> int:
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
    # The mapped part of a file is counted as mapped; the rest of it is counted here.
    return mapped + max(0, sum(files.values()) + sum(folders.values()) - shared)


def cpu_of_tree(pid: int) -> float:
    """Seconds of CPU time that a process, its descendants and their ended children have used."""
    ticks = 0
    for process in descendants(pid):
        with suppress(OSError):  # it has ended
            line = Path(f"/proc/{process}/stat").read_text(encoding="utf-8", errors="replace")
            # The name of the program, in parentheses, may contain anything.
            ticks += sum(map(int, line.rpartition(")")[2].split()[_TIMES]))
    return ticks / _TICKS


def memory_of_sockets(pid: int) -> int:
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
    except (PermissionError, FileNotFoundError, KeyError):  # not permitted, a kernel before 4.14, a zombie
        found = _sizes(pid, "status")
        shared = found.get("RssShmem", 0)
        return found.get("RssAnon", 0) + shared, shared


def _sizes(pid: int, file: str) -> dict[str, int]:
    """The lines like `Pss:  12 kB`, in bytes."""
    lines = Path(f"/proc/{pid}/{file}").read_text(encoding="utf-8", errors="replace").splitlines()
    words = [line.split() for line in lines if line.endswith(" kB")]
    return {name.rstrip(":"): int(value) * KIB for name, value, *_ in words}


def _add_files(pid: int, files: dict[tuple[int, int], int]) -> None:
    """Files that exist only in memory and have no folder (memfd_create), by device and inode."""
    for number in os.listdir(f"/proc/{pid}/fd"):
        path = f"/proc/{pid}/fd/{number}"
        with suppress(OSError):  # closed meanwhile
            if os.readlink(path).startswith("/memfd:"):
                facts = os.stat(path)
                files[facts.st_dev, facts.st_ino] = facts.st_blocks * BLOCK


def _add_folders(pid: int, folders: dict[int, int]) -> None:
    """The memory of a sandbox's folders in memory, by device. Outside a sandbox these folders are shared."""
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
    """Bytes in the sockets of one table. Raises OSError."""
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
