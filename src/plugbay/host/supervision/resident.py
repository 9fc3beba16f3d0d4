"""`ResidentSupervisor`: a plugin with one child that stays. Starts it, shares it, notices its end, starts it again.

Acts; whether and when to start again is decided in `restart`, when nobody needs the child any more in `idle`. State
moves along `model.lifecycle` and at the moment of the decision. Every call asks for the child that lives now, so
nothing ever holds on to a dead one.
"""

from __future__ import annotations

import asyncio
import random
import time
from typing import TYPE_CHECKING, Any

from plugbay.host.journal import in_words
from plugbay.host.limits import Turns
from plugbay.host.supervision.health import HealthWatch, IdleWatch, rule_of
from plugbay.host.supervision.hung import Facts, Hung
from plugbay.host.supervision.instance import Binding, Deadline, Runtime, Seat, open_seat
from plugbay.host.supervision.restart import Quarantine, next_action, remembered
from plugbay.model.errors import Code, Failure, Origin
from plugbay.model.events import CallFinished
from plugbay.model.lifecycle import State, Trigger, step
from plugbay.process.status import ExitStatus
from plugbay.process.stderr import RING_LINES

if TYPE_CHECKING:
    from plugbay.model.operations import PluginOp
    from plugbay.model.spec import Export

CRASH_TAIL = 32
"""Lines of stderr in a crash report where the manifest does not say."""

HOPELESS = frozenset({Code.HANDSHAKE_FAILED, Code.PROTOCOL_VERSION_MISMATCH, Code.CAPABILITY_NOT_DECLARED})
"""Verdicts on a greeting that the same program will get again; only a reload is worth a new try, unless the contract
says otherwise."""

TROUBLE = frozenset({"crashed", "hung", "start_failed", "gave_up", "shutdown_failed"})
"""Events that are in the log and the counters too, for operators who watch no bus."""

HUNG_HINT = "if it needs more time for a call: timeouts = { call = N } in plugbay.toml; else see why it does not answer"

SOURCE = "plugin.supervisor"
"""Who lifecycle events come from."""


class ResidentLease:
    """The right to use the living child, beside others. It remembers no call, so all of them share one."""

    __slots__ = ("_supervisor", "link", "release", "seat")

    def __init__(self, supervisor: ResidentSupervisor, seat: Seat) -> None:
        self._supervisor = supervisor
        self.seat = seat
        self.link = seat.link
        self.release = supervisor.release

    async def conclude(self, answer: CallFinished, deadline: Deadline) -> CallFinished:
        """The answer is the outcome: how and when a resident child leaves is another matter."""
        return answer

    def forsake(self) -> None:
        self._supervisor.forsaken()

    async def cleared(self) -> None:
        """Nothing to wait for: the child stays."""


