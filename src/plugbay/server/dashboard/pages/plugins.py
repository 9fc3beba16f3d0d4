"""Pages of the host's plugins: the list, one plugin, and the operations of its buttons."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import aclosing
from urllib.parse import quote

from starlette.responses import Response

from plugbay.server.api.sse import Event, event_stream
from plugbay.server.dashboard.authentication import Notice, Visit, require_session
from plugbay.server.dashboard.live import (
    SHOWN_LINES,
    SHOWN_OF_PLUGIN,
    PluginFeed,
    PluginsFeed,
    RecentCalls,
    check_stream_limit,
    follow,
)
from plugbay.server.dashboard.loader import exports_of
from plugbay.server.dashboard.views import (
    BAD,
    GOOD,
    approval_of,
    broken_of,
    capabilities_of,
    export_rows,
    facts_of,
    log_row,
    overview_of,
    rows_of,
    summary,
)
from plugbay.server.domain.errors import GatewayError, invalid, not_found
from plugbay.server.domain.principal import HOST

DONE = {
    "start": "{id} was started.",
    "stop": "{id} was stopped; calls to it fail until it is started.",
    "restart": "{id} was restarted.",
    "reload": "{id} was reloaded.",
    "grant": "{id} may use {names}; plugbay.toml keeps the grant.",
    "revoke": "{id} may no longer use {names}.",
    "look": "These are the definitions of {id}. They are not approved yet.",
    "approve": "The definitions of {id} are approved.",
}
"""Operations on a plugin, and the notice after each."""


def plugin_path(plugin_id: str) -> str:
    """The path of a plugin's page."""
    return f"/plugins/{quote(plugin_id, safe='/')}"


@require_session(HOST)
async def show_plugins(visit: Visit) -> Response:
    """All plugins and broken folders."""
    rows = rows_of(visit.dashboard.loader.plugins())
    broken = broken_of(visit.gateway.host.problems)
    folders = visit.gateway.settings.folders[:1]
    return visit.page("plugins.html", rows=rows, summary=summary(rows), broken=broken, folders=folders)


@require_session(HOST, live=True)
async def follow_plugins(visit: Visit) -> Response:
    check_stream_limit(visit.dashboard)
    return event_stream(visit.request, follow(visit, PluginsFeed(visit.dashboard)))


@require_session(HOST)
async def show_plugin(visit: Visit) -> Response:
    return await _plugin_page(visit, visit.request.path_params["plugin_id"])


async def _plugin_page(visit: Visit, plugin_id: str, status: int = 200, notice: Notice | None = None) -> Response:
    gateway, plugin = visit.gateway, visit.dashboard.loader.plugin(plugin_id)
    return visit.page(
        "plugin.html",
        status,
        notice,
        id=plugin_id,
        name=plugin.status.spec.name,
        description=plugin.status.spec.description,
        overview=overview_of(plugin),
        capabilities=capabilities_of(plugin),
        exports=export_rows(exports_of(gateway, plugin_id)),
        approval=approval_of(plugin, gateway.operator_plugins.last_look(plugin_id)),
        facts=facts_of(plugin),
        calls=(await RecentCalls(gateway, SHOWN_OF_PLUGIN, plugin_id).load(), False),
        lines=[log_row(line) for line in gateway.host_logs.tail(plugin_id, SHOWN_LINES)],
    )


@require_session(HOST, live=True)
async def follow_plugin(visit: Visit) -> Response:
    check_stream_limit(visit.dashboard)
    plugin_id = visit.request.path_params["plugin_id"]
    visit.dashboard.loader.plugin(plugin_id)
    feed = PluginFeed(visit.dashboard, plugin_id)

    async def events() -> AsyncIterator[Event]:
        async with feed.listening(), aclosing(follow(visit, feed)) as changes:
            async for event in changes:
                yield event

    return event_stream(visit.request, events())


@require_session(HOST)
async def operate_plugin(visit: Visit) -> Response:
    """Run an operation and show the plugin, with an error message if it failed."""
    plugin_id, operation = (visit.request.path_params[name] for name in ("plugin_id", "operation"))
    if operation not in DONE:
        raise not_found("operation", operation)
    names = visit.form.get("capability", ())
    try:
        await _operate(visit, plugin_id, operation, names)
    except GatewayError as error:
        if error.status == 404:
            raise
        return await _plugin_page(visit, plugin_id, error.status, Notice(BAD, error.message))
    text = DONE[operation].format(id=plugin_id, names=", ".join(names))
    back = "/" if visit.field("back") == "/" and operation != "look" else plugin_path(plugin_id)
    return visit.redirect(back, Notice(GOOD, text))


async def _operate(visit: Visit, plugin_id: str, operation: str, names: tuple[str, ...]) -> None:
    plugins = visit.gateway.operator_plugins
    if operation == "look":
        await plugins.look(visit.principal, plugin_id)
        return
    if operation == "approve":
        await plugins.approve(visit.principal, plugin_id, visit.field("digest"))
        return
    if operation not in ("grant", "revoke"):
        await plugins.operate(visit.principal, plugin_id, operation)
        return
    plugins.plugin(plugin_id)
    if not names:
        raise invalid("request.invalid", "select at least one capability", "capability")
    await (plugins.grant if operation == "grant" else plugins.revoke)(visit.principal, plugin_id, names)
