"""`Invocations`: work of bound exports, from who asks for what to the last record of it.

    result = await gateway.invocations.invoke(Work(org_id="org_1", export="jira_search", input={"query": "tea"}))

Owns what is decided at the start and holds until the end: which binding serves, with which package, config, secrets and
policy; later changes are for later invocations. A binding that is disabled calls off what runs under it. How plugins
are started is the `Runner`'s, and how an attempt goes the host's.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Self

import msgspec

from plugbay.host.calls.invocation_result import InvocationResult
from plugbay.host.invocations.context import NO_ACCESS, ExportBinding
from plugbay.host.invocations.invocation import USER
from plugbay.host.ports import InvocationRecord, Journey
from plugbay.model.errors import Code, Failure
from plugbay.server.domain.background import Tasks, settle
from plugbay.server.domain.bindings import ACTIVE, Bindings, ResolvedBinding, stable_key
from plugbay.server.domain.clock import Clock
from plugbay.server.domain.errors import GatewayError, conflict, not_found, too_large, unavailable, unprocessable
from plugbay.server.domain.meters import Meters
from plugbay.server.domain.principal import Principal
from plugbay.server.domain.runner import Reach, Runner
from plugbay.server.domain.secrets import Secrets
from plugbay.store import checkpoints as journey_rows
from plugbay.store import invocations as rows
from plugbay.store import tokens as token_rows
from plugbay.store.bindings import BindingRow
from plugbay.store.database import Database
from plugbay.store.failures import StoreUnavailable
from plugbay.store.invocations import Wanted
from plugbay.store.pages import Page, Part

STARTED, EVENT, ENDED, LOST = "started", "event", "ended", "lost"

DEPTH = 256
"""Events that wait for one watcher."""

MAX_WATCHERS = 1_000


@dataclass(frozen=True, slots=True)
class InvocationEvent:
    """Something that just happened."""

    type: str
    """`started`, `event` (the plugin said something), `ended`, or `lost` (events that came too fast)."""
    record: InvocationRecord | None
    """The invocation as it is known now."""
    data: Any = field(default=None)
    """What the plugin said, secrets taken out; or how many events were lost."""


class Subscription:
    """One watcher's events, as an async iterator; ends when `Live` does."""

    def __init__(self, live: InvocationEvents, wanted: Callable[[InvocationEvent], bool]) -> None:
        self._live = live
        self.wanted = wanted
        self._waiting: deque[InvocationEvent] = deque()
        self._lost = 0
        self._more = asyncio.Event()
        self._over = False

    def put(self, event: InvocationEvent) -> None:
        if len(self._waiting) >= DEPTH:
            self._waiting.popleft()
            self._lost += 1
        self._waiting.append(event)
        self._more.set()

    def close(self) -> None:
        """No more events."""
        self._over = True
        self._more.set()
        self._live.leave(self)

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
    """All watchers."""

    def __init__(self) -> None:
        self._watchers: set[Subscription] = set()

    def watch(self, wanted: Callable[[InvocationEvent], bool]) -> Subscription | None:
        """Watch from now on; None: too many do already. Whoever watches closes the watch."""
        if len(self._watchers) >= MAX_WATCHERS:
            return None
        watch = Subscription(self, wanted)
        self._watchers.add(watch)
        return watch

    def leave(self, watch: Subscription) -> None:
        self._watchers.discard(watch)

    def tell(self, event: InvocationEvent) -> None:
        """Tell all who want to know."""
        for watch in self._watchers:
            if watch.wanted(event):
                watch.put(event)

    def close(self) -> None:
        """Nothing happens any more."""
        for watch in list(self._watchers):
            watch.close()


LOG = logging.getLogger("plugbay.server.domain")

RESTARTED = "host_restarted"
"""The reason, and the error code, of what was open when a gateway was killed."""

UNBEGUN = "unavailable"
"""The error code of what was not begun, because it could not be written down that it begins."""

TRIES = 3
"""Attempts to close a row before its caller is answered; the others are made behind its back."""

PAUSE = 0.5
"""Seconds between two of them."""

