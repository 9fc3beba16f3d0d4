"""Routes of all pages. They are not part of the OpenAPI document."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from plugbay.server.dashboard import rendering
from plugbay.server.dashboard.authentication import Endpoint, with_error_pages
from plugbay.server.dashboard.pages import (
    audit,
    bindings,
    calls,
    compactions,
    deliveries,
    events,
    exports,
    harnesses,
    install,
    installed,
    invocations,
    keys,
    login,
    logs,
    new_binding,
    nodes,
    orgs,
    overview,
    packages,
    plugins,
    publishers,
    runs,
    screens,
    secrets,
    servers,
    sessions,
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
    _route("/nodes", nodes.show_nodes),
    _route("/nodes/{node}:{operation}", nodes.order_node, "POST"),
    _route("/install", install.show_cards),
    _route("/install/{card_id}", install.show_card),
    _route("/install/{card_id}", install.install_card, "POST"),
    _route("/installed", installed.show_installed),
    _route("/installed", installed.upload_package, "POST"),
    _route("/installed:pull", installed.pull_package, "POST"),
    _route("/installed/{plugin_id:path}:{operation}", installed.change_plugin, "POST"),
    _route("/installed/{plugin_id:path}", installed.show_plugin),
    _route("/installing/{look_id}:discard", installed.discard_package, "POST"),
    _route("/installing/{look_id}", installed.show_package),
    _route("/installing/{look_id}", installed.install_package, "POST"),
    _route("/publishers", publishers.show_publishers),
    _route("/publishers", publishers.trust_publisher, "POST"),
    _route("/publishers/{key_id}:revoke", publishers.revoke_publisher, "POST"),
    _route("/servers", servers.show_servers),
    _route("/servers", servers.add_server, "POST"),
    _route("/servers/{name}:remove", servers.remove_server, "POST"),
    _route("/bindings", bindings.show_bindings),
    _route("/bindings", new_binding.create_binding, "POST"),
    _route("/bindings/new", new_binding.show_new),
    _route("/bindings/new", new_binding.check_new, "POST"),
    _route("/bindings/{binding_id}:check", bindings.check_binding, "POST"),
    _route("/bindings/{binding_id}:save", bindings.save_binding, "POST"),
    _route("/bindings/{binding_id}:enable", bindings.enable_binding, "POST"),
    _route("/bindings/{binding_id}:disable", bindings.disable_binding, "POST"),
    _route("/bindings/{binding_id}:delete", bindings.delete_binding, "POST"),
    _route("/bindings/{binding_id}:test", deliveries.send_test, "POST"),
    _route("/bindings/{binding_id}", bindings.show_binding),
    _route("/secrets", secrets.show_secrets),
    _route("/secrets", secrets.set_secret, "POST"),
    _route("/secrets/{name}:delete", secrets.delete_secret, "POST"),
    _route("/secrets/{name}", secrets.show_secret),
    _route("/invocations", invocations.show_invocations),
    _route("/invocations/{invocation_id}:cancel", invocations.cancel_invocation, "POST"),
    _route("/invocations/{invocation_id}", invocations.show_invocation),
    _route("/deliveries", deliveries.show_deliveries),
    _route("/deliveries/{delivery_id}:replay", deliveries.replay_delivery, "POST"),
    _route("/deliveries/{delivery_id}", deliveries.show_delivery),
    _route("/sessions", sessions.show_sessions),
    _route("/sessions/{session_id}", sessions.show_session),
    _route("/chains/{chain_id}", sessions.show_chain),
    _route("/runs", runs.show_runs),
    _route("/runs/{run_id}:cancel", runs.cancel_run, "POST"),
    _route("/runs/{run_id}", runs.show_run),
    _route("/harnesses", harnesses.show_harnesses),
    _route("/harnesses/{execution_id}:cancel", harnesses.cancel_harness, "POST"),
    _route("/harnesses/{execution_id}:resume", harnesses.resume_harness, "POST"),
    _route("/harnesses/{execution_id}", harnesses.show_harness),
    _route("/compactions", compactions.show_compactions),
    _route("/compactions/{compaction_id}", compactions.show_compaction),
    _route("/audit", audit.show_audit),
    _route("/live/overview", overview.follow_overview),
    _route("/live/plugins", plugins.follow_plugins),
    _route("/live/plugins/{plugin_id:path}", plugins.follow_plugin),
    _route("/live/tries/{try_id}", exports.follow_try),
    _route("/live/logs", logs.follow_log),
    _route("/live/screen", screens.follow_screen),
    _route("/live/wire", wire.follow_wire),
    _route("/live/nodes", nodes.follow_nodes),
    _route("/live/calls", calls.follow_calls),
    _route("/live/invocations", invocations.follow_invocations),
    _route("/live/deliveries", deliveries.follow_deliveries),
    _route("/live/sessions", sessions.follow_sessions),
    _route("/live/runs", runs.follow_runs),
    _route("/live/harnesses", harnesses.follow_harnesses),
    _route("/live/compactions", compactions.follow_compactions),
    _route("/live/events", events.follow_events),
)
"""The first matching route wins."""
