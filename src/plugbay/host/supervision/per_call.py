"""`PerCallSupervisor`: one instance per call, taken from a `Pool` of instances that were started ahead of time.

State moves along `model.lifecycle` at the moment of the decision, not when its effect is seen. The concurrency slot of
a call is released when its process is gone, so that lingering processes cannot pile up.
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, ClassVar

from plugbay.host.limits import ConcurrencyLimit
from plugbay.host.supervision.binding import Binding
from plugbay.host.supervision.instance import Deadline, Instance, Runtime, open_instance
from plugbay.host.supervision.restart import SHORTAGE_SECONDS, Quarantine, is_shortage, next_action
from plugbay.model.errors import Code, Failure, Origin
from plugbay.model.events import CallFinished
from plugbay.model.lifecycle import State, Trigger, step
from plugbay.model.spec import Export, RestartPolicy
from plugbay.process.status import ExitStatus

if TYPE_CHECKING:
    from plugbay.model.operations import PluginOp


class PerCallLease:
    """The right to use one instance for its only call."""

    __slots__ = ("_abandoned", "_supervisor", "instance", "link")
    shared: ClassVar[bool] = False

    def __init__(self, supervisor: PerCallSupervisor, instance: Instance) -> None:
        self._supervisor = supervisor
        self._abandoned = False
        self.instance = instance
        self.link = instance.link

    async def conclude(self, answer: CallFinished, deadline: Deadline) -> CallFinished:
        """The outcome of the call; where the contract requires a clean exit, a bad one makes the call fail."""
        spec = self.instance.binding.spec
        if answer.failure is not None or not spec.clean_exit_required:
            return answer
        self._supervisor.step("supervisor.conclude")
        self.link.close_input()
        status = await self.instance.child.wait(min(spec.timeouts.teardown, deadline.left()))
        if status is None:
            failure = self._late_exit(deadline)
        elif status.code != 0:
            why = f"it answered, but then ended with {status.describe()}, so the answer does not count"
            failure = Failure(Code.CRASHED, why, origin=Origin.PLUGIN)
        else:
            return answer
        return CallFinished(answer.id, None, self.instance.explain(failure))

    def _late_exit(self, deadline: Deadline) -> Failure:
        if deadline.left() <= 0:
            return Failure(Code.TIMEOUT, "it answered, but the call timed out before it exited")
        limit = self.instance.binding.spec.timeouts.teardown
        return Failure(Code.CRASHED, f"it answered, but was still running {limit:g} s later", origin=Origin.PLUGIN)

    def abandon(self) -> None:
        """Kill the instance on release instead of shutting it down: it did not answer."""
        self._abandoned = True

    def release(self) -> None:
        """End the call, however it ended."""
        self._supervisor.release(self.instance, abandoned=self._abandoned)

    async def wait_gone(self) -> None:
        """Wait until the process is gone, which takes no longer than its shutdown and a kill."""
        timeouts = self.instance.binding.spec.timeouts
        await self.instance.child.wait(timeouts.farewell + timeouts.teardown + timeouts.term + timeouts.kill)


class PerCallSupervisor:
    """Leases instances that serve one call each, from the pool if one is ready."""

    def __init__(
        self,
        binding: Binding,
        runtime: Runtime,
        policy: RestartPolicy | None = None,
        concurrency: ConcurrencyLimit | None = None,
    ) -> None:
        """`concurrency` may be shared with other supervisors of the same plugin."""
        self.binding = binding
        self._runtime = runtime
        self._instances: set[Instance] = set()
        self._leaving: set[asyncio.Task[None]] = set()
        self._starting = 0
        self._concurrency = concurrency or ConcurrencyLimit(binding.concurrency)
        self.pool = Pool(binding.pool, self._open_for_pool, policy or RestartPolicy())
        self.state = State.IDLE
        self.generation = 0
        """Grows with every instance; tells the calls of one instance from those of the next."""

    @property
    def busy(self) -> int:
        """Instances that serve a call now."""
        return len(self._instances)

    @property
    def ready(self) -> int:
        """Instances that wait for a call."""
        return len(self.pool)

    @property
    def pid(self) -> int | None:
        """None: there is no single process."""
        return None

    @property
    def starting(self) -> asyncio.Future[Any] | None:
        """None: each call waits only for its own instance."""
        return None

    @property
    def counters(self) -> dict[str, int]:
        return {}

    def begin(self, after: asyncio.Future[float] | None = None) -> None:
        """Fill the pool. Instances of a predecessor may still be busy meanwhile."""
        self.pool.fill()

    def step(self, name: str) -> None:
        self._runtime.step(name)

    def for_export(self, execution_class: str, org: str, export: Export) -> PerCallSupervisor:
        """Itself: no instance serves two calls."""
        return self

    def try_lease(self) -> PerCallLease | None:
        """None: an instance needs a start, or at least a check of the pool."""
        return None

    async def lease(self, deadline: Deadline) -> PerCallLease | Failure:
        """A ready instance for this call only; a `Failure` says why there is none."""
        self.step("supervisor.lease")
        refusal = await self._concurrency.acquire(deadline.left(), deadline.patience())
        if refusal is not None:
            return refusal.with_detail(self.binding.spec.id)
        try:
            instance = await self._ready_instance(deadline)
        except BaseException:
            self._release_slot()
            raise
        if isinstance(instance, Failure):
            self._release_slot()
            return instance
        self._instances.add(instance)
        return PerCallLease(self, instance)

    def notify(self, op: PluginOp) -> bool:
        """False: an instance that serves one call takes no notifications."""
        return False

    def mark_shown(self) -> None:
        """Nothing to do: no instance outlives its call."""

    def release(self, instance: Instance, *, abandoned: bool = False) -> None:
        """End an instance. If the contract requires a clean exit, it was asked to exit already; otherwise shut it down,
        or kill it if it was abandoned. Its concurrency slot is released when it is gone."""
        if self.binding.spec.clean_exit_required or abandoned or not instance.is_alive():
            self._discard(instance)
        else:
            task = asyncio.get_running_loop().create_task(self._shut_down(instance))
            self._leaving.add(task)
            task.add_done_callback(self._leaving.discard)

    async def _shut_down(self, instance: Instance) -> None:
        try:
            await instance.shut_down()
        finally:
            self._discard(instance)

    def _discard(self, instance: Instance) -> None:
        self._instances.discard(instance)
        self._release_slot()
        if instance.child.exit is None:
            self._clear(instance)
        else:  # nothing is left to kill, so the caller gets its answer first
            asyncio.get_running_loop().call_soon(self._clear, instance)

    def _clear(self, instance: Instance) -> None:
        instance.kill()
        self.pool.fill()

    def _release_slot(self) -> None:
        self._concurrency.release()
        self._settle_state()

    async def _ready_instance(self, deadline: Deadline) -> Instance | Failure:
        if self._closed():
            return self._unavailable()
        if self.state is State.IDLE:
            self.state = step(self.state, Trigger.LEASED)
        instance = self.pool.take() or await self._open(deadline)
        if self._closed():
            if isinstance(instance, Instance):
                instance.kill()
            return self._unavailable()
        if isinstance(instance, Instance) and self.state is State.SPAWNING:
            self.state = step(self.state, Trigger.READY)
        return instance

    async def retire(self) -> float:
        """Wait for running and queued calls, then stop."""
        await self._concurrency.drain()
        await self.stop()
        return 0.0

    async def stop(self) -> None:
        """Start nothing new and kill all instances."""
        if not self._closed():
            self.state = step(self.state, Trigger.STOP)
        await self.pool.close()
        if self._leaving:
            await asyncio.wait(self._leaving)
        for instance in self._instances:
            instance.kill()
        self._instances.clear()
        if self.state is State.SHUTTING_DOWN:
            self.state = step(self.state, Trigger.GONE)

    async def _open(self, deadline: Deadline) -> Instance | Failure:
        self._starting += 1
        try:
            instance = await open_instance(self.binding, self._runtime, deadline)
        finally:
            self._starting -= 1
        self.generation += isinstance(instance, Instance)
        return instance

    async def _open_for_pool(self) -> Instance | Failure:
        instance = await self._open(Deadline(self.binding.spec.timeouts.call))
        self._settle_state()
        return instance

    def _closed(self) -> bool:
        return self.state in (State.STOPPED, State.SHUTTING_DOWN, State.QUARANTINED)

    def _settle_state(self) -> None:
        if not self._instances and not self._starting and self.state in (State.SPAWNING, State.RUNNING):
            self.state = step(self.state, Trigger.RELEASED)

    def _unavailable(self) -> Failure:
        quarantined = self.state is State.QUARANTINED
        code = Code.QUARANTINED if quarantined else Code.UNAVAILABLE
        hint = (
            "fix the plugin, then reload it"
            if quarantined
            else f"plugbay start {self.binding.spec.id}, or start its host again"
        )
        return Failure(code, f"the plugin is {self.state}", plugin=self.binding.spec.id, detail={"hint": hint})


class Pool:
    """Up to `size` ready instances of one plugin, started before a call needs them.

    Refills itself in the background, and gives up on a plugin that fails to start, as `restart` decides. An instance
    that dies while it waits is never leased.
    """

    def __init__(self, size: int, open_one: Callable[[], Awaitable[Instance | Failure]], policy: RestartPolicy) -> None:
        self._size = size
        self._open_one = open_one
        self._policy = policy
        self._instances: deque[Instance] = deque()
        self._failures: deque[float] = deque(maxlen=policy.failures + 1)
        self._filler: asyncio.Task[None] | None = None
        self._closed = False

    def __len__(self) -> int:
        return len(self._instances)

    @property
    def filling(self) -> bool:
        """Whether it is being refilled."""
        return self._filler is not None and not self._filler.done()

    def take(self) -> Instance | None:
        """A ready instance, if there is one. Call `fill` after its call: a start would take time from the call."""
        while self._instances:
            instance = self._instances.popleft()
            if instance.is_alive():
                return instance
            instance.kill()
            self._record_failure()
        return None

    def fill(self) -> None:
        """Refill the pool in the background."""
        if len(self._instances) < self._size and not self.filling and not self._closed:
            self._filler = asyncio.get_running_loop().create_task(self._fill())

    async def _fill(self) -> None:
        while len(self._instances) < self._size:
            delay = self._delay()
            if delay is None:
                return
            await asyncio.sleep(delay)
            instance = await self._open_one()
            if isinstance(instance, Instance):
                self._keep(instance)
            elif is_shortage(instance):
                await asyncio.sleep(SHORTAGE_SECONDS)
            else:
                self._record_failure()

    def _delay(self) -> float | None:
        """Seconds to wait before the next start; None when the plugin has failed too often lately."""
        now = asyncio.get_running_loop().time()
        if not self._failures or now - self._failures[-1] > self._policy.window:
            return 0.0
        action = next_action(self._failures, now, self._policy, random.random())
        return None if isinstance(action, Quarantine) else action.after

    def _keep(self, instance: Instance) -> None:
        self._instances.append(instance)

        def on_exit(_: ExitStatus) -> None:
            if instance in self._instances:
                self._instances.remove(instance)
                instance.kill()
                self._record_failure()
                self.fill()

        instance.child.on_exit(on_exit)

    def _record_failure(self) -> None:
        self._failures.append(asyncio.get_running_loop().time())

    async def close(self) -> None:
        """Start nothing more and kill all waiting instances."""
        self._closed = True
        if self._filler is not None:
            self._filler.cancel()
            await asyncio.gather(self._filler, return_exceptions=True)
        for instance in self._instances:
            instance.kill()
        self._instances.clear()
