"""`Dispatcher`: tells hooks what happened, until they acknowledge it, refuse it, or have been told often enough.

Owns the claims. A delivery is taken with a lease before it is told, and what came of it is written only by whoever
still holds that lease: so one that was acknowledged is never told again, and at most one success is written. A gateway
that is killed loses its leases after a while, and the next attempt is another's; the lost one was interrupted, and is
no failure of the hook. Rows have moments of the wall clock; when that is set back, they are set back as well, by what
the steady clock says. Refuses to know what hooks do.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable
from typing import Any

from plugbay.host.calls.calls import InvocationResult
from plugbay.model.errors import Failure, Outcome
from plugbay.server.domain import backoff
from plugbay.server.domain.clock import Clock
from plugbay.server.domain.deliveries import DISABLED
from plugbay.server.domain.durable import durably
from plugbay.server.domain.events import told_as
from plugbay.server.domain.ids import new_id
from plugbay.server.domain.meters import Meters
from plugbay.server.domain.workers import Job, Workers, WorkRefused
from plugbay.store import deliveries as rows
from plugbay.store import events as event_rows
from plugbay.store.database import Database
from plugbay.store.deliveries import Delivery
from plugbay.store.events import Event
from plugbay.store.failures import StoreUnavailable

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
        latest, longest = now + backoff.LONGEST, now + self._lease
        async with self._database.reading() as tx:
            due = await rows.next_due(tx, now, latest, longest, held)
        if due is None or due > now:
            return LONGEST_WAIT if due is None else min(max(due - now, SHORTEST_WAIT), LONGEST_WAIT)
        async with self._database.transaction() as tx:
            interrupted = await rows.interrupt_lost(tx, now, longest, backoff.INTERRUPTIONS, held)
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
        since_replay = backoff.ATTEMPTS - (delivery.attempt_limit - delivery.attempts)
        pause = backoff.pause(since_replay, self._chance(), wished)
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
        input=told_as(event),
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


def error_code(failure: Failure) -> str:
    """The plugin's word for what went wrong where it has one, else the host's."""
    return str(failure.detail.get("plugin_code") or failure.code)
