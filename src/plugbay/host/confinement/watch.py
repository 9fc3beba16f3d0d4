"""`Watch`: looks at children again and again, on a thread, until they end or one look finds a reason to act.

Owns the rhythm. Refuses to know what is looked at and what follows: `state_watch` and `memory_watch` do.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from plugbay.host.disk import tree
from plugbay.process import memory_use, unlinked
from plugbay.process.sandbox.cgroup import DEGRADED
from plugbay.process.sandbox.policy import MIB, Limits, Policy, Reach

if TYPE_CHECKING:
    from plugbay.process.child import Child

    Look = Callable[[], str | None]
    """Blocks; returns what is wrong, or None."""
    Told = Callable[[str], None]
    """Hears what is wrong, once."""

LONGEST_PAUSE = 30.0

SHARE = 20
"""The time between two looks is at least so many times what one takes: looking must not keep a core busy."""


class Watch:
    """Children of one host; one round of looks at a time."""

    __slots__ = ("_looking", "_seconds", "_watched")

    def __init__(self, seconds: float) -> None:
        """`seconds` lie between two rounds, more where one takes long."""
        self._seconds = seconds
        self._watched: dict[Child, tuple[Look, Told]] = {}
        self._looking: asyncio.Task[None] | None = None

    def begin(self, child: Child, look: Look, told: Told) -> None:
        """Look at a child until it ends."""
        self._watched[child] = (look, told)
        child.on_exit(lambda _: self._end(child))
        if self._looking is None:
            self._looking = asyncio.get_running_loop().create_task(self._look_again_and_again())

    def _end(self, child: Child) -> None:
        self._watched.pop(child, None)
        if not self._watched and self._looking is not None:
            self._looking.cancel()
            self._looking = None

    async def _look_again_and_again(self) -> None:
        pause = self._seconds
        while True:
            await asyncio.sleep(pause)
            began = time.monotonic()
            found = await asyncio.to_thread(_look_at_all, {child: look for child, (look, _) in self._watched.items()})
            pause = min(max(self._seconds, SHARE * (time.monotonic() - began)), LONGEST_PAUSE)
            for child, wrong in found.items():
                if child in self._watched:
                    self._watched.pop(child)[1](wrong)


def _look_at_all(looks: dict[Child, Look]) -> dict[Child, str]:
    found = {child: look() for child, look in looks.items()}
    return {child: wrong for child, wrong in found.items() if wrong is not None}


STATE_SECONDS = 2.0
"""Between two looks at all of them."""


class StateWatch:
    """The folders of all plugins of one host."""

    __slots__ = ("_watch",)

    def __init__(self) -> None:
        self._watch = Watch(STATE_SECONDS)

    def begin(self, child: Child, folder: Path, most: int, too_full: Callable[[str], None]) -> None:
        """Until its end, see to it that a plugin does not keep more than `most` bytes in its folder."""
        self._watch.begin(child, partial(overfull, child.pid, folder, most), too_full)


def overfull(pid: int, folder: Path, most: int) -> str | None:
    """Why a process keeps too much in a folder; None when it does not. Blocks."""
    return tree.overfull(folder, most, unlinked.held(pid, folder))


MEMORY_SECONDS = 1.0
"""Between two looks at all of them."""


class MemoryWatch:
    """The confined plugins of one host."""

    __slots__ = ("_watch",)

    def __init__(self) -> None:
        self._watch = Watch(MEMORY_SECONDS)

    def begin(self, child: Child, policy: Policy, too_much: Callable[[str], None]) -> None:
        """Until its end, see to it that a plugin does not use more than its limits say."""
        # In the network of the machine, the sockets of all other programs are in sight too.
        inside = 0 if child.cell is None or policy.network.reach is Reach.HOST else child.cell.first
        if child.limits_state == DEGRADED:
            self._watch.begin(child, partial(too_large, child.pid, inside, policy.limits), too_much)
        elif inside:
            self._watch.begin(child, partial(too_much_in_sockets, inside, policy.limits), too_much)


def too_large(pid: int, inside: int, limits: Limits) -> str | None:
    """Why a process and its descendants use too much memory; None when they do not. Blocks.

    `inside` is a process in their network, 0 when that is not theirs alone.
    """
    used = memory_use.of_tree(pid) + (memory_use.of_sockets(inside) if inside else 0)
    return f"it used {_mib(used)} of memory and may use {_mib(limits.memory)}" if used > limits.memory else None


def too_much_in_sockets(inside: int, limits: Limits) -> str | None:
    """Why a network holds too much data; None when it does not. Blocks."""
    used = memory_use.of_sockets(inside)
    if used <= limits.sockets:
        return None
    return f"its sockets held {_mib(used)} and may hold {_mib(limits.sockets)}, a part of its {_mib(limits.memory)}"


def _mib(number: int) -> str:
    return f"{number / MIB:,.0f} MiB"
