"""The page of the host's events."""

from __future__ import annotations

from urllib.parse import urlencode

from starlette.responses import Response

from plugbay.model.topics import subject_problem
from plugbay.server.api.sse import event_stream
from plugbay.server.dashboard.authentication import Visit, require_session
from plugbay.server.dashboard.live import SHOWN_LINES, EventsFeed, check_stream_limit, follow
from plugbay.server.dashboard.views.events import concerns, event_row
from plugbay.server.domain.errors import GatewayError, invalid
from plugbay.server.domain.operator_plugins import ALL_TOPICS
from plugbay.server.domain.principal import HOST

MAX_TOPICS = 200
"""Topics that the filter suggests."""


@require_session(HOST)
async def show_events(visit: Visit) -> Response:
    """Recent events of the bus, newest first, with live updates."""
    topic, plugin, problem = visit.query("topic") or ALL_TOPICS, visit.query("plugin"), ""
    try:
        _check_topic(topic)
    except GatewayError as error:
        topic, problem = ALL_TOPICS, error.message
    kept = visit.gateway.host_events.recent()
    found = [event for event in visit.gateway.host_events.recent(topic) if concerns(event, plugin)]
    asked = {"topic": "" if topic == ALL_TOPICS else topic, "plugin": plugin}
    return visit.page(
        "events.html",
        400 if problem else 200,
        events=[event_row(event) for event in reversed(found[-SHOWN_LINES:])],
        topic=asked["topic"],
        topics=sorted({event.topic for event in kept})[:MAX_TOPICS],
        plugin=plugin,
        plugins=sorted(visit.gateway.host.specs),
        query=urlencode({name: value for name, value in asked.items() if value}),
        after=kept[-1].id if kept else "",
        problem=problem,
    )


@require_session(HOST, live=True)
async def follow_events(visit: Visit) -> Response:
    check_stream_limit(visit.dashboard)
    topic = visit.query("topic") or ALL_TOPICS
    _check_topic(topic)
    feed = EventsFeed(visit.gateway, topic, visit.query("after"), visit.query("plugin"))
    return event_stream(visit.request, follow(visit, feed))


def _check_topic(topic: str) -> None:
    """Raises for an invalid topic pattern."""
    if topic != ALL_TOPICS and subject_problem(topic.replace("*", "x").removesuffix(".>")) is not None:
        raise invalid("request.invalid_topic", f"{topic!r} is not a topic pattern, such as plugin.lifecycle.>", "topic")
