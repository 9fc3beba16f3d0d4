"""`MemoryWatch`: whether confined plugins use more memory than they may, where no control group holds them back.

Owns which of a plugin's memory is looked at. Without control groups that is all of it. With them it is the data in
sockets: version 1 has a limit of its own for that, version 2 counts it as memory, and both miss connections that
nobody has accepted. Refuses to know what becomes of a plugin that uses too much: whoever watches it is told.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from plugbay.host.confinement.watch import Watch
from plugbay.process import memory_use
from plugbay.process.sandbox.cgroup import DEGRADED
from plugbay.process.sandbox.policy import MIB, Limits, Policy, Reach

if TYPE_CHECKING:
    from plugbay.process.child import Child

LOOK_SECONDS = 1.0
"""Between two looks at all of them."""


class MemoryWatch:
    """The confined plugins of one host."""

    __slots__ = ("_watch",)

    def __init__(self) -> None:
        self._watch = Watch(LOOK_SECONDS)

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
