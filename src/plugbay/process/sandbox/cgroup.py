"""Control groups: what a plugin's whole process tree may use up, and the way to end all of it at once.

Owns the names of groups, when they are made, joined and ended, and the sweep after hosts that died. Refuses to know
the files behind a limit, which differ between version 1 and version 2 (`cgroup_v1`, `cgroup_v2`), and whether a plugin
may run without limits.

A group is named for its host: pid namespace, pid and start time. So a sweep knows the groups of dead hosts, a pid that
was used again is not mistaken for its predecessor, and a living host's groups are never touched.

Everything here blocks, for it reads and writes files of the kernel. Measured on a busy machine with two cores: `state`
and `why` look at the machine once, 30 ms, and cost nothing afterwards; `create`, `limit`, `kill` and `oom_kills` take
less than a millisecond; `close` waits for processes to die, usually 1 to 10 ms and at most `CLOSE_SECONDS`. To move
another process takes 6 to 18 ms, because the kernel first lets all forks of the machine finish; to move the calling
thread takes 0.02 ms, and what it starts is where it is. Version 2 does not have that, so a start does both: the thread
goes in, and who is not in yet is moved. All but `kill` and `oom_kills` are for pool threads.
"""

from __future__ import annotations

import errno
import os
import re
import secrets
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, suppress
from functools import cache
from pathlib import Path

from plugbay.process import warden_main
from plugbay.process.sandbox import cgroup_kill, cgroup_v1, cgroup_v2
from plugbay.process.sandbox.cgroup_files import PROCS, THREADS, Branch, Files, Layout, Places, Setting
from plugbay.process.sandbox.policy import Limits

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
"""What the kernel says of a control file that it does not have, or of a value that it does not take there."""


class Cgroup:
    """One process tree's group. Without folders, on a machine without limits, every method does nothing."""

    __slots__ = ("_branches", "_files", "_folders", "_left", "_oom_kills", "name")

    def __init__(self, name: str, branches: Sequence[Branch], files: Files, left: list[Cgroup]) -> None:
        self.name = name
        self._branches = tuple(branches)
        self._folders = tuple(branch.base / name for branch in branches)
        self._files = files
        self._left = left
        self._oom_kills = 0

    def limit(self, limits: Limits) -> None:
        """What all in it may use up together from now on. Raises OSError."""
        for branch, folder in self._places():
            for setting in (each for settings in branch.settings for each in settings(limits)):
                self._set(folder, setting)

    def enter(self) -> None:
        """Where a thread can go alone, the calling one goes in, and what it starts is in it too. Raises OSError.

        Before the group is limited: a thread of the host that has used up a plugin's time would stop the host.
        """
        for branch, folder in self._places():
            if branch.threads:
                self._files.write(folder / THREADS, "0")

    def leave(self) -> None:
        """Undo `enter`; what was started meanwhile stays. Raises OSError."""
        for branch in self._branches:
            if branch.threads:
                self._files.write(branch.base / THREADS, "0")

    def hold(self, *pids: int) -> None:
        """Put processes that are not in it yet under its limits, and with them what they fork. Raises OSError.

        Only what is used from now on is counted: a process must be held before its program runs. After an error the
        processes may be in some hierarchies only; `close` still ends them.
        """
        self._move(pids, (folder for branch, folder in self._places() if branch.settings))

    def join(self, *pids: int) -> None:
        """The same for all hierarchies, also for one that does no more than help to end it. Raises OSError."""
        self._move(pids, self._folders)

    def kill(self) -> None:
        """SIGKILL to everything in it, also what is stopped or left its session; does not wait for it to be gone."""
        cgroup_kill.kill(self._files, self._folders)

    def oom_kills(self) -> int:
        """How many of its processes were killed for want of memory; still known after `close`."""
        for path in (folder / branch.oom_file for branch, folder in self._places() if branch.oom_file):
            with suppress(OSError, ValueError):
                words = self._files.read(path).split()
                self._oom_kills = int(words[words.index("oom_kill") + 1])
        return self._oom_kills

    def close(self) -> None:
        """Kill and remove it, within `CLOSE_SECONDS`. What then is still there is for `Cgroups.sweep`."""
        self.oom_kills()
        if not cgroup_kill.destroy(self._files, self._folders, time.monotonic() + CLOSE_SECONDS):
            self._left.append(self)

    def gone(self) -> bool:
        return not any(folder.exists() for folder in self._folders)

    def _places(self) -> Iterator[tuple[Branch, Path]]:
        return zip(self._branches, self._folders, strict=True)

    def _move(self, pids: Sequence[int], folders: Iterable[Path]) -> None:
        if 0 in pids:  # to the kernel that means us, and whoever is in the group is killed with it
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
        """What is missing and how to get it; empty when nothing is."""
        return self._found().why

    @property
    def bases(self) -> tuple[Path, ...]:
        """The folders in which groups are made."""
        return tuple(branch.base for branch in self._found().branches)

    def create(self, name: str) -> Cgroup:
        """A group without limits and with nobody in it. `name` is for people and may be anything. Raises OSError."""
        return self._create(self._found().branches, name)

    def sweep(self) -> int:
        """Kill and remove the groups of hosts that no longer exist; how many groups are gone.

        Looks only where this host makes its own groups.
        """
        deadline = time.monotonic() + SWEEP_SECONDS
        found = self._found()
        groups = {name: folders for name, folders in self._abandoned(found).items() if self._is_foreign(folders)}
        for name, folders in groups.items():
            if not name.startswith(cgroup_v2.LEAF_PREFIX):
                cgroup_kill.kill(self._files, folders)
        gone = [self._remove(name, folders, deadline) for name, folders in groups.items()]
        left, self._left[:] = list(self._left), []
        for group in left:
            group.close()
        return sum(gone) + sum(group.gone() for group in left)

    def _remove(self, name: str, folders: list[Path], deadline: float) -> bool:
        """The leaf that a host moved into held more than plugins: it is only removed when it is empty."""
        if name.startswith(cgroup_v2.LEAF_PREFIX) and cgroup_kill.members(self._files, folders):
            return False
        return cgroup_kill.destroy(self._files, folders, deadline)

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
        return os.getpid() not in cgroup_kill.members(self._files, folders)

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
            found = cgroup_v2.find(self._files, places, _host())
            return self._tried(found, cgroup_v2.ADVICE)
        except (OSError, ValueError) as error:
            return Layout(DEGRADED, why=f"the control groups cannot be found: {error}; {cgroup_v2.ADVICE}")

    def _look_v1(self, places: Places) -> Layout:
        layout = self._tried(cgroup_v1.find(places), cgroup_v1.ADVICE)
        killer = cgroup_v1.killer(places)
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
            return f"no control group can be made in {branches[0].base}: {error}"
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
