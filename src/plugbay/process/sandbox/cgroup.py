"""Control groups: limits for a plugin's whole process tree, and the way to kill all of it at once.

A group is named for its host: pid namespace, pid and start time. So a sweep recognises the groups of dead hosts, a
reused pid is not mistaken for its predecessor, and a living host's groups are never touched. Groups are made below our
own position: at the top they would escape the limits that were set for us.

Version 1 has one hierarchy per controller and needs root. Version 2 has one hierarchy, part of which may be delegated
to us. There, a group that has processes cannot give controllers to groups below it. If all processes of our group are
ours, they move into a leaf below it. If others live there as well, such as the shell that started us, no process is
moved: the groups are made beside ours, where the group above already gives the controllers to all below it and ours has
no memory limit that they would escape.

A group is killed through `cgroup.kill` of version 2, which hosts with version 1 limits usually have mounted as well.
Where it is missing, or a process joined only some of the folders, forking is forbidden first (`pids.max` 0) and then
each process is killed. That needs no freezer, which a process in an uninterruptible wait would hold up. Groups that a
plugin made below its own go with it.

Everything here blocks, for it reads and writes files of the kernel. Measured on a busy machine with two cores: `state`
and `why` look at the machine once, 30 ms, and cost nothing afterwards; `create`, `limit`, `kill` and `oom_kills` take
less than a millisecond; `close` waits for processes to die, usually 1 to 10 ms and at most `CLOSE_SECONDS`. To move
another process takes 6 to 18 ms, because the kernel first lets all forks of the machine finish; to move the calling
thread takes 0.02 ms, and its children start where it is. Version 2 does not have that, so a start does both: the thread
joins, and processes that are not in yet are moved. All but `kill` and `oom_kills` are for pool threads.
"""

from __future__ import annotations

import errno
import os
import re
import secrets
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from plugbay.process import warden_main
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
    """Operations on the folder of a group. Every method raises OSError."""

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
    """A folder of one hierarchy in which each of our groups has its own, and the settings to write there."""

    base: Path
    settings: tuple[Settings, ...] = ()
    threads: bool = False
    """Whether a thread can be in a group without the rest of its process."""
    oom_file: str = ""
    """Where kills for want of memory are counted, in the one branch that counts them."""


@dataclass(frozen=True, slots=True)
class Layout:
    """The branches of this machine: each group is one folder in every branch."""

    state: str
    branches: tuple[Branch, ...] = ()
    why: str = ""
    """The missing part and how to get it."""


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
        """The folder of our own group; None where it is not mounted or lies outside of the mount."""
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


FIRST_PAUSE_SECONDS = 0.001
LONGEST_PAUSE_SECONDS = 0.05
"""Between two looks, doubled each time: a killed process is usually gone after one millisecond."""
HANDFUL = 64
"""Processes signalled in one go; each needs a descriptor meanwhile, and a host may have few left."""
_GONE = (errno.ENOENT, errno.ENODEV)
"""ENODEV: the folder was removed while its file was open."""


def kill_group(files: Files, folders: Sequence[Path]) -> bool:
    """SIGKILL to all that is in the group; whether some of it is still dying. Never waits, never raises OSError."""
    for folder in folders:
        _attempt(files, folder / "cgroup.kill", "1")
    found = list_members(files, folders)
    if found:
        for folder in folders:
            _attempt(files, folder / "pids.max", "0")
        _signal(files, folders, found)
    return bool(found)


def destroy_group(files: Files, folders: Sequence[Path], deadline: float) -> bool:
    """Kill and remove until nothing is left; False when something still is at the deadline, a monotonic time."""
    pause = FIRST_PAUSE_SECONDS
    while True:
        alive = kill_group(files, folders)
        # Not removed one by one while something lives: the folder that can kill would go before the others are empty.
        left = alive or not all(_removed(files, folder) for folder in folders)
        if not left or time.monotonic() >= deadline:
            return not left
        time.sleep(pause)
        pause = min(pause * 2, LONGEST_PAUSE_SECONDS)


def list_members(files: Files, folders: Iterable[Path]) -> set[int]:
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
    """Signals only members of the group: first a pidfd is taken, then the group is read again.

    If the number was reused before that, the pidfd belongs to a process that is not in the group, and nothing is sent.
    """
    pids = sorted(found - {os.getpid()})
    for start in range(0, len(pids), HANDFUL):
        held = {pid: fd for pid in pids[start : start + HANDFUL] if (fd := _open(pid)) is not None}
        try:
            for pid in held.keys() & list_members(files, folders):
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


