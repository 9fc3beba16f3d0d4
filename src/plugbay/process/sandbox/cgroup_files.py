"""Where control groups are mounted, where in them we are, and the few operations their files know.

Owns the reading of /proc/self/cgroup and /proc/self/mountinfo and the words for a group's limits. Refuses to know
which limits there are and which hierarchies are good enough.

A process may itself sit deep in a hierarchy, and a container may be shown only a part of it. What we make is made
below our own position: at the top it would escape whatever somebody limited us to.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from plugbay.process.sandbox.policy import Limits

UNIFIED = ""
"""The name of the version 2 hierarchy where others are named by a controller, as in /proc/self/cgroup."""

PROCS = "cgroup.procs"

THREADS = "tasks"
"""Of version 1: the threads in a group, which need not be with the rest of their process."""

PERIOD_US = 100_000
"""In which a share of the processors is used up: the kernel's default, and too short for a pause to be felt."""

LEAST_QUOTA_US = 1_000
"""The least that the kernel takes."""


class Files:
    """What the kernel lets one do with a group's folder. Every method raises OSError."""

    __slots__ = ()

    def read(self, path: Path) -> str:
        with open(path, "rb", buffering=0) as file:
            return os.fsdecode(file.read())

    def write(self, path: Path, text: str) -> None:
        # Never created and never truncated: a control file that is missing is a fact, and one write is one command.
        fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
        try:
            os.write(fd, text.encode())
        finally:
            os.close(fd)

    def make(self, folder: Path) -> None:
        os.mkdir(folder, 0o755)

    def remove(self, folder: Path) -> None:
        os.rmdir(folder)

    def folders(self, folder: Path) -> list[Path]:
        """The groups directly below."""
        with os.scandir(folder) as entries:
            return [Path(entry.path) for entry in entries if entry.is_dir(follow_symlinks=False)]

    def members(self, folder: Path) -> list[int]:
        """The processes in this very group. One that our pid namespace cannot see is 0."""
        return [int(word) for word in self.read(folder / PROCS).split()]

    def words(self, path: Path) -> frozenset[str]:
        return frozenset(self.read(path).split())


@dataclass(frozen=True, slots=True)
class Setting:
    """One value for one control file."""

    file: str
    value: str
    needed: bool = True
    """Whether a group without it is no group. Others are left out where the kernel does not have or take them."""


Settings = Callable[[Limits], tuple[Setting, ...]]


def cpu_quota(limits: Limits) -> int:
    """Microseconds of processor time in each period."""
    return max(LEAST_QUOTA_US, round(limits.cpu * PERIOD_US))


@dataclass(frozen=True, slots=True)
class Branch:
    """A folder of one hierarchy in which every group of ours gets its own, and what is written there."""

    base: Path
    settings: tuple[Settings, ...] = ()
    threads: bool = False
    """Whether a thread can be in a group without the rest of its process."""
    oom_file: str = ""
    """Where kills for want of memory are counted, in the one branch that counts them."""


@dataclass(frozen=True, slots=True)
class Layout:
    """What a machine gives us: each group is one folder in every branch."""

    state: str
    branches: tuple[Branch, ...] = ()
    why: str = ""
    """What is missing and how to get it."""


@dataclass(frozen=True, slots=True)
class Mount:
    """One mounted hierarchy."""

    root: str
    """The group that is seen at the mount point."""
    point: Path
    controllers: frozenset[str]
    """`{UNIFIED}` for version 2."""


class Places:
    """Every hierarchy that is mounted at or below a folder, and our own position in each."""

    __slots__ = ("_mounts", "_positions")

    def __init__(self, root: Path, proc: Path) -> None:
        """Raises OSError when /proc cannot be read."""
        self._mounts = [mount for mount in _mounts(proc) if mount.point.is_relative_to(root)]
        self._positions = dict(_positions(proc))

    def mounted(self, controller: str) -> bool:
        return any(controller in mount.controllers for mount in self._mounts)

    def own(self, controller: str) -> Path | None:
        """The folder of our own group; None where it is not mounted or lies outside of what is mounted."""
        for mount in self._mounts:
            folder = _below(mount, self._positions.get(controller)) if controller in mount.controllers else None
            if folder is not None and folder.is_dir():
                return folder
        return None

    def tops(self) -> frozenset[Path]:
        return frozenset(mount.point for mount in self._mounts)


def _below(mount: Mount, position: str | None) -> Path | None:
    """Where in this mount a position is; None when it is elsewhere, as when it begins with `/..`."""
    if position is None or ".." in position.split("/") or ".." in mount.root.split("/"):
        return None
    root = mount.root.rstrip("/")
    if position != root and not position.startswith(f"{root}/"):
        return None
    return mount.point / position[len(root) :].lstrip("/")


def _positions(proc: Path) -> Iterator[tuple[str, str]]:
    """Controller and path, from lines such as `4:cpu,cpuacct:/user` and `0::/user`."""
    for line in _text(proc / "self" / "cgroup").splitlines():
        _, names, path = line.split(":", 2)
        for name in names.split(","):
            yield name, path


def _mounts(proc: Path) -> Iterator[Mount]:
    for line in _text(proc / "self" / "mountinfo").splitlines():
        fields, _, tail = line.partition(" - ")
        root, point = fields.split(" ")[3:5]
        kind, *rest = tail.split(" ")
        if kind in ("cgroup", "cgroup2"):
            names = {UNIFIED} if kind == "cgroup2" else set(rest[-1].split(","))
            yield Mount(_unescape(root), Path(_unescape(point)), frozenset(names))


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="surrogateescape")


def _unescape(text: str) -> str:
    """The kernel writes a space in a path as `\\040`."""
    return re.sub(r"\\([0-7]{3})", lambda found: chr(int(found[1], 8)), text)
