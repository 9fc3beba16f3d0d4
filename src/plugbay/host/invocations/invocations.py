"""`Invocations`: recorded calls, from the request to the last attempt.

Owns what surrounds single attempts: the request and its binding, one deadline for all attempts, retries, cancellation
by id, by a caller that goes away and by a host that stops. One attempt is in `attempt`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from contextlib import suppress
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from plugbay.host.catalog.catalog import Entry
from plugbay.host.catalog.plans import Plan
from plugbay.host.config.time_factor import time_factor
from plugbay.host.confinement.scratch import Scratch
from plugbay.host.invocations import context as contexts
from plugbay.host.invocations import retry
from plugbay.host.invocations.artifacts import Artifacts
from plugbay.host.invocations.attempt import SHUTDOWN, USER, Attempt
from plugbay.host.invocations.context import Terms
from plugbay.host.invocations.kinds import EXECUTIONS, Execution
from plugbay.host.invocations.resources import Gateway, Resources
from plugbay.host.journal import Journal
from plugbay.host.ports import Checkpoints, InvocationLog, InvocationRecord
from plugbay.host.recording.org_logs import OrgLogs
from plugbay.host.records import MemoryCheckpoints, MemoryInvocationLog
from plugbay.host.request import CallRequest, ExportBinding, Policy, new_id, request_problem, with_ids_of_context
from plugbay.host.supervision.instance import Deadline
from plugbay.host.supervision.supervisor import Supervisor
from plugbay.model.errors import Code, Failure
from plugbay.model.events import CallFinished
from plugbay.wire.fast_json import MsgspecCodec

MAX_KEPT_TERMS = 1_024
"""Terms kept in memory; beyond that they are computed again."""

NOT_RUNNING = "the host is not running; start it, or use `async with`"

ARTIFACTS = "artifacts"
"""Folder below the state directory: the artifacts of harnesses."""

Bind = Callable[[Entry], ExportBinding | Failure]
"""Finds the operator's binding of an export."""

Find = Callable[[], Supervisor | None]
"""Finds the current supervisor of the plugin; None when the host is not running."""


class PendingRequest:
    """One caller's request, over all attempts."""

    __slots__ = ("_cancelled", "current")

    def __init__(self) -> None:
        self.current: Attempt | None = None
        self._cancelled = asyncio.Event()

    def is_cancelled(self) -> bool:
        return self._cancelled.is_set()

    def cancel(self, reason: str) -> bool:
        """Cancel it; there is no further attempt. False when it was cancelled before or has just ended."""
        if self.is_cancelled():
            return False
        self._cancelled.set()
        return self.current is None or self.current.cancel(reason)

    async def pause(self, seconds: float) -> bool:
        """Wait before the next attempt; False when it is cancelled in the meantime."""
        self.current = None
        try:
            await asyncio.wait_for(self._cancelled.wait(), seconds)
        except TimeoutError:
            return True
        return False


