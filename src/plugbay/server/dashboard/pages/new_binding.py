"""Pages that bind an export: choose one, fill its form, see a dry run, create the binding that it has shown."""

from __future__ import annotations

import json
from typing import Any

from starlette.responses import Response

from plugbay.model.spec import Export
from plugbay.server.api.models import MOST
from plugbay.server.api.routes.bindings import BindingIn, draft_of
from plugbay.server.dashboard import forms
from plugbay.server.dashboard.actions import OrgChoice, check_document, failed, offer_orgs, parse_body
from plugbay.server.dashboard.authentication import Notice, Visit, require_session
from plugbay.server.dashboard.pages.binding_forms import Review, form_values, read_document, typed_settings
from plugbay.server.dashboard.pages.bindings import KINDS
from plugbay.server.dashboard.tables import query_of
from plugbay.server.dashboard.views.bindings import (
    Change,
    Settings,
    changes_between,
    defaults_of,
    settings_of,
    slots_of,
)
from plugbay.server.dashboard.views.tones import GOOD
from plugbay.server.domain.bindings import ACTIVE
from plugbay.server.domain.errors import GatewayError, invalid, not_found
from plugbay.server.domain.packages import ListedExport
from plugbay.store.packages import PackageRow
from plugbay.store.pages import Page

NEW_SETTINGS: Settings = {
    "package_version": "",
    "config": {},
    "secrets": {},
    "policy": {},
    "status": ACTIVE,
    "traffic_percent": 100,
}


@require_session("operator")
async def show_new(visit: Visit) -> Response:
    """The exports that can be bound; with one chosen, its form and a dry run of what the form proposes."""
    if not visit.query("export"):
        return await _choose_export(visit)
    package, export = await _chosen(visit)
    offer, settings = await _offer(visit), {**NEW_SETTINGS, "package_version": package.version}
    settings["config"] = defaults_of(export.facts.get("config_schema"))
    settings["secrets"] = await _known_secrets(visit, offer.chosen, export)
    try:
        review = await _review_new(visit, package, export, offer.chosen, visit.query("project"), settings)
    except GatewayError:
        review = None  # the org must be chosen first
    return _new_page(visit, package, export, offer, settings, review)


@require_session("operator")
async def check_new(visit: Visit) -> Response:
    """Judge a new binding, without creating it."""
    package, export = await _chosen(visit)
    offer = await _offer(visit)
    base = {**NEW_SETTINGS, "package_version": package.version}
    try:
        settings = typed_settings(visit, export, base)
        review = await _review_new(visit, package, export, offer.chosen, visit.field("project"), settings)
    except forms.Invalid as error:
        problem = invalid("request.invalid", error.problem)
        return _new_page(visit, package, export, offer, base, None, problem, error.fields)
    except GatewayError as error:
        return _new_page(visit, package, export, offer, base, None, error)
    return _new_page(visit, package, export, offer, settings, review)


@require_session("operator")
async def create_binding(visit: Visit) -> Response:
    """Create the binding that a dry run has shown."""
    body = parse_body(BindingIn, read_document(visit))
    row = await visit.gateway.bindings.create(visit.principal, draft_of(body))
    return visit.redirect(f"/bindings/{row.id}", Notice(GOOD, f"{row.export_id} is bound for {row.org_id}."))


async def _choose_export(visit: Visit) -> Response:
    """The exports to choose from; a search looks at all of them."""
    scope = {name: visit.query(name) for name in ("org", "project")}
    words = visit.query("search").lower()
    found = [
        each
        for kind in KINDS
        for each in await _exports(visit, kind, scope["org"] or None)
        if words in f"{each.package.package_id}/{each.export.name}".lower()
    ]
    links = [query_of({"package": each.package.id, "export": each.export.name, **scope}) for each in found[:MOST]]
    return visit.page(
        "binding_exports.html",
        exports=list(zip(found[:MOST], links, strict=True)),
        hidden=max(0, len(found) - MOST),
        search=visit.query("search"),
        org=scope["org"],
        project=scope["project"],
    )


async def _exports(visit: Visit, kind: str, org_id: str | None) -> list[ListedExport]:
    exports: list[ListedExport] = []
    page: Page | None = Page(MOST)
    while page is not None:
        part = await visit.gateway.packages.exports(visit.principal, kind, page, org_id)
        exports += part.items
        page = None if part.after is None else Page(MOST, part.after)
    return exports


async def _chosen(visit: Visit) -> tuple[PackageRow, Export]:
    """The package and the export in the query; raises `not_found`."""
    package = await visit.gateway.packages.get(visit.principal, visit.query("package"))
    export = await visit.gateway.packages.export(package, visit.query("export"))
    if export is None:
        raise not_found("export", visit.query("export"))
    return package, export


async def _offer(visit: Visit) -> OrgChoice:
    return await offer_orgs(visit, visit.field("org") or visit.query("org") or visit.principal.org_id or "")


async def _known_secrets(visit: Visit, org_id: str, export: Export) -> dict[str, str]:
    """References to secrets of the org that are named as the slots are."""
    slots = slots_of(export)
    if not slots or not org_id:
        return {}
    names = {row.name for row in await _secrets(visit, org_id)}
    return {slot: f"secret://{org_id}/{slot}" for slot in slots if slot in names}


async def _secrets(visit: Visit, org_id: str) -> tuple[Any, ...]:
    try:
        return (await visit.gateway.secrets.page(visit.principal, Page(MOST), org_id, None)).items
    except GatewayError:
        return ()


async def _review_new(
    visit: Visit, package: PackageRow, export: Export, org_id: str, project_id: str, settings: Settings
) -> Review:
    document = {
        "package_id": package.package_id,
        "package_version": package.version,
        "export_id": export.name,
        "scope": {"org_id": org_id, "project_id": project_id.strip() or visit.principal.project_id},
        "config": settings["config"],
        "secrets": settings["secrets"],
        "policy": settings["policy"],
        "status": settings["status"],
        "rollout": {"traffic_percent": settings["traffic_percent"]},
    }
    body = parse_body(BindingIn, check_document(document))
    result = await visit.gateway.bindings.preview_create(visit.principal, draft_of(body))
    assert result.after is not None
    scope = tuple(
        Change(name, None, id)
        for name, id in (("org", result.after.org_id), ("project", result.after.project_id))
        if id
    )
    return Review((*scope, *changes_between({}, settings_of(result.after))), result, json.dumps(document))


def _new_page(
    visit: Visit,
    package: PackageRow,
    export: Export,
    offer: OrgChoice,
    settings: Settings,
    review: Review | None,
    problem: GatewayError | None = None,
    fields: tuple[forms.Field, ...] = (),
) -> Response:
    chosen = {"package": package.id, "export": export.name}
    form = form_values(visit, export, settings, problem is not None, fields)
    return visit.page(
        "binding_new.html",
        200 if problem is None else problem.status,
        None if problem is None else failed(problem),
        package=package,
        export=export,
        offer=offer,
        project=visit.field("project") or visit.query("project") or visit.principal.project_id or "",
        action=f"/bindings/new?{query_of(chosen)}",
        review=review,
        problem=problem,
        **form,
    )
