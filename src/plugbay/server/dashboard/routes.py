"""Routes of the dashboard. They are not part of the OpenAPI document."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from plugbay.server.dashboard import login, pages
from plugbay.server.dashboard.authentication import Endpoint, with_error_pages
from plugbay.server.dashboard.pages import (
    follow_calls,
    follow_events,
    show_call,
    show_calls,
    show_events,
    show_org,
    show_orgs,
)


def _route(path: str, endpoint: Endpoint, method: str = "GET") -> Route:
    """A route, labelled by its path in metrics."""
    guarded = with_error_pages(endpoint)

    async def handle(request: Request) -> Response:
        request.scope["route"] = route
        return await guarded(request)

    route = Route(path, handle, methods=[method], include_in_schema=False)
    return route


ROUTES = (
    _route("/", pages.show_plugins),
    _route("/login", login.log_in_with_token, "POST"),
    _route("/login/{code}", login.follow_link),
    _route("/logout", login.log_out, "POST"),
    _route("/static/{name}", login.show_asset),
    _route("/plugins/{plugin_id:path}:{operation}", pages.operate_plugin, "POST"),
    _route("/plugins/{plugin_id:path}", pages.show_plugin),
    _route("/export", pages.show_export),
    _route("/export", pages.call_export, "POST"),
    _route("/calls", show_calls),
    _route("/calls/{call_id}", show_call),
    _route("/events", show_events),
    _route("/orgs", show_orgs),
    _route("/orgs/{org_id}", show_org),
    _route("/live/plugins", pages.follow_plugins),
    _route("/live/plugins/{plugin_id:path}", pages.follow_plugin),
    _route("/live/calls", follow_calls),
    _route("/live/events", follow_events),
)
"""The first matching route wins."""