V2_STATE = "full"
NEEDED = ("memory", "pids")
WANTED = "cpu"
LEAF_PREFIX = "plugbay-host-"
MOVES = 5
"""How often we look again for processes of ours that were started while the others were moved."""
V2_ADVICE = (
    "run the host as a systemd service with Delegate=yes, or as "
    "`systemd-run --user --scope -p Delegate=yes plugbay …`, and start nothing else in that unit"
)


def find_v2(files: Files, places: Places, host: str) -> Layout | str:
    """Where groups can be made, or why nowhere. `host` names this process in the name of its leaf."""
    own = places.own(UNIFIED)
    if own is None:
        return f"our own control group is not visible; {V2_ADVICE}"
    try:
        # The leaf that we, or the host that started us, moved into is no place to be divided again.
        problem = "we are in a leaf" if own.name.startswith(LEAF_PREFIX) else _divide(files, own, host)
        base = own
        if problem:
            base = own.parent
            beside = "it has no parent group" if own in places.tops() else _beside(files, own)
            if beside:
                return f"{problem}, and {beside}; {V2_ADVICE}"
        given = files.words(base / "cgroup.subtree_control")
    except OSError as error:
        return f"the control group {own}: {error.strerror}; {V2_ADVICE}"
    why = "" if WANTED in given else "the controller cpu is not delegated: the use of processors is not limited"
    return Layout(V2_STATE, (Branch(base, (settings,), oom_file="memory.events"),), why)


def settings(limits: Limits) -> tuple[Setting, ...]:
    return (
        Setting("memory.max", str(limits.memory)),
        Setting("memory.swap.max", "0", needed=False),  # missing where swap is not counted
        # One process of a plugin less would be a plugin in an unknown state: all or none.
        Setting("memory.oom.group", "1", needed=False),  # since Linux 4.19
        Setting("pids.max", str(limits.processes)),
        Setting("cpu.max", f"{cpu_quota(limits)} {PERIOD_US}", needed=False),  # missing where cpu is not delegated
    )


def _divide(files: Files, own: Path, host: str) -> str:
    """Let groups below ours have the controllers; why not, or nothing."""
    missing = [name for name in NEEDED if name not in files.words(own / "cgroup.controllers")]
    if missing:
        return f"the control group {own} has no {' and '.join(missing)}"
    try:
        if not _enable(files, own) and not _move_and_enable(files, own, host):
            return f"other processes are in the control group {own}"
    except OSError as error:
        return f"the control group {own} cannot be divided: {error.strerror}"
    return ""


def _enable(files: Files, own: Path) -> bool:
    """False when processes are in the way."""
    control = own / "cgroup.subtree_control"
    try:
        if not files.words(control).issuperset(NEEDED):
            files.write(control, " ".join(f"+{name}" for name in NEEDED))
    except OSError as error:
        if error.errno == errno.EBUSY:
            return False
        raise
    try:
        files.write(control, f"+{WANTED}")
    except OSError:  # not delegated; the layout says so
        pass
    return True


def _move_and_enable(files: Files, own: Path, host: str) -> bool:
    """Move the processes of our group into a leaf, if all of them are ours."""
    if not _all_ours(files.members(own)):
        return False
    leaf = own / f"{LEAF_PREFIX}{host}"
    if not leaf.exists():  # it does when we replaced ourselves by exec
        files.make(leaf)
    for _ in range(MOVES):
        found = files.members(own)
        if not _all_ours(found):
            break
        _move(files, found, leaf)
        if _enable(files, own):
            return True
    _move(files, files.members(leaf), own)
    files.remove(leaf)
    return False


def _move(files: Files, pids: list[int], folder: Path) -> None:
    for pid in pids:
        try:
            files.write(folder / PROCS, str(pid))
        except ProcessLookupError:
            continue


def _beside(files: Files, own: Path) -> str:
    """Why groups cannot be made beside ours, or nothing."""
    above = own.parent
    try:
        if not files.words(above / "cgroup.subtree_control").issuperset(NEEDED):
            return "the parent group does not delegate memory and pids"
        if files.read(own / "memory.max").strip() != "max":
            return "groups beside it would bypass its memory limit"
    except OSError as error:
        return f"the parent group cannot be used: {error.strerror}"
    return "" if os.access(above / PROCS, os.W_OK) else "the parent group belongs to another user"


def _all_ours(pids: list[int]) -> bool:
    return all(_descends_from_us(pid) for pid in pids)


