"""The first page: health, problems, charts of the last hour, newest failures."""

from __future__ import annotations

from starlette.responses import Response

from plugbay.server.api.sse import event_stream
from plugbay.server.dashboard.authentication import ANY_PERSON, Visit, require_session
from plugbay.server.dashboard.live import OverviewFeed, check_stream_limit, follow
from plugbay.server.dashboard.views.plugins import broken_of
from plugbay.server.domain.principal import HOST


@require_session(ANY_PERSON)
async def show_overview(visit: Visit) -> Response:
    """The overview of the host; redirects keys of an org to their orgs."""
    if visit.principal.lacks((HOST,)) is not None:
        return visit.redirect("/orgs")
    regions = await OverviewFeed(visit.dashboard).regions()
    return visit.page(
        "overview.html",
        regions=regions,
        charts=[id for id in regions if id.startswith("chart-")],
        problems=[id for id in regions if id.startswith("problem-")],
        broken=broken_of(visit.gateway.host.problems),
    )


@require_session(HOST, live=True)
async def follow_overview(visit: Visit) -> Response:
    check_stream_limit(visit.dashboard)
    return event_stream(visit.request, follow(visit, OverviewFeed(visit.dashboard)))
