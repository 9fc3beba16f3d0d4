"""Routes of all pages. They are not part of the OpenAPI document."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from plugbay.server.dashboard import rendering
from plugbay.server.dashboard.authentication import Endpoint, with_error_pages
from plugbay.server.dashboard.pages import (
    bindings,
    calls,
    events,
    exports,
    keys,
    login,
    logs,
    orgs,
    overview,
    packages,
    plugins,
    screens,
    settings,
    wire,
)


async def show_asset(request: Request) -> Response:
    """A static file; public, because the login page needs it."""
    return rendering.asset(request.path_params["name"]) or Response(status_code=404, headers=rendering.HEADERS)


def _route(path: str, endpoint: Endpoint, method: str = "GET") -> Route:
    """A route, labelled by its path in metrics."""
    guarded = with_error_pages(endpoint)

    async def handle(request: Request) -> Response:
        request.scope["route"] = route
        return await guarded(request)

    route = Route(path, handle, methods=[method], include_in_schema=False)
    return route


ROUTES = (
    _route("/", overview.show_overview),
    _route("/login", login.log_in_with_token, "POST"),
    _route("/login/{code}", login.follow_link),
    _route("/logout", login.log_out, "POST"),
    _route("/static/{name}", show_asset),
    _route("/plugins", plugins.show_plugins),
    _route("/plugins", plugins.grant_plugins, "POST"),
    _route("/plugins/{plugin_id:path}:{operation}", plugins.operate_plugin, "POST"),
    _route("/plugins/{plugin_id:path}", plugins.show_plugin),
    _route("/logs", logs.show_log),
    _route("/settings", settings.show_settings),
    _route("/settings", settings.change_settings, "POST"),
    _route("/screen", screens.show_screen),
    _route("/screen", screens.press_keys, "POST"),
    _route("/command", screens.show_command_line),
    _route("/command", screens.run_command_line, "POST"),
    _route("/wire", wire.show_wire),
    _route("/wire", wire.record_wire, "POST"),
    _route("/recordings/{name}", wire.show_recording),
    _route("/export", exports.show_export),
    _route("/export", exports.call_export, "POST"),
    _route("/tries/{try_id}:cancel", exports.cancel_try, "POST"),
    _route("/tries/{try_id}", exports.show_try),
    _route("/calls", calls.show_calls),
    _route("/calls/{call_id}", calls.show_call),
    _route("/events", events.show_events),
    _route("/orgs", orgs.show_orgs),
    _route("/orgs", orgs.create_org, "POST"),
    _route("/orgs/{org_id}:update", orgs.update_org, "POST"),
    _route("/orgs/{org_id}/projects", orgs.create_project, "POST"),
    _route("/orgs/{org_id}", orgs.show_org),
    _route("/keys", keys.show_keys),
    _route("/keys", keys.create_key, "POST"),
    _route("/keys/{key_id}:revoke", keys.revoke_key, "POST"),
    _route("/keys/{key_id}", keys.show_key),
    _route("/packages", packages.show_packages),
    _route("/packages", packages.upload_package, "POST"),
    _route("/packages:pull", packages.pull_package, "POST"),
    _route("/packages/{package}:delete", packages.delete_package, "POST"),
    _route("/packages/{package}", packages.show_package),
    _route("/bindings", bindings.show_bindings),
    _route("/bindings", bindings.create_binding, "POST"),
    _route("/bindings/new", bindings.show_new),
    _route("/bindings/new", bindings.check_new, "POST"),
    _route("/bindings/{binding_id}:check", bindings.check_binding, "POST"),
    _route("/bindings/{binding_id}:save", bindings.save_binding, "POST"),
    _route("/bindings/{binding_id}:enable", bindings.enable_binding, "POST"),
    _route("/bindings/{binding_id}:disable", bindings.disable_binding, "POST"),
    _route("/bindings/{binding_id}:delete", bindings.delete_binding, "POST"),
    _route("/bindings/{binding_id}", bindings.show_binding),
    _route("/live/overview", overview.follow_overview),
    _route("/live/plugins", plugins.follow_plugins),
    _route("/live/plugins/{plugin_id:path}", plugins.follow_plugin),
    _route("/live/tries/{try_id}", exports.follow_try),
    _route("/live/logs", logs.follow_log),
    _route("/live/screen", screens.follow_screen),
    _route("/live/wire", wire.follow_wire),
    _route("/live/calls", calls.follow_calls),
    _route("/live/events", events.follow_events),
)
"""The first matching route wins."""
