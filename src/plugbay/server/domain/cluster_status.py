"""`ClusterStatus`: the gateways and nodes of this gateway's cluster, and orders to nodes, for the operator."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from plugbay.server.domain.audit import Audit
from plugbay.server.domain.errors import not_found, unavailable
from plugbay.server.domain.membership import Membership
from plugbay.server.domain.principal import Principal
from plugbay.store.database import Database

if TYPE_CHECKING:
    from plugbay.cluster.report import NodeRow
    from plugbay.server.domain.nodes import Nodes

BEAT_SECONDS = 2.0
"""Time for the beat with which a node confirms an order."""

POLL_SECONDS = 0.02

CONFIRMED = {"drain": "draining", "undrain": "up"}
"""Orders, and the state of a node that has carried one out."""


class GatewayRow(msgspec.Struct, frozen=True):
    """One gateway."""

    id: str
    host: str
    pid: int | None
    epoch: int
    lease_ends_at: float
    is_this: bool


class ReleaseOnNodes(msgspec.Struct, frozen=True):
    """A release of a package, and the nodes that run it."""

    id: str
    version: str
    nodes: tuple[str, ...]


class ClusterStatus:
    """One cluster; one gateway without nodes is none."""

    def __init__(self, database: Database, audit: Audit, nodes: Nodes | None, membership: Membership | None) -> None:
        self._database = database
        self._audit = audit
        self._nodes = nodes
        self._membership = membership

    @property
    def exists(self) -> bool:
        return self._nodes is not None or self._membership is not None

    @property
    def name(self) -> str | None:
        """The cell; None: this gateway has no nodes."""
        return None if self._nodes is None else self._nodes.cluster.settings.name

    @property
    def problem(self) -> str | None:
        """Why no node is reached; None if there is no reason."""
        return None if self._nodes is None else self._nodes.problem

    def nodes(self) -> Sequence[NodeRow]:
        """All known nodes, by name."""
        if self._nodes is None:
            return ()
        from plugbay.cluster.report import node_rows

        return node_rows(self._nodes.cluster)

    def running(self) -> list[ReleaseOnNodes]:
        """The releases that run on nodes, by id and version."""
        found: dict[str, list[str]] = {}
        for node in self.nodes():
            for release in node.plugins if node.state != "gone" else ():
                found.setdefault(release, []).append(node.node)
        return [ReleaseOnNodes(*release.rpartition(" ")[::2], tuple(nodes)) for release, nodes in sorted(found.items())]

    async def gateways(self) -> list[GatewayRow]:
        """The gateways with a lease; none without several gateways."""
        if self._membership is None:
            return []
        return [
            GatewayRow(
                lease.holder,
                str(lease.facts.get("host", "")),
                lease.facts.get("pid"),
                lease.epoch,
                lease.until,
                lease.holder == self._membership.id,
            )
            for lease in await self._membership.list()
        ]

    async def order(self, caller: Principal, name: str, kind: str) -> NodeRow:
        """Have a node `drain`, or take calls again with `undrain`; returns the node as it is then."""
        if self._nodes is None or all(node.node != name for node in self.nodes()):
            raise not_found("node", name)
        if not await self._nodes.cluster.order(name, kind):
            raise unavailable("node.not_reached", self.problem or "NATS is not reached")
        async with self._database.transaction() as tx:
            await self._audit.record(tx, caller, f"node.{kind}", "node", name)
        loop = asyncio.get_running_loop()
        ends = loop.time() + BEAT_SECONDS
        while True:
            found = next((node for node in self.nodes() if node.node == name), None)
            if found is None:
                raise not_found("node", name)
            if found.state == CONFIRMED[kind] or loop.time() >= ends:
                return found
            await asyncio.sleep(POLL_SECONDS)
