"""Maps records with one field per column to rows and back: generic insert, find, update and page."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, TypeVar

import msgspec
from msgspec.structs import asdict
from sqlalchemy import ColumnElement, Row, Select, Table, or_, select, true
from sqlalchemy.ext.asyncio import AsyncConnection

from plugbay.store.pages import Page, Part, matching, select_page

R = TypeVar("R", bound=msgspec.Struct)


ANY_OWNER = "*"
"""All work, whichever gateway began it."""


def of_owner(column: ColumnElement[Any], owner: str | None) -> ColumnElement[bool]:
    """The work of this gateway; None: of a server that owned the whole database."""
    return true() if owner == ANY_OWNER else column.is_not_distinct_from(owner)


class Tenant(NamedTuple):
    """A filter by tenant: None means all orgs, or all projects of the org."""

    org_id: str | None = None
    project_id: str | None = None


ALL_TENANTS = Tenant()


def to_record(kind: type[R], row: Row[Any]) -> R:
    """The record of a row."""
    return kind(**row._mapping)


async def insert(tx: AsyncConnection, table: Table, *records: msgspec.Struct) -> None:
    """Insert records; raises `IntegrityError` when a constraint is violated."""
    if records:
        await tx.execute(table.insert(), [asdict(record) for record in records])


async def find(tx: AsyncConnection, table: Table, kind: type[R], id: str, *, lock: bool = False) -> R | None:
    """Find a record by id. `lock` locks the row until the transaction ends."""
    query = select(table).where(table.c.id == id)
    row = (await tx.execute(query.with_for_update() if lock else query)).first()
    return None if row is None else to_record(kind, row)


async def find_all(tx: AsyncConnection, query: Select[Any], kind: type[R]) -> list[R]:
    """All records of a query."""
    return [to_record(kind, row) for row in (await tx.execute(query)).all()]


async def change(tx: AsyncConnection, table: Table, id: str, *only_if: ColumnElement[bool], **values: Any) -> bool:
    """Update one row; False when it does not exist or does not meet `only_if`."""
    result = await tx.execute(table.update().where(table.c.id == id, *only_if).values(**values))
    return bool(result.rowcount)


async def page(
    tx: AsyncConnection,
    table: Table,
    kind: type[R],
    part: Page,
    tenant: Tenant,
    filters: Mapping[str, str | bool | None],
    also: Iterable[ColumnElement[bool]] = (),
    *,
    at: str = "created_at",
    search: str | None = None,
    searched: Iterable[str] = ("id",),
) -> Part[R]:
    """A page of records of a tenant, newest first. `filters` are column values; None: any value.

    `search` is part of the text of one of the `searched` columns.

    Records of a whole org are included for each of its projects.
    """
    query = select(table).where(*also, *matching(search, *(table.c[name] for name in searched)))
    if tenant.org_id is not None:
        query = query.where(table.c.org_id == tenant.org_id)
    if tenant.project_id is not None:
        query = query.where(or_(table.c.project_id == tenant.project_id, table.c.project_id.is_(None)))
    for name, value in filters.items():
        query = query if value is None else query.where(table.c[name] == value)
    return await select_page(tx, query, table.c[at], table.c.id, part, lambda row: to_record(kind, row))
