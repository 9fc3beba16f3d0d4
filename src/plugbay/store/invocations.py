"""Invocations: inserted before anything starts, closed exactly once."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec
from msgspec.structs import asdict
from sqlalchemy import ColumnElement, Row, Select, bindparam, func, insert, or_, select, union_all, update
from sqlalchemy.ext.asyncio import AsyncConnection

from plugbay.host.invocations.context import moment
from plugbay.host.ports import InvocationRecord
from plugbay.store.leases import Fence
from plugbay.store.pages import Page, Part, matching, select_page
from plugbay.store.rows import ANY_OWNER, of_owner
from plugbay.store.statements import Prepared, Write
from plugbay.store.tables import INVOCATIONS, LEASES

EXACT = tuple(
    "export_kind export_id binding_id package_id package_version project_id session_id chain_id run_id trace_id "
    "execution_id".split()
)
"""Columns that lists can filter by, besides status and time."""

SEARCHED = tuple("id export_id package_id binding_id trace_id execution_id error_code".split())

_TIMES = ("started_at", "ended_at")

_RECORD = tuple(INVOCATIONS.c[name] for name in ("id", *InvocationRecord.__struct_fields__[1:]))
"""The columns of a record. The outcome is read apart from it: lists must not load results."""

_RUNNING = (INVOCATIONS.c.id == bindparam("invocation"), INVOCATIONS.c.status.is_(None))
_INSERT = Prepared(insert(INVOCATIONS), sets=[column.name for column in _RECORD])
_OWN = (*_RECORD, INVOCATIONS.c.owner)
_INSERT_FENCED = Prepared(
    insert(INVOCATIONS).from_select(
        [column.name for column in _OWN],
        select(*(bindparam(f"new_{column.name}", type_=column.type) for column in _OWN))
        .select_from(LEASES)
        .where(
            LEASES.c.name == bindparam("fence_name"),
            LEASES.c.holder == bindparam("fence_holder"),
            LEASES.c.epoch == bindparam("fence_epoch"),
        )
        .with_for_update(read=True, key_share=True),
    )
)
"""Inserts nothing if the fence does not hold (`leases.check`), in one statement."""
_CLOSE = Prepared(
    update(INVOCATIONS).where(*_RUNNING),
    sets=(
        "status",
        "status_reason",
        "error_code",
        "event_count",
        "ended_at",
        "result",
        "result_bytes",
        "failure",
        "node",
    ),
)
_LOCK = Prepared(select(INVOCATIONS.c.id).where(*_RUNNING).with_for_update())


class Outcome(msgspec.Struct, frozen=True):
    """The result of an invocation as JSON, and its failure."""

    result: bytes | None = None
    """None when there is none, or when it is too large to be kept."""
    result_bytes: int | None = None
    """The size of the result, also of one that is not kept."""
    failure: dict[str, Any] | None = None


NO_OUTCOME = Outcome()


class Wanted(msgspec.Struct, frozen=True):
    """Filters of a list; `exact` has values for some of `EXACT`."""

    exact: dict[str, str]
    status: str | None = None
    """One of the four terminal statuses, or `running`."""
    since: float | None = None
    until: float | None = None
    search: str | None = None
    """Part of one of `SEARCHED`."""


def opening(record: InvocationRecord, fence: Fence | None = None) -> Write:
    """Insert a running invocation; with a fence that does not hold, nothing."""
    values = asdict(record)
    values["id"] = values.pop("invocation_id")
    values["started_at"] = _seconds(record.started_at)
    if fence is None:
        return _INSERT, values
    owned = {f"new_{name}": value for name, value in values.items()} | {"new_owner": fence.holder}
    return _INSERT_FENCED, owned | {f"fence_{name}": value for name, value in fence._asdict().items()}


def closing(record: InvocationRecord, outcome: Outcome = NO_OUTCOME) -> Write:
    """Close it; changes nothing when it was closed already or never existed."""
    return _CLOSE, {
        "invocation": record.invocation_id,
        "status": record.status,
        "status_reason": record.status_reason,
        "error_code": record.error_code,
        "event_count": record.event_count,
        "ended_at": None if record.ended_at is None else _seconds(record.ended_at),
        "result": outcome.result,
        "result_bytes": outcome.result_bytes,
        "failure": outcome.failure,
        "node": record.node,
    }


async def close_all(
    tx: AsyncConnection,
    at: float,
    status: str,
    reason: str,
    error_code: str,
    failure: dict[str, Any] | None = None,
    owner: str | None = ANY_OWNER,
) -> list[str]:
    """Close all open invocations of a gateway and return them."""
    changes = {
        "status": status,
        "status_reason": reason,
        "error_code": error_code,
        "ended_at": at,
        "failure": failure,
    }
    left = (INVOCATIONS.c.status.is_(None), of_owner(INVOCATIONS.c.owner, owner))
    statement = update(INVOCATIONS).where(*left).values(**changes)
    return list((await tx.execute(statement.returning(INVOCATIONS.c.id))).scalars())


async def request_cancel(tx: AsyncConnection, id: str, reason: str) -> None:
    """Ask the gateway that runs it to cancel it."""
    wanted = (INVOCATIONS.c.id == id, INVOCATIONS.c.status.is_(None), INVOCATIONS.c.cancel_reason.is_(None))
    await tx.execute(update(INVOCATIONS).where(*wanted).values(cancel_reason=reason))


async def of_others(tx: AsyncConnection, owner: str | None, since: float) -> dict[str, bool]:
    """Invocations of other gateways that are open or began since then, and whether each is open."""
    theirs = (INVOCATIONS.c.owner.is_not(None), INVOCATIONS.c.owner != owner)
    columns = (INVOCATIONS.c.id, INVOCATIONS.c.status.is_(None).label("open"))
    looks = (INVOCATIONS.c.status.is_(None), INVOCATIONS.c.started_at >= since)  # an index each
    found = await tx.execute(union_all(*(select(*columns).where(*theirs, look) for look in looks)))
    return {row.id: row.open for row in found.all()}


async def with_outcomes(tx: AsyncConnection, ids: Sequence[str]) -> list[tuple[InvocationRecord, Outcome]]:
    """These invocations, and the outcome of each."""
    kept = (INVOCATIONS.c.result, INVOCATIONS.c.result_bytes, INVOCATIONS.c.failure)
    found = await tx.execute(
        select(*_RECORD, *kept).where(INVOCATIONS.c.id.in_(ids)).order_by(INVOCATIONS.c.started_at)
    )
    pairs = []
    for row in found.all():
        values = dict(row._mapping)
        outcome = Outcome(*(values.pop(column.name) for column in kept))
        pairs.append((_to_record(values), outcome))
    return pairs


async def to_cancel(tx: AsyncConnection, owner: str | None) -> list[tuple[str, str]]:
    """Open invocations of a gateway that it was asked to cancel, with the reasons."""
    left = (INVOCATIONS.c.status.is_(None), INVOCATIONS.c.cancel_reason.is_not(None))
    query = select(INVOCATIONS.c.id, INVOCATIONS.c.cancel_reason).where(*left, of_owner(INVOCATIONS.c.owner, owner))
    return [(row.id, row.cancel_reason) for row in (await tx.execute(query)).all()]


async def is_open(tx: AsyncConnection, id: str) -> bool:
    """Whether it is running; on PostgreSQL it cannot be closed before the transaction ends."""
    return bool((await _LOCK.run(tx, {"invocation": id})).rows)


async def running_of(
    tx: AsyncConnection, org_id: str | None, package_id: str, version: str, most: int = 20
) -> list[str]:
    """Ids of running invocations of a version, for one org or for all (None)."""
    query = select(INVOCATIONS.c.id).where(
        INVOCATIONS.c.status.is_(None),
        INVOCATIONS.c.package_id == package_id,
        INVOCATIONS.c.package_version == version,
    )
    query = query if org_id is None else query.where(INVOCATIONS.c.org_id == org_id)
    return list((await tx.execute(query.order_by(INVOCATIONS.c.id).limit(most))).scalars())


async def get(tx: AsyncConnection, id: str) -> InvocationRecord | None:
    """Find an invocation by id."""
    found = (await tx.execute(select(*_RECORD).where(INVOCATIONS.c.id == id))).first()
    return None if found is None else _record(found)


async def outcome(tx: AsyncConnection, id: str) -> Outcome:
    """The outcome of an invocation; nothing while it runs."""
    columns = (INVOCATIONS.c.result, INVOCATIONS.c.result_bytes, INVOCATIONS.c.failure)
    found = (await tx.execute(select(*columns).where(INVOCATIONS.c.id == id))).first()
    return NO_OUTCOME if found is None else Outcome(*found)


async def count(tx: AsyncConnection, org_id: str, execution_id: str) -> int:
    """The number of attempts at an execution."""
    same = (INVOCATIONS.c.execution_id == execution_id, INVOCATIONS.c.org_id == org_id)
    return int(await tx.scalar(select(func.count()).select_from(INVOCATIONS).where(*same)) or 0)


async def select_part(
    tx: AsyncConnection, org_id: str | None, project_id: str | None, page: Page, wanted: Wanted
) -> Part[InvocationRecord]:
    """A page of the invocations that an org or project can see, newest first."""
    query = select(*_RECORD).where(*_conditions(wanted))
    if org_id is not None:
        query = query.where(INVOCATIONS.c.org_id == org_id)
    if project_id is not None:
        own = or_(INVOCATIONS.c.project_id.is_(None), INVOCATIONS.c.project_id == project_id)
        query = query.where(own)
    return await _part(tx, query, page)


async def _part(tx: AsyncConnection, query: Select[Any], page: Page) -> Part[InvocationRecord]:
    return await select_page(tx, query, INVOCATIONS.c.started_at, INVOCATIONS.c.id, page, _record)


def _conditions(wanted: Wanted) -> list[ColumnElement[bool]]:
    found: list[ColumnElement[bool]] = [INVOCATIONS.c[name] == value for name, value in wanted.exact.items()]
    found += matching(wanted.search, *(INVOCATIONS.c[name] for name in SEARCHED))
    if wanted.status is not None:
        running = wanted.status == "running"
        found.append(INVOCATIONS.c.status.is_(None) if running else INVOCATIONS.c.status == wanted.status)
    if wanted.since is not None:
        found.append(INVOCATIONS.c.started_at >= wanted.since)
    if wanted.until is not None:
        found.append(INVOCATIONS.c.started_at < wanted.until)
    return found


def _record(row: Row[Any]) -> InvocationRecord:
    return _to_record(dict(row._mapping))


def _to_record(values: dict[str, Any]) -> InvocationRecord:
    values["invocation_id"] = values.pop("id")
    return InvocationRecord(**{**values, **{name: _text(values[name]) for name in _TIMES}})


def _text(seconds: float | None) -> str | None:
    """The stored time as text; adds 0.1 ms, because a float may be slightly below its whole millisecond."""
    return None if seconds is None else moment(seconds + 0.0001)


def _seconds(text: str) -> float:
    return datetime.fromisoformat(text).astimezone(UTC).timestamp()
