"""The page of a cluster: nodes with their calls, gateways with their leases; draining a node.

For the operator of all orgs. It is in the navigation of a server that has a cluster.
"""

from __future__ import annotations

from starlette.responses import Response

from plugbay.server.api.sse import event_stream
from plugbay.server.dashboard.actions import failed
from plugbay.server.dashboard.authentication import Notice, Visit, require_session
from plugbay.server.dashboard.live import NodesFeed, check_stream_limit, follow
from plugbay.server.dashboard.views.tones import GOOD
from plugbay.server.domain.errors import GatewayError, not_found
from plugbay.server.domain.principal import HOST

DONE = {
    "drain": "{} takes no new calls; those that run come to their end.",
    "undrain": "{} takes calls again.",
}
"""Orders to a node, and the notice after each."""


@require_session(HOST)
async def show_nodes(visit: Visit) -> Response:
    return await _nodes_page(visit)


@require_session(HOST, live=True)
async def follow_nodes(visit: Visit) -> Response:
    check_stream_limit(visit.dashboard)
    return event_stream(visit.request, follow(visit, NodesFeed(visit.gateway)))


@require_session(HOST)
async def order_node(visit: Visit) -> Response:
    """Drain a node, or have it take calls again."""
    node, operation = (visit.request.path_params[name] for name in ("node", "operation"))
    if operation not in DONE:
        raise not_found("operation", operation)
    try:
        await visit.gateway.cluster.order(visit.principal, node, operation)
    except GatewayError as error:
        if error.status == 404:
            raise
        return await _nodes_page(visit, error)
    return visit.redirect("/nodes", Notice(GOOD, DONE[operation].format(node)))


async def _nodes_page(visit: Visit, problem: GatewayError | None = None) -> Response:
    status = visit.gateway.cluster
    return visit.page(
        "nodes.html",
        200 if problem is None else problem.status,
        None if problem is None else failed(problem),
        regions=await NodesFeed(visit.gateway).regions(),
        cell=status.name,
    )