KEPT_JOURNEYS = 30 * 24 * 3600.0
"""Seconds for which it is known how far an execution has come, since it was last heard of."""


class SqlInvocationLog:
    """The log of one gateway."""

    def __init__(self, database: Database, live: InvocationEvents, meters: Meters, clock: Clock) -> None:
        self._database = database
        self._live = live
        self._meters = meters
        self._clock = clock
        self._unclosed: dict[str, InvocationRecord] = {}
        self._more = asyncio.Event()

    async def opened(self, record: InvocationRecord) -> None:
        """It begins; raises when that cannot be written down."""
        try:
            async with self._database.transaction() as tx:
                await rows.open(tx, record)
        except StoreUnavailable:
            # Nobody can tell whether it was committed. It does not begin, so a row that is there is closed.
            self._owe(msgspec.structs.replace(record, status="failed", ended_at=record.started_at, error_code=UNBEGUN))
            raise
        self._live.tell(InvocationEvent(STARTED, record))

    async def closed(self, record: InvocationRecord) -> None:
        """It has ended."""
        for attempt in range(TRIES):
            if await self._close(record):
                return
            if attempt + 1 < TRIES:
                await asyncio.sleep(PAUSE)
        self._owe(record)

    def _owe(self, record: InvocationRecord) -> None:
        self._unclosed[record.invocation_id] = record
        self._more.set()

    async def recover(self) -> int:
        """Close what a gateway that was killed left open, and end its tokens; how many invocations those were."""
        now = self._clock.now()
        async with self._database.transaction() as tx:
            left = await rows.close_all(tx, now, "failed", RESTARTED, RESTARTED)
            await token_rows.revoke_all(tx, now)
        if left:
            LOG.warning("%d invocations were open when the last gateway ended; they count as failed", len(left))
        return len(left)

    async def catch_up(self) -> None:
        """Close what could not be closed when it ended; goes on until it is cancelled."""
        while True:
            await self._more.wait()
            if await self.close_rest():
                self._more.clear()
            else:
                await asyncio.sleep(PAUSE)

    async def close_rest(self) -> bool:
        """Try once to close what is left; False: there is still something."""
        for id, record in list(self._unclosed.items()):
            if await self._close(record):
                del self._unclosed[id]
        return not self._unclosed

    async def _close(self, record: InvocationRecord) -> bool:
        """False: the database cannot be used now."""
        now = self._clock.now()
        try:
            async with self._database.transaction() as tx:
                first = await rows.close(tx, record)
                await token_rows.revoke_of_invocation(tx, record.invocation_id, now)
        except StoreUnavailable as error:
            LOG.warning("the end of %s cannot be written down yet: %s", record.invocation_id, error)
            return False
        if first:
            self._meters.count("plugin_invocations", kind=record.export_kind, status=str(record.status))
            self._live.tell(InvocationEvent(ENDED, record))
        return True


class SqlCheckpoints:
    """How far harnesses have come, in the database."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    async def save(self, execution_id: str, journey: Journey) -> None:
        async with self._database.transaction() as tx:
            await journey_rows.save(tx, execution_id, journey, self._clock.now())

    async def load(self, execution_id: str) -> Journey | None:
        async with self._database.reading() as tx:
            return await journey_rows.load(tx, execution_id)


BINDING_DISABLED = "binding_disabled"

Opened = Callable[[InvocationRecord], None]
"""Told of each attempt once its record is open."""


@dataclass(frozen=True, slots=True)
class Work:
    """What somebody wants done, and by whom: by one binding, or by whichever serves an export."""

    org_id: str
    input: Any
    project_id: str | None = None
    binding_id: str | None = None
    export: str | None = None
    """`jira_search`, or `acme/devkit/jira_search`."""
    kind: str | None = None
    session_id: str | None = None
    chain_id: str | None = None
    run_id: str | None = None
    trace_id: str | None = None
    execution_id: str | None = None
    attempt: int = 1
    timeout: float | None = None
    """Seconds."""
    scopes: frozenset[str] | None = None
    """Gateway scopes the caller has itself; None: all."""

    @property
    def key(self) -> str:
        """What a rollout sticks to."""
        return stable_key(self.session_id, self.chain_id, self.run_id, self.execution_id, self.trace_id)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What an invocation is done with, as it was when it began."""

    bound: ResolvedBinding
    binding: ExportBinding

    @property
    def reach(self) -> Reach:
        """How far the plugin may get."""
        policy = self.bound.policy
        if policy.network == NO_ACCESS:
            return Reach(())
        domains = policy.egress_domains
        return Reach(None if domains is None else tuple(sorted(domains)))


