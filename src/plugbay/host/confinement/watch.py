"""Periodic checks of running processes for limits that the kernel does not enforce: `StateWatch`, `MemoryWatch`.

`Watch` runs the checks on a thread, until the process ends or a check finds a problem; its caller decides on the
consequence. The pause grows with the duration of a round, so that the checks never keep a core busy.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from plugbay.host.disk import tree
from plugbay.process import usage
from plugbay.process.sandbox.cgroup import DEGRADED
from plugbay.process.sandbox.policy import MIB, Limits, Policy, Reach

if TYPE_CHECKING:
    from plugbay.process.child import Child

    Check = Callable[[], str | None]
    """Blocks; returns the problem, or None."""
    Report = Callable[[str], None]
    """Called with the problem, once."""

LONGEST_PAUSE = 30.0

SHARE = 20
"""The pause between two rounds is at least so many times the duration of a round."""


class Watch:
    """Checks processes of one host; one round at a time."""

    __slots__ = ("_seconds", "_task", "_watched")

    def __init__(self, seconds: float) -> None:
        """`seconds` between two rounds; more if a round takes long."""
        self._seconds = seconds
        self._watched: dict[Child, tuple[Check, Report]] = {}
        self._task: asyncio.Task[None] | None = None

    def begin(self, child: Child, check: Check, report: Report) -> None:
        """Check a process until it ends."""
        self._watched[child] = (check, report)
        child.on_exit(lambda _: self._end(child))
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run_rounds())

    def _end(self, child: Child) -> None:
        self._watched.pop(child, None)
        if not self._watched and self._task is not None:
            self._task.cancel()
            self._task = None

    async def _run_rounds(self) -> None:
        pause = self._seconds
        while True:
            await asyncio.sleep(pause)
            began = time.monotonic()
            found = await asyncio.to_thread(_run_checks, {child: check for child, (check, _) in self._watched.items()})
            pause = min(max(self._seconds, SHARE * (time.monotonic() - began)), LONGEST_PAUSE)
            for child, problem in found.items():
                if child in self._watched:
                    self._watched.pop(child)[1](problem)


def _run_checks(checks: dict[Child, Check]) -> dict[Child, str]:
    found = {child: check() for child, check in checks.items()}
    return {child: problem for child, problem in found.items() if problem is not None}


STATE_SECONDS = 2.0
"""Interval of the checks."""


class StateWatch:
    """Checks the size of the state folders of one host's plugins."""

    __slots__ = ("_watch",)

    def __init__(self) -> None:
        self._watch = Watch(STATE_SECONDS)

    def begin(self, child: Child, folder: Path, most: int, too_full: Callable[[str], None]) -> None:
        """Check until the process ends that its folder has at most `most` bytes."""
        self._watch.begin(child, StateCheck(child.pid, folder, most), too_full)


class StateCheck:
    """Measures one state folder, with deleted files that the process keeps.

    Some of those have a size that the host cannot read (`usage.Unlinked`). While there may be such files, the file
    system may lose no more than the quota: so a plugin that hides files holds about twice its quota. What others
    write to the same file system or free on it meanwhile counts too, but only for a plugin that keeps such files.
    """

    __slots__ = ("_folder", "_free", "_most", "_pid")

    def __init__(self, pid: int, folder: Path, most: int) -> None:
        self._pid = pid
        self._folder = folder
        self._most = most
        self._free = _free_bytes(folder)
        """When no file was hidden for the last time."""

    def __call__(self) -> str | None:
        """Why the folder is over its quota, or None. Blocks."""
        kept = usage.unlinked(self._pid, self._folder)
        free = _free_bytes(self._folder)
        if not kept.hidden:
            self._free = free
        elif self._free - free > self._most:
            lost = f"the disk has lost more than {self._most:,} bytes since then"
            return f"it has deleted files open whose size is unknown, and {lost}"
        return tree.quota_problem(self._folder, self._most, kept.bytes)


def _free_bytes(folder: Path) -> int:
    """Free bytes of the file system of a folder; 0 if there is no such folder."""
    try:
        facts = os.statvfs(folder)
    except OSError:
        return 0
    return facts.f_bfree * facts.f_frsize


MEMORY_SECONDS = 1.0
"""Interval of the checks."""


class MemoryWatch:
    """Checks the memory of confined plugins that no control group limits.

    Without control groups it checks all of their memory. With them it checks data in sockets: version 1 has a separate
    limit for it, version 2 counts it as memory, and both miss connections that were not accepted yet.
    """

    __slots__ = ("_watch",)

    def __init__(self) -> None:
        self._watch = Watch(MEMORY_SECONDS)

    def begin(self, child: Child, policy: Policy, too_much: Callable[[str], None]) -> None:
        """Check until the process ends that it stays within its limits."""
        # In the network namespace of the machine, the sockets of all other programs would count too.
        inside = 0 if child.jail is None or policy.network.reach is Reach.HOST else child.jail.first
        if child.limits_state == DEGRADED:
            self._watch.begin(child, partial(memory_problem, child.pid, inside, policy.limits), too_much)
        elif inside:
            self._watch.begin(child, partial(socket_problem, inside, policy.limits), too_much)


def memory_problem(pid: int, inside: int, limits: Limits) -> str | None:
    """Why a process and its descendants use too much memory, or None. Blocks.

    `inside` is a process in their network namespace, 0 if they share that with others.
    """
    used = usage.memory_of_tree(pid) + (usage.memory_of_sockets(inside) if inside else 0)
    return f"it used {_mib(used)} of memory and may use {_mib(limits.memory)}" if used > limits.memory else None


def socket_problem(inside: int, limits: Limits) -> str | None:
    """Why the sockets of a network namespace hold too much data, or None. Blocks."""
    used = usage.memory_of_sockets(inside)
    if used <= limits.sockets:
        return None
    return f"its sockets held {_mib(used)} and may hold {_mib(limits.sockets)}, a part of its {_mib(limits.memory)}"


def _mib(number: int) -> str:
    return f"{number / MIB:,.0f} MiB"
