"""Pages of the secrets of orgs and projects: names, versions and users; set and delete. No page has a value."""

from __future__ import annotations

import re

from starlette.responses import Response

from plugbay.host.recording.redaction import SHORTEST
from plugbay.server.api.models import parse_page
from plugbay.server.api.routes.secrets import MAX_VALUE, SecretIn, scope_of
from plugbay.server.dashboard.actions import Question, confirm, failed, is_confirmed, offer_orgs, parse_body
from plugbay.server.dashboard.authentication import Notice, Visit, require_session
from plugbay.server.dashboard.tables import SHOWN, Cell, Filter, NextStep, Table, query_of, table_of
from plugbay.server.dashboard.views.bindings import BINDING_COLUMNS, binding_row
from plugbay.server.dashboard.views.tones import GOOD
from plugbay.server.domain.errors import GatewayError, invalid
from plugbay.server.domain.secrets import SECRET_NAME, SecretRef, SecretScope
from plugbay.store.bindings import BindingRow
from plugbay.store.pages import Part
from plugbay.store.secrets import SecretRow

COLUMNS = ("Secret", "Where", "Version", "Used by", "Changed", "Since")

MAX_NAMED = 10
"""Bindings that a confirmation names."""


@require_session("operator")
async def show_secrets(visit: Visit) -> Response:
    return await _secrets_page(visit)


@require_session("admin")
async def set_secret(visit: Visit) -> Response:
    """Set a secret. The value is in no answer, also if it is refused."""
    typed = _typed(visit)
    try:
        if not re.fullmatch(SECRET_NAME, typed["name"], re.ASCII):
            text = "a name has up to 128 letters, digits, dots, dashes and underscores, a letter or digit first"
            raise invalid("request.invalid", text, "name")
        if not SHORTEST <= len(visit.field("value")) <= MAX_VALUE:
            raise invalid("request.invalid", f"a value has {SHORTEST} to {MAX_VALUE:,} characters", "value")
        given = {"value": visit.field("value"), "org_id": typed["org"], "project_id": typed["project"]}
        body = parse_body(SecretIn, given)
        scope = scope_of(visit.principal, body.org_id, body.project_id)
        row, is_new = await visit.gateway.secrets.put(
            visit.principal, scope, typed["name"], body.value.get_secret_value()
        )
    except GatewayError as error:
        return await _secrets_page(visit, error)
    done = f"{row.name} is set." if is_new else f"{row.name} has a new value, version {row.version}."
    return visit.redirect(_path(row), Notice(GOOD, done, "It applies from the next invocation."))


@require_session("operator")
async def show_secret(visit: Visit) -> Response:
    """One secret: its reference, its version, and the bindings that use it."""
    row = await _asked(visit)
    users = (await visit.gateway.bindings.using_secrets(visit.principal, [row]))[row.id]
    empty = NextStep("No bindings use it", f"A binding names it as {_reference(row)}.")
    table = table_of("Bindings", "/bindings", BINDING_COLUMNS, Part(tuple(users)), binding_row, filters=(), empty=empty)
    return visit.page(
        "secret.html",
        problem=None,
        row=row,
        reference=_reference(row),
        project=_scope(row).project_id or "",
        table=table,
    )


@require_session("admin")
async def delete_secret(visit: Visit) -> Response:
    """Delete a secret, after a confirmation that names its users."""
    row = await _asked(visit)
    if not is_confirmed(visit):
        users = (await visit.gateway.bindings.using_secrets(visit.principal, [row]))[row.id]
        text = "It cannot be restored. " + (
            "Invocations of the bindings that use it will fail." if users else "No binding uses it."
        )
        facts = (("secret", _reference(row)), *_named(users))
        return confirm(visit, Question(f"Delete {row.name}?", text, "Delete the secret", _path(row), facts))
    await visit.gateway.secrets.delete(visit.principal, _scope(row), row.name)
    return visit.redirect("/secrets", Notice(GOOD, f"{row.name} is deleted."))


def _named(users: list[BindingRow]) -> tuple[tuple[str, str], ...]:
    named = tuple(("used by", f"{row.export_id} ({row.status}) {row.id}") for row in users[:MAX_NAMED])
    rest = len(users) - len(named)
    return (*named, ("and", f"{rest:,} more")) if rest else named


async def _asked(visit: Visit) -> SecretRow:
    """The secret of the path; its owner is in the query, or in the form; raises `not_found`."""
    org, project = (visit.field(name) or visit.query(name) or None for name in ("org", "project"))
    scope = scope_of(visit.principal, org, project)
    return await visit.gateway.secrets.get(visit.principal, scope, visit.request.path_params["name"])


def _path(row: SecretRow) -> str:
    """The page of a secret."""
    return f"/secrets/{row.name}?{query_of({'org': row.org_id, 'project': _scope(row).project_id or ''})}"


def _scope(row: SecretRow) -> SecretScope:
    return SecretScope(row.org_id, None if row.scope == row.org_id else row.scope)


def _reference(row: SecretRow) -> str:
    return str(SecretRef(row.scope, row.name))


def _typed(visit: Visit) -> dict[str, str]:
    """All fields but the value."""
    return {name: visit.field(name).strip() for name in ("org", "project", "name")}


async def _secrets_page(visit: Visit, problem: GatewayError | None = None) -> Response:
    typed = _typed(visit)
    offer = await offer_orgs(visit, typed["org"] or visit.query("org") or visit.principal.org_id or "")
    if problem is not None and problem.param in ("org_id", "project_id"):
        problem.param = problem.param.removesuffix("_id")
    return visit.page(
        "secrets.html",
        200 if problem is None else problem.status,
        None if problem is None else failed(problem),
        table=await _table(visit),
        offer=offer,
        typed={**typed, "project": typed["project"] or visit.query("project") or visit.principal.project_id or ""},
        wanted=visit.query("new"),
        problem=problem,
    )


async def _table(visit: Visit) -> Table:
    search, org, project, cursor = (visit.query(name) for name in ("search", "org", "project", "cursor"))
    part = await visit.gateway.secrets.page(
        visit.principal, parse_page(SHOWN, cursor or None), org or None, project or None, search
    )
    users = await visit.gateway.bindings.using_secrets(visit.principal, part.items)
    filters = [Filter("search", "Search", search, hint="part of a name")]
    if visit.principal.org_id is None:
        filters.append(Filter("org", "Org", org, hint="id", scope=True))
    filters.append(Filter("project", "Project", project, hint="id", scope=True))
    empty = NextStep(
        "No secrets yet",
        "Bindings of an org or a project use a secret by its reference. Set one above, or with a command:",
        f"plugbay secret set token --org {org or visit.principal.org_id or 'tea'} < token.txt",
    )
    return table_of(
        "Secrets",
        "/secrets",
        COLUMNS,
        part,
        lambda row: secret_row(row, len(users[row.id])),
        filters=filters,
        empty=empty,
        cursor=cursor,
    )


def secret_row(row: SecretRow, users: int) -> tuple[Cell, ...]:
    return (
        Cell(row.name, _reference(row), _path(row)),
        Cell(row.org_id, _scope(row).project_id or ""),
        Cell(str(row.version), number=True),
        Cell("" if not users else "1 binding" if users == 1 else f"{users:,} bindings"),
        Cell(at=row.updated_at),
        Cell(at=row.created_at),
    )
