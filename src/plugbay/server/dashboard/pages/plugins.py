"""Pages of the host's plugins: the list, one plugin, and the operations of its buttons."""

from __future__ import annotations

import json
from urllib.parse import quote

from starlette.responses import Response

from plugbay.server.api.sse import event_stream
from plugbay.server.dashboard.authentication import Notice, Visit, require_session
from plugbay.server.dashboard.live import (
    SHOWN_LINES,
    SHOWN_OF_PLUGIN,
    PluginFeed,
    PluginsFeed,
    RecentCalls,
    check_stream_limit,
    follow,
    follow_while_listening,
)
from plugbay.server.dashboard.loader import exports_of
from plugbay.server.dashboard.text import count
from plugbay.server.dashboard.views.approvals import approval_of
from plugbay.server.dashboard.views.events import lifecycle_rows
from plugbay.server.dashboard.views.logs import log_row
from plugbay.server.dashboard.views.plugins import (
    ListFilter,
    broken_of,
    capabilities_of,
    export_rows,
    facts_of,
    list_page,
    overview_of,
    rows_of,
)
from plugbay.server.dashboard.views.tones import BAD, GOOD
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
    return _plugins_page(visit)


def _plugins_page(visit: Visit, status: int = 200, notice: Notice | None = None) -> Response:
    rows, wanted = rows_of(visit.dashboard.loader.plugins()), _filter(visit)
    asked = {"q": wanted.words, "state": wanted.state, "contract": wanted.contract}
    return visit.page(
        "plugins.html",
        status,
        notice,
        found=list_page(rows, wanted),
        wanted=wanted,
        query={name: value for name, value in asked.items() if value},
        states=sorted({row.state.word for row in rows}),
        contracts=sorted({row.contract for row in rows}),
        any_plugins=bool(rows),
        on_nodes=visit.gateway.cluster.running(),
        broken=broken_of(visit.gateway.host.problems),
        folders=visit.gateway.settings.folders[:1],
    )


def _filter(visit: Visit) -> ListFilter:
    page = visit.query("page", 9)
    number = int(page) if page.isascii() and page.isdigit() else 1
    return ListFilter(visit.query("q", 200).strip(), visit.query("state"), visit.query("contract"), number)


@require_session(HOST)
async def grant_plugins(visit: Visit) -> Response:
    """Grant to each selected plugin exactly what the page showed as requested by it."""
    selected = [_request(text) for text in visit.form.get("request", ())]
    if not selected:
        return _plugins_page(visit, 400, Notice(BAD, "Select at least one plugin."))
    done, problems = [], []
    for plugin_id, *capabilities in selected:
        try:
            await visit.gateway.operator_plugins.grant(visit.principal, plugin_id, capabilities)
            done.append(plugin_id)
        except GatewayError as error:
            problems.append(f"{plugin_id}: {error.message}")
    text = f"Granted to {count(len(done), 'plugin')}: {', '.join(done)}." if done else ""
    if problems:
        return _plugins_page(visit, 409, Notice(BAD, f"{text} Not granted: {'; '.join(problems)}".strip()))
    return visit.redirect("/plugins", Notice(GOOD, text))


def _request(text: str) -> list[str]:
    """The plugin and the capabilities of a checkbox; raises for anything else."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, list) or len(found) < 2 or not all(isinstance(part, str) for part in found):
        raise invalid("request.invalid", "this capability is not requested; load the page again", "request")
    return found


@require_session(HOST, live=True)
async def follow_plugins(visit: Visit) -> Response:
    check_stream_limit(visit.dashboard)
    return event_stream(visit.request, follow(visit, PluginsFeed(visit.dashboard, _filter(visit))))


@require_session(HOST)
async def show_plugin(visit: Visit) -> Response:
    return await _plugin_page(visit, visit.request.path_params["plugin_id"])


async def _plugin_page(visit: Visit, plugin_id: str, status: int = 200, notice: Notice | None = None) -> Response:
    gateway, plugin = visit.gateway, visit.dashboard.loader.plugin(plugin_id)
    installed = await gateway.installed_plugins.find(plugin_id)
    return visit.page(
        "plugin.html",
        status,
        notice,
        id=plugin_id,
        name=plugin.status.spec.name,
        description=plugin.status.spec.description,
        installed=installed,
        overview=overview_of(plugin, gateway.resources.plugins.get(plugin_id)),
        lifecycle=lifecycle_rows(gateway.host_events.histories.get(plugin_id, ())),
        capabilities=capabilities_of(plugin),
        exports=export_rows(exports_of(gateway, plugin_id)),
        approval=approval_of(plugin, gateway.operator_plugins.last_look(plugin_id)),
        facts=facts_of(plugin),
        calls=(await RecentCalls(gateway, SHOWN_OF_PLUGIN, plugin_id).load(), False),
        lines=list(map(log_row, (await gateway.host_logs.of(plugin_id).tail(SHOWN_LINES)).lines)),
    )


@require_session(HOST, live=True)
async def follow_plugin(visit: Visit) -> Response:
    check_stream_limit(visit.dashboard)
    plugin_id = visit.request.path_params["plugin_id"]
    visit.dashboard.loader.plugin(plugin_id)
    return event_stream(visit.request, follow_while_listening(visit, PluginFeed(visit.dashboard, plugin_id)))


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
    return visit.redirect(_next_path(visit, plugin_id, operation), Notice(GOOD, text))


def _next_path(visit: Visit, plugin_id: str, operation: str) -> str:
    """The page after an operation: where its button was, or the plugin's."""
    export = visit.field("export")
    if export in visit.gateway.host.exports():
        return f"/export?export={quote(export, safe='')}"
    return "/" if visit.field("back") == "/" and operation != "look" else plugin_path(plugin_id)


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
