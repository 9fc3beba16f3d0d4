"""Sessions."""

from __future__ import annotations

from typing import Any

import msgspec
from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncConnection

from plugbay.store import rows
from plugbay.store.pages import Page, Part
from plugbay.store.rows import Tenant
from plugbay.store.tables import SESSIONS


class Session(msgspec.Struct, frozen=True, kw_only=True):
    """One session."""

    id: str
    org_id: str
    project_id: str | None
    external_session_id: str | None
    metadata: dict[str, Any]
    latest_chain_id: str | None
    parent_session_id: str | None
    created_at: float
    updated_at: float


async def insert(tx: AsyncConnection, session: Session) -> None:
    await rows.insert(tx, SESSIONS, session)


async def find(tx: AsyncConnection, id: str, *, lock: bool = False) -> Session | None:
    return await rows.find(tx, SESSIONS, Session, id, lock=lock)


async def change(tx: AsyncConnection, id: str, **values: Any) -> bool:
    return await rows.change(tx, SESSIONS, id, **values)


SEARCHED = ("id", "external_session_id")


async def page(
    tx: AsyncConnection,
    part: Page,
    tenant: Tenant,
    *,
    only: frozenset[str] | None = None,
    search: str | None = None,
    **filters: str | None,
) -> Part[Session]:
    """A page of the sessions of a tenant; `filters` are column values, `only` by session, `search` in `SEARCHED`."""
    also = () if only is None else (SESSIONS.c.id.in_(only),)
    return await rows.page(tx, SESSIONS, Session, part, tenant, filters, also, search=search, searched=SEARCHED)


async def children(tx: AsyncConnection, ids: frozenset[str]) -> frozenset[str]:
    """Sessions branched from these."""
    query = select(SESSIONS.c.id).where(SESSIONS.c.parent_session_id.in_(ids))
    return frozenset((await tx.execute(query)).scalars())
