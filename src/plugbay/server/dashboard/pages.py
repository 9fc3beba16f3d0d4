"""Handlers and routes of all pages: login, plugins, exports, calls, events, orgs; and the actions of their forms.

Permissions are checked by `authentication`; values for the templates come from `views`. Org pages are read-only and
list what the API would list for the same token.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import aclosing
from urllib.parse import quote, urlencode

from pydantic import Field
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from plugbay.host.admin.logs import MAX_TAIL
from plugbay.host.calls.calls import LONGEST_CALL
from plugbay.model.topics import subject_problem
from plugbay.server.api.caller import LONGEST_TOKEN, TheGateway, admit, bearer_token, needs
from plugbay.server.api.idempotency import Router, shown_once
from plugbay.server.api.models import MOST, Answer, listing, parse_page
from plugbay.server.api.sse import Event, event_stream
from plugbay.server.dashboard import forms, rendering
from plugbay.server.dashboard.authentication import (
    ANY_PERSON,
    CODE_SECONDS,
    Endpoint,
    Notice,
    Visit,
    cookie_name,
    dashboard_of,
    is_same_origin,
    local_path,
    login_page,
    read_form,
    require_session,
    set_session_cookie,
    with_error_pages,
)
from plugbay.server.dashboard.live import (
    SHOWN_CALLS,
    SHOWN_LINES,
    SHOWN_OF_PLUGIN,
    EventsFeed,
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
    OFF,
    OUTCOMES,
    WARN,
    approval_of,
    broken_of,
    call_outcome,
    call_row,
    capabilities_of,
    event_row,
    export_rows,
    facts_of,
    lines_of_call,
    log_row,
    overview_of,
    rows_of,
    summary,
)
from plugbay.server.domain.clock import stamp
from plugbay.server.domain.errors import GatewayError, invalid, not_found, unauthenticated
from plugbay.server.domain.operator_plugins import ALL_TOPICS
from plugbay.server.domain.principal import HOST
from plugbay.store.pages import Page

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


# All plugins.


@require_session(ANY_PERSON)
async def show_plugins(visit: Visit) -> Response:
    """All plugins and broken folders; redirects keys of an org to their orgs."""
    if visit.principal.lacks((HOST,)) is not None:
        return visit.redirect("/orgs")
    rows = rows_of(visit.dashboard.loader.plugins())
    broken = broken_of(visit.gateway.host.problems)
    folders = visit.gateway.settings.folders[:1]
    return visit.page("plugins.html", rows=rows, summary=summary(rows), broken=broken, folders=folders)


@require_session(HOST, live=True)
async def follow_plugins(visit: Visit) -> Response:
    check_stream_limit(visit.dashboard)
    return event_stream(visit.request, follow(visit, PluginsFeed(visit.dashboard)))


# One plugin.


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
    return visit.redirect(plugin_path(plugin_id), Notice(GOOD, text))


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


# Calling an export.


@require_session(HOST)
async def show_export(visit: Visit) -> Response:
    return _export_page(visit)


@require_session(HOST)
async def call_export(visit: Visit) -> Response:
    """Call an export with the submitted input and show the result."""
    full_name, schema = _export(visit)
    typed = {name: values[0] for name, values in visit.form.items()}
    fields = None if visit.query("as") == "json" else forms.fields_of(schema)
    try:
        timeout = _timeout(visit.field("timeout"))
        wanted = forms.input_of_json(typed.get("json", "")) if fields is None else forms.input_of(fields, typed)
    except forms.Invalid as error:
        return _export_page(visit, 400, error)
    result = await visit.gateway.host.attempt(full_name, wanted, timeout=timeout)
    return _export_page(visit, answer=call_outcome(result))


def _export(visit: Visit) -> tuple[str, object]:
    """The requested export by full name, and its input schema; raises `not_found`."""
    full_name = visit.query("export")
    found = visit.gateway.host.exports().get(full_name)
    if found is None:
        raise not_found("export", full_name)
    return full_name, found.input_schema


def _timeout(text: str) -> float | None:
    """The timeout in seconds; None: the manifest's. Raises `Invalid`."""
    if not text.strip():
        return None
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds <= LONGEST_CALL:
        raise forms.Invalid(f"the timeout must be between 0 and {LONGEST_CALL:g} seconds")
    return seconds


