"""Marketplace entries that the operator has published."""

from __future__ import annotations

import msgspec
from msgspec.structs import asdict
from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncConnection

from plugbay.store import rows
from plugbay.store.statements import insert_new
from plugbay.store.tables import MARKETPLACE_ENTRIES


class Entry(msgspec.Struct, frozen=True):
    """One export of a shared package in the marketplace."""

    id: str
    package_row: str
    export_id: str
    repo: str
    refs: list[str]
    lock_file: str | None
    """The file of the package that pins its dependencies."""
    reviewed_at: float | None
    created_at: float


async def insert(tx: AsyncConnection, entry: Entry) -> bool:
    """Insert; False when the id is taken."""
    return await insert_new(tx, MARKETPLACE_ENTRIES, asdict(entry))


async def get(tx: AsyncConnection, id: str) -> Entry | None:
    """Find an entry by id."""
    return await rows.find(tx, MARKETPLACE_ENTRIES, Entry, id)


async def all_entries(tx: AsyncConnection, package_row: str | None = None) -> list[Entry]:
    """All entries, or those of one package, newest first."""
    query = select(MARKETPLACE_ENTRIES)
    query = query if package_row is None else query.where(MARKETPLACE_ENTRIES.c.package_row == package_row)
    order = MARKETPLACE_ENTRIES.c.created_at.desc(), MARKETPLACE_ENTRIES.c.id.desc()
    return await rows.find_all(tx, query.order_by(*order), Entry)


async def delete(tx: AsyncConnection, id: str) -> bool:
    """Delete an entry; False when there is none."""
    return bool((await tx.execute(MARKETPLACE_ENTRIES.delete().where(MARKETPLACE_ENTRIES.c.id == id))).rowcount)
