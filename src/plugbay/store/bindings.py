"""Bindings of exports to orgs and projects. An update names the revision it was made from (optimistic locking)."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import msgspec
from msgspec.structs import asdict
from sqlalchemy import Row, Select, String, and_, bindparam, cast, insert, or_, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from plugbay.store.pages import Page, Part, matching, select_page
from plugbay.store.statements import Prepared
from plugbay.store.tables import BINDINGS, COMPACTIONS, DELIVERIES, HARNESS_EXECUTIONS, INVOCATIONS, ORGS, PACKAGES

FILTERS = ("package_id", "package_version", "export_id", "export_kind", "project_id", "status")

MAX_NAMED = 20
"""Ids of each kind that `unfinished_work` returns."""

_STATUS = Prepared(select(BINDINGS.c.status).where(BINDINGS.c.id == bindparam("binding")).with_for_update(read=True))


class BindingRow(msgspec.Struct, frozen=True):
    """One export bound to an org or project."""

    id: str
    package_row: str
    """Row id of the package: a binding never moves to a package of another owner."""
    package_id: str
    package_version: str
    export_id: str
    export_kind: str
    org_id: str
    project_id: str | None
    config: dict[str, Any]
    secrets: dict[str, str]
    """References, `secret://…`."""
    policy: dict[str, Any]
    status: str
    traffic_percent: int
    revision: int
    created_at: float
    updated_at: float


async def add(tx: AsyncConnection, row: BindingRow) -> None:
    """Insert a binding."""
    await tx.execute(insert(BINDINGS).values(_values(row)))


async def replace(tx: AsyncConnection, row: BindingRow) -> bool:
    """Replace a binding; False when another request has changed it meanwhile."""
    statement = update(BINDINGS).where(BINDINGS.c.id == row.id, BINDINGS.c.revision == row.revision - 1)
    return bool((await tx.execute(statement.values(_values(row)))).rowcount)


async def delete(tx: AsyncConnection, id: str) -> None:
    """Delete a binding. Records of its work stay."""
    await tx.execute(BINDINGS.delete().where(BINDINGS.c.id == id))


async def unfinished_work(tx: AsyncConnection, id: str) -> dict[str, list[str]]:
    """Ids of everything that runs or waits for a binding, by kind; kinds without any are left out."""
    kinds = (
        ("invocations", INVOCATIONS, INVOCATIONS.c.status.is_(None)),
        ("deliveries", DELIVERIES, DELIVERIES.c.status.in_(("pending", "delivering"))),
        ("compactions", COMPACTIONS, COMPACTIONS.c.status.in_(("queued", "running"))),
        ("executions", HARNESS_EXECUTIONS, HARNESS_EXECUTIONS.c.status.in_(("queued", "running"))),
    )
    found = {}
    for kind, table, unfinished in kinds:
        query = select(table.c.id).where(table.c.binding_id == id, unfinished).order_by(table.c.id).limit(MAX_NAMED)
        found[kind] = list((await tx.execute(query)).scalars())
    return {kind: ids for kind, ids in found.items() if ids}


async def get(tx: AsyncConnection, id: str) -> BindingRow | None:
    """Find a binding by id."""
    found = (await tx.execute(select(BINDINGS).where(BINDINGS.c.id == id))).first()
    return None if found is None else _row(found)


async def lock_org(tx: AsyncConnection, org_id: str) -> None:
    """Lock the bindings of an org until the transaction ends, because their limits add up."""
    # FOR NO KEY UPDATE: inserts that reference the org need not wait.
    await tx.execute(select(ORGS.c.id).where(ORGS.c.id == org_id).with_for_update(key_share=True))


async def is_active(tx: AsyncConnection, id: str) -> bool:
    """Whether a binding is active; on PostgreSQL it stays so until the transaction ends."""
    return (await _STATUS.run(tx, {"binding": id})).rows == [{"status": "active"}]


async def active(
    tx: AsyncConnection, org_id: str, *, export_kind: str | None = None, export_id: str | None = None
) -> list[BindingRow]:
    """All active bindings of an org and its projects, oldest first."""
    query = select(BINDINGS).where(BINDINGS.c.org_id == org_id, BINDINGS.c.status == "active")
    for column, wanted in (("export_kind", export_kind), ("export_id", export_id)):
        query = query if wanted is None else query.where(BINDINGS.c[column] == wanted)
    rows = (await tx.execute(query.order_by(BINDINGS.c.created_at, BINDINGS.c.id))).all()
    return [_row(row) for row in rows]


async def of_packages(
    tx: AsyncConnection, rows: list[str], org_id: str | None, project_id: str | None
) -> list[BindingRow]:
    """Bindings to these packages that an org or project can see."""
    query = _seen(select(BINDINGS).where(BINDINGS.c.package_row.in_(rows)), org_id, project_id)
    return [_row(row) for row in (await tx.execute(query.order_by(BINDINGS.c.created_at, BINDINGS.c.id))).all()]


async def with_secrets(tx: AsyncConnection, wanted: Collection[tuple[str, str]], limit: int) -> list[BindingRow]:
    """Bindings that use one of these secrets, each an org and a reference; the newest first."""
    named = cast(BINDINGS.c.secrets, String)
    users = [and_(BINDINGS.c.org_id == org, named.contains(f'"{ref}"', autoescape=True)) for org, ref in wanted]
    if not users:
        return []
    query = select(BINDINGS).where(or_(*users)).order_by(BINDINGS.c.created_at.desc(), BINDINGS.c.id.desc())
    return [_row(row) for row in (await tx.execute(query.limit(limit))).all()]


async def digests_in_use(tx: AsyncConnection) -> frozenset[str]:
    """Digests of all packages with an active binding."""
    named = BINDINGS.join(PACKAGES, BINDINGS.c.package_row == PACKAGES.c.id)
    query = select(PACKAGES.c.digest).select_from(named).where(BINDINGS.c.status == "active").distinct()
    return frozenset((await tx.execute(query)).scalars())


async def select_part(
    tx: AsyncConnection,
    org_id: str | None,
    project_id: str | None,
    page: Page,
    wanted: Mapping[str, str],
    search: str | None = None,
) -> Part[BindingRow]:
    """A page of the bindings that an org or project can see; `wanted` filters by some of `FILTERS`."""
    found = matching(search, BINDINGS.c.id, BINDINGS.c.package_id, BINDINGS.c.export_id)
    query = _seen(select(BINDINGS).where(*found), org_id, project_id)
    for name, value in wanted.items():
        query = query.where(BINDINGS.c[name] == value)
    return await select_page(tx, query, BINDINGS.c.created_at, BINDINGS.c.id, page, _row)


def _seen(query: Select[Any], org_id: str | None, project_id: str | None) -> Select[Any]:
    if org_id is None:
        return query
    own = BINDINGS.c.org_id == org_id
    if project_id is None:
        return query.where(own)
    return query.where(and_(own, or_(BINDINGS.c.project_id.is_(None), BINDINGS.c.project_id == project_id)))


def _values(row: BindingRow) -> dict[str, Any]:
    return asdict(row)


def _row(row: Row[Any]) -> BindingRow:
    return BindingRow(**row._mapping)
