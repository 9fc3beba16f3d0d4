"""`Deliveries`: what is to be told to whom, for those who look at it and those who want it told again.

Owns who sees a delivery and when it may be replayed. How it is told is the dispatcher's.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from plugbay.host.calls.invocation_result import InvocationResult
from plugbay.model.errors import Failure, Outcome
from plugbay.server.domain.audit import Audit
from plugbay.server.domain.background import durably
from plugbay.server.domain.clock import Clock, stamp
from plugbay.server.domain.errors import conflict, not_found
from plugbay.server.domain.ids import Ids, new_id
from plugbay.server.domain.meters import Meters
from plugbay.server.domain.principal import Principal
from plugbay.server.domain.provenance import MAX_CAUSES
from plugbay.server.domain.sessions import tenant
from plugbay.server.domain.workers import BoundExport, Job, Workers, WorkRefused, error_code
from plugbay.store import deliveries as rows
from plugbay.store import events as event_rows
from plugbay.store.database import Database, Tx
from plugbay.store.deliveries import Attempt, Delivery
from plugbay.store.events import Event
from plugbay.store.failures import StoreUnavailable
from plugbay.store.pages import Page, Part

RUN_COMPLETED, RUN_FAILED, RUN_CANCELLED = "run.completed", "run.failed", "run.cancelled"
CHAIN_COMPACTED = "chain.compacted"


@dataclass(frozen=True, slots=True)
class NewEvent:
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

    async def record(self, tx: Tx, happening: NewEvent) -> None:
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
        if not await event_rows.insert(tx, event):
            return
        hooks = await self._workers.serving(
            tx, "hook", event.org_id, event.project_id, happening.session_id, event.type
        )
        for hook in hooks:
            await rows.insert(tx, self._delivery(event, hook, now))
        if hooks:
            self._database.after_commit(self.told)

    def _delivery(self, event: Event, hook: BoundExport, now: float) -> Delivery:
        too_deep = event.cause_depth > MAX_CAUSES
        return Delivery(
            id=self._ids("del_"),
            event_id=event.id,
            binding_id=hook.binding_id,
            org_id=event.org_id,
            project_id=event.project_id,
            status=rows.DROPPED if too_deep else rows.PENDING,
            reason="causation_depth" if too_deep else None,
            attempts=0,
            attempt_limit=ATTEMPTS,
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
            return await event_rows.page(tx, part, tenant(caller), **said)


def hook_input(event: Event) -> dict[str, Any]:
    """An event as hooks are told of it."""
    return {
        "type": event.type,
        "occurred_at": stamp(event.occurred_at),
        "subject": {"kind": event.subject_kind, "id": event.subject_id},
        "summary": event.summary,
    }


FIRST = 1.0
LONGEST = 300.0
"""Seconds before the second attempt, doubled before each further one, and never more than five minutes."""

ATTEMPTS = 8
"""In all: the last comes about two minutes after the first, longer where a hook says so itself."""

INTERRUPTIONS = 20
"""Attempts that end with their server, because it was killed or stopped before the hook answered. They do not count as
failures; but an event whose telling ends the server each time must not be told for ever."""

JITTER = 0.5
"""The share of the pause that is left to chance, so that what failed together is not tried again together."""


def retry_pause(attempts: int, chance: float, wished: float | None = None) -> float:
    """Seconds until the next attempt after `attempts` of them. `chance` is from 0 to 1; `wished` is the hook's word."""
    doubled = min(FIRST * 2.0 ** min(attempts - 1, 32), LONGEST)
    waited = doubled * (1.0 - JITTER + JITTER * chance)
    return waited if wished is None else min(max(waited, wished), LONGEST)


DISABLED = "binding_disabled"


