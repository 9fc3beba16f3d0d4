"""`Events`: what happened, and who is to be told of it.

Owns that an event and its deliveries are written in the transaction that makes the event true: either all of it is
there afterwards, or nothing is. Telling is the dispatcher's.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from plugbay.server.domain import backoff
from plugbay.server.domain.causes import MAX_CAUSES
from plugbay.server.domain.clock import Clock, stamp
from plugbay.server.domain.ids import Ids, new_id
from plugbay.server.domain.principal import Principal
from plugbay.server.domain.sessions import tenant
from plugbay.server.domain.workers import Bound, Workers
from plugbay.store import deliveries as delivery_rows
from plugbay.store import events as rows
from plugbay.store.database import Database, Tx
from plugbay.store.deliveries import Delivery
from plugbay.store.events import Event
from plugbay.store.pages import Page, Part

RUN_COMPLETED, RUN_FAILED, RUN_CANCELLED = "run.completed", "run.failed", "run.cancelled"
CHAIN_COMPACTED = "chain.compacted"


@dataclass(frozen=True, slots=True)
class Happening:
    """Something that is about to be true."""

    type: str
    subject_kind: str
    subject_id: str
    cause_id: str
    """The run or the compaction that makes it true, once."""
    org_id: str
    project_id: str | None
    session_id: str
    chain_id: str
    run_id: str | None
    summary: dict[str, Any]
    trace_id: str
    cause_depth: int
    """Events that led to this one, and itself."""


class Events:
    """All events."""

    def __init__(self, database: Database, workers: Workers, clock: Clock, ids: Ids = new_id) -> None:
        self._database = database
        self._workers = workers
        self._clock = clock
        self._ids = ids
        self.told: Callable[[], object] = lambda: None
        """Called when deliveries have come into being: somebody may want to begin at once."""

    async def record(self, tx: Tx, happening: Happening) -> None:
        """Write down an event and its deliveries, as part of what makes it true. A second time it changes nothing."""
        now = self._clock.now()
        event = Event(
            id=self._ids("evt_"),
            org_id=happening.org_id,
            project_id=happening.project_id,
            type=happening.type,
            subject_kind=happening.subject_kind,
            subject_id=happening.subject_id,
            cause_id=happening.cause_id,
            session_id=happening.session_id,
            chain_id=happening.chain_id,
            run_id=happening.run_id,
            summary=happening.summary,
            trace_id=happening.trace_id,
            cause_depth=happening.cause_depth,
            occurred_at=now,
        )
        if not await rows.insert(tx, event):
            return
        hooks = await self._workers.serving(
            tx, "hook", event.org_id, event.project_id, happening.session_id, event.type
        )
        for hook in hooks:
            await delivery_rows.insert(tx, self._delivery(event, hook, now))
        if hooks:
            self._database.after_commit(self.told)

    def _delivery(self, event: Event, hook: Bound, now: float) -> Delivery:
        too_deep = event.cause_depth > MAX_CAUSES
        return Delivery(
            id=self._ids("del_"),
            event_id=event.id,
            binding_id=hook.binding_id,
            org_id=event.org_id,
            project_id=event.project_id,
            status=delivery_rows.DROPPED if too_deep else delivery_rows.PENDING,
            reason="causation_depth" if too_deep else None,
            attempts=0,
            attempt_limit=backoff.ATTEMPTS,
            due_at=now,
            lease_owner=None,
            lease_until=None,
            error_code=None,
            invocation_id=None,
            created_at=now,
            completed_at=now if too_deep else None,
        )

    async def page(self, caller: Principal, part: Page, **said: str | None) -> Part[Event]:
        async with self._database.reading() as tx:
            return await rows.page(tx, part, tenant(caller), **said)


def told_as(event: Event) -> dict[str, Any]:
    """An event as hooks are told of it."""
    return {
        "type": event.type,
        "occurred_at": stamp(event.occurred_at),
        "subject": {"kind": event.subject_kind, "id": event.subject_id},
        "summary": event.summary,
    }
