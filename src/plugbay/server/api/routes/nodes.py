"""Routes of the cluster, for the operator: its nodes and gateways, and orders to nodes."""

from __future__ import annotations

from pydantic import Field

from plugbay.server.api.caller import Caller, TheGateway, needs
from plugbay.server.api.idempotency import Router
from plugbay.server.api.models import Answer, PathId, Time
from plugbay.server.domain.principal import HOST

router = Router(tags=["host"])


class CallCountsOut(Answer):
    total: int = Field(description="Calls that the node has taken from this gateway since the gateway's start.")
    failed: int
    refused: int = Field(description="Further calls, which the node has not taken; no plugin has received them.")
    per_minute: int
    p50_ms: float | None = Field(description="The median of the newest 200 answered calls.")


class NodeOut(Answer):
    node: str
    state: str = Field(description="`up`, `draining`, `gone`, `returning`, `avoided` or `incompatible`.")
    calls: int
    places: int
    load: int = Field(description="Calls as this gateway counts them for placement.")
    children: int = Field(description="Processes of plugins.")
    memory_bytes: int = Field(description="What the node and its plugins use.")
    sandbox: bool
    release: str
    labels: dict[str, str]
    plugins: list[str] = Field(description="Some of the releases that it runs, as `id version`.")
    silent_ms: int = Field(description="Since its last beat.")
    called: CallCountsOut
    held: list[str] = Field(description="The plugins that run on this node only, by their leases.")


class GatewayOut(Answer):
    id: str
    host: str
    pid: int | None
    epoch: int
    lease_ends_at: Time
    is_this: bool = Field(description="Whether it gave this answer.")


class ClusterOut(Answer):
    cluster: str | None = Field(description="The name of the cell; null: this gateway has no nodes.")
    problem: str | None = Field(description="Why no node is reached.")
    nodes: list[NodeOut]
    gateways: list[GatewayOut] = Field(description="Those with a lease; none if one gateway owns its database.")


@router.get("/api/v1/nodes", **needs(HOST))
async def list_nodes(gateway: TheGateway) -> ClusterOut:
    """Nodes and gateways of the cluster. Calls are those of this gateway."""
    status = gateway.cluster
    return ClusterOut(
        cluster=status.name,
        problem=status.problem,
        nodes=[NodeOut.model_validate(node) for node in status.nodes()],
        gateways=[GatewayOut.model_validate(each) for each in await status.gateways()],
    )


@router.post("/api/v1/nodes/{node}:drain", **needs(HOST))
async def drain_node(node: PathId, caller: Caller, gateway: TheGateway) -> NodeOut:
    """Give a node no new calls; those that run come to their end."""
    return NodeOut.model_validate(await gateway.cluster.order(caller, node, "drain"))


@router.post("/api/v1/nodes/{node}:undrain", **needs(HOST))
async def undrain_node(node: PathId, caller: Caller, gateway: TheGateway) -> NodeOut:
    """Give a drained node calls again."""
    return NodeOut.model_validate(await gateway.cluster.order(caller, node, "undrain"))