class Deliveries:
    """All deliveries."""

    def __init__(self, database: Database, audit: Audit, clock: Clock) -> None:
        self._database = database
        self._audit = audit
        self._clock = clock
        self.replayed: Callable[[], object] = lambda: None
        """Called when something is due again."""

    async def get(self, caller: Principal, id: str) -> tuple[Delivery, Event, list[Attempt]]:
        """A delivery, what it tells of, and every attempt at it."""
        async with self._database.reading() as tx:
            delivery = await self._existing(tx, caller, id)
            event = await event_rows.find(tx, delivery.event_id)
            assert event is not None
            return delivery, event, await rows.attempts(tx, id)

    async def page(self, caller: Principal, part: Page, **said: str | None) -> Part[Delivery]:
        async with self._database.reading() as tx:
            return await rows.page(tx, part, tenant(caller), **said)

    async def replay(self, caller: Principal, id: str) -> Delivery:
        """Have it tried again, as often as at first; not what was delivered, and not what is still being tried."""
        async with self._database.transaction() as tx:
            found = await self._existing(tx, caller, id)
            if not await rows.replay(tx, id, self._clock.now(), ATTEMPTS):
                if found.status == rows.DELIVERED:
                    raise conflict("delivery.delivered", f"{id} was delivered, and is never delivered again")
                raise conflict("delivery.not_ended", f"{id} is still being tried", retryable=True)
            await self._audit.record(
                tx, caller, "delivery.replay", "delivery", id, org_id=found.org_id, project_id=found.project_id
            )
            self._database.after_commit(self.replayed)
            return await self._existing(tx, caller, id)

    async def _existing(self, tx: Tx, caller: Principal, id: str) -> Delivery:
        delivery = await rows.find(tx, id)
        if delivery is None or not caller.sees(delivery.org_id, delivery.project_id):
            raise not_found("delivery", id)
        return delivery


LOG = logging.getLogger("plugbay.server.domain")

LEASE = 30.0
"""Seconds after which a delivery that nobody renews counts as lost: a killed gateway delays what it held by this."""

AT_ONCE = 16
"""Deliveries that are being told at the same time."""

LONGEST_WAIT = 5.0
"""Seconds between looks at the table when nothing is due: others may write to it as well."""

SET_BACK = 1.0
"""Seconds that the wall clock must have lost against the steady one to count as set back; less is its usual drift."""

SHORTEST_WAIT = 0.01
"""Seconds: what is due in less than that is as good as due."""

STORE_PAUSE = 1.0
"""Seconds before a database that could not be used is tried again."""


