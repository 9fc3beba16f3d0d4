"""`ResidentSupervisor`: one instance that stays and is shared by all calls. Starts it, watches it, restarts it.

`restart` decides whether and when to start again, `hung` whether the instance hangs. State moves along
`model.lifecycle` at the moment of the decision. Every call looks up the running instance, so none keeps a dead one.
"""

from __future__ import annotations

import asyncio
import random
import time
from typing import TYPE_CHECKING, Any, ClassVar

from plugbay.host.journal import describe_facts
from plugbay.host.limits import ConcurrencyLimit
from plugbay.host.supervision.binding import Binding
from plugbay.host.supervision.health import HealthWatch, IdleWatch, rule_of
from plugbay.host.supervision.hung import Facts, Hung
from plugbay.host.supervision.instance import Deadline, Instance, Runtime, open_instance
from plugbay.host.supervision.restart import (
    SHORTAGE_SECONDS,
    Quarantine,
    is_shortage,
    next_action,
    recent_failures,
)
from plugbay.model.errors import Code, Failure, Origin
from plugbay.model.events import CallFinished
from plugbay.model.lifecycle import State, Trigger, step
from plugbay.process.status import ExitStatus
from plugbay.process.stderr import RING_LINES

if TYPE_CHECKING:
    from plugbay.model.operations import PluginOp
    from plugbay.model.spec import Export

CRASH_TAIL = 32
"""Lines of stderr in a crash report if the manifest gives no number."""

HOPELESS = frozenset({Code.HANDSHAKE_FAILED, Code.PROTOCOL_VERSION_MISMATCH, Code.CAPABILITY_NOT_DECLARED})
"""Greeting failures that the same program will repeat. Only a reload retries, unless the contract says otherwise."""

TROUBLE = frozenset({"crashed", "hung", "start_failed", "gave_up", "shutdown_failed"})
"""Events that are also noted in the journal, for operators who do not watch the bus."""

HUNG_HINT = "find out why it does not answer; if a call needs more time: timeouts = { call = N } in plugbay.toml"

SOURCE = "plugin.supervisor"
"""The source of lifecycle events."""


class ResidentLease:
    """The right to use the running instance beside other calls. It has no state per call, so all calls share one."""

    __slots__ = ("_supervisor", "instance", "link", "release")
    shared: ClassVar[bool] = True

    def __init__(self, supervisor: ResidentSupervisor, instance: Instance) -> None:
        self._supervisor = supervisor
        self.instance = instance
        self.link = instance.link
        self.release = supervisor.release

    async def conclude(self, answer: CallFinished, deadline: Deadline) -> CallFinished:
        """The answer is the outcome: the end of a resident process does not matter to a call."""
        return answer

    def abandon(self) -> None:
        self._supervisor.on_abandoned()

    async def wait_gone(self) -> None:
        """Nothing to wait for: the instance stays."""


