"""`Supervisor`: all children of one plugin. Leases a ready link, judges how a child leaves, keeps none it does not own.

Acts; what to decide is decided elsewhere (`policy`, `restart`). Reads facts from the spec and never asks which contract
it serves. State moves along `model.lifecycle` and at the moment of the decision, not when its effect is seen.
"""

from __future__ import annotations

import asyncio
import os
import random
import secrets
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path

from plugbay.contracts.registry import CONTRACTS
from plugbay.host.ports import Trace
from plugbay.host.restart import Quarantine, RestartPolicy, next_action
from plugbay.link.deadlines import Deadlines
from plugbay.link.hooks import Hooks
from plugbay.link.link import Link
from plugbay.link.stream import PipeStream
from plugbay.model.errors import Code, Failure, Origin
from plugbay.model.events import CallFinished
from plugbay.model.lifecycle import State, Trigger, step
from plugbay.model.spec import PluginSpec
from plugbay.process import diagnose
from plugbay.process.child import Child, Spawner
from plugbay.process.command import Launch, LaunchFailed, build_env, host_search_path, resolve
from plugbay.process.limits import Rlimits
from plugbay.process.status import ExitStatus
from plugbay.wire.fast_json import MsgspecCodec


@dataclass(frozen=True, slots=True)
class Runtime:
    """What all supervisors of one host share."""

    spawner: Spawner
    deadlines: Deadlines
    codec: MsgspecCodec
    trace: Trace | None = None

    def step(self, name: str) -> None:
        if self.trace is not None:
            self.trace(name)


@dataclass(frozen=True, slots=True)
class Binding:
    """A plugin as the operator bound it."""

    spec: PluginSpec
    granted: tuple[str, ...] = ()
    env: tuple[tuple[str, str], ...] = ()
    inherit_env: tuple[str, ...] = ()
    pool: int = 0
    limits: Rlimits = field(default_factory=Rlimits)


class Deadline:
    """A moment on the loop's clock; everything a call does shares one."""

    __slots__ = ("_loop", "at")

    def __init__(self, seconds: float) -> None:
        self._loop = asyncio.get_running_loop()
        self.at = self._loop.time() + seconds

    def left(self) -> float:
        return max(0.0, self.at - self._loop.time())


class Seat:
    """One child and the link to it."""

    __slots__ = ("child", "link")

    def __init__(self, child: Child, link: Link) -> None:
        self.child = child
        self.link = link

    def leave(self) -> None:
        """Kill whatever is left of the child and let go of its pipes."""
        self.child.kill()
        self.link.close()


class Lease:
    """The right to use one seat for one call."""

    __slots__ = ("_supervisor", "link", "seat")

    def __init__(self, supervisor: Supervisor, seat: Seat) -> None:
        self._supervisor = supervisor
        self.seat = seat
        self.link = seat.link

    async def conclude(self, answer: CallFinished, deadline: Deadline) -> CallFinished:
        """The call's outcome once the child's leaving has been judged, where the contract says it counts."""
        spec = self._supervisor.binding.spec
        if answer.failure is not None or not spec.clean_exit_required:
            return answer
        self._supervisor.step("supervisor.conclude")
        self.link.close_input()
        patience = min(spec.timeouts.teardown, deadline.left())
        status = await self.seat.child.wait(patience)
        failure = None
        if status is None:
            failure = self._lingered(deadline)
        elif status.code != 0:
            why = f"it answered, but then left with {status.describe()}, so the answer does not count"
            failure = Failure(Code.CRASHED, why, origin=Origin.PLUGIN)
        if failure is None:
            return answer
        return CallFinished(answer.id, None, self._supervisor.explain(failure, self.seat.child))

    def _lingered(self, deadline: Deadline) -> Failure:
        if deadline.left() <= 0:
            return Failure(Code.TIMEOUT, "it answered, but the time for the call ran out before it left")
        limit = self._supervisor.binding.spec.timeouts.teardown
        return Failure(Code.CRASHED, f"it answered, but was still running {limit:g} s later", origin=Origin.PLUGIN)

    def release(self) -> None:
        """The call is over, however it ended."""
        self._supervisor.release(self.seat)


