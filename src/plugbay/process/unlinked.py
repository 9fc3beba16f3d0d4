"""Files that have no name any more and still fill the disk, because a process holds them open or has them mapped.

Whoever measures a folder by its entries misses them. Reads /proc only, so it sees what the kernel shows to the host's
user: of a process that it may not look at, nothing is counted. Blocks for about a millisecond for each process.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

BLOCK = 512
"""Bytes in the unit of `st_blocks`."""

MAX_PROCESSES = 4096
"""More are not looked at; a sandbox has far fewer."""

_DELETED = " (deleted)"


def held(pid: int, folder: Path) -> int:
    """Bytes of nameless files from within `folder` that a process and its descendants hold, each file once."""
    places = tuple({f"{folder}/", f"{os.path.realpath(folder)}/"})
    sizes: dict[tuple[str, int], int] = {}
    for process in descendants(pid):
        with suppress(OSError):  # it has ended, or is none of our business
            sizes.update(_mapped(process, places))
        with suppress(OSError):
            sizes.update(_open(process, places))  # last: what a file has on the disk is better than what is mapped
    return sum(sizes.values())


def descendants(pid: int) -> Iterator[int]:
    """A process, its children and theirs, as far as they can be seen."""
    found = [pid]
    for process in found:
        yield process
        with suppress(OSError):
            for thread in os.listdir(f"/proc/{process}/task"):
                children = Path(f"/proc/{process}/task/{thread}/children").read_text(encoding="ascii")
                found += map(int, children.split())
        del found[MAX_PROCESSES:]


def _open(pid: int, places: tuple[str, ...]) -> Iterator[tuple[tuple[str, int], int]]:
    for number in os.listdir(f"/proc/{pid}/fd"):
        with suppress(OSError):  # closed meanwhile
            name = os.readlink(f"/proc/{pid}/fd/{number}")
            facts = os.stat(f"/proc/{pid}/fd/{number}") if _is_nameless(name, places) else None
            if facts is not None and facts.st_nlink == 0 and stat.S_ISREG(facts.st_mode):
                yield (name, facts.st_ino), facts.st_blocks * BLOCK


def _mapped(pid: int, places: tuple[str, ...]) -> Iterator[tuple[tuple[str, int], int]]:
    text = Path(f"/proc/{pid}/maps").read_text(encoding="utf-8", errors="surrogateescape")
    sizes: dict[tuple[str, int], int] = {}
    for line in text.splitlines():
        area, _, _, _, inode, *name = line.split(maxsplit=5)
        if name and _is_nameless(name[0], places):
            begin, _, end = area.partition("-")
            file = (name[0], int(inode))
            sizes[file] = sizes.get(file, 0) + int(end, 16) - int(begin, 16)
    yield from sizes.items()


def _is_nameless(name: str, places: tuple[str, ...]) -> bool:
    return name.endswith(_DELETED) and name.startswith(places)
