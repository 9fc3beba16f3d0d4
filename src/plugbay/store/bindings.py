"""Rows of bindings. Knows no rule about them but that a change names the revision it was made from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Row, Select, and_, bindparam, insert, or_, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from plugbay.store.pages import Page, Part, select_page
from plugbay.store.prepared import Prepared
from plugbay.store.tables.plugins import BINDINGS, PACKAGES
from plugbay.store.tables.tenancy import ORGS

FILTERS = ("package_id", "package_version", "export_id", "export_kind", "project_id", "status")

_STATUS = Prepared(select(BINDINGS.c.status).where(BINDINGS.c.id == bindparam("binding")).with_for_update(read=True))


@dataclass(frozen=True, slots=True)
class BindingRow:
    """One export attached to an org or to a project."""

    id: str
    package_row: str
    """The id of the package's row: a binding never moves to another owner's package."""
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
    """A new binding."""
    await tx.execute(insert(BINDINGS).values(_values(row)))


async def replace(tx: AsyncConnection, row: BindingRow) -> bool:
    """Put a row in the place of the one before it; False: somebody else has changed it meanwhile."""
    statement = update(BINDINGS).where(BINDINGS.c.id == row.id, BINDINGS.c.revision == row.revision - 1)
    return bool((await tx.execute(statement.values(_values(row)))).rowcount)


async def get(tx: AsyncConnection, id: str) -> BindingRow | None:
    """The binding with this id."""
    found = (await tx.execute(select(BINDINGS).where(BINDINGS.c.id == id))).first()
    return None if found is None else _row(found)


async def lock_org(tx: AsyncConnection, org_id: str) -> None:
    """Nobody else changes bindings of this org until this transaction is over: what they share adds up."""
    # Not the key of the row: whoever writes something else that belongs to the org need not wait, nor we for them.
    await tx.execute(select(ORGS.c.id).where(ORGS.c.id == org_id).with_for_update(key_share=True))


async def is_active(tx: AsyncConnection, id: str) -> bool:
    """Whether a binding is active; on PostgreSQL it stays so until this transaction is over."""
    return (await _STATUS.run(tx, {"binding": id})).rows == [{"status": "active"}]


async def active(
    tx: AsyncConnection, org_id: str, *, export_kind: str | None = None, export_id: str | None = None
) -> list[BindingRow]:
    """Every active binding of an org and of its projects, the oldest first."""
    query = select(BINDINGS).where(BINDINGS.c.org_id == org_id, BINDINGS.c.status == "active")
    for column, wanted in (("export_kind", export_kind), ("export_id", export_id)):
        query = query if wanted is None else query.where(BINDINGS.c[column] == wanted)
    rows = (await tx.execute(query.order_by(BINDINGS.c.created_at, BINDINGS.c.id))).all()
    return [_row(row) for row in rows]


async def of_packages(
    tx: AsyncConnection, rows: list[str], org_id: str | None, project_id: str | None
) -> list[BindingRow]:
    """The bindings to these packages that an org sees, or one of its projects."""
    query = _seen(select(BINDINGS).where(BINDINGS.c.package_row.in_(rows)), org_id, project_id)
    return [_row(row) for row in (await tx.execute(query.order_by(BINDINGS.c.created_at, BINDINGS.c.id))).all()]


async def digests_in_use(tx: AsyncConnection) -> frozenset[str]:
    """The digests of all packages that an active binding names."""
    named = BINDINGS.join(PACKAGES, BINDINGS.c.package_row == PACKAGES.c.id)
    query = select(PACKAGES.c.digest).select_from(named).where(BINDINGS.c.status == "active").distinct()
    return frozenset((await tx.execute(query)).scalars())


async def select_part(
    tx: AsyncConnection, org_id: str | None, project_id: str | None, page: Page, wanted: Mapping[str, str]
) -> Part[BindingRow]:
    """A part of the bindings that an org sees, or one of its projects; `wanted` has values for some of `FILTERS`."""
    query = _seen(select(BINDINGS), org_id, project_id)
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
    return {name: getattr(row, name) for name in BindingRow.__slots__}


def _row(row: Row[Any]) -> BindingRow:
    return BindingRow(**row._mapping)