class ResidentSupervisor:
    """Keeps one child of one plugin."""

    def __init__(self, binding: Binding, runtime: Runtime) -> None:
        self.binding = binding
        self._runtime = runtime
        self._spec = binding.spec
        self._turns = Turns(binding.concurrency)
        self._seat: Seat | None = None
        self._lease: ResidentLease | None = None
        self._health: HealthWatch | None = None
        self._idle: IdleWatch | None = None
        self._reaping: asyncio.Task[None] | None = None
        self.starting: asyncio.Task[Seat | Failure] | None = None
        self._delay: asyncio.Future[None] | None = None
        self._resume_at = 0.0
        self._after: asyncio.Future[float] | None = None
        self._failures: list[float] = []
        self._last_failure: Failure | None = None
        self._born = 0.0
        self._uptime = 0.0
        self.state = State.IDLE
        self.generation = 0

    @property
    def busy(self) -> int:
        return self._turns.taken

    @property
    def ready(self) -> int:
        return int(self._seat is not None)

    @property
    def pid(self) -> int | None:
        return None if self._seat is None else self._seat.child.pid

    @property
    def counters(self) -> dict[str, int]:
        """What the living child missed or said too late."""
        return {} if self._seat is None else self._seat.counters

    # Leasing.

    def begin(self, after: asyncio.Future[float] | None = None) -> None:
        """Start now if the plugin is eager; in any case not before `after` is done, for some hold a port or a lock."""
        self._after = after
        if self._spec.eager and self.state is State.IDLE:
            self._start()

    def serving(self, execution_class: str, org: str, export: Export) -> ResidentSupervisor:
        """Itself: there is one child for everybody."""
        return self

    def forsaken(self) -> None:
        """A call was given up without an answer, which is no reason to end a child that answers others."""

    def at_once(self) -> ResidentLease | None:
        """The living child, when there is one and a turn is free: nearly every call."""
        lease = self._lease
        if lease is None or lease.link.fault is not None or not self._turns.take():
            return None
        if self._runtime.trace is not None:
            self._runtime.trace("supervisor.lease")
        return lease

    async def lease(self, deadline: Deadline) -> ResidentLease | Failure:
        self._runtime.step("supervisor.lease")
        refusal = await self._turns.wait(deadline.left())
        if refusal is not None:
            return refusal.with_detail(self._spec.id)
        try:
            seat = await self._living(deadline)
        except BaseException:
            self.release()
            raise
        if isinstance(seat, Failure):
            self.release()
            return seat
        return ResidentLease(self, seat)

    def release(self) -> None:
        self._turns.give()
        if self._idle is not None:
            self._idle.used()

    def tell(self, op: PluginOp) -> bool:
        lease = self._lease
        if lease is None or lease.link.fault is not None or type(op) not in lease.link.machine.SUPPORTS:
            return False
        if self._idle is not None:
            self._idle.used()
        lease.link.notify(op)
        return True

    def shown(self) -> None:
        if self._idle is not None:
            self._idle.shown()

    async def _living(self, deadline: Deadline) -> Seat | Failure:
        """The child that lives now, started if need be, within the call's own time and not more than once."""
        started = False
        while True:
            seat = self._seat
            if seat is not None and seat.link.fault is None:
                return seat
            if self.state is State.IDLE and started:
                return Failure(Code.CRASHED, "it left right after its greeting", origin=Origin.PLUGIN)
            if self.state is State.IDLE:
                self._start()
                started = True
            failure = await (self._change(deadline) if seat is None else self._last_moment(seat, deadline))
            if failure is not None:
                return failure

    async def _last_moment(self, seat: Seat, deadline: Deadline) -> Failure | None:
        """Its conversation is over and it was killed: it takes a moment until its end is seen."""
        await seat.child.wait(deadline.left())
        return seat.link.fault if self._seat is seat else None

    async def _change(self, deadline: Deadline) -> Failure | None:
        """Wait until the start, the delay or the good-bye under way has ended; a `Failure` when that is of no use."""
        awaited: asyncio.Future[Any] | None = self.starting or self._delay or self._reaping
        if self.state in (State.QUARANTINED, State.STOPPED) or awaited is None:
            return self._unavailable()
        if self.state is State.BACKOFF and self._resume_at > deadline.at:
            return self._backing_off()
        await asyncio.wait({awaited}, timeout=deadline.left())
        if not awaited.done():
            return Failure(Code.TIMEOUT, "the plugin was not ready in time", plugin=self._spec.id)
        outcome = None if awaited.cancelled() else awaited.result()
        return outcome if isinstance(outcome, Failure) else None

    # Starting.

    def _start(self) -> None:
        self.state = step(self.state, Trigger.LEASED)
        self.starting = asyncio.get_running_loop().create_task(self._open())

    async def _open(self) -> Seat | Failure:
        if self._after is not None:
            await asyncio.wait({self._after})
        try:
            seat = await open_seat(self.binding, self._runtime)
        except Exception as error:
            seat = Failure(Code.INTERNAL, f"a bug in plugbay: {error!r}")
        self.starting = None
        if isinstance(seat, Failure):
            self._tell("start_failed", code=seat.code, message=seat.message)
            self._failed(seat, seat.detail.get("exit_code"), seat.detail.get("stderr_tail", []))
        else:
            self._moved_in(seat)
        return seat

    def _moved_in(self, seat: Seat) -> None:
        self._born = asyncio.get_running_loop().time()
        self._seat = seat
        self._lease = ResidentLease(self, seat)
        self.generation += 1
        self.state = step(self.state, Trigger.READY)
        seat.settle()
        seat.child.on_exit(lambda status: self._ended(seat, status))
        rule = rule_of(self._spec, seat.link.machine.has_probe)
        self._health = HealthWatch(seat.link, rule, seat.child.is_stopped, self._hung)
        if self._spec.idle_seconds is not None:
            now = asyncio.get_running_loop().time
            self._idle = IdleWatch(self._runtime.deadlines, now, self._spec.idle_seconds, self._needed, self._reap)
        self._tell("started", pid=seat.child.pid, generation=self.generation)
        if self._failures and self._spec.respawn:
            self._tell("respawned", attempt=len(self._failures), total_uptime_ms=round(self._uptime * 1000))
        if self._after is not None:
            lived, self._after = round(self._after.result() * 1000), None
            facts = {"restarted_at_ms": round(time.time() * 1000), "new_pid": seat.child.pid}
            self._tell("restarted_manually", previous_uptime_ms=lived, **facts)

    # Ending.

    def _ended(self, seat: Seat, status: ExitStatus) -> None:
        """The child is gone and nobody asked it to go."""
        if seat is not self._seat:
            return
        self._let_go()
        seat.leave()
        tail = seat.discretion.value(seat.child.stderr.tail(RING_LINES))
        if status.code == 0 and not self._spec.exit_is_failure:
            self._tell("exited", exit_code=0, stderr_tail=self._trimmed(tail))
            self.state = step(self.state, Trigger.RELEASED)
            return
        self._tell("crashed", exit_code=_exit_code(status.code), stderr_tail=self._trimmed(tail))
        why = Failure(Code.CRASHED, f"it ended with {status.describe()}", origin=Origin.PLUGIN)
        self._failed(seat.link.fault or why, status.code, tail)

    def _hung(self, hung: Hung, facts: Facts) -> None:
        """It runs and makes no progress: its calls fail, and it is killed and treated as after a crash."""
        self._tell("hung", missed_probes=len(facts.missed), silent_ms=round(facts.silence * 1000), message=hung.why)
        if self._seat is not None:
            text = f"the plugin was hung and is killed: {hung.why}"
            self._seat.link.fail(Failure(Code.CRASHED, text, origin=Origin.PLUGIN, detail={"hint": HUNG_HINT}))

    def _let_go(self) -> None:
        if self._seat is not None:
            self._uptime += asyncio.get_running_loop().time() - self._born
        self._seat = self._lease = None
        for watch in (self._health, self._idle):
            if watch is not None:
                watch.stop()
        self._health = self._idle = None

    def _failed(self, failure: Failure, exit_code: int | None, tail: list[str]) -> None:
        """One failure more: wait and start again, or give up."""
        loop = asyncio.get_running_loop()
        now, policy = loop.time(), self._spec.restart
        self._last_failure = failure
        born = now if self.state is State.SPAWNING else self._born  # however long a start takes, it is no healthy run
        self._failures = [*remembered(self._failures, born, now, policy), now]
        action = next_action(self._failures, now, policy, random.random())
        refused = failure.code in HOPELESS and policy.refusal_is_final
        hopeless = refused or self.binding.refusal is not None
        if isinstance(action, Quarantine) or hopeless:
            self.state = step(self.state, Trigger.GAVE_UP)
            attempts = len(self._failures) - 1
            facts = {"last_exit_code": _exit_code(exit_code), "stderr_tail": self._trimmed(tail)}
            self._tell("gave_up", attempts=attempts, **facts)
            return
        self.state = step(self.state, Trigger.FAILED)
        self._delay = loop.create_future()
        self._resume_at = now + action.after
        loop.call_later(action.after, self._resume, self._delay)
        if self._spec.respawn:
            self._tell("respawning", attempt=len(self._failures), backoff_ms=round(action.after * 1000))

    def _resume(self, delay: asyncio.Future[None]) -> None:
        if self.state is State.BACKOFF and delay is self._delay:
            self.state = step(self.state, Trigger.DELAY_OVER)
            if self._spec.respawn:
                self._start()
        self._delay = None
        if not delay.done():
            delay.set_result(None)

    # Leaving.

    def _needed(self) -> bool:
        """Whether it must stay: it is used, it waits for something, or it is dead and that is about to be seen."""
        return self.busy > 0 or self._seat is None or self._seat.keeps_alive or not self._seat.alive()

    def _reap(self) -> None:
        """Nobody has used it for long enough. Whoever wants it from now on waits for its end and gets another."""
        assert self._seat is not None
        loop, seat = asyncio.get_running_loop(), self._seat
        self.state = step(self.state, Trigger.IDLED)
        self._failures = remembered(self._failures, self._born, loop.time(), self._spec.restart)
        self._let_go()
        self._reaping = loop.create_task(self._see_off(seat))

    async def _see_off(self, seat: Seat) -> None:
        try:
            await self._part(seat)
        finally:
            self._reaping = None
            self.state = step(self.state, Trigger.RELEASED)
        self._tell("reaped", idle_seconds=self._spec.idle_seconds)

    async def _part(self, seat: Seat) -> None:
        failure = await seat.farewell()
        if failure is not None:
            self._tell("shutdown_failed", code=failure.code, message=failure.message)

    async def retire(self) -> float:
        """Let the calls that run and those that wait come to their end, then stop; seconds the child had lived."""
        await self._turns.drain()
        lived = 0.0 if self._seat is None else asyncio.get_running_loop().time() - self._born
        await self.stop()
        return lived

    async def stop(self) -> None:
        """Say good-bye, wait as long as the contract says, then kill."""
        if self._reaping is not None:
            await asyncio.wait({self._reaping})
        if self.state in (State.STOPPED, State.SHUTTING_DOWN):
            return
        self.state = step(self.state, Trigger.STOP)
        if self._delay is not None:
            self._resume(self._delay)
        if self.starting is not None:
            self.starting.cancel()
            await asyncio.gather(self.starting, return_exceptions=True)
            self.starting = None
        seat = self._seat
        self._let_go()
        if seat is not None:
            await self._part(seat)
            self._tell("stopped")
        if self.state is State.SHUTTING_DOWN:
            self.state = step(self.state, Trigger.GONE)

    # Details.

    def _tell(self, event: str, **facts: Any) -> None:
        payload = {"plugin_id": self._spec.id, **facts}
        if event in TROUBLE:
            self._runtime.services.journal.note(self._spec.id, event, in_words(facts))
        self._runtime.services.tell(f"plugin.lifecycle.{self._spec.id}.{event}", SOURCE, payload)

    def _trimmed(self, tail: list[str]) -> list[str]:
        """The last lines of stderr as a crash report has them: no blanks, oldest first, as many as were asked for."""
        lines = [line.strip() for line in tail if line.strip()]
        wanted = CRASH_TAIL if self._spec.stderr_tail is None else self._spec.stderr_tail
        return lines[len(lines) - min(wanted, len(lines)) :]

    def _backing_off(self) -> Failure:
        left = max(0.0, self._resume_at - asyncio.get_running_loop().time())
        text = f"the plugin failed {len(self._failures)} times; it is started again in {left:.1f} s"
        ms = round(left * 1000)
        return Failure(Code.UNAVAILABLE, text, plugin=self._spec.id, retryable=True, retry_after_ms=ms)

    def _unavailable(self) -> Failure:
        if self.state is not State.QUARANTINED:
            hint = f"plugbay start {self._spec.id}, or start its host again"
            return Failure(Code.UNAVAILABLE, f"the plugin is {self.state}", plugin=self._spec.id, detail={"hint": hint})
        last = self._last_failure
        text = "the plugin is quarantined" + (f" after {last.code}: {last.message}" if last else "")
        detail = {**(last.detail if last else {}), "hint": "fix the plugin, then reload it"}
        return Failure(Code.QUARANTINED, text, plugin=self._spec.id, detail=detail)


def _exit_code(code: int | None) -> int:
    """As the operating system has it; -1 for a child that a signal ended or that never ran."""
    return -1 if code is None else code
