"""Runs, their timelines, and their tool executions."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import msgspec
from msgspec.structs import asdict
from sqlalchemy import ColumnElement, func, select
from sqlalchemy.ext.asyncio import AsyncConnection

from plugbay.store import rows
from plugbay.store.pages import Page, Part
from plugbay.store.rows import Tenant
from plugbay.store.statements import insert_new
from plugbay.store.tables import RUN_EVENTS, RUNS, TOOL_EXECUTIONS

UNFINISHED = ("queued", "running")


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """One run. `request` is the validated request."""

    id: str
    org_id: str
    project_id: str | None
    session_id: str
    chain_id: str
    parent_run_id: str | None
    rerun_of_run_id: str | None
    execution_id: str | None
    invocation_id: str | None
    model: str
    status: str
    stop_reason: str | None
    error: dict[str, Any] | None
    turn_count: int
    tool_count: int
    input_tokens: int
    output_tokens: int
    request: dict[str, Any]
    input_through: int
    depth: int
    cause_depth: int
    trace_id: str
    cancel_requested: bool
    metadata: dict[str, Any]
    created_at: float
    started_at: float | None
    completed_at: float | None
    owner: str | None = None
    """The gateway that works on it, if several share the database."""


class RunEvent(msgspec.Struct, frozen=True, kw_only=True):
    """One entry of a timeline."""

    run_id: str
    sequence: int
    type: str
    data: dict[str, Any]
    created_at: float


class ToolExecution(msgspec.Struct, frozen=True, kw_only=True):
    """One tool call of a run. `status` is None until it has ended."""

    id: str
    run_id: str
    turn: int
    position: int
    tool_call_id: str
    name: str
    binding_id: str | None
    status: str | None
    execution_outcome: str | None
    error_code: str | None
    attempts: int
    input: bytes
    result: bytes | None
    started_at: float
    ended_at: float | None


async def insert(tx: AsyncConnection, run: Run) -> bool:
    """Insert; False when the chain has an unfinished run."""
    return await insert_new(tx, RUNS, asdict(run))


async def find(tx: AsyncConnection, id: str, *, lock: bool = False) -> Run | None:
    return await rows.find(tx, RUNS, Run, id, lock=lock)


async def change(tx: AsyncConnection, id: str, *only_if: ColumnElement[bool], **values: Any) -> bool:
    return await rows.change(tx, RUNS, id, *only_if, **values)


async def begin(tx: AsyncConnection, id: str, at: float) -> bool:
    """Mark it as running; False when it has ended or was cancelled."""
    wanted = (RUNS.c.status == "queued", RUNS.c.cancel_requested.is_(False))
    return await rows.change(tx, RUNS, id, *wanted, status="running", started_at=at)


async def add_usage(tx: AsyncConnection, id: str, input: int, output: int, *, turns: int, tools: int) -> None:
    """Add the usage of one turn."""
    used = {
        "input_tokens": RUNS.c.input_tokens + input,
        "output_tokens": RUNS.c.output_tokens + output,
        "turn_count": RUNS.c.turn_count + turns,
        "tool_count": RUNS.c.tool_count + tools,
    }
    await rows.change(tx, RUNS, id, **used)


async def end(tx: AsyncConnection, id: str, owner: str | None, **values: Any) -> bool:
    """Finish a run; False when it has ended already, or belongs to another gateway by now."""
    ours = (RUNS.c.status.in_(UNFINISHED), rows.of_owner(RUNS.c.owner, owner))
    return await rows.change(tx, RUNS, id, *ours, **values)


async def unfinished(tx: AsyncConnection, owner: str | None = rows.ANY_OWNER) -> list[Run]:
    """All unfinished runs of a gateway, oldest first."""
    query = select(RUNS).where(RUNS.c.status.in_(UNFINISHED), rows.of_owner(RUNS.c.owner, owner))
    return await rows.find_all(tx, query.order_by(RUNS.c.created_at), Run)


async def of_others(tx: AsyncConnection, ids: Collection[str], owner: str | None) -> list[Run]:
    """Those of these runs that belong to other gateways."""
    theirs = (RUNS.c.id.in_(ids), RUNS.c.owner.is_not(None), RUNS.c.owner != owner)
    return await rows.find_all(tx, select(RUNS).where(*theirs), Run)


async def to_cancel(tx: AsyncConnection, owner: str | None) -> list[str]:
    """Unfinished runs of a gateway whose cancellation was requested."""
    wanted = (RUNS.c.status.in_(UNFINISHED), RUNS.c.cancel_requested.is_(True), rows.of_owner(RUNS.c.owner, owner))
    return list((await tx.execute(select(RUNS.c.id).where(*wanted))).scalars())


SEARCHED = ("id", "chain_id", "session_id", "model")


async def page(
    tx: AsyncConnection,
    part: Page,
    tenant: Tenant,
    *,
    only: frozenset[str] | None = None,
    search: str | None = None,
    **filters: str | None,
) -> Part[Run]:
    """A page of the runs of a tenant; `filters` are column values, `only` by session, `search` in `SEARCHED`."""
    also = () if only is None else (RUNS.c.session_id.in_(only),)
    return await rows.page(tx, RUNS, Run, part, tenant, filters, also, search=search, searched=SEARCHED)


# Timeline.


async def note(tx: AsyncConnection, run_id: str, type: str, data: dict[str, Any], at: float) -> int:
    """Append to the timeline and return the sequence number. Concurrent appends wait for each other."""
    await tx.execute(select(RUNS.c.id).where(RUNS.c.id == run_id).with_for_update())
    last = await tx.scalar(select(func.max(RUN_EVENTS.c.sequence)).where(RUN_EVENTS.c.run_id == run_id))
    sequence = (last or 0) + 1
    await rows.insert(tx, RUN_EVENTS, RunEvent(run_id=run_id, sequence=sequence, type=type, data=data, created_at=at))
    return sequence


async def timeline(tx: AsyncConnection, run_id: str, *, after: int = 0) -> list[RunEvent]:
    query = select(RUN_EVENTS).where(RUN_EVENTS.c.run_id == run_id, RUN_EVENTS.c.sequence > after)
    return await rows.find_all(tx, query.order_by(RUN_EVENTS.c.sequence), RunEvent)


# Tool executions.


async def begin_tools(tx: AsyncConnection, *executions: ToolExecution) -> None:
    await rows.insert(tx, TOOL_EXECUTIONS, *executions)


async def end_tool(tx: AsyncConnection, id: str, **values: Any) -> bool:
    """Finish a tool execution; False when it has ended already."""
    return await rows.change(tx, TOOL_EXECUTIONS, id, TOOL_EXECUTIONS.c.status.is_(None), **values)


async def find_tool(tx: AsyncConnection, id: str) -> ToolExecution | None:
    return await rows.find(tx, TOOL_EXECUTIONS, ToolExecution, id)


async def tools(tx: AsyncConnection, run_id: str) -> list[ToolExecution]:
    """Tool executions of a run, in order."""
    query = select(TOOL_EXECUTIONS).where(TOOL_EXECUTIONS.c.run_id == run_id)
    return await rows.find_all(tx, query.order_by(TOOL_EXECUTIONS.c.turn, TOOL_EXECUTIONS.c.position), ToolExecution)


async def abandon_tools(tx: AsyncConnection, run_id: str, at: float) -> int:
    """Close all unfinished tool executions of a run with an unknown outcome."""
    where = (TOOL_EXECUTIONS.c.run_id == run_id, TOOL_EXECUTIONS.c.status.is_(None))
    values = {"status": "cancelled", "execution_outcome": "unknown", "error_code": "run.ended", "ended_at": at}
    return (await tx.execute(TOOL_EXECUTIONS.update().where(*where).values(**values))).rowcount