class Supervisor:
    """Leases children of one plugin that lives for one call, optionally from a pool of greeted ones."""

    def __init__(self, binding: Binding, runtime: Runtime, policy: RestartPolicy | None = None) -> None:
        self.binding = binding
        self._runtime = runtime
        self._contract = CONTRACTS[binding.spec.contract]
        self._policy = policy or RestartPolicy()
        self._seats: set[Seat] = set()
        self._pool: deque[Seat] = deque()
        self._filler: asyncio.Task[None] | None = None
        self._failures: list[float] = []
        self._starting = 0
        self.state = State.IDLE
        self.generation = 0
        """Grows with every child; tells the calls of one child from those of the next."""

    @property
    def busy(self) -> int:
        """Children that serve a call right now."""
        return len(self._seats)

    @property
    def ready(self) -> int:
        """Greeted children that wait in the pool."""
        return len(self._pool)

    def step(self, name: str) -> None:
        self._runtime.step(name)

    # Leasing.

    async def lease(self, deadline: Deadline) -> Lease | Failure:
        """A ready child of its own for one call; a `Failure` says why there is none."""
        self.step("supervisor.lease")
        if self.state in (State.STOPPED, State.SHUTTING_DOWN, State.QUARANTINED):
            return self._unavailable()
        self._move(Trigger.LEASED, when=State.IDLE)
        seat = self._from_pool()
        if seat is None:
            opened = await self._open_counted(deadline)
            if isinstance(opened, Failure):
                self._settle_state()
                return opened
            seat = opened
        self._move(Trigger.READY, when=State.SPAWNING)
        self._seats.add(seat)
        return Lease(self, seat)

    def release(self, seat: Seat) -> None:
        self._seats.discard(seat)
        seat.leave()
        self._settle_state()

    def _settle_state(self) -> None:
        if not self._seats and not self._starting and self.state in (State.SPAWNING, State.RUNNING):
            self.state = step(self.state, Trigger.RELEASED)

    def _unavailable(self) -> Failure:
        quarantined = self.state is State.QUARANTINED
        code = Code.QUARANTINED if quarantined else Code.UNAVAILABLE
        hint = "fix the plugin, then reload it" if quarantined else "start the host again"
        return Failure(code, f"the plugin is {self.state}", plugin=self.binding.spec.id, detail={"hint": hint})

    def _move(self, trigger: Trigger, when: State) -> None:
        if self.state is when:
            self.state = step(self.state, trigger)

    # Opening one child.

    async def _open_counted(self, deadline: Deadline) -> Seat | Failure:
        self._starting += 1
        try:
            return await self._open(deadline)
        finally:
            self._starting -= 1

    async def _open(self, deadline: Deadline) -> Seat | Failure:
        spec = self.binding.spec
        try:
            launch = self._launch()
            patience = min(spec.timeouts.launch, deadline.left())
            self.step("process.spawn")
            child = await self._runtime.spawner.spawn(launch, patience)
        except LaunchFailed as error:
            return _launch_failure(spec, error)
        seat = self._seat(child)
        try:
            failure = await seat.link.open(min(spec.timeouts.handshake, deadline.left()))
        except BaseException:
            seat.leave()
            raise
        if failure is not None:
            seat.leave()
            return failure
        return seat

    def _seat(self, child: Child) -> Seat:
        """Bind a new child to a link. No await between the child's birth and here."""
        self.generation += 1
        spec = self.binding.spec
        machine = self._contract.host_machine(spec, self.binding.granted, self._runtime.codec, secrets.randbits(64))
        stream = PipeStream(asyncio.get_running_loop(), *child.take_pipes())
        hooks = Hooks(explain=lambda failure: self.explain(failure, child), trace=self._runtime.trace)
        link = Link(machine, stream, self._runtime.deadlines, hooks, has_process=True)
        child.on_exit(lambda _: link.peer_exited())
        return Seat(child, link)

    def _launch(self) -> Launch:
        spec, binding = self.binding.spec, self.binding
        argv = resolve(spec.command, spec.root, host_search_path(os.environ))
        inherit = (*spec.env_inherit, *binding.inherit_env)
        env = build_env(inherit, os.environ, spec.env, binding.env)
        return Launch(argv=argv, cwd=Path(spec.cwd or spec.root), env=env, limits=binding.limits, label=spec.id)

    def explain(self, failure: Failure, child: Child) -> Failure:
        """Add what only the owner of the process knows: how it ended and what it last wrote to stderr."""
        child.stderr.drain_now()
        tail = child.stderr.tail()
        more: dict[str, object] = {"stderr_tail": tail} if tail else {}
        if child.exit is not None:
            more |= {"exit_code": child.exit.code, "signal": child.exit.signal, "exit": child.exit.describe()}
            if failure.code == Code.CRASHED:
                message, hint = diagnose.early_exit(child.argv, child.exit, tail)
                more |= {"hint": hint} if hint else {}
                more["cause"] = message
        return failure.with_detail(self.binding.spec.id, **more)

    # The pool of greeted children.

    def _from_pool(self) -> Seat | None:
        seat = None
        while self._pool and seat is None:
            candidate = self._pool.popleft()
            seat = candidate if candidate.link.fault is None else None
        self.fill()
        return seat

    def fill(self) -> None:
        """Bring the pool back to its size, in the background."""
        wanted = self.binding.pool > len(self._pool) and self.state not in (
            State.STOPPED,
            State.SHUTTING_DOWN,
        )
        if wanted and (self._filler is None or self._filler.done()):
            self._filler = asyncio.get_running_loop().create_task(self._fill())

    async def _fill(self) -> None:
        loop = asyncio.get_running_loop()
        while len(self._pool) < self.binding.pool:
            seat = await self._open_counted(Deadline(self.binding.spec.timeouts.call))
            self._settle_state()
            if isinstance(seat, Seat):
                self._pool.append(seat)
                self._watch_pooled(seat)
                continue
            self._failures.append(loop.time())
            action = next_action(self._failures, loop.time(), self._policy, random.random())
            if isinstance(action, Quarantine):
                return
            await asyncio.sleep(action.after)
        self._failures.clear()

    def _watch_pooled(self, seat: Seat) -> None:
        """A child that dies while it waits is never leased, and another one is started."""

        def died(_: ExitStatus) -> None:
            if seat in self._pool:
                self._pool.remove(seat)
                seat.leave()
                self._failures.append(asyncio.get_running_loop().time())
                self.fill()

        seat.child.on_exit(died)

    # Stopping.

    async def stop(self) -> None:
        """Nothing new starts, everything that runs is killed."""
        if self.state in (State.SPAWNING, State.RUNNING):
            self.state = step(self.state, Trigger.STOP)
        if self._filler is not None:
            self._filler.cancel()
            await asyncio.gather(self._filler, return_exceptions=True)
        for seat in (*self._seats, *self._pool):
            seat.leave()
        self._seats.clear()
        self._pool.clear()
        self.state = State.STOPPED


def _launch_failure(spec: PluginSpec, error: LaunchFailed) -> Failure:
    detail = {**error.detail, "hint": error.hint} if error.hint else dict(error.detail)
    return Failure(Code.LAUNCH_FAILED, error.message, origin=Origin.SYSTEM, plugin=spec.id, detail=detail)
