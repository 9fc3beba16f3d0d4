"""Events that hooks can receive."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec.structs import asdict
from sqlalchemy.ext.asyncio import AsyncConnection

from plugbay.store import rows
from plugbay.store.pages import Page, Part
from plugbay.store.rows import Tenant
from plugbay.store.statements import new_row
from plugbay.store.tables import EVENTS

_INSERT = new_row(EVENTS)


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """One event. `cause_id` is the run or compaction that caused it."""

    id: str
    org_id: str
    project_id: str | None
    type: str
    subject_kind: str
    subject_id: str
    cause_id: str
    session_id: str | None
    chain_id: str | None
    run_id: str | None
    summary: dict[str, Any]
    trace_id: str
    cause_depth: int
    occurred_at: float


async def insert(tx: AsyncConnection, event: Event) -> bool:
    """Insert; False when the cause has an event of this type already."""
    return bool((await _INSERT.run(tx, asdict(event))).rows)


async def find(tx: AsyncConnection, id: str) -> Event | None:
    return await rows.find(tx, EVENTS, Event, id)


async def page(tx: AsyncConnection, part: Page, tenant: Tenant, **filters: str | None) -> Part[Event]:
    """A page of the events of a tenant; `filters` are column values."""
    return await rows.page(tx, EVENTS, Event, part, tenant, filters, at="occurred_at")