class Invocations:
    """All invocations of one host."""

    def __init__(
        self,
        codec: MsgspecCodec,
        journal: Journal,
        bind: Bind,
        state_dir: Path | None = None,
        *,
        log: InvocationLog | None = None,
        checkpoints: Checkpoints | None = None,
        scratch: Scratch | None = None,
        new_trace: Callable[[], str] | None = None,
    ) -> None:
        self._bind = bind
        self._new_trace = new_trace or (lambda: new_id("tr"))
        folders = scratch or Scratch(state_dir)
        # Without a state directory, artifacts last as long as the host.
        artifacts = Artifacts(lambda: (state_dir or folders.home()) / ARTIFACTS)
        self._resources = Resources(
            codec,
            journal,
            folders,
            artifacts,
            log or MemoryInvocationLog(),
            checkpoints or MemoryCheckpoints(),
            new_id,
        )
        self._pending: dict[asyncio.Task[CallFinished | Failure], PendingRequest] = {}
        self._terms: dict[tuple[int, Policy, frozenset[str] | None], tuple[Plan, Terms]] = {}
        self._stopping = False

    @property
    def log(self) -> InvocationLog:
        """The log of invocation records."""
        return self._resources.log

    @property
    def checkpoints(self) -> Checkpoints:
        return self._resources.checkpoints

    @property
    def artifacts(self) -> Artifacts:
        """The artifacts of harnesses, by `asset_id`."""
        return self._resources.artifacts

    @property
    def gateway(self) -> Gateway | None:
        """The API that plugins may call back; None: they get no token."""
        return self._resources.gateway

    @gateway.setter
    def gateway(self, gateway: Gateway | None) -> None:
        self._resources.gateway = gateway

    @property
    def now(self) -> Callable[[], float]:
        """The clock of records and tokens."""
        return self._resources.now

    @now.setter
    def now(self, now: Callable[[], float]) -> None:
        self._resources.now = now

    @property
    def org_logs(self) -> OrgLogs | None:
        """Where the output of plugins is kept apart for each org."""
        return self._resources.org_logs

    @org_logs.setter
    def org_logs(self, logs: OrgLogs | None) -> None:
        self._resources.org_logs = logs

    async def open(self) -> None:
        """Remove the scratch folders of hosts that were killed."""
        self._stopping = False
        left = await self._resources.scratch.sweep()
        if left:
            self._resources.journal.note("host", "scratch_swept", f"{left} dead hosts left scratch directories")

    async def stop(self) -> None:
        """Cancel all running invocations, wait for them and for their clean-up."""
        self._stopping = True
        for pending in self._pending.values():
            pending.cancel(SHUTDOWN)
        while self._pending or self._resources.tasks:
            await asyncio.wait({*self._pending, *self._resources.tasks})
        await self._resources.scratch.close()

    def cancel(self, invocation_id: str, reason: str = USER) -> bool:
        """Cancel one invocation and its retries; False when it is not running, or cancelled already."""
        for pending in self._pending.values():
            if pending.current is not None and pending.current.record.invocation_id == invocation_id:
                return pending.cancel(reason)
        return False

    async def run(
        self, request: CallRequest, plan: Plan, op: Any, find: Find, attempts: list[InvocationRecord]
    ) -> CallFinished | Failure:
        """Run `op`; appends the final record of each attempt to `attempts`. Cancelling the caller cancels the run."""
        wanted = with_ids_of_context(request) if request.context else request
        if isinstance(wanted, Failure):
            return wanted
        problem = request_problem(wanted)
        if problem is not None:
            return problem
        entry = plan.entry
        binding = wanted.binding or self._bind(entry)
        if isinstance(binding, Failure):
            return binding
        kind = EXECUTIONS.get(type(op))
        if kind is None:
            return Failure(Code.NOT_FOUND, f"a {entry.export.kind} cannot be invoked")
        if wanted.org_id is None:
            wanted = replace(wanted, org_id=binding.org_id)
        terms = self._terms_of(plan, binding.policy, wanted.scopes)
        deadline = Deadline(terms.allowed_seconds(wanted.timeout), wanted.queue_seconds)
        pending, execution = PendingRequest(), kind(entry, op, wanted, self._resources)
        await execution.load()
        running = self._run_attempts(pending, execution, binding, terms, deadline, find, attempts)
        task = asyncio.get_running_loop().create_task(running)
        self._pending[task] = pending
        task.add_done_callback(self._done)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            pending.cancel(USER)
            while wanted.stays and not task.done():
                with suppress(asyncio.CancelledError):  # the caller may be cancelled more than once
                    await asyncio.wait({task})
            raise

    def _terms_of(self, plan: Plan, policy: Policy, scopes: Collection[str] | None) -> Terms:
        """The terms of an invocation, computed once for each plan, policy and scopes."""
        key = (id(plan), policy, None if scopes is None else frozenset(scopes))
        known = self._terms.get(key)
        if known is None or known[0] is not plan:
            if len(self._terms) >= MAX_KEPT_TERMS:
                self._terms.clear()
            made = contexts.terms(plan.entry.export, plan.granted, policy, scopes, time_factor())
            known = self._terms[key] = (plan, made)
        return known[1]

    def _done(self, task: asyncio.Task[CallFinished | Failure]) -> None:
        del self._pending[task]
        if not task.cancelled() and task.exception() is not None:
            self._resources.journal.note("host", "invocation_failed", repr(task.exception()), level="error")

    async def _run_attempts(
        self,
        pending: PendingRequest,
        execution: Execution,
        binding: ExportBinding,
        terms: Terms,
        deadline: Deadline,
        find: Find,
        attempts: list[InvocationRecord],
    ) -> CallFinished | Failure:
        """Run attempts while a retry is allowed and there is time."""
        trace_id, tried = execution.request.trace_id or self._new_trace(), 0
        while True:
            supervisor = None if self._stopping else find()
            if supervisor is None:
                return Failure(Code.UNAVAILABLE, NOT_RUNNING)
            if pending.is_cancelled():
                return Failure(Code.CANCELLED, "it was cancelled before it started")
            pending.current = attempt = Attempt(
                self._resources,
                execution,
                binding,
                terms,
                deadline,
                trace_id=trace_id,
                retry_count=execution.next_retry(),
            )
            outcome = await attempt.run(supervisor)
            if attempt.record.status is not None:
                attempts.append(attempt.record)
            tried += 1
            deadline.wait_longer()
            failure = outcome if isinstance(outcome, Failure) else None
            retryable = failure is None and execution.is_retryable(attempt.result)
            if failure is None and not retryable:
                return outcome
            again = retry.should_retry(
                execution.entry.export.kind, execution.repeatable, failure, is_retryable=retryable, attempts=tried
            )
            pause = retry.delay(failure, tried)
            if not again or pending.is_cancelled() or pause >= deadline.left() or not await pending.pause(pause):
                return outcome
