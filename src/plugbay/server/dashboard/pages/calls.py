"""Pages of finished calls: the list and one call."""

from __future__ import annotations

from urllib.parse import urlencode

from starlette.responses import Response

from plugbay.host.admin.logs import MAX_TAIL
from plugbay.server.api.models import listing, parse_page
from plugbay.server.api.sse import event_stream
from plugbay.server.dashboard.authentication import Visit, require_session
from plugbay.server.dashboard.live import SHOWN_CALLS, RecentCalls, check_stream_limit, follow
from plugbay.server.dashboard.views.calls import OUTCOMES, call_row
from plugbay.server.dashboard.views.logs import lines_of_call
from plugbay.server.dashboard.views.plugins import grantable
from plugbay.server.domain.principal import HOST


@require_session(HOST)
async def show_calls(visit: Visit) -> Response:
    """Finished calls, newest first, paged."""
    plugin, status, cursor = (visit.query(name) or None for name in ("plugin", "status", "cursor"))
    part = await visit.gateway.calls.page(parse_page(SHOWN_CALLS, cursor), plugin=plugin, status=status)
    found = listing(part, call_row)
    asked = {name: value for name, value in (("plugin", plugin), ("status", status)) if value}
    older = urlencode({**asked, "cursor": found.next_cursor}) if found.next_cursor else ""
    return visit.page(
        "calls.html",
        calls=found.items,
        plugins=sorted(status.spec.id for status in visit.gateway.host.plugins()),
        outcomes=OUTCOMES,
        plugin=plugin,
        outcome=status,
        query=urlencode(asked),
        older=older,
        newest=not cursor,
    )


@require_session(HOST, live=True)
async def follow_calls(visit: Visit) -> Response:
    check_stream_limit(visit.dashboard)
    plugin, status = (visit.query(name) or None for name in ("plugin", "status"))
    return event_stream(visit.request, follow(visit, RecentCalls(visit.gateway, SHOWN_CALLS, plugin, status)))


@require_session(HOST)
async def show_call(visit: Visit) -> Response:
    """One call with its record and the plugin's log lines during it."""
    call = await visit.gateway.calls.get(visit.request.path_params["call_id"])
    hosted = call.plugin in visit.gateway.host.specs
    lines = (await visit.gateway.host_logs.of(call.plugin).tail(MAX_TAIL)).lines if hosted else []
    export = visit.gateway.host.exports().get(f"{call.plugin}/{call.export}")
    needs = () if export is None else export.capabilities
    grants = grantable(visit.dashboard.loader.plugin(call.plugin), needs, call.failure or {}) if hosted else ()
    return visit.page("call.html", call=call_row(call), hosted=hosted, lines=lines_of_call(lines, call), grants=grants)
