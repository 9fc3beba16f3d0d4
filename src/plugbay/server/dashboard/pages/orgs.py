"""Pages of orgs and their projects. They list and change what the API lists and changes for the same token."""

from __future__ import annotations

from msgspec.structs import replace
from starlette.responses import Response

from plugbay.server.api.models import parse_page
from plugbay.server.api.routes.orgs import OrgIn, OrgPatch, ProjectIn
from plugbay.server.dashboard import forms
from plugbay.server.dashboard.actions import check_document, failed, parse_body
from plugbay.server.dashboard.authentication import ANY_PERSON, Notice, Visit, require_session
from plugbay.server.dashboard.tables import SHOWN, Cell, Filter, NextStep, Table, query_of, table_of
from plugbay.server.dashboard.views.tones import GOOD
from plugbay.server.domain.errors import GatewayError, invalid
from plugbay.server.domain.policy import PolicyDocument
from plugbay.store.orgs import Org, Project

POLICY = "policy:"
"""Prefix of the fields of a policy in a form."""

SIMPLE = (forms.INTEGER, forms.FLAG, forms.CHOICE)

POLICY_FIELDS = tuple(
    field if field.kind in SIMPLE else replace(field, kind=forms.JSON)
    for field in forms.fields_of(PolicyDocument.model_json_schema()) or ()
)
"""Lists are JSON: an empty one allows nothing, and a missing one everything."""

NO_ORGS = NextStep(
    "No orgs yet",
    "An org is a tenant with its own keys, bindings and records. Create one above, or with a command:",
    'plugbay org create "Tea shop" --id tea',
)

WAYS = (
    ("/bindings?org={}", "Bindings", "viewer"),
    ("/bindings/new?org={}", "New binding", "operator"),
    ("/secrets?org={}", "Secrets", "operator"),
    ("/invocations?org={}", "Invocations", "viewer"),
    ("/keys?org={}", "Keys", "admin"),
    ("/audit?org={}", "Audit", "admin"),
)
"""Lists of the records of an org, and the role that sees each."""


@require_session(ANY_PERSON)
async def show_orgs(visit: Visit) -> Response:
    """The orgs that the visitor can see."""
    return await _orgs_page(visit)


@require_session("admin")
async def create_org(visit: Visit) -> Response:
    try:
        body = parse_body(OrgIn, {name: visit.field(name).strip() for name in ("name", "id")})
        org = await visit.gateway.orgs.create(visit.principal, body.name, body.policy, body.id)
    except GatewayError as error:
        return await _orgs_page(visit, error)
    return visit.redirect(f"/orgs/{org.id}", Notice(GOOD, f"{org.name} is created.", "Next: a key, or a binding."))


async def _orgs_page(visit: Visit, problem: GatewayError | None = None) -> Response:
    search, cursor = visit.query("search"), visit.query("cursor")
    part = await visit.gateway.orgs.page(visit.principal, parse_page(SHOWN, cursor or None), search)
    table = table_of(
        "Orgs",
        "/orgs",
        ("Org", "Limits", "Since"),
        part,
        org_row,
        filters=(Filter("search", "Search", search, hint="part of a name or id"),),
        empty=NO_ORGS,
        cursor=cursor,
    )
    typed = {name: visit.field(name) for name in ("name", "id")}
    notice = None if problem is None else failed(problem)
    status = 200 if problem is None else problem.status
    return visit.page("orgs.html", status, notice, table=table, problem=problem, typed=typed)


def org_row(org: Org) -> tuple[Cell, ...]:
    limits = ", ".join(sorted(org.policy)) or "none"
    return Cell(org.name, org.id, f"/orgs/{org.id}"), Cell(limits), Cell(at=org.created_at)


@require_session(ANY_PERSON)
async def show_org(visit: Visit) -> Response:
    """One org: its projects and its limits."""
    return await _org_page(visit)


@require_session("admin")
async def update_org(visit: Visit) -> Response:
    """Change the name and the limits of an org."""
    org_id = visit.request.path_params["org_id"]
    try:
        policy = forms.input_of(POLICY_FIELDS, forms.with_prefix(POLICY, visit.form))
        body = parse_body(OrgPatch, {"name": visit.field("name").strip()})
        name = body.name or (await visit.gateway.orgs.get(visit.principal, org_id)).name
        await visit.gateway.orgs.change(visit.principal, org_id, name=name, policy=check_document(policy))
    except forms.Invalid as error:
        problem = invalid("request.invalid", error.problem)
        return await _org_page(visit, problem, "org", error.fields)
    except GatewayError as error:
        if error.status == 404:
            raise
        return await _org_page(visit, error, "org")
    return visit.redirect(f"/orgs/{org_id}", Notice(GOOD, "Name and limits are saved."))


@require_session("admin")
async def create_project(visit: Visit) -> Response:
    org_id = visit.request.path_params["org_id"]
    try:
        body = parse_body(ProjectIn, {name: visit.field(name).strip() for name in ("name", "id")})
        project = await visit.gateway.orgs.create_project(visit.principal, org_id, body.name, body.id)
    except GatewayError as error:
        if error.status == 404:
            raise
        return await _org_page(visit, error, "project")
    return visit.redirect(f"/orgs/{org_id}", Notice(GOOD, f"The project {project.name} is created."))


async def _org_page(
    visit: Visit, problem: GatewayError | None = None, form: str = "", fields: tuple[forms.Field, ...] = ()
) -> Response:
    org = await visit.gateway.orgs.get(visit.principal, visit.request.path_params["org_id"])
    limits = forms.fill(POLICY_FIELDS, org.policy)
    if form == "org":
        limits = fields or forms.refill(POLICY_FIELDS, forms.with_prefix(POLICY, visit.form))
    typed = {name: visit.field(name) if form == "project" else "" for name in ("name", "id")}
    return visit.page(
        "org.html",
        200 if problem is None else problem.status,
        None if problem is None else failed(problem),
        org=org,
        table=await _projects(visit, org),
        limits=limits,
        ways=[(link.format(org.id), label, role) for link, label, role in WAYS],
        problem=problem,
        form=form,
        wanted=visit.query("new"),
        typed={**typed, "org_name": visit.field("name") if form == "org" else org.name},
    )


async def _projects(visit: Visit, org: Org) -> Table:
    search, cursor = visit.query("search"), visit.query("cursor")
    page = parse_page(SHOWN, cursor or None)
    part = await visit.gateway.orgs.projects(visit.principal, org.id, page, search)
    empty = NextStep(
        "No projects yet",
        "A project separates bindings and keys within the org. It is optional.",
        f'plugbay project create {org.id} "Autumn menu"',
        "New project" if visit.principal.has_role("admin") else "",
        f"/orgs/{org.id}?new=1#new" if visit.principal.has_role("admin") else "",
    )
    filters = (Filter("search", "Search", search, hint="part of a name or id"),)
    columns = ("Project", "Since")
    return table_of(
        "Projects", f"/orgs/{org.id}", columns, part, project_row, filters=filters, empty=empty, cursor=cursor
    )


def project_row(project: Project) -> tuple[Cell, ...]:
    link = f"/bindings?{query_of({'org': project.org_id, 'project': project.id})}"
    return Cell(project.name, project.id, link), Cell(at=project.created_at)
