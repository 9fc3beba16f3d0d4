"""Pages of bindings: list, change, roll out, enable, disable, delete.

Every change is a dry run first: the page shows the difference and the validation, and the button saves exactly that,
if the binding still has the revision that was shown. A second operator gets both values instead of overwriting one.
"""

from __future__ import annotations

import json

from starlette.responses import Response

from plugbay.model.spec import Export
from plugbay.server.api.models import MOST, parse_page
from plugbay.server.api.routes.bindings import BindingPatch, changes_of
from plugbay.server.dashboard import forms
from plugbay.server.dashboard.actions import Question, check_document, confirm, failed, is_confirmed, parse_body
from plugbay.server.dashboard.authentication import ANY_PERSON, Notice, Visit, require_session
from plugbay.server.dashboard.pages.binding_forms import (
    STATUSES,
    Review,
    form_values,
    opened_settings,
    read_document,
    typed_settings,
)
from plugbay.server.dashboard.tables import SHOWN, Filter, NextStep, query_of, table_of
from plugbay.server.dashboard.views.bindings import (
    BINDING_COLUMNS,
    STATUS_TONES,
    Settings,
    binding_row,
    changes_between,
    merge,
    permission_changes,
    permission_facts,
    settings_of,
    shared_traffic,
)
from plugbay.server.dashboard.views.tones import BAD, GOOD, WARN
from plugbay.server.domain.bindings import ACTIVE, DISABLED
from plugbay.server.domain.errors import GatewayError, invalid, not_found
from plugbay.store.bindings import BindingRow
from plugbay.store.pages import Page

KINDS = ("tool", "hook", "compactor", "harness")


@require_session(ANY_PERSON)
async def show_bindings(visit: Visit) -> Response:
    """Bindings that the visitor can see."""
    asked = {name: visit.query(name) for name in ("search", "org", "project", "kind", "status")}
    cursor = visit.query("cursor")
    part = await visit.gateway.bindings.page(
        visit.principal,
        parse_page(SHOWN, cursor or None),
        org_id=asked["org"] or None,
        search=asked["search"],
        project_id=asked["project"] or None,
        export_kind=asked["kind"] or None,
        status=asked["status"] or None,
    )
    filters = [Filter("search", "Search", asked["search"], hint="part of an export, package or id")]
    if visit.principal.org_id is None:
        filters.append(Filter("org", "Org", asked["org"], hint="id", scope=True))
    filters += [
        Filter("project", "Project", asked["project"], hint="id", scope=True),
        Filter("kind", "Kind", asked["kind"], KINDS),
        Filter("status", "Status", asked["status"], STATUSES),
    ]
    scope = query_of({"org": asked["org"], "project": asked["project"]})
    new = f"/bindings/new?{scope}".rstrip("?")
    may = visit.principal.has_role("operator")
    empty = NextStep(
        "No bindings yet",
        "A binding lets an org or a project use one export of a package, with its own settings, secrets and limits.",
        "plugbay binding create --package acme/devkit --package-version 1.0.0 --export search --org tea",
        "New binding" if may else "",
        new if may else "",
    )
    table = table_of(
        "Bindings", "/bindings", BINDING_COLUMNS, part, binding_row, filters=filters, empty=empty, cursor=cursor
    )
    return visit.page("bindings.html", table=table, new=new)


# One binding.


@require_session(ANY_PERSON)
async def show_binding(visit: Visit) -> Response:
    """One binding: its settings, its validation, its share of the traffic."""
    row = await visit.gateway.bindings.get(visit.principal, visit.request.path_params["binding_id"])
    return await _binding_page(visit, row, settings_of(row))


@require_session("operator")
async def check_binding(visit: Visit) -> Response:
    """Judge a change of a binding, without changing it."""
    row = await visit.gateway.bindings.get(visit.principal, visit.request.path_params["binding_id"])
    base = opened_settings(visit, row)
    export = await _export_of(visit, row, visit.field("package_version"))
    try:
        yours = typed_settings(visit, export, base)
    except forms.Invalid as error:
        problem = invalid("request.invalid", error.problem)
        return await _binding_page(visit, row, base, problem=problem, fields=error.fields)
    except GatewayError as error:
        return await _binding_page(visit, row, base, problem=error)
    return await _review_change(visit, row, base, yours)


@require_session("operator")
async def save_binding(visit: Visit) -> Response:
    """Save the change of a dry run, unless the binding has another revision by now."""
    row = await visit.gateway.bindings.get(visit.principal, visit.request.path_params["binding_id"])
    document = read_document(visit)
    changes = changes_of(parse_body(BindingPatch, document))
    try:
        revision = int(visit.field("revision") or 0)
    except ValueError:
        revision = 0
    try:
        await visit.gateway.bindings.change(visit.principal, row.id, changes, revision)
    except GatewayError as error:
        if error.code != "binding.changed_meanwhile":
            return await _binding_page(visit, row, settings_of(row), problem=error)
        fresh = await visit.gateway.bindings.get(visit.principal, row.id)
        base = opened_settings(visit, fresh)
        return await _review_change(visit, fresh, base, {**base, **changes})
    return visit.redirect(f"/bindings/{row.id}", Notice(GOOD, "The change is saved."))


@require_session("operator")
async def enable_binding(visit: Visit) -> Response:
    return await _set_status(visit, ACTIVE, "The binding is active.")