def _descends_from_us(pid: int) -> bool:
    """True for this process, its helpers and children, and for a process that has ended."""
    ancestor = pid
    while ancestor not in (0, os.getpid()):
        try:
            stat = Path(f"/proc/{ancestor}/stat").read_text(encoding="utf-8", errors="replace")
        except OSError:
            return not os.path.exists(f"/proc/{pid}")
        ancestor = int(stat.rpartition(")")[2].split()[1])
    return ancestor != 0


V1_STATE = "full (v1)"
V1_MEMORY = "memory.limit_in_bytes"
SOCKETS = "memory.kmem.tcp.limit_in_bytes"
LARGEST_PAGE = 4 << 20
"""Bytes below its limit at which a group may fail to get more: the kernel takes memory in pages of up to 2 MiB, and in
batches for each processor."""
V1_ADVICE = "run the host as root, or boot with version 2 (systemd.unified_cgroup_hierarchy=1) and delegate a group"


def find_v1(places: Places) -> Layout | str:
    """Where groups can be made, or why nowhere."""
    found = {name: base for name in _CONTROLLERS if (base := places.own(name)) is not None}
    missing = [name for name in ("memory", "pids") if name not in found]
    if missing:
        return f"the control groups for {' and '.join(missing)} are not mounted, or our own is not visible; {V1_ADVICE}"
    lacking = [] if "cpu" in found else ["no control groups for cpu are mounted: the use of processors is not limited"]
    if not (found["memory"] / SOCKETS).exists():
        lacking.append(f"this kernel has no {SOCKETS}: the host checks buffers of sockets every second instead")
    # One hierarchy may have several controllers, as in cpu,cpuacct: then they share a folder.
    bases = dict.fromkeys(found.values())
    return Layout(V1_STATE, tuple(_branch(base, found) for base in bases), "; ".join(lacking))


def find_killer(places: Places) -> Branch | None:
    """The version 2 hierarchy beside them: without controllers, but it can kill a whole group at once."""
    base = places.own(UNIFIED)
    return None if base is None else Branch(base)


def _memory(limits: Limits) -> tuple[Setting, ...]:
    return (
        Setting(V1_MEMORY, str(limits.memory)),
        # Memory and swap together, so no swap. Must come second; the file is missing where swap is not counted.
        Setting("memory.memsw.limit_in_bytes", str(limits.memory), needed=False),
        # Buffers of TCP and UDP sockets, which the limit above does not count. Holds for sockets that are made later.
        Setting(SOCKETS, str(limits.sockets), needed=False),
    )


def _pids(limits: Limits) -> tuple[Setting, ...]:
    return (Setting("pids.max", str(limits.processes)),)


def _cpu(limits: Limits) -> tuple[Setting, ...]:
    # Refused when a group above us has less: then that less is the limit. The period is the kernel's default.
    return (Setting("cpu.cfs_quota_us", str(cpu_quota(limits)), needed=False),)


_CONTROLLERS: dict[str, Settings] = {"memory": _memory, "pids": _pids, "cpu": _cpu}


def _branch(base: Path, found: dict[str, Path]) -> Branch:
    settings = tuple(_CONTROLLERS[name] for name, where in found.items() if where == base)
    return Branch(base, settings, threads=True, oom_file="memory.oom_control" if base == found["memory"] else "")


DEGRADED = "degraded"
CLOSE_SECONDS = 2.0
"""For a killed tree to be gone and its folders removed: milliseconds, unless a process hangs in the kernel."""
SWEEP_SECONDS = 5.0
"""The same for all that dead hosts left, together."""
LABEL_LENGTH = 64
TOKEN_BYTES = 8
"""64 random bits: no two groups of a host share a name, also not after it replaced itself by exec."""
_NAME = re.compile(r"plugbay-(?:host-)?([0-9a-f]+)-([0-9]+)-([0-9]+)(?:-.*)?")
_ABSENT = (errno.ENOENT, errno.EINVAL, errno.EOPNOTSUPP)
"""Errors for a control file that does not exist, or for a value that it does not accept."""


