"""`Events`, `Deliveries` and `Dispatcher`: record events and deliver them to hooks, at least once.

An event and its deliveries are written in the transaction that makes the event true. The dispatcher leases a delivery
before it calls the hook, and only the lease holder writes the result: an acknowledged delivery is never repeated and at
most one success is recorded. A killed gateway loses its leases after `LEASE` seconds; that attempt counts as
interrupted, not as a failure of the hook. Rows use the wall clock; when it is set back, waiting rows move with it.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable
from typing import Any

import msgspec
from msgspec.structs import asdict, replace

from plugbay.host.request import CallRequest, CallResult
from plugbay.model.errors import Code, Failure, Outcome
from plugbay.server.domain.audit import Audit
from plugbay.server.domain.background import Poller, retry_until_stored
from plugbay.server.domain.clock import Clock, stamp
from plugbay.server.domain.errors import GatewayError, conflict, not_found, stored_failure, unprocessable
from plugbay.server.domain.ids import Ids, new_id, new_trace_id
from plugbay.server.domain.meters import Meters
from plugbay.server.domain.orgs import tenant
from plugbay.server.domain.principal import Principal
from plugbay.server.domain.workers import MAX_EVENT_DEPTH, Workers, error_code, is_inactive
from plugbay.store import deliveries as rows
from plugbay.store import events as event_rows
from plugbay.store.bindings import BindingRow
from plugbay.store.database import Database, Tx
from plugbay.store.deliveries import Attempt, Delivery
from plugbay.store.events import Event
from plugbay.store.failures import StoreUnavailable
from plugbay.store.pages import Page, Part

RUN_COMPLETED, RUN_FAILED, RUN_CANCELLED = "run.completed", "run.failed", "run.cancelled"
CHAIN_COMPACTED = "chain.compacted"


class NewEvent(msgspec.Struct, frozen=True):
    """An event to record: an `Event` without id and time."""

    type: str
    subject_kind: str
    subject_id: str
    cause_id: str
    """The run or compaction that causes it, once."""
    org_id: str
    project_id: str | None
    session_id: str
    chain_id: str
    run_id: str | None
    summary: dict[str, Any]
    trace_id: str
    cause_depth: int
    """Length of the chain of events including this one."""


class Events:
    """All events."""

    def __init__(
        self, database: Database, workers: Workers, clock: Clock, wake: Callable[[], None], ids: Ids = new_id
    ) -> None:
        """`wake` is called after the commit of new deliveries."""
        self._database = database
        self._workers = workers
        self._clock = clock
        self._wake = wake
        self._ids = ids

    async def record(self, tx: Tx, new: NewEvent) -> None:
        """Record an event and its deliveries in the transaction of its cause; idempotent."""
        now = self._clock.now()
        event = Event(id=self._ids("evt_"), occurred_at=now, **asdict(new))
        if not await event_rows.insert(tx, event):
            return
        hooks = await self._workers.serving("hook", event.org_id, event.project_id, new.session_id, event.type)
        for hook in hooks:
            await rows.insert(tx, new_delivery(self._ids("del_"), event, hook.binding_id, now))
        if hooks:
            self._database.after_commit(self._wake)

    async def page(self, caller: Principal, part: Page, **filters: str | None) -> Part[Event]:
        async with self._database.reading() as tx:
            return await event_rows.page(tx, part, tenant(caller), **filters)


def new_delivery(id: str, event: Event, binding_id: str, now: float) -> Delivery:
    """The delivery of an event to a binding; dropped at once when its chain of events is too long."""
    too_deep = event.cause_depth > MAX_EVENT_DEPTH
    return Delivery(
        id=id,
        event_id=event.id,
        binding_id=binding_id,
        org_id=event.org_id,
        project_id=event.project_id,
        status=rows.DROPPED if too_deep else rows.PENDING,
        reason="causation_depth" if too_deep else None,
        attempts=0,
        attempt_limit=MAX_ATTEMPTS,
        due_at=now,
        lease_owner=None,
        lease_until=None,
        error_code=None,
        invocation_id=None,
        created_at=now,
        completed_at=now if too_deep else None,
    )


def hook_input(event: Event) -> dict[str, Any]:
    """The input of a hook for an event."""
    return {
        "type": event.type,
        "occurred_at": stamp(event.occurred_at),
        "subject": {"kind": event.subject_kind, "id": event.subject_id},
        "summary": event.summary,
    }


FIRST_PAUSE = 1.0
LONGEST_PAUSE = 300.0
"""Seconds before the second attempt, doubled for each further one, up to five minutes."""

MAX_ATTEMPTS = 8
"""Attempts per delivery: about two minutes, longer if the hook asks for a pause."""

MAX_INTERRUPTIONS = 20
"""Attempts that ended with their server, killed or stopped before the hook answered. They do not count as failures, but
are limited: a delivery that kills the server each time must end."""

JITTER = 0.5
"""The random share of a pause, so that deliveries that failed together are not retried together."""


def retry_pause(attempts: int, chance: float, requested: float | None = None) -> float:
    """Seconds until the next attempt after `attempts` of them. `chance` is 0 to 1, `requested` the hook's own wish."""
    doubled = min(FIRST_PAUSE * 2.0 ** min(attempts - 1, 32), LONGEST_PAUSE)
    waited = doubled * (1.0 - JITTER + JITTER * chance)
    return waited if requested is None else min(max(waited, requested), LONGEST_PAUSE)