class ResidentSupervisor:
    """Keeps one instance of one plugin running."""

    def __init__(self, binding: Binding, runtime: Runtime) -> None:
        self.binding = binding
        self._runtime = runtime
        self._spec = binding.spec
        self._concurrency = ConcurrencyLimit(binding.concurrency)
        self._instance: Instance | None = None
        self._lease: ResidentLease | None = None
        self._health: HealthWatch | None = None
        self._idle: IdleWatch | None = None
        self._reaping: asyncio.Task[None] | None = None
        self.starting: asyncio.Task[Instance | Failure] | None = None
        self._delay: asyncio.Future[None] | None = None
        self._retry: asyncio.TimerHandle | None = None
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
        return self._concurrency.in_use

    @property
    def ready(self) -> int:
        return int(self._instance is not None)

    @property
    def pid(self) -> int | None:
        return None if self._instance is None else self._instance.child.pid

    @property
    def counters(self) -> dict[str, int]:
        """Dropped events and late answers of the running instance."""
        return {} if self._instance is None else self._instance.counters

    # Leasing.

    def begin(self, after: asyncio.Future[float] | None = None) -> None:
        """Start now if the plugin is eager, but after `after` is done: the predecessor may hold a port or a lock."""
        self._after = after
        if self._spec.eager and self.state is State.IDLE:
            self._start()

    def for_export(self, execution_class: str, org: str, export: Export) -> ResidentSupervisor:
        """Itself: one instance serves all calls."""
        return self

    def on_abandoned(self) -> None:
        """Do nothing: an unanswered call is no reason to end an instance that answers others."""

    def try_lease(self) -> ResidentLease | None:
        """The running instance, if there is one and a concurrency slot is free. Nearly every call takes this path."""
        lease = self._lease
        if lease is None or lease.link.fault is not None or not self._concurrency.try_acquire():
            return None
        if self._runtime.trace is not None:
            self._runtime.trace("supervisor.lease")
        return lease

    async def lease(self, deadline: Deadline) -> ResidentLease | Failure:
        self._runtime.step("supervisor.lease")
        refusal = await self._concurrency.acquire(deadline.left(), deadline.patience())
        if refusal is not None:
            return refusal.with_detail(self._spec.id)
        try:
            instance = await self._running_instance(deadline)
        except BaseException:
            self.release()
            raise
        if isinstance(instance, Failure):
            self.release()
            return instance
        return ResidentLease(self, instance)

    def release(self) -> None:
        self._concurrency.release()
        if self._idle is not None:
            self._idle.touch()

    def notify(self, op: PluginOp) -> bool:
        lease = self._lease
        if lease is None or lease.link.fault is not None or type(op) not in lease.link.machine.SUPPORTS:
            return False
        if self._idle is not None:
            self._idle.touch()
        lease.link.notify(op)
        return True

    def mark_shown(self) -> None:
        if self._idle is not None:
            self._idle.mark_shown()

    async def _running_instance(self, deadline: Deadline) -> Instance | Failure:
        """The running instance. Starts one if necessary, within the deadline and at most once per call."""
        started = False
        while True:
            instance = self._instance
            if instance is not None and instance.link.fault is None:
                return instance
            if self.state is State.IDLE and started:
                return Failure(Code.CRASHED, "it exited right after its handshake", origin=Origin.PLUGIN)
            if self.state is State.IDLE:
                self._start()
                started = True
            failure = await (
                self._wait_transition(deadline) if instance is None else self._wait_exit(instance, deadline)
            )
            if failure is not None:
                return failure

    async def _wait_exit(self, instance: Instance, deadline: Deadline) -> Failure | None:
        """Its link has failed and it was killed: wait until its exit is processed."""
        await instance.child.wait(deadline.left())
        return instance.link.fault if self._instance is instance else None

    async def _wait_transition(self, deadline: Deadline) -> Failure | None:
        """Wait for the end of the start, backoff or shutdown in progress; a `Failure` if waiting is useless."""
        awaited: asyncio.Future[Any] | None = self.starting or self._delay or self._reaping
        if self.state in (State.QUARANTINED, State.STOPPED) or awaited is None:
            return self._unavailable()
        if self.state is State.BACKOFF and self._resume_at > deadline.at:
            return self._backoff_failure()
        await asyncio.wait({awaited}, timeout=deadline.left())
        if not awaited.done():
            return Failure(Code.TIMEOUT, "the plugin was not ready in time", plugin=self._spec.id)
        outcome = None if awaited.cancelled() else awaited.result()
        return outcome if isinstance(outcome, Failure) else None

    # Starting.

    def _start(self) -> None:
        self.state = step(self.state, Trigger.LEASED)
        if self._retry is not None:
            self._retry.cancel()
            self._retry = None
        self.starting = asyncio.get_running_loop().create_task(self._open())

    async def _open(self) -> Instance | Failure:
        if self._after is not None:
            await asyncio.wait({self._after})
        try:
            instance = await open_instance(self.binding, self._runtime)
        except Exception as error:
            instance = Failure(Code.INTERNAL, f"a bug in plugbay: {error!r}")
        self.starting = None
        if isinstance(instance, Failure):
            self._publish("start_failed", code=instance.code, message=instance.message)
            if is_shortage(instance):
                self._retry_soon()
            else:
                self._record_failure(instance, instance.detail.get("exit_code"), instance.detail.get("stderr_tail", []))
        else:
            self._started(instance)
        return instance

    def _retry_soon(self) -> None:
        """The host lacked something: the next call starts it at once, and it starts by itself where it respawns."""
        self.state = step(self.state, Trigger.RELEASED)
        if self._spec.respawn:
            self._retry = asyncio.get_running_loop().call_later(SHORTAGE_SECONDS, self._start_if_idle)

    def _start_if_idle(self) -> None:
        if self.state is State.IDLE:
            self._start()

    def _started(self, instance: Instance) -> None:
        self._born = asyncio.get_running_loop().time()
        self._instance = instance
        self._lease = ResidentLease(self, instance)
        self.generation += 1
        self.state = step(self.state, Trigger.READY)
        instance.activate()
        instance.child.on_exit(lambda status: self._exited(instance, status))
        rule = rule_of(self._spec, instance.link.machine.has_probe)
        self._health = HealthWatch(instance.link, rule, instance.child.is_stopped, self._hung)
        if self._spec.idle_seconds is not None:
            now = asyncio.get_running_loop().time
            self._idle = IdleWatch(self._runtime.deadlines, now, self._spec.idle_seconds, self._needed, self._reap)
            if self._spec.eager:  # a publisher: no use would start it again, and its subscribers would miss it
                instance.on_published(self._idle.touch)
        self._publish("started", pid=instance.child.pid, generation=self.generation)
        if self._failures and self._spec.respawn:
            self._publish("respawned", attempt=len(self._failures), total_uptime_ms=round(self._uptime * 1000))
        if self._after is not None:
            lived, self._after = round(self._after.result() * 1000), None
            facts = {"restarted_at_ms": round(time.time() * 1000), "new_pid": instance.child.pid}
            self._publish("restarted_manually", previous_uptime_ms=lived, **facts)

    # Exits and failures.

    def _exited(self, instance: Instance, status: ExitStatus) -> None:
        """The process has exited without being asked to."""
        if instance is not self._instance:
            return
        self._drop_instance()
        instance.kill()
        tail = instance.redactor.redact_value(instance.child.stderr.tail(RING_LINES))
        if status.code == 0 and not self._spec.exit_is_failure:
            self._publish("exited", exit_code=0, stderr_tail=self._stderr_excerpt(tail))
            self.state = step(self.state, Trigger.RELEASED)
            return
        self._publish("crashed", exit_code=_exit_code(status.code), stderr_tail=self._stderr_excerpt(tail))
        why = Failure(Code.CRASHED, f"it ended with {status.describe()}", origin=Origin.PLUGIN)
        self._record_failure(instance.link.fault or why, status.code, tail)

    def _hung(self, hung: Hung, facts: Facts) -> None:
        """It makes no progress: fail its calls, kill it, and continue as after a crash."""
        self._publish("hung", missed_probes=len(facts.missed), silent_ms=round(facts.silence * 1000), message=hung.why)
        if self._instance is not None:
            text = f"the plugin was hung and is killed: {hung.why}"
            self._instance.link.fail(Failure(Code.CRASHED, text, origin=Origin.PLUGIN, detail={"hint": HUNG_HINT}))

    def _drop_instance(self) -> None:
        if self._instance is not None:
            self._uptime += asyncio.get_running_loop().time() - self._born
        self._instance = self._lease = None
        for watch in (self._health, self._idle):
            if watch is not None:
                watch.stop()
        self._health = self._idle = None

    def _record_failure(self, failure: Failure, exit_code: int | None, tail: list[str]) -> None:
        """Count a failure, then back off and restart, or quarantine the plugin."""
        loop = asyncio.get_running_loop()
        now, policy = loop.time(), self._spec.restart
        self._last_failure = failure
        born = now if self.state is State.SPAWNING else self._born  # a long start is not a healthy run
        self._failures = [*recent_failures(self._failures, born, now, policy), now]
        action = next_action(self._failures, now, policy, random.random())
        refused = failure.code in HOPELESS and policy.refusal_is_final
        hopeless = refused or self.binding.refusal is not None
        if isinstance(action, Quarantine) or hopeless:
            self.state = step(self.state, Trigger.GAVE_UP)
            attempts = len(self._failures) - 1
            facts = {"last_exit_code": _exit_code(exit_code), "stderr_tail": self._stderr_excerpt(tail)}
            self._publish("gave_up", attempts=attempts, **facts)
            return
        self.state = step(self.state, Trigger.FAILED)
        self._delay = loop.create_future()
        self._resume_at = now + action.after
        loop.call_later(action.after, self._resume, self._delay)
        if self._spec.respawn:
            self._publish("respawning", attempt=len(self._failures), backoff_ms=round(action.after * 1000))

    def _resume(self, delay: asyncio.Future[None]) -> None:
        if self.state is State.BACKOFF and delay is self._delay:
            self.state = step(self.state, Trigger.DELAY_OVER)
            if self._spec.respawn:
                self._start()
        self._delay = None
        if not delay.done():
            delay.set_result(None)

    # Stopping.

    def _needed(self) -> bool:
        """Whether it must not be reaped: it is in use, waits for events, or is dead and about to be handled as such."""
        return self.busy > 0 or self._instance is None or self._instance.keeps_alive or not self._instance.is_alive()

    def _reap(self) -> None:
        """End the idle instance. Calls from now on wait for its end and start another."""
        assert self._instance is not None
        loop, instance = asyncio.get_running_loop(), self._instance
        self.state = step(self.state, Trigger.IDLED)
        self._failures = recent_failures(self._failures, self._born, loop.time(), self._spec.restart)
        self._drop_instance()
        self._reaping = loop.create_task(self._finish_reap(instance))

    async def _finish_reap(self, instance: Instance) -> None:
        try:
            await self._shut_down(instance)
        finally:
            self._reaping = None
            self.state = step(self.state, Trigger.RELEASED)
        self._publish("reaped", idle_seconds=self._spec.idle_seconds)

    async def _shut_down(self, instance: Instance) -> None:
        failure = await instance.shut_down()
        if failure is not None:
            self._publish("shutdown_failed", code=failure.code, message=failure.message)

    async def retire(self) -> float:
        """Wait for running and queued calls, then stop. Returns the uptime of the instance in seconds."""
        await self._concurrency.drain()
        lived = 0.0 if self._instance is None else asyncio.get_running_loop().time() - self._born
        await self.stop()
        return lived

    async def stop(self) -> None:
        """Shut down within the timeouts of the contract, then kill."""
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
        instance = self._instance
        self._drop_instance()
        if instance is not None:
            await self._shut_down(instance)
            self._publish("stopped")
        if self.state is State.SHUTTING_DOWN:
            self.state = step(self.state, Trigger.GONE)

    # Details.

    def _publish(self, event: str, **facts: Any) -> None:
        payload = {"plugin_id": self._spec.id, **facts}
        if event in TROUBLE:
            self._runtime.services.journal.note(self._spec.id, event, describe_facts(facts))
        self._runtime.services.publish_event(f"plugin.lifecycle.{self._spec.id}.{event}", SOURCE, payload)

    def _stderr_excerpt(self, tail: list[str]) -> list[str]:
        """The last lines of stderr for a crash report: no blank ones, oldest first, as many as the manifest wants."""
        lines = [line.strip() for line in tail if line.strip()]
        wanted = CRASH_TAIL if self._spec.stderr_tail is None else self._spec.stderr_tail
        return lines[len(lines) - min(wanted, len(lines)) :]

    def _backoff_failure(self) -> Failure:
        left = max(0.0, self._resume_at - asyncio.get_running_loop().time())
        text = f"the plugin failed {len(self._failures)} times; the host starts it again in {left:.1f} s"
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
    """The exit code; -1 for a process that a signal ended or that never ran."""
    return -1 if code is None else code