class Cgroup:
    """One process tree's group. Without folders, on a machine without limits, every method does nothing."""

    __slots__ = ("_branches", "_files", "_folders", "_left", "_oom_kills", "_reached_limit", "name")

    def __init__(self, name: str, branches: Sequence[Branch], files: Files, left: list[Cgroup]) -> None:
        self.name = name
        self._branches = tuple(branches)
        self._folders = tuple(branch.base / name for branch in branches)
        self._files = files
        self._left = left
        self._oom_kills = 0
        self._reached_limit = False

    def limit(self, limits: Limits) -> None:
        """Set the limits of all processes in it together. Raises OSError."""
        for branch, folder in self._places():
            for setting in (each for settings in branch.settings for each in settings(limits)):
                self._set(folder, setting)

    def enter(self) -> None:
        """Move the calling thread in, if a thread can move alone; its children start inside. Raises OSError.

        Before the group is limited: a thread of the host that has used up a plugin's time would stop the host.
        """
        for branch, folder in self._places():
            if branch.threads:
                self._files.write(folder / THREADS, "0")

    def leave(self) -> None:
        """Undo `enter`; processes started meanwhile stay inside. Raises OSError."""
        for branch in self._branches:
            if branch.threads:
                self._files.write(branch.base / THREADS, "0")

    def hold(self, *pids: int) -> None:
        """Put processes that are not in it yet, and their later children, under its limits. Raises OSError.

        Only later use is counted: a process must be held before its program runs. After an error the
        processes may be in some hierarchies only; `close` still ends them.
        """
        self._move(pids, (folder for branch, folder in self._places() if branch.settings))

    def join(self, *pids: int) -> None:
        """The same for all hierarchies, also for one that does no more than help to end it. Raises OSError."""
        self._move(pids, self._folders)

    def kill(self) -> None:
        """Send SIGKILL to every process in it, also to stopped ones and to those of other sessions; does not wait."""
        kill_group(self._files, self._folders)

    def oom_kills(self) -> int:
        """How many of its processes were killed for want of memory; still known after `close`."""
        for path in (folder / branch.oom_file for branch, folder in self._places() if branch.oom_file):
            with suppress(OSError, ValueError):
                words = self._files.read(path).split()
                self._oom_kills = int(words[words.index("oom_kill") + 1])
        return self._oom_kills

    def reached_limit(self) -> bool:
        """Whether it has used all the memory that it may. If not, and its processes were killed, a group around it or
        the machine had no memory left. Still known after `close`."""
        for folder in (folder for branch, folder in self._places() if branch.oom_file):
            with suppress(OSError, ValueError):
                self._reached_limit = self._reached_limit or self._used_up(folder)
        return self._reached_limit

    def _used_up(self, folder: Path) -> bool:
        with suppress(FileNotFoundError):
            words = self._files.read(folder / "memory.events").split()
            return int(words[words.index("oom") + 1]) > 0
        most, limit = (int(self._files.read(folder / name)) for name in ("memory.max_usage_in_bytes", V1_MEMORY))
        return most > limit - LARGEST_PAGE

    def close(self) -> None:
        """Kill and remove it, within `CLOSE_SECONDS`. `Cgroups.sweep` removes the rest."""
        self.oom_kills()
        self.reached_limit()
        if not destroy_group(self._files, self._folders, time.monotonic() + CLOSE_SECONDS):
            self._left.append(self)

    def gone(self) -> bool:
        return not any(folder.exists() for folder in self._folders)

    def _places(self) -> Iterator[tuple[Branch, Path]]:
        return zip(self._branches, self._folders, strict=True)

    def _move(self, pids: Sequence[int], folders: Iterable[Path]) -> None:
        if 0 in pids:  # to the kernel that means this process, which would be killed with the group
            raise ProcessLookupError(errno.ESRCH, os.strerror(errno.ESRCH))
        for folder in folders:
            inside = self._files.members(folder)
            for pid in pids:
                if pid not in inside:
                    self._files.write(folder / PROCS, str(pid))

    def _set(self, folder: Path, setting: Setting) -> None:
        try:
            self._files.write(folder / setting.file, setting.value)
        except OSError as error:
            if setting.needed or error.errno not in _ABSENT:
                raise