@require_session("operator")
async def disable_binding(visit: Visit) -> Response:
    """Disable a binding, after a confirmation: running work is cancelled."""
    row = await visit.gateway.bindings.get(visit.principal, visit.request.path_params["binding_id"])
    if not is_confirmed(visit):
        text = "This cancels its running invocations, revokes its tokens and drops its waiting deliveries."
        return confirm(
            visit, Question(f"Disable {row.export_id}?", text, "Disable", f"/bindings/{row.id}", _facts(row))
        )
    return await _set_status(visit, DISABLED, "The binding is disabled.")


@require_session("operator")
async def delete_binding(visit: Visit) -> Response:
    """Delete a binding, after a confirmation; refused while it has unfinished work."""
    bindings, binding_id = visit.gateway.bindings, visit.request.path_params["binding_id"]
    row = await bindings.get(visit.principal, binding_id)
    try:
        if not is_confirmed(visit):
            await bindings.preview_delete(visit.principal, binding_id)
            text = "This removes its settings. Records of its invocations stay."
            question = Question(f"Delete {row.export_id}?", text, "Delete", f"/bindings/{row.id}", _facts(row))
            return confirm(visit, question)
        await bindings.delete(visit.principal, binding_id)
    except GatewayError as error:
        if error.status != 409:
            raise
        return await _binding_page(visit, row, settings_of(row), problem=error)
    return visit.redirect("/bindings", Notice(GOOD, f"The binding of {row.export_id} is deleted."))


def _facts(row: BindingRow) -> tuple[tuple[str, str], ...]:
    package = f"{row.package_id} {row.package_version}"
    return (("binding", row.id), ("package", package), ("where", row.project_id or row.org_id))


async def _set_status(visit: Visit, status: str, done: str) -> Response:
    row = await visit.gateway.bindings.get(visit.principal, visit.request.path_params["binding_id"])
    try:
        await visit.gateway.bindings.change(visit.principal, row.id, {"status": status})
    except GatewayError as error:
        if error.status in (403, 404):
            raise
        return await _binding_page(visit, row, settings_of(row), problem=error)
    return visit.redirect(f"/bindings/{row.id}", Notice(GOOD, done))


async def _review_change(visit: Visit, row: BindingRow, base: Settings, yours: Settings) -> Response:
    """The page with the dry run of a change that was made from `base`."""
    now = settings_of(row)
    merged = merge(base, yours, now)
    changes = {name: value for name, value in merged.settings.items() if json.dumps(value) != json.dumps(now[name])}
    document = {**changes}
    if "traffic_percent" in document:
        document["rollout"] = {"traffic_percent": document.pop("traffic_percent")}
    try:
        checked = changes_of(parse_body(BindingPatch, check_document(document)))
        result = await visit.gateway.bindings.preview_change(visit.principal, row.id, checked, row.revision)
    except GatewayError as error:
        return await _binding_page(visit, row, merged.settings, problem=error)
    before = await visit.gateway.bindings.validate(visit.principal, row.id)
    gains = () if result.verdict is None else permission_changes(before, result.verdict)
    review = Review(changes_between(now, merged.settings), result, json.dumps(document), merged, gains)
    return await _binding_page(visit, row, merged.settings, review=review)


async def _binding_page(
    visit: Visit,
    row: BindingRow,
    settings: Settings,
    *,
    review: Review | None = None,
    problem: GatewayError | None = None,
    fields: tuple[forms.Field, ...] = (),
) -> Response:
    gateway = visit.gateway
    verdict = await gateway.bindings.validate(visit.principal, row.id)
    export = await _export_of(visit, row, settings["package_version"])
    same = await gateway.bindings.page(
        visit.principal, Page(MOST), org_id=row.org_id, export_id=row.export_id, status=ACTIVE
    )
    versions = await gateway.packages.page(visit.principal, Page(MOST), package_id=row.package_id)
    status, notice = 200, None
    if problem is not None:
        status, notice = problem.status, failed(problem)
    elif review is not None and review.is_conflict:
        status = 409
        notice = Notice(
            WARN,
            "Another operator changed this binding after you opened it. Your change is not saved yet.",
        )
    elif review is not None and not review.result.accepted:
        notice = Notice(BAD, "The server would refuse this change.")
    return visit.page(
        "binding.html",
        status,
        notice,
        row=row,
        tone=STATUS_TONES.get(row.status, "calm"),
        verdict=verdict,
        permissions=permission_facts(verdict),
        traffic=shared_traffic(row, same.items),
        versions=sorted({each.version for each in versions.items if each.org_id in (None, row.org_id)}, reverse=True),
        base=json.dumps(settings_of(row)),
        review=review,
        problem=problem,
        action=f"/bindings/{row.id}:check",
        subscribed=list(export.facts.get("subscribes_to", ())) if row.export_kind == "hook" else [],
        **form_values(visit, export, settings, problem is not None, fields),
    )


async def _export_of(visit: Visit, row: BindingRow, version: str) -> Export:
    """The export of a binding, of another version if there is one; it has the schema of the settings."""
    bound = await visit.gateway.bindings.bound(row.id)
    if bound is None:
        raise not_found("binding", row.id)
    if version and version != row.package_version:
        part = await visit.gateway.packages.page(
            visit.principal, Page(MOST), package_id=row.package_id, version=version
        )
        for package in part.items:
            if package.org_id in (None, row.org_id):
                return await visit.gateway.packages.export(package, row.export_id) or bound.export
    return bound.export
