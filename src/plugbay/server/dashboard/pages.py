"""Handlers of all pages: plugins, exports, calls, events, orgs; and the actions of their forms.

Permissions are checked by `authentication`; values for the templates come from `views`. Org pages are read-only and
list what the API would list for the same token.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import aclosing
from urllib.parse import quote, urlencode

from starlette.responses import Response

from plugbay.host.calls.calls import LONGEST_CALL
from plugbay.model.topics import subject_problem
from plugbay.server.api.models import MOST, listing, parse_page
from plugbay.server.api.sse import Event, event_stream
from plugbay.server.dashboard import forms
from plugbay.server.dashboard.authentication import ANY_PERSON, Notice, Visit, require_session
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
    event_row,
    facts_of,
    lines_of_call,
    log_row,
    offers_of,
    rows_of,
    standing_of,
    summary,
    wishes_of,
)
from plugbay.server.domain.errors import GatewayError, invalid, not_found
from plugbay.server.domain.operator_plugins import ALL_TOPICS, MAX_TAIL
from plugbay.server.domain.principal import HOST
from plugbay.store.pages import Page

DONE = {
    "start": "{id} was started.",
    "stop": "{id} was stopped; calls to it fail until it is started.",
    "restart": "{id} was started afresh.",
    "reload": "{id} was reloaded.",
    "grant": "{id} may use {names} from now on; plugbay.toml keeps it.",
    "revoke": "{id} may not use {names} any more.",
    "look": "This is what {id} offers. Nothing of it is approved yet.",
    "approve": "{id} may offer what you have seen.",
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
    return visit.page("plugins.html", rows=rows, summary=summary(rows), broken=broken)


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
        standing=standing_of(plugin),
        wishes=wishes_of(plugin),
        offers=offers_of(exports_of(gateway, plugin_id)),
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
        raise invalid("request.invalid", "choose what it is about first", "capability")
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
    except forms.Unclear as unclear:
        return _export_page(visit, 400, unclear)
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
    """The timeout in seconds; None: the manifest's. Raises `Unclear`."""
    if not text.strip():
        return None
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds <= LONGEST_CALL:
        raise forms.Unclear(f"a call is waited for between 0 and {LONGEST_CALL:g} seconds")
    return seconds


def _export_page(
    visit: Visit, status: int = 200, unclear: forms.Unclear | None = None, answer: object = None
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
        fields=unclear.fields if unclear and unclear.fields else forms.refill(fields or (), typed),
        json=typed.get("json", forms.example(schema)),
        timeout=typed.get("timeout", ""),
        problem="" if unclear is None else unclear.problem,
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
        raise invalid(
            "request.invalid_topic", f"{topic!r} is no pattern of topics, such as plugin.lifecycle.>", "topic"
        )


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
