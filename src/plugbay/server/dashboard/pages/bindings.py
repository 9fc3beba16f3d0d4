"""Pages of bindings: list, create, change, roll out, enable, disable, delete.

Every change is a dry run first: the page shows the difference and the validation, and the button saves exactly that,
if the binding still has the revision that was shown. A second operator gets both values instead of overwriting one.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from starlette.responses import Response

from plugbay.model.spec import Export
from plugbay.server.api.middleware import parse_json
from plugbay.server.api.models import MOST, parse_page
from plugbay.server.api.routes.bindings import BindingIn, BindingPatch, changes_of, draft_of
from plugbay.server.dashboard import forms
from plugbay.server.dashboard.actions import (
    OrgChoice,
    Question,
    check_document,
    confirm,
    failed,
    is_confirmed,
    offer_orgs,
    parse_body,
)
from plugbay.server.dashboard.authentication import ANY_PERSON, Notice, Visit, require_session
from plugbay.server.dashboard.pages.orgs import POLICY, POLICY_FIELDS
from plugbay.server.dashboard.tables import SHOWN, Filter, NextStep, query_of, table_of
from plugbay.server.dashboard.views.bindings import (
    BINDING_COLUMNS,
    STATUS_TONES,
    Change,
    ConfigForm,
    Merge,
    Settings,
    binding_row,
    changes_between,
    config_form,
    defaults_of,
    merge,
    permission_changes,
    permission_facts,
    settings_of,
    shared_traffic,
    slots_of,
)
from plugbay.server.dashboard.views.tones import BAD, GOOD, WARN
from plugbay.server.domain.bindings import ACTIVE, DISABLED, DRAFT, DryRun
from plugbay.server.domain.errors import GatewayError, invalid, not_found
from plugbay.server.domain.packages import ListedExport
from plugbay.server.domain.secrets import parse_reference
from plugbay.store.bindings import BindingRow
from plugbay.store.packages import PackageRow
from plugbay.store.pages import Page

KINDS = ("tool", "hook", "compactor", "harness")
STATUSES = (ACTIVE, DRAFT, DISABLED)

CONFIG, SLOT = "config:", "secret:"
"""Prefixes of the fields of a form."""

NEW_SETTINGS: Settings = {
    "package_version": "",
    "config": {},
    "secrets": {},
    "policy": {},
    "status": ACTIVE,
    "traffic_percent": 100,
}


@dataclass(frozen=True, slots=True)
class Review:
    """The dry run of a change, and the form that makes it."""

    changes: tuple[Change, ...]
    result: DryRun
    document: str
    """The request that the button sends, as JSON."""
    merged: Merge | None = None
    """Set when another operator has changed the binding meanwhile."""
    permissions: tuple[Change, ...] = ()
    """What the plugin gets more or less than before."""

    @property
    def is_conflict(self) -> bool:
        return self.merged is not None and bool(self.merged.theirs)


# The list.


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


# A new one.


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
        settings = _typed(visit, export, base)
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
    body = parse_body(BindingIn, _document(visit))
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
    form = _form(visit, export, settings, problem is not None, fields)
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
    base = _base(visit, row)
    export = await _export_of(visit, row, visit.field("package_version"))
    try:
        yours = _typed(visit, export, base)
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
    document = _document(visit)
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
        base = _base(visit, fresh)
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
        text = "Running invocations are cancelled, its tokens end, and waiting deliveries are dropped."
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
            text = "Its settings are gone then. Records of its invocations stay."
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
            "Another operator changed this binding after you opened it. Your change is not saved yet, and not lost.",
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
        **_form(visit, export, settings, problem is not None, fields),
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


# Forms.


def _document(visit: Visit) -> dict[str, Any]:
    """The request in a form of a dry run; raises `request.invalid_json`."""
    found = parse_json(visit.field("document").encode())
    return found if isinstance(found, dict) else {}


def _base(visit: Visit, row: BindingRow) -> Settings:
    """The settings that the page was opened with; those of now if the form has none."""
    try:
        found = forms.input_of_json(visit.field("base"))
    except forms.Invalid:
        found = {}
    now = settings_of(row)
    usable = isinstance(found, dict) and all(type(found.get(name)) is type(now[name]) for name in now)
    return {name: found[name] for name in now} if usable else now


def _typed(visit: Visit, export: Export, base: Mapping[str, Any]) -> Settings:
    """The settings of a submitted form; parts that it does not have are those of `base`. Raises `Invalid`."""
    settings, parts = dict(base), visit.form.get("part", ())
    if "traffic" in parts:
        settings["traffic_percent"] = _percent(visit.field("traffic_percent"))
    if "settings" not in parts:
        return settings
    settings["package_version"] = visit.field("package_version") or settings["package_version"]
    settings["status"] = visit.field("status") or settings["status"]
    settings["secrets"] = {
        slot: visit.field(SLOT + slot).strip() for slot in slots_of(export) if visit.field(SLOT + slot).strip()
    }
    settings["config"] = _typed_config(visit, export)
    settings["policy"] = forms.input_of(POLICY_FIELDS, forms.with_prefix(POLICY, visit.form))
    return settings


def _typed_config(visit: Visit, export: Export) -> dict[str, Any]:
    if "config_json" in visit.form:
        found = forms.input_of_json(visit.field("config_json"))
        if not isinstance(found, dict):
            raise forms.Invalid("the settings must be a JSON object")
        return found
    fields = forms.fields_of(export.facts.get("config_schema")) or ()
    return forms.input_of(fields, forms.with_prefix(CONFIG, visit.form))


def _percent(text: str) -> int:
    if not text.isascii() or not text.isdigit() or int(text) > 100:
        raise forms.Invalid("the traffic is a whole number from 0 to 100")
    return int(text)


def _form(
    visit: Visit, export: Export, settings: Settings, refused: bool, fields: tuple[forms.Field, ...]
) -> dict[str, Any]:
    """The fields of the form of a binding. A refused form shows what was typed, and marks what is wrong."""
    schema = export.facts.get("config_schema")
    config = config_form(schema, settings["config"], visit.query("as") == "json")
    policy = forms.fill(POLICY_FIELDS, settings["policy"])
    slots = [(slot, settings["secrets"].get(slot, "")) for slot in slots_of(export)]
    percent, version = settings["traffic_percent"], settings["package_version"]
    if refused and "settings" in visit.form.get("part", ()):
        config = _refilled(visit, schema, config, fields)
        policy = forms.refill(POLICY_FIELDS, forms.with_prefix(POLICY, visit.form))
        if fields and fields[0].key in {field.key for field in POLICY_FIELDS}:
            policy = fields
        slots = [(slot, visit.field(SLOT + slot)) for slot in slots_of(export)]
        version = visit.field("package_version") or version
    shown = [(slot, text if parse_reference(text) else "") for slot, text in slots]
    return {
        "config": config,
        "policy": policy,
        "limited": any(field.value for field in policy),
        "slots": shown,
        "percent": percent,
        "version": version,
        "status_now": settings["status"],
        "settings": settings,
        "statuses": [(name, name) for name in STATUSES],
    }


def _refilled(visit: Visit, schema: Any, config: ConfigForm, fields: tuple[forms.Field, ...]) -> ConfigForm:
    if "config_json" in visit.form:
        return ConfigForm(None, visit.field("config_json"), config.can_be_fields)
    own = forms.fields_of(schema) or ()
    marked = fields if fields and {field.key for field in fields} == {field.key for field in own} else ()
    return ConfigForm(marked or forms.refill(own, forms.with_prefix(CONFIG, visit.form)), config.json, True)