class Cgroups:
    """The machine's control groups, as far as this process may use them; looked at once, when first needed."""

    __slots__ = ("_files", "_layout", "_left", "_lock", "_proc", "_root")

    def __init__(
        self, root: Path = Path("/sys/fs/cgroup"), proc: Path = Path("/proc"), files: Files | None = None
    ) -> None:
        """Hierarchies that are mounted elsewhere than at or below `root` are not used."""
        self._root = root
        self._proc = proc
        self._files = files or Files()
        self._layout: Layout | None = None
        self._left: list[Cgroup] = []
        self._lock = threading.Lock()

    @property
    def state(self) -> str:
        """`full`, `full (v1)` or `degraded`."""
        return self._found().state

    @property
    def why(self) -> str:
        """The missing part and how to get it; empty if nothing is missing."""
        return self._found().why

    @property
    def bases(self) -> tuple[Path, ...]:
        """The folders in which groups are made."""
        return tuple(branch.base for branch in self._found().branches)

    def create(self, name: str) -> Cgroup:
        """An empty group without limits. `name` is for people and may be any text. Raises OSError."""
        return self._create(self._found().branches, name)

    def sweep(self) -> int:
        """Kill and remove the groups of hosts that no longer exist; how many groups are gone.

        Looks only where this host makes its own groups.
        """
        deadline = time.monotonic() + SWEEP_SECONDS
        found = self._found()
        groups = {name: folders for name, folders in self._abandoned(found).items() if self._is_foreign(folders)}
        for name, folders in groups.items():
            if not name.startswith(LEAF_PREFIX):
                kill_group(self._files, folders)
        gone = [self._remove(name, folders, deadline) for name, folders in groups.items()]
        left, self._left[:] = list(self._left), []
        for group in left:
            group.close()
        return sum(gone) + sum(group.gone() for group in left)

    def _remove(self, name: str, folders: list[Path], deadline: float) -> bool:
        """The leaf that a host moved into held more than plugins: it is only removed when it is empty."""
        if name.startswith(LEAF_PREFIX) and list_members(self._files, folders):
            return False
        return destroy_group(self._files, folders, deadline)

    def _abandoned(self, layout: Layout) -> dict[str, list[Path]]:
        found: dict[str, list[Path]] = {}
        for folder in self._folders_in(layout):
            match = _NAME.fullmatch(folder.name)
            if match and warden_main.host_is_gone(f"{match[2]}.{match[3]}.{match[1]}-".encode()):
                found.setdefault(folder.name, []).append(folder)
        return found

    def _folders_in(self, layout: Layout) -> Iterator[Path]:
        for branch in layout.branches:
            try:
                yield from self._files.folders(branch.base)
            except OSError:
                continue

    def _is_foreign(self, folders: list[Path]) -> bool:
        """A host may itself have been started by a host that is dead now: it must not end itself."""
        return os.getpid() not in list_members(self._files, folders)

    def _create(self, branches: Sequence[Branch], name: str) -> Cgroup:
        full = f"plugbay-{_host()}-{secrets.token_hex(TOKEN_BYTES)}-{_harmless(name)}"
        group = Cgroup(full, branches, self._files, self._left)
        try:
            for branch in branches:
                self._files.make(branch.base / full)
        except BaseException:
            group.close()
            raise
        return group

    def _found(self) -> Layout:
        with self._lock:
            if self._layout is None:
                self._layout = self._look()
            return self._layout

    def _look(self) -> Layout:
        """Find a place and try it; whatever goes wrong is a reason and never an error."""
        try:
            if not warden_main.proc_is_ours():
                return Layout(DEGRADED, why="/proc is missing or shows another pid namespace; mount our own")
            places = Places(self._root, self._proc)
            if places.mounted("memory"):
                return self._look_v1(places)
            found = find_v2(self._files, places, _host())
            return self._tried(found, V2_ADVICE)
        except (OSError, ValueError) as error:
            return Layout(DEGRADED, why=f"the control groups cannot be found: {error}; {V2_ADVICE}")

    def _look_v1(self, places: Places) -> Layout:
        layout = self._tried(find_v1(places), V1_ADVICE)
        killer = find_killer(places)
        if layout.state == DEGRADED or killer is None or self._trouble((killer,)):
            return layout
        # First, so that a process that could join only some hierarchies is in the one that kills.
        return Layout(layout.state, (killer, *layout.branches), layout.why)

    def _tried(self, found: Layout | str, advice: str) -> Layout:
        if isinstance(found, str):
            return Layout(DEGRADED, why=found)
        trouble = self._trouble(found.branches)
        return Layout(DEGRADED, why=f"{trouble}; {advice}") if trouble else found

    def _trouble(self, branches: Sequence[Branch]) -> str:
        """Why no group can be made there and joined, or nothing."""
        try:
            with closing(self._create(branches, "trial")) as group:
                group.limit(Limits())
        except OSError as error:
            return f"no control group can be created in {branches[0].base}: {error}"
        closed = [str(branch.base) for branch in branches if not os.access(branch.base / PROCS, os.W_OK)]
        return f"processes cannot be moved within {', '.join(closed)}" if closed else ""


def _host() -> str:
    """This process, for as long as it lives."""
    return _process(os.getpid())


@cache
def _process(pid: int) -> str:
    """Asked of the kernel once: nothing of it changes."""
    return f"{warden_main.pid_namespace():x}-{pid}-{warden_main.start_of(pid).decode()}"


def _harmless(label: str) -> str:
    """A label may come from a stranger: nothing of it can name another folder or a control file."""
    return re.sub(r"[^A-Za-z0-9_-]", "_", label)[:LABEL_LENGTH]
