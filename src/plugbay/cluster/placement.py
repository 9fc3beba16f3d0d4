"""Which node serves a call: the holder of a lease, rendezvous hash for shared instances, else least in flight. Pure.

The hash takes the names of nodes, never their boots: otherwise each restart would move every org to another node.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Collection, Iterable, Mapping

import msgspec

from plugbay.cluster.roster import Node
from plugbay.model.errors import Code, Failure, Origin

FULL = 0.9
"""A shared instance moves to the next node when this part of the places is taken."""

RETRY_MS = 1000
"""The time after which a caller may try again when no node takes its call."""


class Wish(msgspec.Struct, frozen=True):
    """The place that a call needs."""

    key: str
    """Calls with the same key share an instance if `shared`."""
    shared: bool
    labels: Mapping[str, str] = msgspec.field(default_factory=dict)
    """Labels that the node must have."""
    confined: bool = True
    """Whether the node must have a sandbox."""
    lease: str = ""
    """The lease whose holder serves the call; empty: any node may."""


def order(key: str, names: Iterable[str]) -> list[str]:
    """Node names by rendezvous hash: a node that comes or goes moves only its own keys."""
    return sorted(names, key=lambda name: (_weight(key, name), name), reverse=True)


@functools.lru_cache(maxsize=4096)
def _weight(key: str, name: str) -> bytes:
    return hashlib.blake2b(f"{key}\0{name}".encode(), digest_size=8).digest()


def fits(node: Node, wish: Wish) -> bool:
    """Whether a node has the sandbox and the labels for a call."""
    return (node.beat.sandbox or not wish.confined) and wish.labels.items() <= node.beat.labels.items()


def choose(nodes: Iterable[Node], wish: Wish, tried: Collection[str] = ()) -> Node | Failure:
    """The node for a call, of those that are up and were not tried yet; a `Failure` says why there is none."""
    known = list(nodes)
    fitting = {node.name: node for node in known if fits(node, wish)}
    free = {name: node for name, node in fitting.items() if name not in tried} if tried else fitting
    if not free:
        return _no_candidate(len(known), len(fitting), wish)
    if len(free) == 1:
        return next(iter(free.values()))
    holder = holder_of(wish.lease, free.values())
    if holder is not None:
        return holder
    ranked = order(wish.key, free)
    if wish.shared:
        preferred = (free[name] for name in ranked if free[name].load < FULL * free[name].beat.places)
        return next(preferred, free[ranked[0]])
    return min((free[name] for name in ranked), key=lambda node: node.load / node.beat.places)


def holder_of(lease: str, nodes: Iterable[Node]) -> Node | None:
    """The node that holds a lease, by its beats; of two that say so, the one with the later epoch."""
    holders = [node for node in nodes if lease and lease in node.beat.held]
    return max(holders, key=lambda node: node.beat.held[lease], default=None)


def _no_candidate(known: int, fitting: int, wish: Wish) -> Failure:
    """No node takes the call: nothing was sent, so it may be tried again."""
    if not known:
        hint = "start a node: plugbay node; plugbay nodes shows those that are there"
    elif not fitting:
        wanted = [f"{name} = {value}" for name, value in wish.labels.items()]
        wanted += ["a sandbox"] if wish.confined else []
        hint = f"no node has {' and '.join(wanted)}; plugbay nodes shows their labels"
    else:
        hint = "all nodes that fit have refused it; plugbay nodes shows their load"
    return Failure(
        Code.UNAVAILABLE,
        "no node can serve the call now",
        origin=Origin.SYSTEM,
        detail={"hint": hint},
        retryable=True,
        retry_after_ms=RETRY_MS,
    )