def _export_page(
    visit: Visit, status: int = 200, error: forms.Invalid | None = None, answer: object = None
) -> Response:
    """The form of an export, with submitted values and the result of the call."""
    full_name, schema = _export(visit)
    export = visit.gateway.host.exports()[full_name]
    fields = forms.fields_of(schema)
    as_json = fields is None or visit.query("as") == "json"
    typed = {name: values[0] for name, values in visit.form.items()}
    return visit.page(
        "export.html",
        status,
        export=export,
        full_name=full_name,
        plugin_id=full_name.rpartition("/")[0],
        has_fields=fields is not None,
        as_json=as_json,
        fields=error.fields if error and error.fields else forms.refill(fields or (), typed),
        json=typed.get("json", forms.example(schema)),
        timeout=typed.get("timeout", ""),
        problem="" if error is None else error.problem,
        answer=answer,
    )


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
    hosted = {status.spec.id for status in visit.gateway.host.plugins()}
    lines = visit.gateway.host_logs.tail(call.plugin, MAX_TAIL) if call.plugin in hosted else []
    return visit.page("call.html", call=call_row(call), hosted=call.plugin in hosted, lines=lines_of_call(lines, call))


@require_session(HOST)
async def show_events(visit: Visit) -> Response:
    """Recent events of the bus, with live updates."""
    topic, problem = visit.query("topic") or ALL_TOPICS, ""
    try:
        _check_topic(topic)
    except GatewayError as error:
        topic, problem = ALL_TOPICS, error.message
    kept = visit.gateway.host_events.recent()
    found = visit.gateway.host_events.recent(topic)[-SHOWN_LINES:]
    return visit.page(
        "events.html",
        400 if problem else 200,
        events=list(map(event_row, found)),
        topic="" if topic == ALL_TOPICS else topic,
        after=kept[-1].id if kept else "",
        problem=problem,
    )


@require_session(HOST, live=True)
async def follow_events(visit: Visit) -> Response:
    check_stream_limit(visit.dashboard)
    topic = visit.query("topic") or ALL_TOPICS
    _check_topic(topic)
    return event_stream(visit.request, follow(visit, EventsFeed(visit.gateway, topic, visit.query("after"))))


def _check_topic(topic: str) -> None:
    """Raises for an invalid topic pattern."""
    if topic != ALL_TOPICS and subject_problem(topic.replace("*", "x").removesuffix(".>")) is not None:
        raise invalid("request.invalid_topic", f"{topic!r} is not a topic pattern, such as plugin.lifecycle.>", "topic")


STATUS_TONES = {"active": GOOD, "draft": WARN, "disabled": OFF, "available": GOOD, "quarantined": BAD}
"""Of bindings and packages, by their status."""


@require_session(ANY_PERSON)
async def show_orgs(visit: Visit) -> Response:
    """The orgs and packages that the visitor can see."""
    page = parse_page(MOST, visit.query("cursor") or None)
    found = listing(await visit.gateway.orgs.page(visit.principal, page), _identity)
    packages = await visit.gateway.packages.page(visit.principal, Page(MOST))
    return visit.page(
        "orgs.html", orgs=found.items, older=found.next_cursor or "", packages=packages, tones=STATUS_TONES
    )


@require_session(ANY_PERSON)
async def show_org(visit: Visit) -> Response:
    """One org: its projects and bindings."""
    org_id = visit.request.path_params["org_id"]
    org = await visit.gateway.orgs.get(visit.principal, org_id)
    projects = await visit.gateway.orgs.projects(visit.principal, org_id, Page(MOST))
    bindings = await visit.gateway.bindings.page(visit.principal, Page(MOST), org_id=org_id)
    return visit.page("org.html", org=org, projects=projects, bindings=bindings, tones=STATUS_TONES)


def _identity(item: object) -> object:
    return item


# Login and logout.