DISABLED = "binding_disabled"

TEST = "test"
"""The kind of subject of a test, and the mark in its summary: a hook can tell a test by both."""

TEST_SUMMARIES: dict[str, dict[str, Any]] = {
    **{
        type: {"task": "A test of this hook", "output": "It works."}
        for type in (RUN_COMPLETED, RUN_FAILED, RUN_CANCELLED)
    },
    CHAIN_COMPACTED: {"text": "A test of this hook"},
}
"""Summaries of tests for which the operator gives none."""


class DeliveryTest(msgspec.Struct, frozen=True):
    """A test of a hook. Without a type it is the first that the hook subscribes to."""

    type: str | None = None
    summary: dict[str, Any] = msgspec.field(default_factory=dict)
    trace_id: str | None = None


class Deliveries:
    """All deliveries."""

    def __init__(
        self,
        database: Database,
        workers: Workers,
        audit: Audit,
        clock: Clock,
        wake: Callable[[], None],
        ids: Ids = new_id,
    ) -> None:
        """`wake` is called after the commit of a replay or of a test."""
        self._database = database
        self._workers = workers
        self._audit = audit
        self._clock = clock
        self._wake = wake
        self._ids = ids

    async def get(self, caller: Principal, id: str) -> tuple[Delivery, Event, list[Attempt]]:
        """A delivery with its event and all attempts."""
        async with self._database.reading() as tx:
            delivery = await self._existing(tx, caller, id)
            event = await event_rows.find(tx, delivery.event_id)
            assert event is not None
            return delivery, event, await rows.attempts(tx, id)

    async def page(
        self, caller: Principal, part: Page, *, search: str | None = None, **filters: str | bool | None
    ) -> Part[Delivery]:
        """Deliveries visible to the caller; `search` is part of an id or an error code."""
        async with self._database.reading() as tx:
            return await rows.page(tx, part, tenant(caller), search, **filters)

    async def send_test(self, caller: Principal, binding: BindingRow, wanted: DeliveryTest) -> Delivery:
        """Deliver an event that did not happen to a hook, as if it had; it is marked as a test."""
        if binding.export_kind != "hook":
            raise unprocessable("delivery.no_hook", f"{binding.id} binds a {binding.export_kind}, not a hook")
        hook = await self._workers.bound("hook", binding.org_id, binding.project_id, binding.id)
        if hook is None:
            raise conflict("binding.not_active", f"the binding {binding.id} is {binding.status}")
        subscribed = list(hook.facts.get("subscribes_to", ()))
        type = wanted.type or subscribed[0]
        if type not in subscribed:
            text = f"{hook.export_id} does not subscribe to {type!r}; it subscribes to {', '.join(subscribed)}"
            raise unprocessable("delivery.not_subscribed", text, "type", subscribes_to=subscribed)
        now, id = self._clock.now(), self._ids("evt_")
        event = Event(
            id=id,
            org_id=binding.org_id,
            project_id=binding.project_id,
            type=type,
            subject_kind=TEST,
            subject_id=binding.id,
            cause_id=id,
            session_id=None,
            chain_id=None,
            run_id=None,
            summary={**TEST_SUMMARIES.get(type, {}), **wanted.summary, TEST: True},
            trace_id=wanted.trace_id or new_trace_id(),
            cause_depth=1,
            occurred_at=now,
        )
        delivery = replace(new_delivery(self._ids("del_"), event, binding.id, now), test=True)
        async with self._database.transaction() as tx:
            await event_rows.insert(tx, event)
            await rows.insert(tx, delivery)
            await self._audit.record_change(tx, caller, "delivery.test", delivery)
            self._database.after_commit(self._wake)
        return delivery

    async def replay(self, caller: Principal, id: str) -> Delivery:
        """Retry a failed delivery with a full number of attempts; not a delivered or pending one."""
        async with self._database.transaction() as tx:
            found = await self._existing(tx, caller, id)
            if not await rows.replay(tx, id, self._clock.now(), MAX_ATTEMPTS):
                if found.status == rows.DELIVERED:
                    raise conflict("delivery.delivered", f"{id} was delivered; a delivered event is not sent again")
                raise conflict("delivery.not_ended", f"{id} has not ended", retryable=True)
            await self._audit.record_change(tx, caller, "delivery.replay", found)
            self._database.after_commit(self._wake)
            return await self._existing(tx, caller, id)

    async def _existing(self, tx: Tx, caller: Principal, id: str) -> Delivery:
        delivery = await rows.find(tx, id)
        if delivery is None or not caller.sees(delivery.org_id, delivery.project_id):
            raise not_found("delivery", id)
        return delivery


