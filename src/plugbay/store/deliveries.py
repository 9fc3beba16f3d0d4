"""Deliveries of events to hooks, and their attempts.

Each update names the state that the delivery must be in, so of two concurrent updates one fails.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec.structs import asdict
from sqlalchemy import ColumnElement, func, or_, select
from sqlalchemy.ext.asyncio import AsyncConnection

from plugbay.store import rows
from plugbay.store.pages import Page, Part
from plugbay.store.rows import Tenant
from plugbay.store.statements import new_row
from plugbay.store.tables import DELIVERIES, DELIVERY_ATTEMPTS

_INSERT = new_row(DELIVERIES)

PENDING, DELIVERING, DELIVERED = "pending", "delivering", "delivered"
FAILED, DEAD_LETTER, DROPPED = "failed", "dead_letter", "dropped"
INTERRUPTED = "interrupted"
"""Outcome of an attempt whose server died before it ended."""
ENDED = (DELIVERED, FAILED, DEAD_LETTER, DROPPED)


class Delivery(msgspec.Struct, frozen=True, kw_only=True):
    """One event for one binding, with all attempts."""

    id: str
    event_id: str
    binding_id: str
    org_id: str
    project_id: str | None
    status: str
    reason: str | None
    attempts: int
    attempt_limit: int
    due_at: float
    lease_owner: str | None
    lease_until: float | None
    error_code: str | None
    invocation_id: str | None
    created_at: float
    completed_at: float | None
    interruptions: int = 0
    """Attempts that were cut short by the end of a server, since the delivery was created or replayed."""
    test: bool = False
    """Whether an operator sent it as a test."""


class Attempt(msgspec.Struct, frozen=True, kw_only=True):
    """One attempt. Without an outcome it is running, or its server was just killed."""

    delivery_id: str
    attempt: int
    outcome: str | None
    error_code: str | None
    invocation_id: str | None
    started_at: float
    ended_at: float | None
    failure: dict[str, Any] | None = None


async def insert(tx: AsyncConnection, delivery: Delivery) -> bool:
    """Insert; False when the binding has a delivery of this event already."""
    return bool((await _INSERT.run(tx, asdict(delivery))).rows)


async def find(tx: AsyncConnection, id: str) -> Delivery | None:
    return await rows.find(tx, DELIVERIES, Delivery, id)


async def claim(
    tx: AsyncConnection, owner: str, now: float, lease_until: float, horizon: float, limit: int
) -> list[Delivery]:
    """Claim due deliveries, longest due first; each claim starts an attempt.

    A due time beyond the horizon was written before the clock was set back, and counts as due. Concurrent claimers skip
    locked rows.
    """
    due = (
        select(DELIVERIES.c.id)
        .where(DELIVERIES.c.status == PENDING, _over(DELIVERIES.c.due_at, now, horizon))
        .order_by(DELIVERIES.c.due_at, DELIVERIES.c.id)
        .limit(limit)
        .with_for_update(skip_locked=True)
    )
    ids = list((await tx.execute(due)).scalars())
    if not ids:
        return []
    taken = {"status": DELIVERING, "lease_owner": owner, "lease_until": lease_until}
    change = DELIVERIES.update().where(DELIVERIES.c.id.in_(ids))
    await tx.execute(change.values(**taken, attempts=DELIVERIES.c.attempts + 1))
    query = select(DELIVERIES).where(DELIVERIES.c.id.in_(ids)).order_by(DELIVERIES.c.due_at, DELIVERIES.c.id)
    claimed = await rows.find_all(tx, query, Delivery)
    attempts = [
        Attempt(
            delivery_id=each.id,
            attempt=each.attempts,
            outcome=None,
            error_code=None,
            invocation_id=None,
            started_at=now,
            ended_at=None,
        )
        for each in claimed
    ]
    await rows.insert(tx, DELIVERY_ATTEMPTS, *attempts)
    return claimed


def _over(at: ColumnElement[float], now: float, horizon: float) -> ColumnElement[bool]:
    return or_(at <= now, at > horizon)


async def release(tx: AsyncConnection, owner: str, now: float) -> None:
    """Release leases whose holder has stopped."""
    held = (DELIVERIES.c.lease_owner == owner, DELIVERIES.c.status == DELIVERING)
    await tx.execute(DELIVERIES.update().where(*held).values(lease_until=now))


async def interrupt_lost(
    tx: AsyncConnection, now: float, horizon: float, most: int, held: frozenset[str] = frozenset()
) -> int:
    """Requeue deliveries whose lease expired; the interrupted attempt does not count as a failure.

    After `most` interruptions a delivery becomes a dead letter, because it may be what kills its servers. Deliveries in
    `held` are not lost, even if the clock was set forward beyond their lease.
    """
    lost = select(DELIVERIES.c.id).where(
        DELIVERIES.c.status == DELIVERING,
        _over(DELIVERIES.c.lease_until, now, horizon),
        DELIVERIES.c.id.not_in(held),
    )
    ids = list((await tx.execute(lost.with_for_update(skip_locked=True))).scalars())
    if not ids:
        return 0
    again = {"status": PENDING, "due_at": now, "attempt_limit": DELIVERIES.c.attempt_limit + 1}
    over = {"status": DEAD_LETTER, "reason": "interrupted_too_often", "error_code": "lease_lost", "completed_at": now}
    counted = {"interruptions": DELIVERIES.c.interruptions + 1, "lease_owner": None, "lease_until": None}
    for too_often, values in ((True, over), (False, again)):
        which = DELIVERIES.c.interruptions >= most if too_often else DELIVERIES.c.status == DELIVERING
        await tx.execute(DELIVERIES.update().where(DELIVERIES.c.id.in_(ids), which).values(**values, **counted))
    unanswered = (DELIVERY_ATTEMPTS.c.delivery_id.in_(ids), DELIVERY_ATTEMPTS.c.outcome.is_(None))
    await tx.execute(DELIVERY_ATTEMPTS.update().where(*unanswered).values(outcome=INTERRUPTED, ended_at=now))
    return len(ids)


async def set_back(tx: AsyncConnection, seconds: float, now: float) -> None:
    """Shift due times after the clock was set back."""
    for status, at in ((PENDING, DELIVERIES.c.due_at), (DELIVERING, DELIVERIES.c.lease_until)):
        waiting = (DELIVERIES.c.status == status, at > now)
        await tx.execute(DELIVERIES.update().where(*waiting).values({at: at - seconds}))


async def renew(tx: AsyncConnection, owner: str, ids: frozenset[str], lease_until: float) -> None:
    """Extend the leases of these deliveries."""
    held = (DELIVERIES.c.id.in_(ids), DELIVERIES.c.lease_owner == owner, DELIVERIES.c.status == DELIVERING)
    await tx.execute(DELIVERIES.update().where(*held).values(lease_until=lease_until))


async def conclude(tx: AsyncConnection, claimed: Delivery, attempt: dict[str, Any], **values: Any) -> bool:
    """Record the outcome of an attempt; False when its lease was lost meanwhile."""
    held = (
        DELIVERIES.c.status == DELIVERING,
        DELIVERIES.c.lease_owner == claimed.lease_owner,
        DELIVERIES.c.attempts == claimed.attempts,
    )
    if not await rows.change(tx, DELIVERIES, claimed.id, *held, lease_owner=None, lease_until=None, **values):
        return False
    of = (DELIVERY_ATTEMPTS.c.delivery_id == claimed.id, DELIVERY_ATTEMPTS.c.attempt == claimed.attempts)
    await tx.execute(DELIVERY_ATTEMPTS.update().where(*of).values(**attempt))
    return True


async def replay(tx: AsyncConnection, id: str, now: float, more: int) -> bool:
    """Replay: make it due again with more attempts; False when it was delivered or has not ended."""
    again = (DELIVERIES.c.status.in_((FAILED, DEAD_LETTER, DROPPED)),)
    values = {"status": PENDING, "reason": None, "due_at": now, "completed_at": None, "interruptions": 0}
    return await rows.change(tx, DELIVERIES, id, *again, **values, attempt_limit=DELIVERIES.c.attempts + more)


async def drop(tx: AsyncConnection, binding_id: str, reason: str, since: float, now: float) -> int:
    """Cancel waiting deliveries of this binding up to that time."""
    waiting = (
        DELIVERIES.c.binding_id == binding_id,
        DELIVERIES.c.status == PENDING,
        DELIVERIES.c.created_at <= since,
    )
    values = {"status": DROPPED, "reason": reason, "completed_at": now}
    return (await tx.execute(DELIVERIES.update().where(*waiting).values(**values))).rowcount


async def newest(tx: AsyncConnection) -> float | None:
    """The latest time stored for waiting or running deliveries; None when there are none."""
    waiting = DELIVERIES.c.status.in_((PENDING, DELIVERING))
    of_attempts = select(func.max(DELIVERY_ATTEMPTS.c.started_at), func.max(DELIVERY_ATTEMPTS.c.ended_at)).where(
        DELIVERY_ATTEMPTS.c.delivery_id.in_(select(DELIVERIES.c.id).where(waiting))
    )
    created = await tx.scalar(select(func.max(DELIVERIES.c.created_at)).where(waiting))
    found = [created, *(await tx.execute(of_attempts)).one()]
    return max((at for at in found if at is not None), default=None)


async def next_due(
    tx: AsyncConnection, now: float, due_horizon: float, lease_horizon: float, held: frozenset[str] = frozenset()
) -> float | None:
    """When the next delivery is due, or the next lease not in `held` expires; None when there is nothing to do.

    A time beyond its horizon was written before the clock was set back, and counts as now.
    """
    at, until = DELIVERIES.c.due_at, DELIVERIES.c.lease_until
    pending = DELIVERIES.c.status == PENDING
    leased = (DELIVERIES.c.status == DELIVERING, DELIVERIES.c.id.not_in(held))
    # One aggregate per query, so that each is a single index lookup.
    looks = [
        select(each).where(*which).scalar_subquery()
        for column, which in ((at, (pending,)), (until, leased))
        for each in (func.min(column), func.max(column))
    ]
    first, last, lost_first, lost_last = (await tx.execute(select(*looks))).one()
    if (last is not None and last > due_horizon) or (lost_last is not None and lost_last > lease_horizon):
        return now
    return min((found for found in (first, lost_first) if found is not None), default=None)


async def counts(tx: AsyncConnection) -> dict[str, int]:
    """Number of deliveries by status."""
    query = select(DELIVERIES.c.status, func.count().label("number")).group_by(DELIVERIES.c.status)
    return {row.status: row.number for row in (await tx.execute(query)).all()}


async def attempts(tx: AsyncConnection, id: str) -> list[Attempt]:
    query = select(DELIVERY_ATTEMPTS).where(DELIVERY_ATTEMPTS.c.delivery_id == id)
    return await rows.find_all(tx, query.order_by(DELIVERY_ATTEMPTS.c.attempt), Attempt)


SEARCHED = ("id", "binding_id", "event_id", "error_code")


async def page(
    tx: AsyncConnection, part: Page, tenant: Tenant, search: str | None = None, **filters: str | bool | None
) -> Part[Delivery]:
    """A page of the deliveries of a tenant; `filters` are column values, `search` is part of one of `SEARCHED`."""
    return await rows.page(tx, DELIVERIES, Delivery, part, tenant, filters, search=search, searched=SEARCHED)
