"""`Invocations`: work of bound exports, from selecting the binding to the final record; and live events of them.

    result = await gateway.invocations.invoke(CallRequest("jira_search", {"query": "tea"}, org_id="org_1"))

Binding, package, config, secrets and policy are fixed when an invocation starts; later changes affect later ones.
Disabling a binding cancels its running invocations. `SqlInvocationLog` writes a row before anything starts and closes
it once; closes that the database could not take are retried, and rows left open by a killed gateway are closed at the
next start. Closing a row revokes the tokens of the invocation. `Runner` starts the plugins.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Self

import msgspec
from msgspec.structs import replace

from plugbay.host.invocations.attempt import USER
from plugbay.host.limits import QUEUE_SECONDS
from plugbay.host.ports import InvocationRecord, ResumeState
from plugbay.host.request import CallRequest, CallResult
from plugbay.model.errors import Code, Failure
from plugbay.server.domain.background import Tasks, settle
from plugbay.server.domain.bindings import ACTIVE, Bindings, ResolvedBinding, stable_key
from plugbay.server.domain.clock import Clock
from plugbay.server.domain.errors import (
    GatewayError,
    conflict,
    not_found,
    stored_failure,
    too_large,
    too_many,
    unavailable,
    unprocessable,
)
from plugbay.server.domain.meters import Meters
from plugbay.server.domain.principal import Principal
from plugbay.server.domain.runner import Runner
from plugbay.server.domain.secrets import Secrets
from plugbay.store import checkpoints as journey_rows
from plugbay.store import invocations as rows
from plugbay.store import tokens as token_rows
from plugbay.store.bindings import BindingRow
from plugbay.store.database import Database, Tx
from plugbay.store.failures import StoreUnavailable
from plugbay.store.invocations import NO_OUTCOME, Outcome, Wanted
from plugbay.store.leases import LeaseLost
from plugbay.store.pages import Page, Part
from plugbay.store.rows import ANY_OWNER

STARTED, EVENT, ENDED, LOST = "started", "event", "ended", "lost"

QUEUE_DEPTH = 256
"""Events queued per subscriber."""

MAX_SUBSCRIBERS = 1_000


class InvocationEvent(msgspec.Struct, frozen=True):
    """A live event of an invocation."""

    type: str
    """`started`, `event` (from the plugin), `ended`, or `lost` (events dropped for a slow subscriber)."""
    record: InvocationRecord | None
    """The current record of the invocation."""
    data: Any = msgspec.field(default=None)
    """The plugin's event, redacted; or the number of lost events, None if it is not known."""
    outcome: Outcome = NO_OUTCOME
    """Of `ended`: its result and its failure."""


class Subscription:
    """The events of one subscriber, as an async iterator; a slow one loses the oldest and gets `lost`."""

    def __init__(self, events: InvocationEvents, wanted: Callable[[InvocationEvent], bool]) -> None:
        self._events = events
        self.wanted = wanted
        self.org_id: str | None = None
        """The org whose events it gets; None: of all."""
        self.is_relayed = False
        """Whether it got events that another gateway has sent."""
        self._waiting: deque[InvocationEvent] = deque()
        self._lost = 0
        self._more = asyncio.Event()
        self._over = False

    def put(self, event: InvocationEvent) -> None:
        if len(self._waiting) >= QUEUE_DEPTH:
            self._waiting.popleft()
            self._lost += 1
        self._waiting.append(event)
        self._more.set()

    def lose(self, number: int | None) -> None:
        """Report events that another gateway had and that did not get here."""
        self.put(InvocationEvent(LOST, None, number))

    def close(self) -> None:
        """End the subscription."""
        self._over = True
        self._more.set()
        self._events.unsubscribe(self)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> InvocationEvent:
        while not self._waiting:
            if self._over:
                raise StopAsyncIteration
            self._more.clear()
            await self._more.wait()
        if self._lost:
            lost, self._lost = self._lost, 0
            return InvocationEvent(LOST, None, lost)
        return self._waiting.popleft()


