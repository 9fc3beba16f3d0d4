"""`Roster`: the nodes of a cell as a gateway knows them, from their beats. Pure: times are parameters.

A node is up while its beats come. One that was silent must beat twice before it gets calls again: a machine that wakes
up from a suspension may fall asleep again. The gateway's own lost connection must not count as silence of the nodes:
call `forgive` when it is back.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec.structs import replace

from plugbay.cluster.envelope import DRAINING, UP, VERSION, Beat
from plugbay.cluster.times import USUAL, Times

SILENT, RETURNING, AVOIDED, INCOMPATIBLE = "silent", "returning", "avoided", "incompatible"
"""States of a node that gets no calls, besides `draining`."""

FORGET_AFTER = 600.0
"""Seconds that a silent node is still listed."""


class Node(msgspec.Struct):
    """One node."""

    beat: Beat
    heard: float
    """When its last beat came."""
    returning: bool = False
    """It was silent, and has beaten only once since."""
    avoid_until: float = 0.0
    calls: int = 0
    """Calls of this gateway that it has now."""
    own_at_beat: int = 0
    """The same when its last beat came."""
    missed: int = 0
    """Beats that have not come since the last one."""

    @property
    def name(self) -> str:
        return self.beat.node

    @property
    def load(self) -> int:
        """Calls of this gateway now, and those of other gateways as of its last beat."""
        return self.calls + max(0, self.beat.busy - self.own_at_beat)


class Roster:
    """All nodes that were heard."""

    def __init__(self, times: Times = USUAL) -> None:
        self._times = times
        self.nodes: dict[str, Node] = {}
        self.missed = 0
        """Beats of all nodes that did not come in time."""

    def hear(self, beat: Beat, now: float) -> Beat | None:
        """Record a beat; returns the previous one of the node, if there is one."""
        known = self.nodes.get(beat.node)
        if known is None:
            self.nodes[beat.node] = Node(beat, now)
            return None
        before, was_silent = known.beat, now - known.heard > self._times.silent
        known.returning = was_silent and before.boot == beat.boot
        known.beat, known.heard, known.own_at_beat, known.missed = beat, now, known.calls, 0
        return before

    def count_missed(self, now: float) -> None:
        """Count the beats that are late. After those that make a node silent, no further ones are counted."""
        for node in self.nodes.values():
            late = int(min(now - node.heard, self._times.silent) / self._times.beat - 0.5)
            if node.beat.state == UP and late > node.missed:
                self.missed += late - node.missed
                node.missed = late

    def forgive(self, now: float) -> None:
        """Count silence from now on: the gateway could hear none of those that were not silent before."""
        for node in self.nodes.values():
            node.heard, node.missed = max(node.heard, now), 0

    def avoid(self, name: str, now: float) -> None:
        """Give no calls to a node whose answers are malformed or missing, for a while."""
        node = self.nodes.get(name)
        if node is not None:
            node.avoid_until = now + self._times.avoid

    def state(self, node: Node, now: float) -> str:
        if now - node.heard > self._times.silent:
            return SILENT
        if VERSION not in node.beat.takes:
            return INCOMPATIBLE
        if node.beat.state == DRAINING:
            return DRAINING
        if node.avoid_until > now:
            return AVOIDED
        return RETURNING if node.returning else UP

    def up(self, now: float) -> list[Node]:
        """The nodes that take calls."""
        return [node for node in self.nodes.values() if self.state(node, now) == UP]

    def is_gone(self, name: str, boot: str, now: float, *, repeatable: bool) -> bool:
        """Whether a node that was given a call will not answer it any more."""
        node = self.nodes.get(name)
        if node is None or node.beat.boot != boot:
            return True
        return now - node.heard > (self._times.silent if repeatable else self._times.lost)

    def note_holder(self, lease: str, name: Any, epoch: Any) -> bool:
        """A node has said which one holds a lease, or that it does not hold it itself (None); its next beat counts
        more. Returns whether the node is known."""
        node = self.nodes.get(name)
        if node is None or not (epoch is None or type(epoch) is int):
            return False
        held = {known: value for known, value in node.beat.held.items() if known != lease}
        node.beat = replace(node.beat, held=held if epoch is None else {**held, lease: epoch})
        return True

    def forget_old(self, now: float) -> None:
        """Remove nodes that were silent for long and have no calls."""
        for name, node in list(self.nodes.items()):
            if now - node.heard > FORGET_AFTER and not node.calls:
                del self.nodes[name]