async def follow_link(request: Request) -> Response:
    """Log in with a one-time link. Ignores other sites, prefetches and HEAD requests, which must not use it up."""
    code = request.path_params["code"]
    if not is_same_origin(request.headers) or request.method == "HEAD":
        return rendering.page("again.html")
    dashboard = dashboard_of(request)
    dashboard.sessions.count_attempt()
    token = dashboard.sessions.redeem(code)
    if token is None:
        return login_page(request, 401, "This link was already used, or it has expired.")
    return await _start_session(request, token, "/")


async def log_in_with_token(request: Request) -> Response:
    """Log in with a pasted token."""
    form = await read_form(request)
    dashboard_of(request).sessions.count_attempt()
    token, goes_to = ("".join(form.get(name, ())[:1]).strip() for name in ("token", "goes_to"))
    try:
        if not token or len(token) > LONGEST_TOKEN:
            raise unauthenticated("auth.key_unknown", "this key is not known here")
        return await _start_session(request, token, local_path(goes_to))
    except GatewayError as error:
        if error.status != 401:
            raise
        return login_page(request, 401, f"{error.message[:1].upper()}{error.message[1:]}.")


async def _start_session(request: Request, token: str, goes_to: str) -> Response:
    """Start a session with the rights of this token; raises for invalid tokens and for plugins."""
    principal = await admit(request, token)
    refusal = principal.lacks((ANY_PERSON,))
    if refusal is not None:
        raise refusal
    sessions = dashboard_of(request).sessions
    sessions.end(request.cookies.get(cookie_name(request), ""))
    cookie, _ = sessions.begin(token)
    response = RedirectResponse(goes_to, 303, rendering.HEADERS)
    set_session_cookie(request, response, cookie)
    return response


@require_session(ANY_PERSON)
async def log_out(visit: Visit) -> Response:
    """End the session on the server and delete the cookie."""
    name = cookie_name(visit.request)
    visit.dashboard.sessions.end(visit.request.cookies[name])
    response = RedirectResponse("/", 303, rendering.HEADERS)
    response.delete_cookie(name, path="/", httponly=True, samesite="strict")
    return response


async def show_asset(request: Request) -> Response:
    """A static file; public, because the login page needs it."""
    return rendering.asset(request.path_params["name"]) or Response(status_code=404, headers=rendering.HEADERS)


router = Router(tags=["dashboard"])


class LinkOut(Answer):
    url: str | None = Field(description="Logs a browser in, once; null when the answer is a repetition.")
    expires_at: str


@router.post("/api/v1/dashboard-links", status_code=201, **needs("viewer"))
@shown_once("url")
async def create_dashboard_link(request: Request, gateway: TheGateway) -> LinkOut:
    """A link that logs a browser into the dashboard once, with the rights of the caller's key."""
    url = dashboard_of(request).link(str(request.base_url), bearer_token(request))
    return LinkOut(url=url, expires_at=stamp(gateway.clock.now() + CODE_SECONDS))


# Routes. They are not part of the OpenAPI document.


def _route(path: str, endpoint: Endpoint, method: str = "GET") -> Route:
    """A route, labelled by its path in metrics."""
    guarded = with_error_pages(endpoint)

    async def handle(request: Request) -> Response:
        request.scope["route"] = route
        return await guarded(request)

    route = Route(path, handle, methods=[method], include_in_schema=False)
    return route


ROUTES = (
    _route("/", show_plugins),
    _route("/login", log_in_with_token, "POST"),
    _route("/login/{code}", follow_link),
    _route("/logout", log_out, "POST"),
    _route("/static/{name}", show_asset),
    _route("/plugins/{plugin_id:path}:{operation}", operate_plugin, "POST"),
    _route("/plugins/{plugin_id:path}", show_plugin),
    _route("/export", show_export),
    _route("/export", call_export, "POST"),
    _route("/calls", show_calls),
    _route("/calls/{call_id}", show_call),
    _route("/events", show_events),
    _route("/orgs", show_orgs),
    _route("/orgs/{org_id}", show_org),
    _route("/live/plugins", follow_plugins),
    _route("/live/plugins/{plugin_id:path}", follow_plugin),
    _route("/live/calls", follow_calls),
    _route("/live/events", follow_events),
)
"""The first matching route wins."""