class InvocationEvents:
    """Publishes live events to subscribers; stores nothing."""

    def __init__(self) -> None:
        self._subscriptions: set[Subscription] = set()
        self.share: Callable[[InvocationEvent], object] = lambda event: None
        """Called with each event of an invocation that runs here."""

    def subscribe(self, wanted: Callable[[InvocationEvent], bool]) -> Subscription | None:
        """Subscribe from now on; None if there are too many subscribers. The subscriber closes it."""
        if len(self._subscriptions) >= MAX_SUBSCRIBERS:
            return None
        subscription = Subscription(self, wanted)
        self._subscriptions.add(subscription)
        return subscription

    @property
    def is_watched(self) -> bool:
        """Whether there are subscribers."""
        return bool(self._subscriptions)

    def unsubscribe(self, subscription: Subscription) -> None:
        self._subscriptions.discard(subscription)

    def publish(self, event: InvocationEvent) -> None:
        """An event of an invocation that runs here."""
        self.show(event)
        self.share(event)

    def show(self, event: InvocationEvent, *, is_relayed: bool = False) -> None:
        """Queue an event for every subscriber here that wants it."""
        for subscription in self._subscriptions:
            if subscription.wanted(event):
                subscription.is_relayed = subscription.is_relayed or is_relayed
                subscription.put(event)

    def lose(self, org_id: str | None, number: int | None) -> None:
        """Report lost events of an org, or of any, to its subscribers."""
        for subscription in self._subscriptions:
            if None in (org_id, subscription.org_id) or org_id == subscription.org_id:
                subscription.lose(number)

    def close(self) -> None:
        """End all subscriptions."""
        for subscription in list(self._subscriptions):
            subscription.close()


OVERLAP = 5.0
"""Seconds for which an invocation may begin before its row can be seen."""

FOLLOWED_AT_ONCE = 500
"""Records of other gateways that are read at a time."""


class OtherInvocations:
    """Invocations that other gateways run, for subscribers here.

    Starts and ends are those of the database; with NATS, the other gateways send them sooner, with the events in
    between. Each is shown once.
    """

    def __init__(self, database: Database, events: InvocationEvents, clock: Clock) -> None:
        self._database = database
        self._events = events
        self._clock = clock
        self.waits = False
        """Whether an end in the database waits for one look: events before it may be on their way."""
        self._open: set[str] = set()
        self._late: set[str] = set()
        """Ends that wait."""
        self._began: dict[str, float] = {}
        """Starts that were shown, and when."""
        self._ended: dict[str, float] = {}

    def take(self, event: InvocationEvent) -> None:
        """Show an event that another gateway has sent."""
        shown = {STARTED: self._began, ENDED: self._ended}.get(event.type)
        if shown is not None and event.record is not None:
            if event.record.invocation_id in shown:
                return
            shown[event.record.invocation_id] = self._clock.now()
        self._events.show(event, is_relayed=True)

    async def look(self, tx: Tx) -> None:
        """Show the starts and ends since the last look."""
        now = self._clock.now()
        found = await rows.of_others(tx, self._database.owner, now - OVERLAP)
        before, self._open = self._open, {id for id, is_open in found.items() if is_open}
        self._forget(now)
        ended = self._due_ends(before.union(found) - self._open)
        began = self._open.union(ended) - self._began.keys()
        self._began.update(dict.fromkeys(began, now))
        self._ended.update(dict.fromkeys(ended, now))
        if not self._events.is_watched:
            return
        wanted = sorted(ended.union(began))
        for first in range(0, len(wanted), FOLLOWED_AT_ONCE):
            for record, outcome in await rows.with_outcomes(tx, wanted[first : first + FOLLOWED_AT_ONCE]):
                id = record.invocation_id
                self._show(record, outcome, began=id in began, ended=id in ended)

    def _forget(self, now: float) -> None:
        old = now - 4 * OVERLAP
        self._began = {id: at for id, at in self._began.items() if at > old or id in self._open or id in self._late}
        self._ended = {id: at for id, at in self._ended.items() if at > old}

    def _due_ends(self, ended: set[str]) -> set[str]:
        """The ends to show now."""
        late, self._late = self._late, set()
        if self.waits:
            self._late = ended - late - self._ended.keys()
            ended = late
        return ended - self._ended.keys()

    def _show(self, record: InvocationRecord, outcome: Outcome, *, began: bool, ended: bool) -> None:
        if began:
            started = replace(record, status=None, ended_at=None)
            self._events.show(InvocationEvent(STARTED, started))
        if ended and record.status is not None:
            if self.waits:  # the other gateway did not send it, or it was lost; so may be events before it
                self._events.show(InvocationEvent(LOST, record))
            self._events.show(InvocationEvent(ENDED, record, outcome=outcome))


