"""Finds, counts and deletes records past their retention time.

Only finished records that no remaining record refers to are ever deleted. `server.domain.retention` decides how long
each kind is kept. Rows are selected without a lock, and checked again in the transaction that deletes them.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import msgspec
from sqlalchemy import Column, ColumnElement, Select, Table, and_, delete, false, func, not_, or_, select, tuple_
from sqlalchemy.ext.asyncio import AsyncConnection

from plugbay.store.audit import note_removal
from plugbay.store.deliveries import DEAD_LETTER, DELIVERED, DROPPED, FAILED
from plugbay.store.idempotency import RUNNING
from plugbay.store.tables import (
    AUDIT,
    CALLS,
    COMPACTIONS,
    DELIVERIES,
    DELIVERY_ATTEMPTS,
    EVENTS,
    HARNESS_EXECUTIONS,
    IDEMPOTENCY,
    INVOCATIONS,
    JOURNEYS,
    RUNS,
    SPENDING,
    TOKENS,
)

Cutoffs = Mapping[str, float | None]
"""Per kind: records finished before this time are deleted; None: none."""

Key = tuple[Any, ...]
"""A record: its time and its primary key."""


class Found:
    """Conditions per kind. With `planned`, as if the kinds before had been deleted already."""

    def __init__(self, cutoffs: Cutoffs, *, planned: bool = False) -> None:
        self._cutoffs = cutoffs
        self._planned = planned

    def calls(self) -> ColumnElement[bool]:
        return self._before(CALLS.c.started_at, "calls")

    def audit(self) -> ColumnElement[bool]:
        return self._before(AUDIT.c.at, "audit")

    def answers(self) -> ColumnElement[bool]:
        return and_(IDEMPOTENCY.c.state != RUNNING, self._before(IDEMPOTENCY.c.expires_at, "answers"))

    def tokens(self) -> ColumnElement[bool]:
        expired = self._before(TOKENS.c.expires_at, "tokens")
        if not self._planned:
            return expired
        going = select(INVOCATIONS.c.id).where(INVOCATIONS.c.id == TOKENS.c.invocation_id, self.invocations())
        return and_(expired, not_(going.exists()))

    def journeys(self) -> ColumnElement[bool]:
        return self._before(JOURNEYS.c.updated_at, "journeys")

    def deliveries(self) -> ColumnElement[bool]:
        ended = DELIVERIES.c.status.in_((DELIVERED, FAILED, DROPPED))
        return and_(ended, self._before(DELIVERIES.c.completed_at, "deliveries"))

    def dead_letters(self) -> ColumnElement[bool]:
        return and_(DELIVERIES.c.status == DEAD_LETTER, self._before(DELIVERIES.c.completed_at, "dead_letters"))

    def events(self) -> ColumnElement[bool]:
        told = select(DELIVERIES.c.id).where(DELIVERIES.c.event_id == EVENTS.c.id, *self._staying_deliveries())
        return and_(self._before(EVENTS.c.occurred_at, "events"), not_(told.exists()))

    def invocations(self) -> ColumnElement[bool]:
        """Filtered by start (indexed) and by end (decisive); unfinished rows have no end."""
        over = (
            self._before(INVOCATIONS.c.started_at, "invocations"),
            self._before(INVOCATIONS.c.ended_at, "invocations"),
        )
        attempts = select(DELIVERY_ATTEMPTS.c.attempt).where(DELIVERY_ATTEMPTS.c.invocation_id == INVOCATIONS.c.id)
        if self._planned:
            attempts = attempts.join(DELIVERIES, DELIVERIES.c.id == DELIVERY_ATTEMPTS.c.delivery_id)
            attempts = attempts.where(*self._staying_deliveries())
        runs = select(RUNS.c.id).where(RUNS.c.invocation_id == INVOCATIONS.c.id)
        compactions = select(COMPACTIONS.c.id).where(COMPACTIONS.c.invocation_id == INVOCATIONS.c.id)
        return and_(*over, *(not_(naming.exists()) for naming in (attempts, runs, compactions)))

    def spending(self) -> ColumnElement[bool]:
        """Spending counters are needed as long as their work can continue, so they go with its last record."""
        records = select(INVOCATIONS.c.id).where(INVOCATIONS.c.execution_id == SPENDING.c.execution_id)
        if self._planned:
            records = records.where(not_(self.invocations()))
        executions = select(HARNESS_EXECUTIONS.c.id).where(HARNESS_EXECUTIONS.c.id == SPENDING.c.execution_id)
        old = self._before(SPENDING.c.updated_at, "spending")
        return and_(old, not_(records.exists()), not_(executions.exists()))

    def _before(self, at: Column[Any], kind: str) -> ColumnElement[bool]:
        moment = self._cutoffs[kind]
        # Never NULL, so that NOT of it is true for rows without this time.
        return false() if moment is None else and_(at.is_not(None), at < moment)

    def _staying_deliveries(self) -> tuple[ColumnElement[bool], ...]:
        return (not_(or_(self.deliveries(), self.dead_letters())),) if self._planned else ()


class Kind(msgspec.Struct, frozen=True):
    """One kind of record: table, indexed time column, and condition for deletion."""

    table: Table
    at: Column[Any]
    may_go: Callable[[Found], ColumnElement[bool]]
    along: Column[Any] | None = None
    """Foreign key of the child table whose rows are deleted with it."""
    before: Callable[[AsyncConnection, Sequence[Any]], Awaitable[None]] | None = None
    """Called with the ids of rows that are about to be deleted."""

    @property
    def keys(self) -> tuple[Column[Any], ...]:
        return tuple(self.table.primary_key.columns)


KINDS = {
    "calls": Kind(CALLS, CALLS.c.started_at, Found.calls),
    "deliveries": Kind(DELIVERIES, DELIVERIES.c.completed_at, Found.deliveries, DELIVERY_ATTEMPTS.c.delivery_id),
    "dead_letters": Kind(DELIVERIES, DELIVERIES.c.completed_at, Found.dead_letters, DELIVERY_ATTEMPTS.c.delivery_id),
    "events": Kind(EVENTS, EVENTS.c.occurred_at, Found.events),
    "invocations": Kind(INVOCATIONS, INVOCATIONS.c.started_at, Found.invocations, TOKENS.c.invocation_id),
    "spending": Kind(SPENDING, SPENDING.c.updated_at, Found.spending),
    "audit": Kind(AUDIT, AUDIT.c.at, Found.audit, before=note_removal),
    "answers": Kind(IDEMPOTENCY, IDEMPOTENCY.c.expires_at, Found.answers),
    "tokens": Kind(TOKENS, TOKENS.c.expires_at, Found.tokens),
    "journeys": Kind(JOURNEYS, JOURNEYS.c.updated_at, Found.journeys),
}
"""All kinds in order of deletion: referring kinds before referenced ones."""


def old(kind: str, cutoffs: Cutoffs, limit: int, after: Key | None = None) -> Select[Any]:
    """Query for deletable records, oldest first, after the last one seen."""
    what = KINDS[kind]
    order = (what.at, *what.keys)
    query = select(*order).where(what.may_go(Found(cutoffs))).order_by(*order).limit(limit)
    return query if after is None else query.where(tuple_(*order) > after)


async def find(tx: AsyncConnection, kind: str, cutoffs: Cutoffs, limit: int, after: Key | None = None) -> list[Key]:
    """At most `limit` deletable records, oldest first, after the last one seen."""
    return [tuple(row) for row in (await tx.execute(old(kind, cutoffs, limit, after))).all()]


async def remove(tx: AsyncConnection, kind: str, cutoffs: Cutoffs, found: Sequence[Key]) -> int:
    """Delete those of these records that are still deletable, with their children; returns how many.

    Rows locked by another transaction are skipped until the next run.
    """
    what = KINDS[kind]
    still = select(*what.keys).where(_among(what, [key[1:] for key in found]), what.may_go(Found(cutoffs)))
    keys = [tuple(row) for row in (await tx.execute(still.with_for_update(skip_locked=True))).all()]
    if not keys:
        return 0
    if what.before is not None:
        await what.before(tx, [key[0] for key in keys])
    if what.along is not None:
        await tx.execute(delete(what.along.table).where(what.along.in_([key[0] for key in keys])))
    return (await tx.execute(delete(what.table).where(_among(what, keys)))).rowcount


async def count(tx: AsyncConnection, kind: str, cutoffs: Cutoffs) -> int:
    """How many records would be deleted if all kinds ran in order."""
    what = KINDS[kind]
    query = select(func.count()).select_from(what.table).where(what.may_go(Found(cutoffs, planned=True)))
    return int(await tx.scalar(query) or 0)


def _among(what: Kind, keys: Sequence[Key]) -> ColumnElement[bool]:
    if len(what.keys) == 1:
        return what.keys[0].in_([key[0] for key in keys])
    return tuple_(*what.keys).in_(keys)
