"""The log of a plugin, with search."""

from __future__ import annotations

from urllib.parse import urlencode

from starlette.responses import Response

from plugbay.server.api.sse import event_stream
from plugbay.server.dashboard.authentication import Visit, require_session
from plugbay.server.dashboard.live import MOST_LINES, LogTail, check_stream_limit, follow_while_listening
from plugbay.server.dashboard.views.logs import LogFilter
from plugbay.server.domain.principal import HOST

SOURCES = (("stderr", "its stderr"), ("plugin", "its log messages"), ("host", "notes of the host"))


@require_session(HOST)
async def show_log(visit: Visit) -> Response:
    """The last lines that match, with live updates."""
    plugin_id, wanted = _asked(visit)
    asked = {"plugin": plugin_id, "q": wanted.words, "source": wanted.source}
    return visit.page(
        "log.html",
        id=plugin_id,
        lines=await _tail(visit, plugin_id, wanted).past(),
        wanted=wanted,
        sources=SOURCES,
        query=urlencode({name: value for name, value in asked.items() if value}),
    )


@require_session(HOST, live=True)
async def follow_log(visit: Visit) -> Response:
    check_stream_limit(visit.dashboard)
    plugin_id, wanted = _asked(visit)
    return event_stream(visit.request, follow_while_listening(visit, _tail(visit, plugin_id, wanted)))


def _asked(visit: Visit) -> tuple[str, LogFilter]:
    """The plugin and the filter of a request; raises `not_found`."""
    plugin_id = visit.query("plugin")
    visit.dashboard.loader.plugin(plugin_id)
    return plugin_id, LogFilter(visit.query("q", 200).strip(), visit.query("source"))


def _tail(visit: Visit, plugin_id: str, wanted: LogFilter) -> LogTail:
    return LogTail(visit.gateway, plugin_id, wanted, MOST_LINES)