LOG = logging.getLogger("plugbay.server.domain")

HOST_RESTARTED = "host_restarted"
"""Reason and error code of invocations that were open when a gateway was killed."""

_RESTARTED = Failure(
    Code.CANCELLED,
    "the gateway was restarted while it was running",
    detail={"plugin_code": HOST_RESTARTED, "execution_outcome": "unknown"},
)

NOT_RECORDED = "unavailable"
"""Error code of an invocation that was not started because its record could not be written."""

CLOSE_ATTEMPTS = 3
"""Attempts to close a row before the caller gets its answer; later ones run in the background."""

CLOSE_PAUSE = 0.5
"""Seconds between attempts."""

SHARED_CLOSE_SECONDS = 30.0
"""The same on a database that several gateways share: an answer must not differ from what another gateway records."""

MAX_RESULT = 1 << 20
"""Bytes of a result as JSON that is kept with its invocation."""

KEPT_JOURNEYS = 30 * 24 * 3600.0
"""Seconds for which checkpoints are kept after their last update."""


class SqlInvocationLog:
    """The invocation log of one gateway."""

    def __init__(
        self, database: Database, events: InvocationEvents, meters: Meters, clock: Clock, holders: set[str]
    ) -> None:
        """`holders` are the invocations that may have a valid token (`Credentials.holders`)."""
        self._holders = holders
        self._database = database
        self._events = events
        self._meters = meters
        self._clock = clock
        self._outcomes: dict[str, Outcome] = {}
        """Of attempts that have ended and whose rows are not closed yet."""
        self._pending: dict[str, InvocationRecord] = {}
        self._superseded: set[str] = set()
        """Closed by another gateway, or perhaps so, while they ran here."""
        self._more = asyncio.Event()

    async def opened(self, record: InvocationRecord) -> None:
        """Record the start; raises if that is not possible."""
        fence = self._database.fence
        try:
            opened, *_ = await self._database.write(rows.opening(record, fence))
            if fence is not None and not opened.changed:
                raise LeaseLost(fence.name)
        except LeaseLost:
            raise
        except StoreUnavailable:
            # The commit may have succeeded. The invocation does not start, so close the row if it exists.
            self._close_later(replace(record, status="failed", ended_at=record.started_at, error_code=NOT_RECORDED))
            raise
        self._events.publish(InvocationEvent(STARTED, record))

    def ended(self, record: InvocationRecord, result: msgspec.Raw | None, failure: Failure | None) -> None:
        """Keep the outcome of an attempt until its row is closed."""
        size = None if result is None else memoryview(result).nbytes
        kept = None if result is None or (size or 0) > MAX_RESULT else bytes(result)
        self._outcomes[record.invocation_id] = Outcome(kept, size, None if failure is None else stored_failure(failure))

    async def closed(self, record: InvocationRecord) -> None:
        """Record the end."""
        attempts, until = 1, self._clock.monotonic() + SHARED_CLOSE_SECONDS
        while not await self._close(record):
            if self._database.fence is None and attempts == CLOSE_ATTEMPTS:
                return self._close_later(record)
            if self._clock.monotonic() > until:
                self._superseded.add(record.invocation_id)
                return self._close_later(record)
            attempts += 1
            await asyncio.sleep(CLOSE_PAUSE)

    def as_recorded(self, result: CallResult) -> CallResult:
        """The result, or the failure that another gateway has recorded, since it took over the work of this one."""
        record = result.invocation
        if record is None or record.invocation_id not in self._superseded:
            return result
        self._superseded.discard(record.invocation_id)
        ended = {"status": "failed", "status_reason": HOST_RESTARTED, "error_code": HOST_RESTARTED}
        return replace(
            result,
            record=replace(result.record, failure=_RESTARTED),
            output=None,
            invocations=(*result.invocations[:-1], replace(record, **ended)),
        )

    def _close_later(self, record: InvocationRecord) -> None:
        self._pending[record.invocation_id] = record
        self._more.set()

    async def close_left(self, owner: str | None) -> int:
        """Close rows that a killed gateway left open and revoke their tokens; returns their number."""
        now, failure = self._clock.now(), stored_failure(_RESTARTED)
        async with self._database.transaction() as tx:
            left = await rows.close_all(tx, now, "failed", HOST_RESTARTED, HOST_RESTARTED, failure, owner)
            if owner == ANY_OWNER:
                await token_rows.revoke_all(tx, now)
            else:
                await token_rows.revoke_of_invocations(tx, left, now)
        if left:
            LOG.warning("%d invocations were open when the last gateway ended; they are recorded as failed", len(left))
        return len(left)

    async def catch_up(self) -> None:
        """Close rows that could not be closed before, until cancelled."""
        while True:
            await self._more.wait()
            if await self.close_rest():
                self._more.clear()
            else:
                await asyncio.sleep(CLOSE_PAUSE)

    async def close_rest(self) -> bool:
        """Close pending rows once; False if some are left."""
        for id, record in list(self._pending.items()):
            if await self._close(record):
                del self._pending[id]
        return not self._pending

    async def _close(self, record: InvocationRecord) -> bool:
        """Close one row; False if the database is unavailable."""
        outcome = self._outcomes.get(record.invocation_id, NO_OUTCOME)
        writes = [rows.closing(record, outcome)]
        if record.invocation_id in self._holders:
            writes.append(token_rows.revoking(record.invocation_id, self._clock.now()))
        try:
            closed, *_ = await self._database.write(*writes)
            if not closed.changed and self._database.fence is not None:
                await self._note_superseded(record)
        except StoreUnavailable as error:
            LOG.warning("the end of %s cannot be recorded yet: %s", record.invocation_id, error)
            return False
        self._outcomes.pop(record.invocation_id, None)
        self._holders.discard(record.invocation_id)
        if closed.changed:
            self._meters.count("invocations", kind=record.export_kind, status=str(record.status))
            self._events.publish(InvocationEvent(ENDED, record, outcome=outcome))
        return True

    async def _note_superseded(self, record: InvocationRecord) -> None:
        """It was closed before: by an earlier attempt of ours whose answer was lost, or by another gateway."""
        async with self._database.reading() as tx:
            found = await rows.get(tx, record.invocation_id)
        if found is not None and found.status_reason == HOST_RESTARTED:
            self._superseded.add(record.invocation_id)


