"""The pages of what happened: calls that are over, and the events of the bus."""

from __future__ import annotations

from urllib.parse import urlencode

from starlette.responses import Response

from plugbay.host.events.subjects import subject_problem
from plugbay.server.api.paging import listing, page_of
from plugbay.server.api.sse import event_stream
from plugbay.server.dashboard.door import Visit, visitors
from plugbay.server.dashboard.live import SHOWN_CALLS, SHOWN_LINES, EventsFeed, RecentCalls, admit, follow
from plugbay.server.dashboard.records import OUTCOMES, call_row, event_row, lines_of_call
from plugbay.server.domain.errors import GatewayError, invalid
from plugbay.server.domain.host_events import EVERYTHING
from plugbay.server.domain.plugin_logs import MAX_TAIL
from plugbay.server.domain.principal import HOST


@visitors(HOST)
async def show_calls(visit: Visit) -> Response:
    """Calls that are over, newest first, some at a time."""
    plugin, status, cursor = (visit.asked(name) or None for name in ("plugin", "status", "cursor"))
    part = await visit.gateway.calls.page(page_of(SHOWN_CALLS, cursor), plugin=plugin, status=status)
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


@visitors(HOST, live=True)
async def follow_calls(visit: Visit) -> Response:
    admit(visit.dashboard)
    plugin, status = (visit.asked(name) or None for name in ("plugin", "status"))
    return event_stream(visit.request, follow(visit, RecentCalls(visit.gateway, SHOWN_CALLS, plugin, status)))


@visitors(HOST)
async def show_call(visit: Visit) -> Response:
    """One call with everything that was written down of it, and what its plugin wrote meanwhile."""
    call = await visit.gateway.calls.get(visit.request.path_params["call_id"])
    hosted = {status.spec.id for status in visit.gateway.host.plugins()}
    lines = visit.gateway.host_logs.tail(call.plugin, MAX_TAIL) if call.plugin in hosted else []
    return visit.page("call.html", call=call_row(call), hosted=call.plugin in hosted, lines=lines_of_call(lines, call))


@visitors(HOST)
async def show_events(visit: Visit) -> Response:
    """The last events of the bus, and those that come."""
    topic, problem = visit.asked("topic") or EVERYTHING, ""
    try:
        _check(topic)
    except GatewayError as error:
        topic, problem = EVERYTHING, error.message
    kept = visit.gateway.host_events.recent()
    found = visit.gateway.host_events.recent(topic)[-SHOWN_LINES:]
    return visit.page(
        "events.html",
        400 if problem else 200,
        events=list(map(event_row, found)),
        topic="" if topic == EVERYTHING else topic,
        after=kept[-1].id if kept else "",
        problem=problem,
    )


@visitors(HOST, live=True)
async def follow_events(visit: Visit) -> Response:
    admit(visit.dashboard)
    topic = visit.asked("topic") or EVERYTHING
    _check(topic)
    return event_stream(visit.request, follow(visit, EventsFeed(visit.gateway, topic, visit.asked("after"))))


def _check(topic: str) -> None:
    """Raises for what is no pattern of topics."""
    if topic != EVERYTHING and subject_problem(topic.replace("*", "x").removesuffix(".>")) is not None:
        raise invalid(
            "request.invalid_topic", f"{topic!r} is no pattern of topics, such as plugin.lifecycle.>", "topic"
        )
