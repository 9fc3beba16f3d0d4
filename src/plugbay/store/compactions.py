"""Compactions of chains."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec.structs import asdict
from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncConnection

from plugbay.store import rows
from plugbay.store.pages import Page, Part
from plugbay.store.rows import Tenant
from plugbay.store.statements import insert_new
from plugbay.store.tables import COMPACTIONS

UNFINISHED = ("queued", "running")


class Compaction(msgspec.Struct, frozen=True, kw_only=True):
    """One compaction."""

    id: str
    org_id: str
    project_id: str | None
    session_id: str
    chain_id: str
    new_chain_id: str | None
    binding_id: str
    status: str
    target: dict[str, Any]
    policy: dict[str, Any]
    pinned_items: list[Any]
    source_digest: str
    source_blocks: int
    summary: dict[str, Any] | None
    diagnostics: dict[str, Any] | None
    error: dict[str, Any] | None
    created_by_run_id: str | None
    invocation_id: str | None
    attempts: int
    cause_depth: int
    trace_id: str
    created_at: float
    started_at: float | None
    completed_at: float | None
    owner: str | None = None
    """The gateway that works on it, if several share the database."""


async def insert(tx: AsyncConnection, compaction: Compaction) -> bool:
    """Insert; False when the id exists already."""
    return await insert_new(tx, COMPACTIONS, asdict(compaction))


async def find(tx: AsyncConnection, id: str, *, lock: bool = False) -> Compaction | None:
    return await rows.find(tx, COMPACTIONS, Compaction, id, lock=lock)


async def begin(tx: AsyncConnection, id: str, owner: str | None, at: float) -> bool:
    """Mark it as running; False when it has ended, or belongs to another gateway by now."""
    return await rows.change(
        tx,
        COMPACTIONS,
        id,
        COMPACTIONS.c.status.in_(UNFINISHED),
        rows.of_owner(COMPACTIONS.c.owner, owner),
        status="running",
        started_at=at,
        attempts=COMPACTIONS.c.attempts + 1,
    )


async def end(tx: AsyncConnection, id: str, owner: str | None, **values: Any) -> bool:
    """Finish it; False when it has ended already, or belongs to another gateway by now."""
    ours = (COMPACTIONS.c.status.in_(UNFINISHED), rows.of_owner(COMPACTIONS.c.owner, owner))
    return await rows.change(tx, COMPACTIONS, id, *ours, **values)


async def take_over(tx: AsyncConnection, id: str, owner: str | None, new_owner: str | None) -> bool:
    """Continue the work of another gateway; False when it has ended or is taken over already."""
    left = (COMPACTIONS.c.status.in_(UNFINISHED), rows.of_owner(COMPACTIONS.c.owner, owner))
    return await rows.change(tx, COMPACTIONS, id, *left, owner=new_owner)


async def unfinished(tx: AsyncConnection, owner: str | None = rows.ANY_OWNER) -> list[Compaction]:
    """All unfinished compactions of a gateway, oldest first."""
    query = select(COMPACTIONS).where(COMPACTIONS.c.status.in_(UNFINISHED), rows.of_owner(COMPACTIONS.c.owner, owner))
    return await rows.find_all(tx, query.order_by(COMPACTIONS.c.created_at), Compaction)


SEARCHED = ("id", "chain_id", "binding_id", "new_chain_id")


async def page(
    tx: AsyncConnection,
    part: Page,
    tenant: Tenant,
    *,
    only: frozenset[str] | None = None,
    search: str | None = None,
    **filters: str | None,
) -> Part[Compaction]:
    """A page of the compactions of a tenant; `filters` are column values, `only` by session, `search` in `SEARCHED`."""
    also = () if only is None else (COMPACTIONS.c.session_id.in_(only),)
    return await rows.page(tx, COMPACTIONS, Compaction, part, tenant, filters, also, search=search, searched=SEARCHED)
