"""Nodes and gateways on pages, as tables. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from plugbay.server.dashboard.tables import Cell, NextStep, Table
from plugbay.server.dashboard.text import count, duration, megabytes, time_of_day, utc
from plugbay.server.dashboard.views.tones import BAD, CALM, GOOD, WARN
from plugbay.server.domain.cluster_status import GatewayRow

if TYPE_CHECKING:
    from plugbay.cluster.report import NodeRow

TONES = {"up": GOOD, "draining": WARN, "returning": CALM, "avoided": WARN, "incompatible": BAD, "gone": BAD}

NODE_COLUMNS = (
    "Node",
    "State",
    "Labels",
    "Sandbox",
    "Calls",
    "Taken",
    "Per minute",
    "Processes",
    "Plugins",
    "Last beat",
    "Order",
)
GATEWAY_COLUMNS = ("Gateway", "Host", "Process id", "Lease ends", "Epoch")

RECENT_MS = 5000
"""A beat that is not older is `now`: the row of a node at rest stays the same."""

NO_NODES = NextStep(
    "No nodes yet",
    "A node joins by the address of NATS and credentials. Start one on another machine:",
    "plugbay node --name n1",
)
NO_CLUSTER = NextStep(
    "No cluster",
    "This server runs all plugins itself. A section [cluster] of plugbay.toml with the servers of NATS has it call "
    "nodes, which are started with:",
    "plugbay node --name n1",
)


class ClusterHealth(msgspec.Struct, frozen=True):
    """The line below the title."""

    summary: str
    problem: str


def nodes_table(nodes: Sequence[NodeRow], now: float, *, in_cluster: bool = True) -> Table:
    """All nodes, by name."""
    rows = tuple(node_cells(node, now) for node in nodes)
    return Table("Nodes", "/nodes", NODE_COLUMNS, rows, (), NO_NODES if in_cluster else NO_CLUSTER)


def node_cells(node: NodeRow, now: float) -> tuple[Cell, ...]:
    """One node. Calls are those of now, the others those of this gateway since its start."""
    called = node.called
    problems = [(called.failed, "failed"), (called.refused, "refused")]
    heard = Cell("now") if node.silent_ms < RECENT_MS else Cell(at=float(round(now - node.silent_ms / 1000)))
    order = "undrain" if node.state == "draining" else "drain"
    label = "Resume" if node.state == "draining" else "Drain"
    return (
        Cell(node.node, node.release),
        Cell(node.state, tone=TONES.get(node.state, CALM)),
        Cell(", ".join(f"{name}={value}" for name, value in sorted(node.labels.items()))),
        Cell("yes") if node.sandbox else Cell("none"),
        Cell(f"{node.calls:,} of {node.places:,}", f"load {node.load:,}" if node.load != node.calls else ""),
        Cell(f"{called.total:,}", ", ".join(f"{times:,} {word}" for times, word in problems if times)),
        Cell(f"{called.per_minute:,}", "" if called.p50_ms is None else f"p50 {duration(called.p50_ms)}"),
        Cell(f"{node.children:,}", megabytes(node.memory_bytes)),
        Cell(", ".join(node.plugins), f"holds {', '.join(node.held)}" if node.held else ""),
        heard,
        Cell() if node.state == "gone" else Cell(label, act=f"/nodes/{node.node}:{order}"),
    )


def gateways_table(gateways: Sequence[GatewayRow]) -> Table:
    """All gateways with a lease."""
    rows = tuple(map(gateway_cells, gateways))
    return Table("Gateways", "/nodes", GATEWAY_COLUMNS, rows, (), NO_NODES)


def gateway_cells(gateway: GatewayRow) -> tuple[Cell, ...]:
    return (
        Cell(gateway.id, "this one" if gateway.is_this else "", mono=True),
        Cell(gateway.host),
        Cell("" if gateway.pid is None else str(gateway.pid), number=True),
        Cell(time_of_day(utc(gateway.lease_ends_at))),
        Cell(f"{gateway.epoch:,}", number=True),
    )


def summary_of(nodes: Sequence[NodeRow]) -> str:
    """`3 nodes: 2 up, 1 draining`."""
    states = [node.state for node in nodes]
    counted = ", ".join(f"{states.count(state)} {state}" for state in TONES if state in states)
    return count(len(nodes), "node") + (f": {counted}" if counted else "")
