"""`Invocations`: work that is done in invocations, from what is asked to its last attempt.

Owns what lies around single attempts: who asks and as what the export is bound, one deadline for all attempts, whether
there is another one, who is still at it when somebody cancels, when a caller goes away and when the host stops. How
one attempt goes is `invocation`'s story.
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
from plugbay.host.invocations.context import (
    ID_BYTES,
    ExportBinding,
    Order,
    allowed_seconds,
    new_id,
    order_of,
    order_problem,
)
from plugbay.host.invocations.invocation import SHUTDOWN, USER, Invocation
from plugbay.host.invocations.kinds import WORKS, Kit, Work
from plugbay.host.invocations.means import Gateway, Means
from plugbay.host.invocations.records import MemoryCheckpoints, MemoryInvocationLog
from plugbay.host.journal import Journal
from plugbay.host.ports import Checkpoints, InvocationLog
from plugbay.host.supervision.instance import Deadline
from plugbay.host.supervision.supervisor import Supervisor
from plugbay.model.errors import Code, Failure
from plugbay.model.events import CallFinished
from plugbay.wire.fast_json import MsgspecCodec

ARTIFACTS = "artifacts"
"""Below the state directory: what harnesses left."""

Bind = Callable[[Entry], ExportBinding | Failure]
"""How the operator bound an export."""

Find = Callable[[], Supervisor | None]
"""Who looks after the plugin now; None when the host is not running."""


class Errand:
    """What one caller wants done, over all attempts."""

    __slots__ = ("_unwanted", "current")

    def __init__(self) -> None:
        self.current: Invocation | None = None
        self._unwanted = asyncio.Event()

    def cancel(self, reason: str) -> bool:
        """There is no other attempt; False when the last one is as good as done."""
        if self.is_cancelled():
            return False
        self._unwanted.set()
        return self.current is None or self.current.cancel(reason)

    def is_cancelled(self) -> bool:
        return self._unwanted.is_set()

    async def pause(self, seconds: float) -> bool:
        """Wait before the next attempt; False when it is cancelled meanwhile."""
        self.current = None
        try:
            await asyncio.wait_for(self._unwanted.wait(), seconds)
        except TimeoutError:
            return True
        return False


class Invocations:
    """Everything that is done in invocations on one host."""

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
        rooms = scratch or Scratch(state_dir)
        # Without a place of its own, what harnesses left lasts as long as the host.
        artifacts = Artifacts(lambda: (state_dir or rooms.home()) / ARTIFACTS)
        kit = Kit(codec, checkpoints or MemoryCheckpoints(), artifacts, _make_id)
        self._means = Means(kit, log or MemoryInvocationLog(), rooms, journal)
        self._errands: dict[asyncio.Task[CallFinished], Errand] = {}
        self._stopping = False

    @property
    def log(self) -> InvocationLog:
        """Where the records go."""
        return self._means.log

    @property
    def checkpoints(self) -> Checkpoints:
        return self._means.kit.checkpoints

    @property
    def artifacts(self) -> Artifacts:
        """What harnesses left, by its `asset_id`."""
        return self._means.kit.artifacts

    @property
    def gateway(self) -> Gateway | None:
        """What plugins may come back to; None: they get no token."""
        return self._means.gateway

    @gateway.setter
    def gateway(self, gateway: Gateway | None) -> None:
        self._means.gateway = gateway

    async def open(self) -> None:
        """Clear up after hosts that were killed."""
        self._stopping = False
        left = await self._means.scratch.sweep()
        if left:
            self._means.journal.note("host", "scratch_swept", f"{left} hosts had left scratch directories behind")

    async def stop(self) -> None:
        """Cancel what runs, let it come to its end within its grace, and see that nothing is left."""
        self._stopping = True
        for errand in self._errands.values():
            errand.cancel(SHUTDOWN)
        while self._errands or self._means.tasks:
            await asyncio.wait({*self._errands, *self._means.tasks})
        await self._means.scratch.close()

    def cancel(self, invocation_id: str, reason: str = USER) -> bool:
        """Cancel one invocation, and what would follow it; False when it is not running, or cancelled already."""
        for errand in self._errands.values():
            if errand.current is not None and errand.current.record.invocation_id == invocation_id:
                return errand.cancel(reason)
        return False

    async def run(
        self,
        entry: Entry,
        op: Any,
        find: Find,
        granted: tuple[str, ...],
        timeout: float | None = None,
        on_progress: Callable[[Any], None] | None = None,
        order: Order | None = None,
    ) -> CallFinished:
        """Have `op` done; its context is the order, unless one is given. A caller that is cancelled cancels it."""
        wanted = order_of(op.context) if order is None else order
        if isinstance(wanted, Failure):
            return CallFinished(0, None, wanted)
        problem = order_problem(wanted)
        if problem is not None:
            return CallFinished(0, None, problem)
        binding = wanted.binding or self._bind(entry)
        if isinstance(binding, Failure):
            return CallFinished(0, None, binding)
        kind = WORKS.get(type(op))
        if kind is None:
            return CallFinished(0, None, Failure(Code.NOT_FOUND, f"a {entry.export.kind} cannot be invoked"))
        wanted = replace(wanted, org_id=wanted.org_id or binding.org_id)
        errand, work = Errand(), kind(entry, op, wanted, self._means.kit)
        deadline = Deadline(allowed_seconds(entry.export, binding.policy, timeout))
        await work.begin()
        story = self._attempts(errand, work, binding, granted, deadline, find, on_progress)
        task = asyncio.get_running_loop().create_task(story)
        self._errands[task] = errand
        task.add_done_callback(self._done)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            errand.cancel(USER)
            while wanted.stays and not task.done():
                with suppress(asyncio.CancelledError):  # more than once: whoever cancels us may become impatient
                    await asyncio.wait({task})
            raise

    def _done(self, task: asyncio.Task[CallFinished]) -> None:
        del self._errands[task]
        if not task.cancelled() and task.exception() is not None:
            self._means.journal.note("host", "invocation_failed", repr(task.exception()), level="error")

    async def _attempts(
        self,
        errand: Errand,
        work: Work,
        binding: ExportBinding,
        granted: tuple[str, ...],
        deadline: Deadline,
        find: Find,
        on_progress: Callable[[Any], None] | None,
    ) -> CallFinished:
        """One attempt after the other, as long as another one may help and there is time."""
        trace_id, attempts = work.order.trace_id or self._new_trace(), 0
        while True:
            supervisor = None if self._stopping else find()
            if supervisor is None:
                why = "the host is not running; start it, or use `async with`"
                return CallFinished(0, None, Failure(Code.UNAVAILABLE, why))
            if errand.is_cancelled():
                return CallFinished(0, None, Failure(Code.CANCELLED, "it was cancelled before it began"))
            errand.current = invocation = Invocation(
                self._means,
                work,
                binding,
                granted,
                deadline,
                trace_id=trace_id,
                retry_count=attempts,
                on_progress=on_progress,
            )
            finished = await invocation.run(supervisor)
            attempts += 1
            failure = finished.failure
            says = failure is None and work.says_retryable(invocation.result)
            again = retry.wants_retry(
                work.entry.export.kind, work.repeatable, failure, says_retryable=says, attempts=attempts
            )
            pause = retry.delay(failure, attempts)
            if not again or errand.is_cancelled() or pause >= deadline.left() or not await errand.pause(pause):
                return finished


def _make_id(prefix: str) -> str:
    return new_id(prefix, os.urandom(ID_BYTES))
