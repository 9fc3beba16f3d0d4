"""Pages of API keys: list, create, show once, revoke."""

from __future__ import annotations

from starlette.responses import Response

from plugbay.server.api.models import parse_page, to_seconds
from plugbay.server.api.routes.keys import KeyIn
from plugbay.server.dashboard.actions import Question, confirm, failed, is_confirmed, offer_orgs, parse_body
from plugbay.server.dashboard.authentication import Notice, Visit, require_session
from plugbay.server.dashboard.tables import SHOWN, Cell, Filter, NextStep, Table, table_of
from plugbay.server.dashboard.views.tones import BAD, GOOD, OFF, Badge
from plugbay.server.domain.errors import GatewayError
from plugbay.server.domain.principal import Role
from plugbay.store.keys import ApiKey

ROLES: dict[Role, str] = {
    "viewer": "reads",
    "operator": "also binds, invokes and cancels",
    "admin": "also manages keys, projects, packages and limits",
}
"""What each role may do; each includes those before it."""

COLUMNS = ("Key", "Org", "Role", "Status", "Ends with", "Since")


@require_session("admin")
async def show_keys(visit: Visit) -> Response:
    return await _keys_page(visit)


@require_session("admin")
async def create_key(visit: Visit) -> Response:
    """Create a key and show it once, on its own page."""
    typed = _typed(visit)
    try:
        expires = f"{typed['expires']}T23:59:59Z" if typed["expires"] else ""
        body = parse_body(
            KeyIn,
            {
                "org_id": typed["org"],
                "name": typed["name"],
                "role": typed["role"],
                "project_id": typed["project_id"],
                "expires_at": expires,
            },
        )
        made, key = await visit.gateway.keys.create(
            visit.principal, body.org_id, body.name, body.role, body.project_id, to_seconds(body.expires_at)
        )
    except GatewayError as error:
        return await _keys_page(visit, error)
    visit.session.show_later(made.id, key)
    return visit.redirect(f"/keys/{made.id}")


@require_session("admin")
async def show_key(visit: Visit) -> Response:
    """One key. The first page after its creation shows the key itself."""
    key = await visit.gateway.keys.get(visit.principal, visit.request.path_params["key_id"])
    secret = visit.session.unshown.pop(key.id, "") if visit.request.method == "GET" else ""
    state = key_status(key, visit.now)
    return visit.page(
        "key.html",
        key=key,
        secret=secret,
        state=state,
        role=next((text for role, text in ROLES.items() if role == key.role), ""),
    )


@require_session("admin")
async def revoke_key(visit: Visit) -> Response:
    """Revoke a key, after a confirmation."""
    key = await visit.gateway.keys.get(visit.principal, visit.request.path_params["key_id"])
    if not is_confirmed(visit):
        text = "The server then refuses requests with it. A revoked key cannot be restored."
        facts = (("key", key.id), ("ends with", f"…{key.hint}"), ("org", key.org_id), ("role", key.role))
        return confirm(visit, Question(f"Revoke {key.name}?", text, "Revoke the key", f"/keys/{key.id}", facts))
    await visit.gateway.keys.revoke(visit.principal, key.id)
    return visit.redirect(f"/keys/{key.id}", Notice(GOOD, f"{key.name} is revoked."))


def _typed(visit: Visit) -> dict[str, str]:
    return {name: visit.field(name).strip() for name in ("org", "name", "role", "project_id", "expires")}


async def _keys_page(visit: Visit, problem: GatewayError | None = None) -> Response:
    typed, wanted = _typed(visit), visit.query("org")
    offer = await offer_orgs(visit, typed["org"] or wanted or visit.principal.org_id or "")
    if problem is not None and problem.param in ("org_id", "expires_at"):
        problem.param = {"org_id": "org", "expires_at": "expires"}[problem.param]
    return visit.page(
        "keys.html",
        200 if problem is None else problem.status,
        None if problem is None else failed(problem),
        table=await _table(visit),
        offer=offer,
        roles=[(name, f"{name}: {text}") for name, text in ROLES.items() if visit.principal.has_role(name)],
        typed=typed,
        wanted=visit.query("new"),
        problem=problem,
    )


async def _table(visit: Visit) -> Table:
    search, org, cursor = (visit.query(name) for name in ("search", "org", "cursor"))
    page = parse_page(SHOWN, cursor or None)
    part = await visit.gateway.keys.page(visit.principal, page, org or None, search)
    filters = [Filter("search", "Search", search, hint="part of a name, id or last characters")]
    if visit.principal.org_id is None:
        filters.append(Filter("org", "Org", org, hint="id", scope=True))
    empty = NextStep(
        "No keys yet",
        "A program needs a key to use the API. Create one above, or with a command:",
        f"plugbay key create --org {org or visit.principal.org_id or 'tea'} --name ci --role operator",
    )
    if visit.principal.org_id is None and not (await offer_orgs(visit)).ids:
        empty = NextStep("No orgs yet", "A key belongs to an org: create one first.", "", "Create an org", "/orgs#new")
    now = visit.now
    return table_of(
        "Keys", "/keys", COLUMNS, part, lambda key: key_row(key, now), filters=filters, empty=empty, cursor=cursor
    )


def key_row(key: ApiKey, now: float) -> tuple[Cell, ...]:
    status = key_status(key, now)
    return (
        Cell(key.name, key.id, f"/keys/{key.id}"),
        Cell(key.org_id, key.project_id or ""),
        Cell(key.role),
        Cell(status.word, tone=status.tone),
        Cell(f"…{key.hint}", mono=True),
        Cell(at=key.created_at),
    )


def key_status(key: ApiKey, now: float) -> Badge:
    if key.revoked_at is not None:
        return Badge("revoked", OFF)
    expired = key.expires_at is not None and key.expires_at <= now
    return Badge("expired", BAD) if expired else Badge("active", GOOD)
