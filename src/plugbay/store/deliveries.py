"""Deliveries of events to hooks, and every attempt. Statements only.

Each change of a delivery names the state it has to be in, so of two who want to change it one finds that it is late.
"""

from __future__ import annotations

from typing import Any

import msgspec
from sqlalchemy import ColumnElement, func, or_, select
from sqlalchemy.ext.asyncio import AsyncConnection

from plugbay.store import rows
from plugbay.store.pages import Page, Part
from plugbay.store.rows import Tenant
from plugbay.store.statements import new_row
from plugbay.store.tables.deliveries import DELIVERIES, DELIVERY_ATTEMPTS

_INSERT = new_row(DELIVERIES)

PENDING, DELIVERING, DELIVERED = "pending", "delivering", "delivered"
FAILED, DEAD_LETTER, DROPPED = "failed", "dead_letter", "dropped"
INTERRUPTED = "interrupted"
"""The outcome of an attempt that its server did not live to see."""
ENDED = (DELIVERED, FAILED, DEAD_LETTER, DROPPED)


class Delivery(msgspec.Struct, frozen=True, kw_only=True):
    """One event for one binding, over all attempts."""

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
    """Attempts whose server ended before the hook answered, since the delivery was made or replayed."""


class Attempt(msgspec.Struct, frozen=True, kw_only=True):
    """One attempt at a delivery; without an outcome it is under way, or its server has just been killed."""

    delivery_id: str
    attempt: int
    outcome: str | None
    error_code: str | None
    invocation_id: str | None
    started_at: float
    ended_at: float | None


async def insert(tx: AsyncConnection, delivery: Delivery) -> bool:
    """False, and nothing happened, when the binding is to be told of this event already."""
    return bool((await _INSERT.run(tx, msgspec.structs.asdict(delivery))).rows)


async def find(tx: AsyncConnection, id: str) -> Delivery | None:
    return await rows.find(tx, DELIVERIES, Delivery, id)


async def claim(
    tx: AsyncConnection, owner: str, now: float, lease_until: float, horizon: float, limit: int
) -> list[Delivery]:
    """Take what is due; each has its next attempt with that. The longest due first.

    What seems to be due beyond the horizon was written before the clock was set back, and is due. Whoever else claims
    at the same time passes over what is being claimed here.
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
    """Whoever held these is not at them any more."""
    held = (DELIVERIES.c.lease_owner == owner, DELIVERIES.c.status == DELIVERING)
    await tx.execute(DELIVERIES.update().where(*held).values(lease_until=now))


async def interrupt_lost(
    tx: AsyncConnection, now: float, horizon: float, most: int, held: frozenset[str] = frozenset()
) -> int:
    """What nobody holds any more was interrupted: it is due again, and the attempt counts against nobody.

    After `most` interruptions it is a dead letter: it may be what ends the servers that tell of it. What is `held` is
    not lost, even if the clock was set forward beyond its lease.
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
    """The clock was set back by so much: what was due in a while is due in the same while."""
    for status, at in ((PENDING, DELIVERIES.c.due_at), (DELIVERING, DELIVERIES.c.lease_until)):
        waiting = (DELIVERIES.c.status == status, at > now)
        await tx.execute(DELIVERIES.update().where(*waiting).values({at: at - seconds}))


async def renew(tx: AsyncConnection, owner: str, ids: frozenset[str], lease_until: float) -> None:
    """Whoever holds these still works on them."""
    held = (DELIVERIES.c.id.in_(ids), DELIVERIES.c.lease_owner == owner, DELIVERIES.c.status == DELIVERING)
    await tx.execute(DELIVERIES.update().where(*held).values(lease_until=lease_until))


async def conclude(tx: AsyncConnection, claimed: Delivery, attempt: dict[str, Any], **values: Any) -> bool:
    """How an attempt ended; False, and nothing happened, when its lease was lost meanwhile."""
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
    """It is due again, with so many more attempts; False when it was delivered, or has not ended."""
    again = (DELIVERIES.c.status.in_((FAILED, DEAD_LETTER, DROPPED)),)
    values = {"status": PENDING, "reason": None, "due_at": now, "completed_at": None, "interruptions": 0}
    return await rows.change(tx, DELIVERIES, id, *again, **values, attempt_limit=DELIVERIES.c.attempts + more)


async def drop(tx: AsyncConnection, binding_id: str, reason: str, since: float, now: float) -> int:
    """Nobody is told any more of what waits for this binding since that moment or longer."""
    waiting = (
        DELIVERIES.c.binding_id == binding_id,
        DELIVERIES.c.status == PENDING,
        DELIVERIES.c.created_at <= since,
    )
    values = {"status": DROPPED, "reason": reason, "completed_at": now}
    return (await tx.execute(DELIVERIES.update().where(*waiting).values(**values))).rowcount


async def newest(tx: AsyncConnection) -> float | None:
    """The last moment that is written down about what waits or is being told; None: there is no such thing."""
    waiting = DELIVERIES.c.status.in_((PENDING, DELIVERING))
    of_attempts = select(func.max(DELIVERY_ATTEMPTS.c.started_at), func.max(DELIVERY_ATTEMPTS.c.ended_at)).where(
        DELIVERY_ATTEMPTS.c.delivery_id.in_(select(DELIVERIES.c.id).where(waiting))
    )
    made = await tx.scalar(select(func.max(DELIVERIES.c.created_at)).where(waiting))
    found = [made, *(await tx.execute(of_attempts)).one()]
    return max((at for at in found if at is not None), default=None)


async def next_due(
    tx: AsyncConnection, now: float, due_horizon: float, lease_horizon: float, held: frozenset[str] = frozenset()
) -> float | None:
    """When there is something to do again: a delivery is due, or one that is not `held` was lost; None: never.

    What lies beyond its horizon was written before the clock was set back, and is due now.
    """
    at, until = DELIVERIES.c.due_at, DELIVERIES.c.lease_until
    pending = DELIVERIES.c.status == PENDING
    leased = (DELIVERIES.c.status == DELIVERING, DELIVERIES.c.id.not_in(held))
    # One aggregate in each of them: so each is one look into an index.
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
    """How many deliveries there are of each status."""
    query = select(DELIVERIES.c.status, func.count().label("number")).group_by(DELIVERIES.c.status)
    return {row.status: row.number for row in (await tx.execute(query)).all()}


async def attempts(tx: AsyncConnection, id: str) -> list[Attempt]:
    query = select(DELIVERY_ATTEMPTS).where(DELIVERY_ATTEMPTS.c.delivery_id == id)
    return await rows.find_all(tx, query.order_by(DELIVERY_ATTEMPTS.c.attempt), Attempt)


async def page(tx: AsyncConnection, part: Page, tenant: Tenant, **said: str | None) -> Part[Delivery]:
    """Deliveries of a tenant; `said` are columns and their values."""
    return await rows.page(tx, DELIVERIES, Delivery, part, tenant, said)