class SqlCheckpoints:
    """Checkpoints of harnesses, in the database."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    async def save(self, execution_id: str, journey: ResumeState) -> None:
        async with self._database.transaction() as tx:
            await journey_rows.save(tx, execution_id, journey, self._clock.now())

    async def load(self, execution_id: str) -> ResumeState | None:
        async with self._database.reading() as tx:
            return await journey_rows.load(tx, execution_id)


BINDING_DISABLED = "binding_disabled"


class RunningInvocation:
    """An invocation in progress."""

    __slots__ = ("_on_opened", "_runner", "binding_id", "reason", "record")

    def __init__(
        self, runner: Runner, binding_id: str, on_opened: Callable[[InvocationRecord], None] | None = None
    ) -> None:
        """`on_opened` is called for each attempt."""
        self._runner = runner
        self._on_opened = on_opened
        self.binding_id = binding_id
        self.record: InvocationRecord | None = None
        """Its current attempt."""
        self.reason = ""

    def opened(self, record: InvocationRecord) -> None:
        """An attempt started."""
        self.record = record
        if self.reason:
            self._runner.cancel(record.invocation_id, self.reason)
        if self._on_opened is not None:
            self._on_opened(record)

    def cancel(self, reason: str) -> None:
        """Cancel, now or as soon as an attempt is open."""
        self.reason = self.reason or reason
        if self.record is not None:
            self._runner.cancel(self.record.invocation_id, reason)


class Invocations:
    """All invocations of all bindings."""

    def __init__(
        self,
        database: Database,
        bindings: Bindings,
        secrets: Secrets,
        runner: Runner,
        log: SqlInvocationLog,
        events: InvocationEvents,
        tasks: Tasks,
        clock: Clock,
    ) -> None:
        self._database = database
        self._bindings = bindings
        self._secrets = secrets
        self._runner = runner
        self._log = log
        self._events = events
        self._tasks = tasks
        self._clock = clock
        self.others = OtherInvocations(database, events, clock)
        self._running: set[RunningInvocation] = set()
        self._detached: set[asyncio.Task[Any]] = set()
        bindings.on_disabled.append(self._binding_disabled)

    async def start(self) -> None:
        """Close rows of the last server, then start background work."""
        if self._database.fence is None:
            await self._log.close_left(ANY_OWNER)
        self._tasks.start("closing of invocations", self._log.catch_up)
        self._tasks.start("stopping of idle plugins", lambda: self._runner.reap(self._bindings.digests_in_use))

    async def stop(self) -> None:
        """Cancel running invocations, wait for them, and record their ends."""
        await self._runner.stop()
        for task in list(self._detached):
            await asyncio.wait({task})
        await self._log.close_rest()
        self._events.close()

    # Running.

    async def invoke(self, request: CallRequest) -> CallResult:
        """Run an invocation; raises `GatewayError` if it cannot be started.

        Cancelled, it cancels the invocation and ends when that has ended: its token is revoked then, and its process
        gone.
        """
        binding_id = request.binding_id or await self.select_binding(request)
        running = RunningInvocation(self._runner, binding_id, request.on_opened)
        self._running.add(running)
        try:
            # Only now: a binding disabled from here on finds this invocation in `_running` and cancels it.
            bound = await self._bound(request, binding_id)
            binding = bound.binding
            references = allowed_references(bound)
            if references:
                binding = replace(binding, secrets=await self._read_secrets(bound.row, references))

            def on_progress(event: Any) -> None:
                self._events.publish(InvocationEvent(EVENT, running.record, event))
                if request.on_progress is not None:
                    request.on_progress(event)

            bound_request = replace(
                request,
                name=bound.export.name,
                kind="",
                binding=binding,
                on_progress=on_progress,
                on_opened=running.opened,
                on_ended=self._log.ended,
                stays=True,
            )
            async with self._runner.host(bound.package, bound.reach) as host:
                return self._log.as_recorded(await host.run(bound_request))
        finally:
            self._running.discard(running)

    async def begin(self, request: CallRequest) -> InvocationRecord:
        """Run an invocation in the background; returns its first record."""
        began: asyncio.Future[InvocationRecord] = asyncio.get_running_loop().create_future()
        task = asyncio.get_running_loop().create_task(self._run_detached(request, began))
        self._detached.add(task)
        task.add_done_callback(self._detached.discard)
        return await asyncio.shield(began)

    async def _run_detached(self, request: CallRequest, began: asyncio.Future[InvocationRecord]) -> None:
        request = replace(request, on_opened=lambda record: settle(began, record))
        try:
            result = await self.invoke(request)
        except Exception as error:
            if began.done():
                raise
            began.set_exception(error)
            return
        if not began.done():
            began.set_exception(refusal_error(result))

    async def cancel(self, caller: Principal, id: str, reason: str = USER) -> InvocationRecord:
        """Cancel an invocation; an ended one stays unchanged."""
        record = await self.get(caller, id)
        if record.status is None:
            self._runner.cancel(id, reason)
            if self._database.fence is not None:
                async with self._database.transaction() as tx:
                    await rows.request_cancel(tx, id, reason)  # another gateway may run it
        return record

    async def cancel_requested(self, tx: Tx) -> None:
        """Cancel the invocations here that were cancelled at another gateway."""
        for id, reason in await rows.to_cancel(tx, self._database.owner):
            self._runner.cancel(id, reason)

    async def cancel_unbound(self) -> None:
        """Cancel invocations whose bindings are no longer active: another gateway may have disabled them."""
        for binding_id in {running.binding_id for running in self._running}:
            bound = await self._bindings.bound(binding_id)
            if bound is None or bound.row.status != ACTIVE:
                self._binding_disabled(binding_id)

    def _binding_disabled(self, binding_id: str) -> None:
        for running in list(self._running):
            if running.binding_id == binding_id:
                running.cancel(BINDING_DISABLED)

    async def select_binding(self, request: CallRequest) -> str:
        """The id of the binding that serves the export of a request; raises `not_found`."""
        ids = (request.session_id, request.chain_id, request.run_id, request.execution_id, request.trace_id)
        found = await self._bindings.select(
            str(request.org_id), request.project_id, request.name, stable_key(*ids), request.kind or None
        )
        if found is None:
            raise not_found("binding", request.name)
        return found.id

    async def _bound(self, request: CallRequest, binding_id: str) -> ResolvedBinding:
        bound = await self._bindings.bound(binding_id)
        if (
            bound is None
            or bound.row.org_id != request.org_id
            or bound.row.project_id not in (None, request.project_id)
        ):
            raise not_found("binding", binding_id)
        if bound.row.status != ACTIVE:
            raise conflict("binding.not_active", f"the binding {binding_id} is {bound.row.status}")
        return bound

    async def _read_secrets(self, row: BindingRow, references: Mapping[str, str]) -> dict[str, str]:
        """Not cached: secrets stay in memory only while they are needed."""
        async with self._database.reading() as tx:
            values = await self._secrets.values(tx, row.org_id, references)
        gone = sorted(set(references) - set(values))
        if gone:
            text = f"the binding {row.id} needs secrets that do not exist: {', '.join(gone)}"
            raise conflict("binding.secret_not_found", text, slots=gone)
        return values

    # Reading.

    async def get(self, caller: Principal, id: str) -> InvocationRecord:
        """One invocation as it is now; raises `not_found`."""
        async with self._database.reading() as tx:
            found = await rows.get(tx, id)
        if found is None or not caller.sees(found.org_id, found.project_id):
            raise not_found("invocation", id)
        return found

    async def outcome(self, caller: Principal, id: str) -> tuple[InvocationRecord, Outcome]:
        """One invocation with its result and its failure; raises `not_found`."""
        async with self._database.reading() as tx:
            record = await self.get(caller, id)
            return record, await rows.outcome(tx, id)

    async def artifact(self, caller: Principal, id: str, asset_id: str) -> tuple[Path, dict[str, Any]]:
        """The file of an artifact in the result of an invocation, and the plugin's reference to it.

        Files are stored by content, for all orgs: only one that this result names may be given out.
        """
        _, outcome = await self.outcome(caller, id)
        result = None if outcome.result is None else msgspec.json.decode(outcome.result)
        named = result.get("artifacts") if isinstance(result, dict) else None
        for ref in named if isinstance(named, list) else ():
            if isinstance(ref, dict) and ref.get("asset_id") == asset_id:
                path = self._runner.artifacts.path(asset_id)
                if await asyncio.to_thread(path.is_file):
                    return path, ref
        raise not_found("artifact", asset_id)

    async def page(
        self, caller: Principal, page: Page, wanted: Wanted, org_id: str | None = None
    ) -> Part[InvocationRecord]:
        """Invocations visible to the caller, newest first."""
        if org_id is not None and not caller.sees(org_id):
            raise not_found("org", org_id)
        async with self._database.reading() as tx:
            return await rows.select_part(tx, org_id or caller.org_id, caller.project_id, page, wanted)


def allowed_references(bound: ResolvedBinding) -> dict[str, str]:
    """The secret references of a binding in the slots that its policies leave."""
    allowed, secrets = bound.policy.secret_slots, bound.row.secrets
    return {slot: ref for slot, ref in secrets.items() if allowed is None or slot in allowed}


def check_queue(result: CallResult, meters: Meters) -> None:
    """Raise if a call was refused because it queued for too long, or would have: its client is to come back later."""
    failure = result.failure
    if failure is None or QUEUE_SECONDS not in failure.detail:
        return
    meters.count("queue_refusals")
    again, hint = (failure.retry_after_ms or 0) / 1000, failure.detail["hint"]
    raise too_many(failure.message, retry_after=again, code="quota.queue_full", hint=hint)


def refusal_error(result: CallResult) -> GatewayError:
    """The error for an invocation that was refused before it had a record."""
    failure = result.failure or Failure(Code.INTERNAL, "nothing was done")
    if failure.code == Code.INVALID_INPUT:
        text = failure.message
        return unprocessable("invocation.invalid_input", text, "input", errors=failure.detail.get("errors", []))
    if failure.code == Code.FRAME_TOO_LARGE:
        return too_large("invocation.input_too_large", failure.message)
    if failure.code in (Code.NOT_FOUND, Code.CAPABILITY_NOT_ALLOWED):
        return unprocessable("invocation.refused", failure.message)
    return unavailable(f"invocation.{failure.code}", failure.message)