LOG = logging.getLogger("plugbay.server.domain")

LEASE = 30.0
"""Seconds after which a lease that is not renewed expires: a killed gateway delays its deliveries by this."""

MAX_PARALLEL = 16
"""Deliveries in progress at the same time."""

LONGEST_WAIT = 5.0
"""Seconds between queries when nothing is due: others may write to the table too."""

CLOCK_TOLERANCE = 1.0
"""Seconds the wall clock may lose against the monotonic clock; more counts as set back."""

SHORTEST_WAIT = 0.01
"""Minimum wait in seconds."""

STORE_PAUSE = 1.0
"""Seconds before the next attempt when the database is unavailable."""


class Dispatcher:
    """Delivers events to hooks. `run` it in the background; `wake` it for new deliveries."""

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
        self._owner = database.owner or new_id("gw_")
        self._poller = Poller(self._try_begin)
        self._in_flight: dict[str, asyncio.Task[None]] = {}
        self._disabled: dict[str, float] = {}
        self._ahead: float | None = None
        """Wall clock minus monotonic clock at the last check; None before the first."""

    def wake(self) -> None:
        """Check for due deliveries now."""
        self._poller.wake()

    def drop_binding(self, binding_id: str) -> None:
        """A binding was disabled: drop its pending deliveries now.

        Later deliveries are for a binding that is active again, and stay.
        """
        self._disabled[binding_id] = self._clock.now()
        self.wake()

    @property
    def in_flight(self) -> int:
        """Number of deliveries in progress."""
        return len(self._in_flight)

    async def run(self) -> None:
        """Start due deliveries until cancelled. Deliveries in progress are then abandoned and retried later."""
        renewer = Poller(self._renew_leases, first=self._lease / 3)
        renewing = asyncio.get_running_loop().create_task(renewer.run())
        try:
            await self._poller.run()
        finally:
            renewing.cancel()
            abandoned = list(self._in_flight.values())
            for task in abandoned:
                task.cancel()
            await asyncio.gather(renewing, *abandoned, return_exceptions=True)

    async def stop(self) -> None:
        """Release our leases, so the next gateway need not wait for them to expire."""
        try:
            async with self._database.transaction() as tx:
                await rows.release(tx, self._owner, self._clock.now())
        except StoreUnavailable as error:
            LOG.warning("deliveries wait until their leases expire: %s", error)

    async def close_left(self, owner: str | None) -> None:
        """End the leases of a killed gateway, so that its deliveries are tried again now."""
        async with self._database.transaction() as tx:
            await rows.release(tx, str(owner), self._clock.now())
        self.wake()

    async def _try_begin(self) -> float:
        """Start due deliveries; returns the seconds to wait."""
        try:
            return await self._begin()
        except StoreUnavailable as error:
            LOG.warning("deliveries are paused: %s", error)
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
        # One look at the clock: if it is set back after this, rows that wait would seem to be due.
        now = await self._follow_clock()
        free = MAX_PARALLEL - len(self._in_flight)
        if free <= 0:
            return LONGEST_WAIT
        held = frozenset(self._in_flight)
        # Rows due or leased beyond these limits were written with a wrong clock; they count as due. Another gateway may
        # have written a row after our look at the clock, so the limits are a lease later than any row of this moment.
        latest, longest = now + LONGEST_PAUSE + self._lease, now + 2 * self._lease
        async with self._database.reading() as tx:
            due = await rows.next_due(tx, now, latest, longest, held)
        if due is None or due > now:
            return LONGEST_WAIT if due is None else min(max(due - now, SHORTEST_WAIT), LONGEST_WAIT)
        async with self._database.transaction() as tx:
            interrupted = await rows.interrupt_lost(tx, now, longest, MAX_INTERRUPTIONS, held)
            claimed = await rows.claim(tx, self._owner, now, now + self._lease, latest, free)
        if interrupted:
            LOG.warning("%d deliveries were interrupted when their gateway ended; they are retried", interrupted)
        for delivery in claimed:
            self._start_attempt(delivery)
        return SHORTEST_WAIT if claimed else LONGEST_WAIT

    async def _follow_clock(self) -> float:
        """The time now. When the wall clock was set back, waiting deliveries move with it: none waits longer for it.

        The difference to the monotonic clock is the amount. At the first check of a gateway it is the newest timestamp
        in the table, which cannot be later than now.
        """
        now = self._clock.now()
        ahead = now - self._clock.monotonic()
        lost = await self._set_back_before_start() if self._ahead is None else self._ahead - ahead
        if lost > CLOCK_TOLERANCE:
            async with self._database.transaction() as tx:
                await rows.set_back(tx, lost, now)
            LOG.warning("the clock was set back by %.0f s; waiting deliveries were moved with it", lost)
        self._ahead = ahead
        return now

    async def _set_back_before_start(self) -> float:
        async with self._database.reading() as tx:
            newest = await rows.newest(tx)
        return 0.0 if newest is None else newest - self._clock.now()  # of now: another gateway may have just written

    def _start_attempt(self, delivery: Delivery) -> None:
        task = asyncio.get_running_loop().create_task(self._deliver(delivery))
        self._in_flight[delivery.id] = task
        task.add_done_callback(lambda _: self._forget(delivery.id))

    def _forget(self, id: str) -> None:
        self._in_flight.pop(id, None)
        self.wake()

    async def _renew_leases(self) -> float:
        """Renew the leases of deliveries in progress; returns the seconds until the next time."""
        held = frozenset(self._in_flight)
        if held:
            try:
                async with self._database.transaction() as tx:
                    await rows.renew(tx, self._owner, held, self._clock.now() + self._lease)
            except StoreUnavailable as error:
                LOG.warning("leases of deliveries cannot be renewed: %s", error)
        return self._lease / 3

    # One delivery.

    async def _deliver(self, delivery: Delivery) -> None:
        """One attempt: call the hook and record the result."""
        try:
            async with self._database.reading() as tx:
                event = await event_rows.find(tx, delivery.event_id)
            assert event is not None
            values, attempt = await self._attempt(delivery, event)
            # However long the database is unavailable: the lease is renewed meanwhile, so no hook is called twice.
            await retry_until_stored(lambda: self._conclude(delivery, values, attempt))
        except StoreUnavailable as error:
            LOG.warning("%s: cannot be delivered now; retried after its lease expires: %s", delivery.id, error)
        except Exception:
            LOG.exception("%s: a bug in plugbay; retried after its lease expires", delivery.id)

    async def _attempt(self, delivery: Delivery, event: Event) -> tuple[dict[str, Any], dict[str, Any]]:
        """New values of the delivery, and of this attempt."""
        try:
            result = await self._workers.do(_call_request(delivery, event))
        except GatewayError as refused:
            return self._not_started(delivery, refused)
        return self._after_result(delivery, result)

    def _not_started(self, delivery: Delivery, refused: GatewayError) -> tuple[dict[str, Any], dict[str, Any]]:
        """The hook was not called: its binding is inactive, or a temporary problem occurred."""
        now = self._clock.now()
        inactive = is_inactive(refused)
        code = DISABLED if inactive else refused.code
        failure = stored_failure(Failure(Code.UNAVAILABLE, refused.message, retryable=not inactive))
        attempt = {
            "outcome": Outcome.CANCELLED,
            "error_code": code,
            "ended_at": now,
            "failure": {**failure, "code": refused.code},
        }
        known: dict[str, Any] = {"error_code": code}
        if inactive:
            return {**known, "status": rows.DROPPED, "reason": DISABLED, "completed_at": now}, attempt
        return self._retry_or_give_up(delivery, known, None), attempt

    def _after_result(self, delivery: Delivery, result: CallResult) -> tuple[dict[str, Any], dict[str, Any]]:
        now, failure = self._clock.now(), result.failure
        code = None if failure is None else error_code(failure)
        invocation_id = None if result.invocation is None else result.invocation.invocation_id
        attempt = {
            "outcome": result.status,
            "error_code": code,
            "invocation_id": invocation_id,
            "ended_at": now,
            "failure": None if failure is None else stored_failure(failure),
        }
        known: dict[str, Any] = {"error_code": code, "invocation_id": invocation_id}
        if failure is None:
            return {**known, "status": rows.DELIVERED, "completed_at": now}, attempt
        if failure.outcome == Outcome.FAILED and not _is_transient(result, failure):
            return {**known, "status": rows.FAILED, "reason": "refused", "completed_at": now}, attempt
        requested = None if failure.retry_after_ms is None else failure.retry_after_ms / 1000
        return self._retry_or_give_up(delivery, known, requested), attempt

    def _retry_or_give_up(self, delivery: Delivery, known: dict[str, Any], requested: float | None) -> dict[str, Any]:
        """Retry after a pause, or give up after the last attempt."""
        now = self._clock.now()
        if delivery.attempts >= delivery.attempt_limit:
            return {**known, "status": rows.DEAD_LETTER, "reason": "attempts_exhausted", "completed_at": now}
        since_replay = MAX_ATTEMPTS - (delivery.attempt_limit - delivery.attempts)
        pause = retry_pause(since_replay, self._chance(), requested)
        return {**known, "status": rows.PENDING, "due_at": now + pause}

    async def _conclude(self, delivery: Delivery, values: dict[str, Any], attempt: dict[str, Any]) -> None:
        async with self._database.transaction() as tx:
            kept = await rows.conclude(tx, delivery, attempt, **values)
        self._meters.count("deliveries", outcome=values["status"] if kept else "lease_lost")
        if not kept:
            LOG.warning(
                "%s: attempt %d ended after its lease expired; its result is dropped", delivery.id, delivery.attempts
            )


def _call_request(delivery: Delivery, event: Event) -> CallRequest:
    return CallRequest(
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


def _is_transient(result: CallResult, failure: Failure) -> bool:
    """Whether the failure may be temporary, because it came from the host and not from the hook.

    A hook that answers `failed`, or violates its contract, is not called again.
    """
    return result.invocation is None or failure.origin != "plugin"
