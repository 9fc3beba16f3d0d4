"""`Invocations`: work of bound exports, from who asks for what to the last record of it.

    result = await gateway.invocations.invoke(Work(org_id="org_1", export="jira_search", input={"query": "tea"}))

Owns what is decided at the start and holds until the end: which binding serves, with which package, config, secrets and
policy; later changes are for later invocations. A binding that is disabled calls off what runs under it. How plugins
are started is the `Runner`'s, and how an attempt goes the host's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from plugbay.host.calls.calls import InvocationResult
from plugbay.host.invocations.attempt import USER
from plugbay.host.invocations.context import NO_ACCESS, ExportBinding
from plugbay.host.ports import InvocationRecord
from plugbay.model.errors import Code, Failure
from plugbay.server.domain import rollout
from plugbay.server.domain.bindings import ACTIVE, Bindings, Bound
from plugbay.server.domain.clock import Clock
from plugbay.server.domain.errands import settle
from plugbay.server.domain.errors import GatewayError, conflict, not_found, too_large, unavailable, unprocessable
from plugbay.server.domain.invocation_log import SqlInvocationLog
from plugbay.server.domain.live import EVENT, Live, LiveEvent
from plugbay.server.domain.principal import Principal
from plugbay.server.domain.runner import Reach, Runner
from plugbay.server.domain.secrets import Secrets
from plugbay.server.domain.tasks import Tasks
from plugbay.store import invocations as rows
from plugbay.store.bindings import BindingRow
from plugbay.store.database import Database
from plugbay.store.invocations import Wanted
from plugbay.store.pages import Page, Part

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
        return rollout.stable_key(self.session_id, self.chain_id, self.run_id, self.execution_id, self.trace_id)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What an invocation is done with, as it was when it began."""

    bound: Bound
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
        live: Live,
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
            self._live.tell(LiveEvent(EVENT, flight.record, event))
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
