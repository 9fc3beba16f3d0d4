"""`PerCallSupervisor`: a plugin whose children serve one call each. Leases a ready one, judges how it leaves.

Acts; what to decide is decided elsewhere (`policy`, `restart`). State moves along `model.lifecycle` and at the moment
of the decision, not when its effect is seen.
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from plugbay.host.limits import Turns
from plugbay.host.supervision.instance import Binding, Deadline, Runtime, Seat, open_seat
from plugbay.host.supervision.restart import Quarantine, next_action
from plugbay.model.errors import Code, Failure, Origin
from plugbay.model.events import CallFinished
from plugbay.model.lifecycle import State, Trigger, step
from plugbay.model.spec import Export, RestartPolicy
from plugbay.process.status import ExitStatus

if TYPE_CHECKING:
    from plugbay.model.operations import PluginOp


class PerCallLease:
    """The right to use one seat for one call, its last."""

    __slots__ = ("_forsaken", "_supervisor", "link", "seat")

    def __init__(self, supervisor: PerCallSupervisor, seat: Seat) -> None:
        self._supervisor = supervisor
        self._forsaken = False
        self.seat = seat
        self.link = seat.link

    async def conclude(self, answer: CallFinished, deadline: Deadline) -> CallFinished:
        """The call's outcome once the child's leaving has been judged, where the contract says it counts."""
        spec = self.seat.binding.spec
        if answer.failure is not None or not spec.clean_exit_required:
            return answer
        self._supervisor.step("supervisor.conclude")
        self.link.close_input()
        status = await self.seat.child.wait(min(spec.timeouts.teardown, deadline.left()))
        if status is None:
            failure = self._lingered(deadline)
        elif status.code != 0:
            why = f"it answered, but then left with {status.describe()}, so the answer does not count"
            failure = Failure(Code.CRASHED, why, origin=Origin.PLUGIN)
        else:
            return answer
        return CallFinished(answer.id, None, self.seat.explain(failure))

    def _lingered(self, deadline: Deadline) -> Failure:
        if deadline.left() <= 0:
            return Failure(Code.TIMEOUT, "it answered, but the time for the call ran out before it left")
        limit = self.seat.binding.spec.timeouts.teardown
        return Failure(Code.CRASHED, f"it answered, but was still running {limit:g} s later", origin=Origin.PLUGIN)

    def forsake(self) -> None:
        """It did not answer: it is not worth a good-bye."""
        self._forsaken = True

    def release(self) -> None:
        """The call is over, however it ended."""
        self._supervisor.release(self.seat, forsaken=self._forsaken)

    async def cleared(self) -> None:
        """Wait until the child is gone, which takes no longer than its good-bye and a kill."""
        timeouts = self.seat.binding.spec.timeouts
        await self.seat.child.wait(timeouts.farewell + timeouts.teardown + timeouts.term + timeouts.kill)


class PerCallSupervisor:
    """Leases children of a plugin that lives for one call, from its pool where one is ready."""

    def __init__(
        self, binding: Binding, runtime: Runtime, policy: RestartPolicy | None = None, turns: Turns | None = None
    ) -> None:
        """`turns` are shared with other supervisors of the same plugin; without any it has its own."""
        self.binding = binding
        self._runtime = runtime
        self._seats: set[Seat] = set()
        self._leaving: set[asyncio.Task[None]] = set()
        self._starting = 0
        self._turns = turns or Turns(binding.concurrency)
        self.pool = Pool(binding.pool, self._open_for_pool, policy or RestartPolicy())
        self.state = State.IDLE
        self.generation = 0
        """Grows with every child; tells the calls of one child from those of the next."""

    @property
    def busy(self) -> int:
        """Children that serve a call right now."""
        return len(self._seats)

    @property
    def ready(self) -> int:
        """Children that wait for a call."""
        return len(self.pool)

    @property
    def pid(self) -> int | None:
        """None: there is no one child to speak of."""
        return None

    @property
    def starting(self) -> asyncio.Future[Any] | None:
        """None: calls wait for their own children only."""
        return None

    @property
    def counters(self) -> dict[str, int]:
        return {}

    def begin(self, after: asyncio.Future[float] | None = None) -> None:
        """Start what should be ready ahead of time. Children of a predecessor may still be busy meanwhile."""
        self.pool.fill()

    def step(self, name: str) -> None:
        self._runtime.step(name)

    def serving(self, execution_class: str, org: str, export: Export) -> PerCallSupervisor:
        """Itself: no child ever serves two."""
        return self

    def at_once(self) -> PerCallLease | None:
        """None: a child of its own is never there without a wait, or at least a look at the pool."""
        return None

    async def lease(self, deadline: Deadline) -> PerCallLease | Failure:
        """A ready child of its own for one call; a `Failure` says why there is none."""
        self.step("supervisor.lease")
        refusal = await self._turns.wait(deadline.left())
        if refusal is not None:
            return refusal.with_detail(self.binding.spec.id)
        try:
            seat = await self._ready_seat(deadline)
        except BaseException:
            self._give_turn()
            raise
        if isinstance(seat, Failure):
            self._give_turn()
            return seat
        self._seats.add(seat)
        return PerCallLease(self, seat)

    def tell(self, op: PluginOp) -> bool:
        """False: a child that serves one call hears of nothing else."""
        return False

    def shown(self) -> None:
        """Nothing to do: no child outlives its call."""

    def release(self, seat: Seat, *, forsaken: bool = False) -> None:
        """See the child off. One whose leaving counts was asked to go already; from any other we part in good order,
        if it deserves that. Its turn is free when it is gone: children that linger must not pile up."""
        if self.binding.spec.clean_exit_required or forsaken or not seat.alive():
            self._gone(seat)
        else:
            task = asyncio.get_running_loop().create_task(self._part(seat))
            self._leaving.add(task)
            task.add_done_callback(self._leaving.discard)

    async def _part(self, seat: Seat) -> None:
        try:
            await seat.farewell()
        finally:
            self._gone(seat)

    def _gone(self, seat: Seat) -> None:
        self._seats.discard(seat)
        seat.leave()
        self._give_turn()
        self.pool.fill()

    def _give_turn(self) -> None:
        self._turns.give()
        self._settle_state()

    async def _ready_seat(self, deadline: Deadline) -> Seat | Failure:
        if self._closed():
            return self._unavailable()
        if self.state is State.IDLE:
            self.state = step(self.state, Trigger.LEASED)
        seat = self.pool.take() or await self._open(deadline)
        if self._closed():
            if isinstance(seat, Seat):
                seat.leave()
            return self._unavailable()
        if isinstance(seat, Seat) and self.state is State.SPAWNING:
            self.state = step(self.state, Trigger.READY)
        return seat

    async def retire(self) -> float:
        """Let the calls that run and those that wait for their turn come to their end, then stop."""
        await self._turns.drain()
        await self.stop()
        return 0.0

    async def stop(self) -> None:
        """Nothing new starts, everything that runs is killed."""
        if not self._closed():
            self.state = step(self.state, Trigger.STOP)
        await self.pool.close()
        if self._leaving:
            await asyncio.wait(self._leaving)
        for seat in self._seats:
            seat.leave()
        self._seats.clear()
        if self.state is State.SHUTTING_DOWN:
            self.state = step(self.state, Trigger.GONE)

    async def _open(self, deadline: Deadline) -> Seat | Failure:
        self._starting += 1
        try:
            seat = await open_seat(self.binding, self._runtime, deadline)
        finally:
            self._starting -= 1
        self.generation += isinstance(seat, Seat)
        return seat

    async def _open_for_pool(self) -> Seat | Failure:
        seat = await self._open(Deadline(self.binding.spec.timeouts.call))
        self._settle_state()
        return seat

    def _closed(self) -> bool:
        return self.state in (State.STOPPED, State.SHUTTING_DOWN, State.QUARANTINED)

    def _settle_state(self) -> None:
        if not self._seats and not self._starting and self.state in (State.SPAWNING, State.RUNNING):
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
    """Up to `size` ready seats of one plugin."""

    def __init__(self, size: int, open_one: Callable[[], Awaitable[Seat | Failure]], policy: RestartPolicy) -> None:
        self._size = size
        self._open_one = open_one
        self._policy = policy
        self._seats: deque[Seat] = deque()
        self._failures: deque[float] = deque(maxlen=policy.failures + 1)
        self._filler: asyncio.Task[None] | None = None
        self._closed = False

    def __len__(self) -> int:
        return len(self._seats)

    @property
    def filling(self) -> bool:
        """Whether it is still trying to fill up."""
        return self._filler is not None and not self._filler.done()

    def take(self) -> Seat | None:
        """A ready seat, if one waits. Call `fill` when its call is over: a start would take time from the call."""
        while self._seats:
            seat = self._seats.popleft()
            if seat.alive():
                return seat
            seat.leave()
            self._failed()
        return None

    def fill(self) -> None:
        """Bring the pool back to its size, in the background."""
        if len(self._seats) < self._size and not self.filling and not self._closed:
            self._filler = asyncio.get_running_loop().create_task(self._fill())

    async def _fill(self) -> None:
        while len(self._seats) < self._size:
            delay = self._delay()
            if delay is None:
                return
            await asyncio.sleep(delay)
            seat = await self._open_one()
            if isinstance(seat, Seat):
                self._keep(seat)
            else:
                self._failed()

    def _delay(self) -> float | None:
        """Seconds to wait before the next start; None when the plugin has failed too often lately."""
        now = asyncio.get_running_loop().time()
        if not self._failures or now - self._failures[-1] > self._policy.window:
            return 0.0
        action = next_action(self._failures, now, self._policy, random.random())
        return None if isinstance(action, Quarantine) else action.after

    def _keep(self, seat: Seat) -> None:
        self._seats.append(seat)

        def died(_: ExitStatus) -> None:
            if seat in self._seats:
                self._seats.remove(seat)
                seat.leave()
                self._failed()
                self.fill()

        seat.child.on_exit(died)

    def _failed(self) -> None:
        self._failures.append(asyncio.get_running_loop().time())

    async def close(self) -> None:
        """Start nothing more and let every waiting child go."""
        self._closed = True
        if self._filler is not None:
            self._filler.cancel()
            await asyncio.gather(self._filler, return_exceptions=True)
        for seat in self._seats:
            seat.leave()
        self._seats.clear()
