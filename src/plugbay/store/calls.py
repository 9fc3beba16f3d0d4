"""The call history of the host's plugins: written in batches, limited in number, and summed up by minute."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from sqlalchemy import BigInteger, Row, case, delete, func, select, type_coerce
from sqlalchemy.ext.asyncio import AsyncConnection

from plugbay.host.ports import CallRecord
from plugbay.model.errors import Outcome
from plugbay.store.metadata import MICROSECONDS
from plugbay.store.pages import Page, Part, select_page
from plugbay.store.statements import insert_missing
from plugbay.store.tables import CALLS


class StoredCall(msgspec.Struct, frozen=True):
    """A finished call, without input, output and stderr."""

    id: str
    plugin: str
    version: str
    contract: str
    export: str
    started_at: float
    duration_ms: float
    status: str
    failure: dict[str, Any] | None


FAILURES = (Outcome.FAILED, Outcome.RETRYABLE_FAILURE)
"""Statuses of calls that count as failed; a cancelled call does not."""


class CallMinute(msgspec.Struct, frozen=True):
    """The finished calls that started in one minute."""

    minute: int
    """Minutes since the epoch."""
    calls: int
    failures: int
    p50_ms: float
    """Half of the calls took no longer."""
    p99_ms: float


async def insert(tx: AsyncConnection, records: Sequence[CallRecord]) -> None:
    """Insert calls; existing rows are skipped, because a batch cancelled during its commit is written again."""
    await insert_missing(tx, CALLS, [_values(record) for record in records])


async def trim(tx: AsyncConnection, kept: int) -> int:
    """Delete all but the newest `kept` calls; returns how many."""
    newest = select(CALLS.c.started_at).order_by(CALLS.c.started_at.desc()).offset(kept).limit(1)
    oldest = (await tx.execute(newest)).scalar()
    if oldest is None:
        return 0
    return (await tx.execute(delete(CALLS).where(CALLS.c.started_at <= oldest))).rowcount


async def get(tx: AsyncConnection, id: str) -> StoredCall | None:
    row = (await tx.execute(select(CALLS).where(CALLS.c.id == id))).one_or_none()
    return None if row is None else _call(row)


async def page(
    tx: AsyncConnection,
    page: Page,
    *,
    plugin: str | None = None,
    export: str | None = None,
    status: str | None = None,
    since: float | None = None,
    until: float | None = None,
    failed: bool = False,
) -> Part[StoredCall]:
    """Calls that match all given filters; with `failed`, only those that failed."""
    wanted = {"plugin": plugin, "export": export, "status": status}
    query = select(CALLS).where(*(CALLS.c[name] == value for name, value in wanted.items() if value is not None))
    if failed:
        query = query.where(CALLS.c.status.in_(FAILURES))
    if since is not None:
        query = query.where(CALLS.c.started_at >= since)
    if until is not None:
        query = query.where(CALLS.c.started_at < until)
    return await select_page(tx, query, CALLS.c.started_at, CALLS.c.id, page, _call)


async def minutes(tx: AsyncConnection, since: float, plugin: str | None = None) -> list[CallMinute]:
    """The minutes from `since` on in which calls started, oldest first. Percentiles are exact, by nearest rank."""
    minute = type_coerce(CALLS.c.started_at, BigInteger).op("/")(60 * MICROSECONDS)
    ranked = select(
        minute.label("minute"),
        CALLS.c.duration_ms.label("duration_ms"),
        case((CALLS.c.status.in_(FAILURES), 1), else_=0).label("failed"),
        func.row_number().over(partition_by=minute, order_by=CALLS.c.duration_ms).label("rank"),
        func.count().over(partition_by=minute).label("calls"),
    ).where(CALLS.c.started_at >= since, *([CALLS.c.plugin == plugin] if plugin is not None else ()))
    each = ranked.subquery().c
    summed = (
        select(
            each.minute,
            func.max(each.calls),
            func.sum(each.failed),
            func.max(case((each.rank * 2 <= each.calls + 1, each.duration_ms))),
            func.max(case((each.rank * 100 <= each.calls * 99 + 99, each.duration_ms))),
        )
        .group_by(each.minute)
        .order_by(each.minute)
    )
    rows = (await tx.execute(summed)).all()
    return [CallMinute(int(row[0]), int(row[1]), int(row[2]), float(row[3]), float(row[4])) for row in rows]


def shown(record: CallRecord) -> StoredCall:
    """The record as it will be read back."""
    values = _values(record)
    del values["retryable"]
    return StoredCall(**values)


def _values(record: CallRecord) -> dict[str, Any]:
    return {
        "id": record.call_id,
        "plugin": _storable(record.plugin),
        "version": _storable(record.version),
        "contract": record.contract,
        "export": _storable(record.export),
        "started_at": record.started_at,
        "duration_ms": record.duration_ms,
        "status": record.status,
        "failure": record.to_json()["failure"],
        "retryable": bool(record.failure and record.failure.retryable),
    }


def _storable(text: str) -> str:
    """A name that every database can store; callers may pass invalid Unicode."""
    return text.replace("\0", "\N{REPLACEMENT CHARACTER}").encode("utf-8", "replace").decode()


def _call(row: Row[Any]) -> StoredCall:
    return StoredCall(
        row.id,
        row.plugin,
        row.version,
        row.contract,
        row.export,
        row.started_at,
        row.duration_ms,
        row.status,
        row.failure,
    )