class Dispatcher:
    """Tells hooks. `run` it in the background; `wake` it when there is something new."""

    def __init__(
        self,
        database: Database,
        workers: Workers,
        clock: Clock,
        meters: Meters | None = None,
        *,
        lease: float = LEASE,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self._database = database
        self._workers = workers
        self._clock = clock
        self._meters = meters or Meters()
        self._lease = lease
        self._chance = chance
        self._owner = new_id("gw_")
        self._awake = asyncio.Event()
        self._telling: dict[str, asyncio.Task[None]] = {}
        self._disabled: dict[str, float] = {}
        self._ahead: float | None = None
        """How far the wall clock was ahead of the steady one at the last look; None: there was none yet."""

    def wake(self) -> None:
        """Something is due that was not before."""
        self._awake.set()

    def disabled(self, binding_id: str) -> None:
        """A binding is active no more: what waits for it is dropped now, and not only when it is due.

        What comes after this is for a binding that was made active again, and stays.
        """
        self._disabled[binding_id] = self._clock.now()
        self.wake()

    @property
    def telling(self) -> int:
        """How many deliveries are being told now."""
        return len(self._telling)

    async def run(self) -> None:
        """Tell what is due, for ever. When it is cancelled, what is being told is given up, to be told again."""
        renewing = asyncio.get_running_loop().create_task(self._renewals())
        try:
            while True:
                self._awake.clear()
                await self._rest(await self._round())
        finally:
            renewing.cancel()
            for task in (told := list(self._telling.values())):
                task.cancel()
            await asyncio.gather(renewing, *told, return_exceptions=True)

    async def stop(self) -> None:
        """Let go of what was being told, so that the next one need not wait for the leases."""
        try:
            async with self._database.transaction() as tx:
                await rows.release(tx, self._owner, self._clock.now())
        except StoreUnavailable as error:
            LOG.warning("deliveries are held until their leases run out: %s", error)

    async def _rest(self, seconds: float) -> None:
        # Not `wait_for`: before Python 3.12 it forgets that it was cancelled when it is woken at the same moment.
        try:
            async with asyncio.timeout(seconds):
                await self._awake.wait()
        except TimeoutError:
            return

    async def _round(self) -> float:
        """Begin what is due; seconds until there may be more."""
        try:
            return await self._begin()
        except StoreUnavailable as error:
            LOG.warning("deliveries wait: %s", error)
            return STORE_PAUSE

    async def _drop(self) -> None:
        while self._disabled:
            binding_id, since = next(iter(self._disabled.items()))
            async with self._database.transaction() as tx:
                await rows.drop(tx, binding_id, DISABLED, since, self._clock.now())
            if self._disabled[binding_id] == since:
                del self._disabled[binding_id]

    async def _begin(self) -> float:
        await self._drop()
        await self._follow_clock()
        free = AT_ONCE - len(self._telling)
        if free <= 0:
            return LONGEST_WAIT
        now, held = self._clock.now(), frozenset(self._telling)
        # Nothing is written that is due later, or held for longer: what says so is the clock's fault, and due.
        latest, longest = now + LONGEST, now + self._lease
        async with self._database.reading() as tx:
            due = await rows.next_due(tx, now, latest, longest, held)
        if due is None or due > now:
            return LONGEST_WAIT if due is None else min(max(due - now, SHORTEST_WAIT), LONGEST_WAIT)
        async with self._database.transaction() as tx:
            interrupted = await rows.interrupt_lost(tx, now, longest, INTERRUPTIONS, held)
            claimed = await rows.claim(tx, self._owner, now, now + self._lease, latest, free)
        if interrupted:
            LOG.warning("%d deliveries were interrupted when their gateway ended; they are told again", interrupted)
        for delivery in claimed:
            self._tell_apart(delivery)
        return SHORTEST_WAIT if claimed else LONGEST_WAIT

    async def _follow_clock(self) -> None:
        """When the wall clock was set back, what waits goes on waiting for as long as it would have.

        While a gateway runs, the steady clock says by how much. Before its first look, that is what lies ahead of now
        of the last moment that was written down.
        """
        now = self._clock.now()
        ahead = now - self._clock.monotonic()
        lost = await self._lost_before(now) if self._ahead is None else self._ahead - ahead
        if lost > SET_BACK:
            async with self._database.transaction() as tx:
                await rows.set_back(tx, lost, now)
            LOG.warning("the clock was set back by %.0f s; deliveries that wait are due as much earlier", lost)
        self._ahead = ahead

    async def _lost_before(self, now: float) -> float:
        async with self._database.reading() as tx:
            newest = await rows.newest(tx)
        return 0.0 if newest is None else newest - now

    def _tell_apart(self, delivery: Delivery) -> None:
        task = asyncio.get_running_loop().create_task(self._tell(delivery))
        self._telling[delivery.id] = task
        task.add_done_callback(lambda _: self._told(delivery.id))

    def _told(self, id: str) -> None:
        self._telling.pop(id, None)
        self.wake()

    async def _renewals(self) -> None:
        """As long as we are at it, nobody else is."""
        while True:
            await asyncio.sleep(self._lease / 3)
            held = frozenset(self._telling)
            if not held:
                continue
            try:
                async with self._database.transaction() as tx:
                    await rows.renew(tx, self._owner, held, self._clock.now() + self._lease)
            except StoreUnavailable as error:
                LOG.warning("leases of deliveries cannot be renewed: %s", error)

    # One delivery.

    async def _tell(self, delivery: Delivery) -> None:
        """One attempt, from the event to what is written about it."""
        try:
            async with self._database.reading() as tx:
                event = await event_rows.find(tx, delivery.event_id)
            assert event is not None
            values, attempt = await self._attempt(delivery, event)
            # However long the database is away: meanwhile the lease is renewed, so nobody is told twice.
            await durably(lambda: self._conclude(delivery, values, attempt))
        except StoreUnavailable as error:
            LOG.warning("%s: it cannot be told now; it is when its lease has run out: %s", delivery.id, error)
        except Exception:
            LOG.exception("%s: a bug in plugbay; it is told again when its lease runs out", delivery.id)

    async def _attempt(self, delivery: Delivery, event: Event) -> tuple[dict[str, Any], dict[str, Any]]:
        """What is to be written about the delivery, and about this attempt."""
        try:
            result = await self._workers.do(_job(delivery, event))
        except WorkRefused as refused:
            return self._unbegun(delivery, refused)
        return self._judged(delivery, result)

    def _unbegun(self, delivery: Delivery, refused: WorkRefused) -> tuple[dict[str, Any], dict[str, Any]]:
        """Nobody was asked: because the binding is off, or because something is amiss that may pass."""
        now = self._clock.now()
        code = DISABLED if refused.inactive else refused.code
        attempt = {"outcome": Outcome.CANCELLED, "error_code": code, "ended_at": now}
        known: dict[str, Any] = {"error_code": code}
        if refused.inactive:
            return {**known, "status": rows.DROPPED, "reason": DISABLED, "completed_at": now}, attempt
        return self._later(delivery, known, None), attempt

    def _judged(self, delivery: Delivery, result: InvocationResult) -> tuple[dict[str, Any], dict[str, Any]]:
        now, failure = self._clock.now(), result.failure
        code = None if failure is None else error_code(failure)
        invocation_id = None if result.record is None else result.record.invocation_id
        attempt = {"outcome": result.status, "error_code": code, "invocation_id": invocation_id, "ended_at": now}
        known: dict[str, Any] = {"error_code": code, "invocation_id": invocation_id}
        if failure is None:
            return {**known, "status": rows.DELIVERED, "completed_at": now}, attempt
        if failure.outcome == Outcome.FAILED and not _may_pass(result, failure):
            return {**known, "status": rows.FAILED, "reason": "refused", "completed_at": now}, attempt
        wished = None if failure.retry_after_ms is None else failure.retry_after_ms / 1000
        return self._later(delivery, known, wished), attempt

    def _later(self, delivery: Delivery, known: dict[str, Any], wished: float | None) -> dict[str, Any]:
        """Due again after a pause; or given up, if it was tried often enough."""
        now = self._clock.now()
        if delivery.attempts >= delivery.attempt_limit:
            return {**known, "status": rows.DEAD_LETTER, "reason": "attempts_exhausted", "completed_at": now}
        since_replay = ATTEMPTS - (delivery.attempt_limit - delivery.attempts)
        pause = retry_pause(since_replay, self._chance(), wished)
        return {**known, "status": rows.PENDING, "due_at": now + pause}

    async def _conclude(self, delivery: Delivery, values: dict[str, Any], attempt: dict[str, Any]) -> None:
        async with self._database.transaction() as tx:
            kept = await rows.conclude(tx, delivery, attempt, **values)
        self._meters.count("deliveries", outcome=values["status"] if kept else "lease_lost")
        if not kept:
            LOG.warning("%s: attempt %d came back after its lease; it does not count", delivery.id, delivery.attempts)


def _job(delivery: Delivery, event: Event) -> Job:
    return Job(
        binding_id=delivery.binding_id,
        kind="hook",
        input=hook_input(event),
        org_id=delivery.org_id,
        project_id=delivery.project_id,
        execution_id=delivery.id,
        trace_id=event.trace_id,
        session_id=event.session_id,
        chain_id=event.chain_id,
        run_id=event.run_id,
        attempt=delivery.attempts,
    )


def _may_pass(result: InvocationResult, failure: Failure) -> bool:
    """Whether a failure is the machinery's and not the hook's own word: another attempt may find it working.

    A hook that was asked and says `failed` is not asked again; neither is one whose answer breaks its contract.
    """
    return result.record is None or failure.origin != "plugin"
