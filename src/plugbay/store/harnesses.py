"""Harness executions."""

from __future__ import annotations

from typing import Any

import msgspec
from sqlalchemy import ColumnElement, select
from sqlalchemy.ext.asyncio import AsyncConnection

from plugbay.store import rows
from plugbay.store.pages import Page, Part
from plugbay.store.rows import Tenant
from plugbay.store.tables import HARNESS_EXECUTIONS

UNFINISHED = ("queued", "running")


class HarnessExecution(msgspec.Struct, frozen=True, kw_only=True):
    """One execution, including its resumes."""

    id: str
    org_id: str
    project_id: str | None
    session_id: str
    chain_id: str
    binding_id: str
    status: str
    mode: str
    trigger: dict[str, Any]
    policy: dict[str, Any]
    summary: dict[str, Any] | None
    artifacts: list[Any]
    error: dict[str, Any] | None
    resumes: int
    depth: int
    cause_depth: int
    trace_id: str
    cancel_requested: bool
    created_at: float
    started_at: float | None
    completed_at: float | None
    owner: str | None = None
    """The gateway that works on it, if several share the database."""


async def insert(tx: AsyncConnection, execution: HarnessExecution) -> None:
    await rows.insert(tx, HARNESS_EXECUTIONS, execution)


async def find(tx: AsyncConnection, id: str, *, lock: bool = False) -> HarnessExecution | None:
    return await rows.find(tx, HARNESS_EXECUTIONS, HarnessExecution, id, lock=lock)


async def change(tx: AsyncConnection, id: str, *only_if: ColumnElement[bool], **values: Any) -> bool:
    return await rows.change(tx, HARNESS_EXECUTIONS, id, *only_if, **values)


async def begin(tx: AsyncConnection, id: str, at: float) -> bool:
    """Mark it as running; False when it has ended or was cancelled."""
    wanted = (HARNESS_EXECUTIONS.c.status == "queued", HARNESS_EXECUTIONS.c.cancel_requested.is_(False))
    return await rows.change(tx, HARNESS_EXECUTIONS, id, *wanted, status="running", started_at=at)


async def end(tx: AsyncConnection, id: str, owner: str | None, **values: Any) -> bool:
    """Finish it; False when it has ended already, or belongs to another gateway by now."""
    ours = (HARNESS_EXECUTIONS.c.status.in_(UNFINISHED), rows.of_owner(HARNESS_EXECUTIONS.c.owner, owner))
    return await rows.change(tx, HARNESS_EXECUTIONS, id, *ours, **values)


async def to_cancel(tx: AsyncConnection, owner: str | None) -> list[str]:
    """Unfinished executions of a gateway whose cancellation was requested."""
    columns = HARNESS_EXECUTIONS.c
    wanted = (columns.status.in_(UNFINISHED), columns.cancel_requested.is_(True), rows.of_owner(columns.owner, owner))
    return list((await tx.execute(select(columns.id).where(*wanted))).scalars())


async def unfinished(tx: AsyncConnection, owner: str | None = rows.ANY_OWNER) -> list[HarnessExecution]:
    """All unfinished executions of a gateway, oldest first."""
    ours = rows.of_owner(HARNESS_EXECUTIONS.c.owner, owner)
    query = select(HARNESS_EXECUTIONS).where(HARNESS_EXECUTIONS.c.status.in_(UNFINISHED), ours)
    return await rows.find_all(tx, query.order_by(HARNESS_EXECUTIONS.c.created_at), HarnessExecution)


SEARCHED = ("id", "binding_id", "session_id")


async def page(
    tx: AsyncConnection, part: Page, tenant: Tenant, *, search: str | None = None, **filters: str | None
) -> Part[HarnessExecution]:
    """A page of the executions of a tenant; `filters` are column values, `search` is part of one of `SEARCHED`."""
    return await rows.page(
        tx, HARNESS_EXECUTIONS, HarnessExecution, part, tenant, filters, search=search, searched=SEARCHED
    )
