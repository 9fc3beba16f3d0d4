"""`node_rows`: the nodes of a cell as an operator sees them, for the dashboard, the API and `plugbay nodes`."""

from __future__ import annotations

from collections.abc import Mapping
from time import monotonic

import msgspec

from plugbay.cluster.calling import Cluster
from plugbay.cluster.roster import SILENT, Node
from plugbay.cluster.singletons import PREFIX
from plugbay.cluster.tally import NodeTally

GONE = "gone"
"""The state of a node whose beats have stopped; it is listed for ten minutes."""


class CallCounts(msgspec.Struct, frozen=True):
    """The calls that one gateway gave to a node, since the start of the gateway."""

    total: int
    failed: int
    refused: int
    per_minute: int
    p50_ms: float | None


class NodeRow(msgspec.Struct, frozen=True):
    """One node."""

    node: str
    state: str
    """`up`, `draining`, `gone`; `returning` after a silence, `avoided` after a malformed answer."""
    calls: int
    places: int
    load: int
    """Calls in the eyes of this gateway: its own of now, and those of others as of the last beat."""
    children: int
    memory_bytes: int
    sandbox: bool
    release: str
    labels: Mapping[str, str]
    plugins: tuple[str, ...]
    silent_ms: int
    """Since its last beat."""
    called: CallCounts
    held: tuple[str, ...] = ()
    """The plugins that run on this node only."""


def node_rows(cluster: Cluster) -> list[NodeRow]:
    """All known nodes, by name."""
    now = monotonic()
    return [_row(node, state, cluster.tally.nodes.get(node.name), now) for node, state in cluster.nodes()]


def _row(node: Node, state: str, tally: NodeTally | None, now: float) -> NodeRow:
    beat, counted = node.beat, tally or NodeTally()
    median = counted.median
    calls = CallCounts(
        counted.total,
        counted.failed,
        counted.refused,
        counted.per_minute(now),
        None if median is None else round(median * 1000, 1),
    )
    return NodeRow(
        node.name,
        GONE if state == SILENT else state,
        beat.busy,
        beat.places,
        node.load,
        beat.children,
        beat.memory,
        beat.sandbox,
        beat.release,
        beat.labels,
        beat.plugins,
        round((now - node.heard) * 1000),
        calls,
        tuple(sorted(name.removeprefix(PREFIX) for name in beat.held)),
    )
