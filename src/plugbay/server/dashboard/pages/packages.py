"""Pages of packages: list, upload, pull from a registry, what a package asks for, delete."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
from starlette.responses import Response

from plugbay.model.spec import Export
from plugbay.packages.documents import MAX_BYTES
from plugbay.packages.rules import DEFAULT_LIMITS
from plugbay.server.api.models import parse_page
from plugbay.server.api.routes.packages import SourceIn
from plugbay.server.dashboard.actions import Question, confirm, failed, is_confirmed, parse_body
from plugbay.server.dashboard.authentication import ANY_PERSON, Notice, Visit, require_session
from plugbay.server.dashboard.tables import SHOWN, Cell, Filter, NextStep, Table, query_of, table_of
from plugbay.server.dashboard.uploads import require_upload
from plugbay.server.dashboard.views.bindings import STATUS_TONES
from plugbay.server.dashboard.views.tones import GOOD, WARN
from plugbay.server.domain.errors import GatewayError, invalid
from plugbay.server.domain.packages import AVAILABLE, QUARANTINED
from plugbay.store.packages import PackageRow

FILES = {"archive": DEFAULT_LIMITS.packed, "signature": MAX_BYTES}
"""Files of the form, and their maximum of bytes; the same as over the API."""

COLUMNS = ("Package", "Status", "Signature", "Org", "Since")


class ExportFacts(msgspec.Struct, frozen=True):
    """An export of a package, with what it asks for."""

    name: str
    kind: str
    description: str
    asks: tuple[tuple[str, str], ...]
    bind: str
    """The query of the page that binds it; empty if it cannot be bound."""


@require_session(ANY_PERSON)
async def show_packages(visit: Visit) -> Response:
    """Packages of the visitor's org, and shared ones."""
    return await _packages_page(visit)


@require_upload("admin", FILES)
async def upload_package(visit: Visit, files: Mapping[str, Path]) -> Response:
    """Store an uploaded package. It runs nothing before it is bound."""
    try:
        if "archive" not in files:
            raise invalid("request.invalid", "choose the file of a package", "archive")
        signature = files.get("signature")
        data = None if signature is None else await asyncio.to_thread(signature.read_bytes)
        row, new = await visit.gateway.packages.upload(visit.principal, files["archive"], data)
    except GatewayError as error:
        return await _packages_page(visit, error)
    return visit.redirect(f"/packages/{row.id}", _stored(row, new))


@require_session("admin")
async def pull_package(visit: Visit) -> Response:
    """Store a package of a registry."""
    try:
        body = parse_body(SourceIn, {"source": visit.field("source").strip()})
        row, new = await visit.gateway.packages.pull(visit.principal, body.source)
    except GatewayError as error:
        return await _packages_page(visit, error)
    return visit.redirect(f"/packages/{row.id}", _stored(row, new))


def _stored(row: PackageRow, new: bool) -> Notice:
    if row.status == QUARANTINED:
        why = f"its signature is {row.signature_status}"
        return Notice(WARN, f"{row.package_id} {row.version} is quarantined: {why}.", "It cannot be bound.")
    text = f"{row.package_id} {row.version} is {'added' if new else 'here already'}."
    return Notice(GOOD, text, "Next: check its permissions, and bind an export.")


@require_session(ANY_PERSON)
async def show_package(visit: Visit) -> Response:
    """One package: its signature, and its exports with what each asks for."""
    return await _package_page(visit)


@require_session("admin")
async def delete_package(visit: Visit) -> Response:
    """Delete a package that nothing uses, after a confirmation."""
    row = await visit.gateway.packages.get(visit.principal, visit.request.path_params["package"])
    if not is_confirmed(visit):
        text = "Only the same contents can be added again under this version."
        facts = (("package", f"{row.package_id} {row.version}"), ("digest", row.digest))
        return confirm(visit, Question(f"Delete {row.package_id}?", text, "Delete", f"/packages/{row.id}", facts))
    try:
        await visit.gateway.packages.delete(visit.principal, row.id)
    except GatewayError as error:
        if error.status != 409:
            raise
        return await _package_page(visit, error)
    return visit.redirect("/packages", Notice(GOOD, f"{row.package_id} {row.version} is deleted."))


async def _packages_page(visit: Visit, problem: GatewayError | None = None) -> Response:
    return visit.page(
        "packages.html",
        200 if problem is None else problem.status,
        None if problem is None else failed(problem),
        table=await _table(visit),
        source=visit.field("source"),
        most=DEFAULT_LIMITS.packed >> 20,
        problem=problem,
    )


async def _table(visit: Visit) -> Table:
    search, status, cursor = (visit.query(name) for name in ("search", "status", "cursor"))
    page = parse_page(SHOWN, cursor or None)
    part = await visit.gateway.packages.page(visit.principal, page, search=search, status=status or None)
    filters = (
        Filter("search", "Search", search, hint="part of a package id"),
        Filter("status", "Status", status, (AVAILABLE, QUARANTINED)),
    )
    may = visit.principal.has_role("admin")
    how = "Upload one above, or add it with a command:" if may else "An admin adds them."
    text = f"A package has exports that orgs can bind: tools, hooks, compactors and harnesses. {how}"
    command = "plugbay package add weather-1.0.0.tar.gz" if may else ""
    empty = NextStep("No packages yet", text, command)
    return table_of("Packages", "/packages", COLUMNS, part, package_row, filters=filters, empty=empty, cursor=cursor)


def package_row(row: PackageRow) -> tuple[Cell, ...]:
    return (
        Cell(row.package_id, row.version, f"/packages/{row.id}"),
        Cell(row.status, tone=STATUS_TONES.get(row.status, "calm")),
        Cell(row.signature_status, row.key_id or ""),
        Cell(row.org_id or "all orgs"),
        Cell(at=row.created_at),
    )


async def _package_page(visit: Visit, problem: GatewayError | None = None) -> Response:
    row = await visit.gateway.packages.get(visit.principal, visit.request.path_params["package"])
    found = await visit.gateway.packages.load(row)
    await visit.gateway.packages.fetch(row)
    signature = await asyncio.to_thread(visit.gateway.releases.read_signature, row)
    may_bind = visit.principal.has_role("operator") and row.status == AVAILABLE
    exports = () if found.spec is None else found.spec.exports
    return visit.page(
        "package.html",
        200 if problem is None else problem.status,
        None if problem is None else failed(problem),
        row=row,
        tone=STATUS_TONES.get(row.status, "calm"),
        publisher=signature.publisher or "",
        exports=[export_facts(row, export, may_bind) for export in exports],
        may_delete=visit.principal.has_role("admin")
        and visit.principal.project_id is None
        and (row.org_id is not None or visit.principal.org_id is None),
    )


def export_facts(row: PackageRow, export: Export, may_bind: bool) -> ExportFacts:
    asked: Mapping[str, Any] = export.facts.get("permissions") or {}
    asks = [
        ("network", str(asked.get("network", "none"))),
        ("files", str(asked.get("filesystem", "none"))),
        ("API scopes", ", ".join(asked.get("gateway_api_scopes", ())) or "none"),
        ("secrets", ", ".join(asked.get("secret_slots", ())) or "none"),
        ("isolation", str(export.facts.get("execution_class") or "isolated")),
    ]
    bind = query_of({"package": row.id, "export": export.name}) if may_bind else ""
    return ExportFacts(export.name, export.kind, export.description, tuple(asks), bind)
