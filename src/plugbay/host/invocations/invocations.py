"""`Invocations`: recorded calls, from the request to the last attempt.

Owns what surrounds single attempts: the request and its binding, one deadline for all attempts, retries, cancellation
by id, by a caller that goes away and by a host that stops. One attempt is in `attempt`.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from plugbay.host.catalog.catalog import Entry
from plugbay.host.confinement.scratch import Scratch
from plugbay.host.invocations import retry
from plugbay.host.invocations.artifacts import Artifacts
from plugbay.host.invocations.attempt import SHUTDOWN, USER, Attempt, failed
from plugbay.host.invocations.context import (
    ID_BYTES,
    ExportBinding,
    InvocationRequest,
    allowed_seconds,
    new_id,
    request_from_context,
    request_problem,
)
from plugbay.host.invocations.kinds import EXECUTIONS, Execution
from plugbay.host.invocations.resources import Gateway, Resources
from plugbay.host.journal import Journal
from plugbay.host.ports import Checkpoints, InvocationLog
from plugbay.host.records import MemoryCheckpoints, MemoryInvocationLog
from plugbay.host.supervision.instance import Deadline
from plugbay.host.supervision.supervisor import Supervisor
from plugbay.model.errors import Code, Failure
from plugbay.model.events import CallFinished
from plugbay.wire.fast_json import MsgspecCodec

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

    def cancel(self, reason: str) -> bool:
        """Cancel it; there is no further attempt. False when it was cancelled before or has just ended."""
        if self.is_cancelled():
            return False
        self._cancelled.set()
        return self.current is None or self.current.cancel(reason)

    def is_cancelled(self) -> bool:
        return self._cancelled.is_set()

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
        self._new_trace = new_trace or (lambda: _make_id("tr"))
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
            _make_id,
        )
        self._pending: dict[asyncio.Task[CallFinished], PendingRequest] = {}
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

    async def open(self) -> None:
        """Remove the scratch folders of hosts that were killed."""
        self._stopping = False
        left = await self._resources.scratch.sweep()
        if left:
            self._resources.journal.note("host", "scratch_swept", f"{left} hosts had left scratch directories behind")

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
        self,
        entry: Entry,
        op: Any,
        find: Find,
        granted: tuple[str, ...],
        timeout: float | None = None,
        on_progress: Callable[[Any], None] | None = None,
        request: InvocationRequest | None = None,
    ) -> CallFinished:
        """Run `op`. Without a `request`, the context of `op` is the request. Cancelling the caller cancels the run."""
        wanted = request_from_context(op.context) if request is None else request
        if isinstance(wanted, Failure):
            return failed(wanted)
        problem = request_problem(wanted)
        if problem is not None:
            return failed(problem)
        binding = wanted.binding or self._bind(entry)
        if isinstance(binding, Failure):
            return failed(binding)
        kind = EXECUTIONS.get(type(op))
        if kind is None:
            return failed(Failure(Code.NOT_FOUND, f"a {entry.export.kind} cannot be invoked"))
        wanted = replace(wanted, org_id=wanted.org_id or binding.org_id)
        pending, execution = PendingRequest(), kind(entry, op, wanted, self._resources)
        deadline = Deadline(allowed_seconds(entry.export, binding.policy, timeout))
        await execution.load()
        attempts = self._run_attempts(pending, execution, binding, granted, deadline, find, on_progress)
        task = asyncio.get_running_loop().create_task(attempts)
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

    def _done(self, task: asyncio.Task[CallFinished]) -> None:
        del self._pending[task]
        if not task.cancelled() and task.exception() is not None:
            self._resources.journal.note("host", "invocation_failed", repr(task.exception()), level="error")

    async def _run_attempts(
        self,
        pending: PendingRequest,
        execution: Execution,
        binding: ExportBinding,
        granted: tuple[str, ...],
        deadline: Deadline,
        find: Find,
        on_progress: Callable[[Any], None] | None,
    ) -> CallFinished:
        """Run attempts while a retry is allowed and there is time."""
        trace_id, attempts = execution.request.trace_id or self._new_trace(), 0
        while True:
            supervisor = None if self._stopping else find()
            if supervisor is None:
                why = "the host is not running; start it, or use `async with`"
                return failed(Failure(Code.UNAVAILABLE, why))
            if pending.is_cancelled():
                return failed(Failure(Code.CANCELLED, "it was cancelled before it began"))
            pending.current = attempt = Attempt(
                self._resources,
                execution,
                binding,
                granted,
                deadline,
                trace_id=trace_id,
                retry_count=attempts,
                on_progress=on_progress,
            )
            finished = await attempt.run(supervisor)
            attempts += 1
            failure = finished.failure
            retryable = failure is None and execution.is_retryable(attempt.result)
            again = retry.should_retry(
                execution.entry.export.kind, execution.repeatable, failure, is_retryable=retryable, attempts=attempts
            )
            pause = retry.delay(failure, attempts)
            if not again or pending.is_cancelled() or pause >= deadline.left() or not await pending.pause(pause):
                return finished


def _make_id(prefix: str) -> str:
    return new_id(prefix, os.urandom(ID_BYTES))