class Flight:
    """One piece of work while it goes on."""

    __slots__ = ("_runner", "_told", "binding_id", "reason", "record")

    def __init__(self, runner: Runner, binding_id: str, told: Opened | None = None) -> None:
        """`told` hears of each attempt that begins."""
        self._runner = runner
        self._told = told
        self.binding_id = binding_id
        self.record: InvocationRecord | None = None
        """Its current attempt."""
        self.reason = ""

    def opened(self, record: InvocationRecord) -> None:
        """An attempt begins."""
        self.record = record
        if self.reason:
            self._runner.cancel(record.invocation_id, self.reason)
        if self._told is not None:
            self._told(record)

    def cancel(self, reason: str) -> None:
        """Call it off, now or as soon as there is something to call off."""
        self.reason = self.reason or reason
        if self.record is not None:
            self._runner.cancel(self.record.invocation_id, reason)


class Invocations:
    """All work of all bindings."""

    def __init__(
        self,
        database: Database,
        bindings: Bindings,
        secrets: Secrets,
        runner: Runner,
        log: SqlInvocationLog,
        live: InvocationEvents,
        tasks: Tasks,
        clock: Clock,
    ) -> None:
        self._database = database
        self._bindings = bindings
        self._secrets = secrets
        self._runner = runner
        self._log = log
        self._live = live
        self._tasks = tasks
        self._clock = clock
        self._flights: set[Flight] = set()
        self._apart: set[asyncio.Task[Any]] = set()
        bindings.disabled.append(self._binding_disabled)

    async def start(self) -> None:
        """Close what a killed gateway left, then begin."""
        await self._log.recover()
        self._tasks.start("closing of invocations", self._log.catch_up)
        self._tasks.start("stopping of idle plugins", lambda: self._runner.reap(self._bindings.digests_in_use))

    async def stop(self) -> None:
        """Call off what runs, let it end in good order, and write down how it ended."""
        await self._runner.stop()
        for task in list(self._apart):
            await asyncio.wait({task})
        await self._log.close_rest()
        self._live.close()

    # Doing.

    async def invoke(
        self, work: Work, on_progress: Callable[[Any], None] | None = None, opened: Opened | None = None
    ) -> InvocationResult:
        """Have work done, and say how it ended; raises `GatewayError` when it cannot even be begun.

        Cancelled, it calls the work off and ends when that has ended: its token is dead then, and its process gone.
        """
        binding_id = await self.binding_of(work)
        flight = Flight(self._runner, binding_id, opened)
        self._flights.add(flight)
        try:
            # Only now: whoever disables the binding from here on finds the flight and calls it off.
            snapshot = await self._snapshot(work, binding_id)
            return await self._done(work, snapshot, flight, on_progress)
        finally:
            self._flights.discard(flight)

    async def begin(self, work: Work) -> InvocationRecord:
        """Have work done that nobody waits for; its first record."""
        began: asyncio.Future[InvocationRecord] = asyncio.get_running_loop().create_future()
        task = asyncio.get_running_loop().create_task(self._unwatched(work, began))
        self._apart.add(task)
        task.add_done_callback(self._apart.discard)
        return await asyncio.shield(began)

    async def _unwatched(self, work: Work, began: asyncio.Future[InvocationRecord]) -> None:
        try:
            result = await self.invoke(work, opened=lambda record: settle(began, record))
        except Exception as error:
            if began.done():
                raise
            began.set_exception(error)
            return
        if not began.done():
            began.set_exception(refusal(result))

    async def cancel(self, caller: Principal, id: str, reason: str = USER) -> InvocationRecord:
        """Call one invocation off; one that has ended stays as it is."""
        record = await self.get(caller, id)
        if record.status is None:
            self._runner.cancel(id, reason)
        return record

    def _binding_disabled(self, binding_id: str) -> None:
        for flight in list(self._flights):
            if flight.binding_id == binding_id:
                flight.cancel(BINDING_DISABLED)

    async def binding_of(self, work: Work) -> str:
        """The binding that does it: the one that is named, or the one that serves the export; raises `not_found`."""
        if work.binding_id is not None:
            return work.binding_id
        export = work.export or ""
        found = await self._bindings.select(work.org_id, work.project_id, export, work.key, work.kind)
        if found is None:
            raise not_found("binding", export)
        return found.id

    async def _snapshot(self, work: Work, binding_id: str) -> Snapshot:
        bound = await self._bindings.bound(binding_id)
        if bound is None or bound.row.org_id != work.org_id or bound.row.project_id not in (None, work.project_id):
            raise not_found("binding", binding_id)
        row = bound.row
        if row.status != ACTIVE:
            raise conflict("binding.not_active", f"the binding {binding_id} is {row.status}")
        secrets = await self._secrets_of(row) if row.secrets else {}
        binding = ExportBinding(row.id, row.config, secrets, bound.policy.for_host(), row.org_id, row.project_id)
        return Snapshot(bound, binding)

    async def _secrets_of(self, row: BindingRow) -> dict[str, str]:
        """Never remembered: they are in memory no longer than whoever needs them."""
        async with self._database.reading() as tx:
            values = await self._secrets.values(tx, row.org_id, row.secrets)
        gone = sorted(set(row.secrets) - set(values))
        if gone:
            text = f"the binding {row.id} needs secrets that are not there: {', '.join(gone)}"
            raise conflict("binding.secret_not_found", text, slots=gone)
        return values

    async def _done(
        self, work: Work, snapshot: Snapshot, flight: Flight, on_progress: Callable[[Any], None] | None
    ) -> InvocationResult:
        def heard(event: Any) -> None:
            self._live.tell(InvocationEvent(EVENT, flight.record, event))
            if on_progress is not None:
                on_progress(event)

        async with self._runner.host(snapshot.bound.package, snapshot.reach) as host:
            return await host.invoke(
                snapshot.bound.export.name,
                work.input,
                timeout=work.timeout,
                on_progress=heard,
                org_id=work.org_id,
                project_id=work.project_id,
                session_id=work.session_id,
                chain_id=work.chain_id,
                run_id=work.run_id,
                trace_id=work.trace_id,
                execution_id=work.execution_id,
                attempt=work.attempt,
                scopes=None if work.scopes is None else tuple(sorted(work.scopes)),
                binding=snapshot.binding,
                opened=flight.opened,
                stays=True,
            )

    # Looking.

    async def get(self, caller: Principal, id: str) -> InvocationRecord:
        """One invocation as it is now; raises `not_found`."""
        async with self._database.reading() as tx:
            found = await rows.get(tx, id)
        if found is None or not caller.sees(found.org_id, found.project_id):
            raise not_found("invocation", id)
        return found

    async def page(
        self, caller: Principal, page: Page, wanted: Wanted, org_id: str | None = None
    ) -> Part[InvocationRecord]:
        """What the caller can see, the newest first."""
        if org_id is not None and not caller.sees(org_id):
            raise not_found("org", org_id)
        async with self._database.reading() as tx:
            return await rows.select_part(tx, org_id or caller.org_id, caller.project_id, page, wanted)


def refusal(result: InvocationResult) -> GatewayError:
    """Why there is no record of what was asked for: it was refused before there was one."""
    failure = result.failure or Failure(Code.INTERNAL, "nothing was done")
    if failure.code == Code.INVALID_INPUT:
        text = failure.message
        return unprocessable("invocation.invalid_input", text, "input", errors=failure.detail.get("errors", []))
    if failure.code == Code.FRAME_TOO_LARGE:
        return too_large("invocation.input_too_large", failure.message)
    if failure.code in (Code.NOT_FOUND, Code.CAPABILITY_NOT_ALLOWED):
        return unprocessable("invocation.refused", failure.message)
    return unavailable(f"invocation.{failure.code}", failure.message)
