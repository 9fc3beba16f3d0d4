"""Records that have a field for each column of their table: into a row, and back.

Owns nothing but that; refuses to know any table.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, TypeVar

import msgspec
from sqlalchemy import ColumnElement, Row, Select, Table, or_, select
from sqlalchemy.ext.asyncio import AsyncConnection

from plugbay.store.pages import Page, Part, select_page

R = TypeVar("R", bound=msgspec.Struct)


class Tenant(NamedTuple):
    """Whose rows are meant: None stands for all orgs, and for all projects of the org."""

    org_id: str | None = None
    project_id: str | None = None


EVERYBODY = Tenant()


def made(kind: type[R], row: Row[Any]) -> R:
    """The record in a row."""
    return kind(**row._mapping)


async def insert(tx: AsyncConnection, table: Table, *records: msgspec.Struct) -> None:
    """Write records; raises `IntegrityError` where a rule of the table forbids one."""
    if records:
        await tx.execute(table.insert(), [msgspec.structs.asdict(record) for record in records])


async def find(tx: AsyncConnection, table: Table, kind: type[R], id: str, *, lock: bool = False) -> R | None:
    """The record with this id. With `lock`, nobody else changes it before this transaction ends."""
    query = select(table).where(table.c.id == id)
    row = (await tx.execute(query.with_for_update() if lock else query)).first()
    return None if row is None else made(kind, row)


async def find_all(tx: AsyncConnection, query: Select[Any], kind: type[R]) -> list[R]:
    """The records of all rows of a query."""
    return [made(kind, row) for row in (await tx.execute(query)).all()]


async def change(tx: AsyncConnection, table: Table, id: str, *only_if: ColumnElement[bool], **values: Any) -> bool:
    """Put these values into one row; False when there is no such row, or it is not as it has to be."""
    result = await tx.execute(table.update().where(table.c.id == id, *only_if).values(**values))
    return bool(result.rowcount)


async def page(
    tx: AsyncConnection,
    table: Table,
    kind: type[R],
    part: Page,
    tenant: Tenant,
    said: Mapping[str, str | None],
    also: Iterable[ColumnElement[bool]] = (),
    *,
    at: str = "created_at",
) -> Part[R]:
    """Records of a tenant, newest first. `said` are columns and the values they must have; None: any.

    What belongs to a whole org is there for each of its projects.
    """
    query = select(table).where(*also)
    if tenant.org_id is not None:
        query = query.where(table.c.org_id == tenant.org_id)
    if tenant.project_id is not None:
        query = query.where(or_(table.c.project_id == tenant.project_id, table.c.project_id.is_(None)))
    for name, value in said.items():
        query = query if value is None else query.where(table.c[name] == value)
    return await select_page(tx, query, table.c[at], table.c.id, part, lambda row: made(kind, row))
