"""`Instance`: one running process of a plugin, its link, and the diagnosis when it ends. `open_instance` starts one.

A start goes from command, environment and sandbox policy over the pipes to the greeting, all within the deadline of the
call. Leases, pools and restarts belong to the supervisors.
"""

from __future__ import annotations

import asyncio
import functools
import os
import secrets
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import msgspec

from plugbay.contracts.contract import HostSide
from plugbay.contracts.registry import CONTRACTS
from plugbay.host.admission import MIN_RETRY_SECONDS
from plugbay.host.config.references import resolve_references
from plugbay.host.confinement import notes
from plugbay.host.confinement.policy import proxy_variables, sandbox_environ
from plugbay.host.confinement.scratch import Scratch
from plugbay.host.confinement.watch import MemoryWatch, StateWatch, Watch
from plugbay.host.disk import release, tree
from plugbay.host.inbound.handler import InboundHandler, Services
from plugbay.host.limits import StartLimit, queue_failure
from plugbay.host.nesting import CAUSE, Cause
from plugbay.host.ports import Trace
from plugbay.host.recording.redaction import Redactor
from plugbay.host.recording.taps import Taps
from plugbay.host.supervision.binding import Binding
from plugbay.host.supervision.protocol_cache import ProtocolCache
from plugbay.link.deadlines import Deadlines
from plugbay.link.link import Hooks, Link
from plugbay.link.stream import PipeStream
from plugbay.model.errors import Code, Failure, Origin
from plugbay.model.spec import PluginSpec
from plugbay.process import diagnose
from plugbay.process.child import Child, Spawner
from plugbay.process.command import Launch, LaunchFailed, build_env, host_search_path, resolve
from plugbay.process.stderr import StderrDrain
from plugbay.process.usage import memory_limit
from plugbay.wire.fast_json import MsgspecCodec

NO_BYTECODE = {"PYTHONDONTWRITEBYTECODE": "1"}
"""For the programs of a release, whose folder gets no further files, also where its user may write everywhere."""

COVER_SECONDS = 1.0
"""Interval of the check that covered paths are still covered."""


class Runtime(msgspec.Struct, frozen=True):
    """The parts of a host that all its plugins share."""

    spawner: Spawner
    deadlines: Deadlines
    codec: MsgspecCodec
    trace: Trace | None = None
    services: Services = msgspec.field(default_factory=Services)
    greeted: Callable[[str, Mapping[str, Any]], None] | None = None
    """Called with the plugin's id and the greeting of each new resident instance."""
    taps: Taps | None = None
    protocol_cache: ProtocolCache = msgspec.field(default_factory=ProtocolCache)
    """Which protocol revision each program is greeted in, where its contract has several."""
    state_watch: StateWatch = msgspec.field(default_factory=StateWatch)
    memory_watch: MemoryWatch = msgspec.field(default_factory=MemoryWatch)
    cover_watch: Watch = msgspec.field(default_factory=lambda: Watch(COVER_SECONDS))
    """Checks that protected paths stay hidden from confined plugins."""
    start_limit: StartLimit = msgspec.field(default_factory=StartLimit)

    def step(self, name: str) -> None:
        if self.trace is not None:
            self.trace(name)


class Deadline:
    """A moment on the loop's clock, shared by all steps of a call; and an earlier one for its turn, if the caller does
    not want to queue for long."""

    __slots__ = ("_loop", "_turn_at", "at")

    def __init__(self, seconds: float, queue_seconds: float | None = None) -> None:
        self._loop = asyncio.get_running_loop()
        now = self._loop.time()
        self.at = now + seconds
        self._turn_at = None if queue_seconds is None else now + queue_seconds

    def left(self) -> float:
        return max(0.0, self.at - self._loop.time())

    def patience(self) -> float | None:
        """Seconds that the call may still queue; None: until its deadline."""
        return None if self._turn_at is None else max(0.0, self._turn_at - self._loop.time())

    def wait_longer(self) -> None:
        """Let the call queue until its deadline from now on: it has begun, and its work must not be thrown away."""
        self._turn_at = None


class Instance:
    """A greeted process of a plugin and the link to it. Made by `open_instance`."""

    __slots__ = tuple(
        "_explained _killed_for _closing _handler _runtime _active binding child redactor link scratch_folder".split()
    )

    node: ClassVar[str | None] = None
    """The machine that it is on; None: this one."""

    def __init__(self, binding: Binding, runtime: Runtime, child: Child, scratch_folder: Path | None = None) -> None:
        """Connect a new process to a link. Nothing may be awaited between its spawn and here."""
        self.binding = binding
        self.child = child
        self.scratch_folder = scratch_folder
        """Its folder for scratch folders of invocations, if it has one."""
        self._runtime = runtime
        self._active = False
        self._closing = False
        self._killed_for: diagnose.Words | None = None
        self._explained: tuple[Failure, object, Failure] | None = None
        """The last failure that was explained, its facts, and the result: many calls may fail with one reason."""
        spec = binding.spec
        side = _side(binding, runtime, runtime.protocol_cache.era_for(spec, child.argv))
        machine = CONTRACTS[spec.contract].host_machine(spec, side, runtime.codec)
        stream = PipeStream(asyncio.get_running_loop(), *child.take_pipes())
        self.redactor = Redactor(binding.secrets)
        child.stderr.clean = self.redactor.redact_lines
        self._handler = handler = InboundHandler(
            spec,
            binding.granted,
            runtime.services,
            self.redactor,
            binding.log_level,
            binding.project.roots,
            binding.protected,
            binding.opened,
        )
        hooks = Hooks(
            handler=handler.handle_request,
            notified=handler.handle_notification,
            noise=handler.handle_noise,
            faulted=self._faulted,
            explain=self.explain,
            trace=runtime.trace,
        )
        self.link = Link(machine, stream, runtime.deadlines, hooks, has_process=True)
        handler.connect(self.link)
        child.on_exit(lambda _: self.link.peer_exited())
        if runtime.taps is not None:
            runtime.taps.attach(spec, self.link, child, self.redactor)
        policy = binding.confinement.policy
        if policy is not None:
            runtime.memory_watch.begin(child, policy, self._kill_for_memory)
        if child.jail is not None and child.jail.guarded:
            runtime.cover_watch.begin(child, child.jail.uncovered, self._kill_for_uncovered)
        if policy is not None and policy.state is not None:
            runtime.state_watch.begin(child, policy.state, policy.limits.state, self._kill_for_state)

    @property
    def stderr(self) -> StderrDrain:
        return self.child.stderr

    @property
    def counters(self) -> dict[str, int]:
        link = self.link
        counts = {"events_dropped": link.dropped, "keys_dropped": link.urgent_dropped, "late_answers": link.late}
        return {name: count for name, count in counts.items() if count}

    @property
    def keeps_alive(self) -> bool:
        """Whether it waits for events that may come at any time, so it is not idle even without calls."""
        return self._handler.keeps_alive

    def nested(self, cause: Cause) -> AbstractContextManager[None]:
        """It works on a call that a request of a plugin led to."""
        return self._handler.nested(cause)

    def on_published(self, callback: Callable[[], object]) -> None:
        """Call `callback` after each snapshot that it has published."""
        self._handler.on_published = callback

    def is_alive(self) -> bool:
        """Whether it can take a call: neither link nor process has ended, even if the end was not processed yet."""
        return self.link.fault is None and not self.child.has_ended()

    def activate(self) -> None:
        """Make it a resident instance: it receives its topics, and a link fault kills it."""
        self._active = True
        assert self.link.hello is not None
        if self._runtime.greeted is not None:
            self._runtime.greeted(self.binding.spec.id, self.link.hello.hello)
        self._handler.attach()

    def kill(self) -> None:
        """Kill its process group and close its pipes. May be called twice."""
        self._deactivate()
        self.child.kill()
        self.link.close()

    async def shut_down(self) -> Failure | None:
        """Shut down as the contract says, within its timeouts, then kill the rest; a `Failure` says what went wrong."""
        self._closing = True
        self._deactivate()
        timeouts = self.binding.spec.timeouts
        # If SIGTERM follows, farewell and teardown share a budget: an early answer leaves more time to clean up.
        budget = Deadline(timeouts.farewell + timeouts.teardown)
        try:
            failure = await self.link.farewell(timeouts.farewell)
            gone = await self.child.wait(budget.left() if timeouts.term > 0 else timeouts.teardown)
            if gone is None and timeouts.term > 0:
                self.child.terminate()
                gone = await self.child.wait(timeouts.term)
            if gone is None and failure is None:
                failure = Failure(Code.TIMEOUT, "it was asked to shut down, but was still running at the deadline")
        finally:
            self.kill()
        return failure

    def _deactivate(self) -> None:
        self._active = False
        self._handler.detach()

    def _faulted(self, failure: Failure) -> None:
        if self._active and not self._closing:
            self.child.kill()

    def _kill_for_state(self, why: str) -> None:
        assert self.binding.confinement.policy is not None
        folder = str(self.binding.confinement.policy.state)
        self._kill_for(notes.TOO_MUCH_STATE, notes.describe_state_excess(folder, why))

    def _kill_for_memory(self, why: str) -> None:
        self._kill_for(notes.OUT_OF_MEMORY, notes.describe_memory_excess(why))

    def _kill_for_uncovered(self, path: str) -> None:
        self._kill_for(notes.UNCOVERED, notes.describe_uncovered(path))

    def _kill_for(self, kind: str, words: diagnose.Words) -> None:
        """Kill the process because it uses, keeps or sees more than it may."""
        self._killed_for = words
        notes.note_kill(self._runtime.services.journal, self.binding.spec.id, kind, words[0])
        self.child.kill()

    def explain(self, failure: Failure, since: float | None = None) -> Failure:
        """Add to a failure how the process ended and the tail of its stderr: from `since` on, if it stays for many
        calls."""
        self.child.stderr.drain_now()
        tail = self.child.stderr.tail(since=since if self.binding.spec.lifetime == "resident" else None)
        facts = (tail, self.child.exit)
        if self._explained is None or self._explained[0] is not failure or self._explained[1] != facts:
            self._explained = failure, facts, self._explain(failure, tail)
        return self._explained[2]

    def _explain(self, failure: Failure, tail: list[str]) -> Failure:
        more: dict[str, object] = {"stderr_tail": tail} if tail else {}
        status = self.child.exit
        if status is not None:
            more |= {"exit_code": status.code, "signal": status.signal, "exit": status.describe()}
        if status is not None and failure.code == Code.CRASHED:
            known = self._killed_for
            policy = self.binding.confinement.policy
            if known is None and self.child.oom:
                memory = None if policy is None else policy.limits.memory
                known = notes.describe_oom(status, self.child.oom, memory, memory_limit())
            more["cause"], hint = diagnose.early_exit(self.child.argv, status, tail, known=known)
            more |= {"hint": hint} if hint else {}
        return self.redactor.redact_failure(failure.with_detail(self.binding.spec.id, **more))


async def open_instance(binding: Binding, runtime: Runtime, deadline: Deadline | None = None) -> Instance | Failure:
    """Start and greet an instance. On a `Failure` no process is left.

    Without a deadline the timeouts of its contract apply, counted from the moment that it gets a start slot.
    """
    patience = None if deadline is None else deadline.patience()
    bounds = [] if deadline is None else [deadline.left(), deadline.left() if patience is None else patience]
    try:
        async with asyncio.timeout(min(bounds, default=None)):
            slot = await runtime.start_limit.acquire()
    except TimeoutError:
        if patience is None or patience > bounds[0]:
            return _start_timeout(binding.spec)
        text = "other plugins are being started"
        return queue_failure(text, patience, max(patience, MIN_RETRY_SECONDS)).with_detail(binding.spec.id)
    timeouts = binding.spec.timeouts
    starting = CAUSE.set(None)  # callbacks of the new process keep the context, and outlive the call that needs it
    try:
        return await _start(binding, runtime, deadline or Deadline(timeouts.launch + timeouts.handshake))
    finally:
        CAUSE.reset(starting)
        slot.release()


async def _start(binding: Binding, runtime: Runtime, deadline: Deadline) -> Instance | Failure:
    refusal = binding.refusal or await _state_quota_refusal(binding)
    if refusal is not None:
        return refusal
    if binding.scratch is None:
        instance = await _spawn(binding, runtime, deadline, None)
    else:
        instance = await _spawn_with_scratch(binding, binding.scratch, runtime, deadline)
    if isinstance(instance, Failure):
        return instance
    try:
        failure = await instance.link.open(min(binding.spec.timeouts.handshake, deadline.left()))
    except BaseException:
        instance.kill()
        raise
    if failure is not None:
        runtime.protocol_cache.forget(binding.spec.id)
        instance.kill()
        return failure
    return instance


async def _state_quota_refusal(binding: Binding) -> Failure | None:
    """Why a plugin with an overfull state folder is not started: the first check would kill it."""
    policy = binding.confinement.policy
    if policy is None or policy.state is None:
        return None
    why = await asyncio.to_thread(tree.quota_problem, policy.state, policy.limits.state)
    if why is None:
        return None
    _, hint = notes.describe_state_excess(str(policy.state), why)
    text = f"its own folder {policy.state} is too full: {why}"
    return Failure(Code.UNAVAILABLE, text, origin=Origin.SYSTEM, plugin=binding.spec.id, detail={"hint": hint})


async def _spawn_with_scratch(
    binding: Binding, scratch: Scratch, runtime: Runtime, deadline: Deadline
) -> Instance | Failure:
    """Spawn an instance with a folder for scratch folders, which is removed when the process ends."""
    scratch_folder = await scratch.make_instance_folder(binding.spec.id)
    if isinstance(scratch_folder, Failure):
        return scratch_folder
    instance: Instance | Failure | None = None
    try:
        instance = await _spawn(binding, runtime, deadline, scratch_folder)
    finally:
        if isinstance(instance, Instance):
            instance.child.on_exit(lambda _: scratch.release(scratch_folder))
        else:
            scratch.release(scratch_folder)
    return instance


async def _spawn(
    binding: Binding, runtime: Runtime, deadline: Deadline, scratch_folder: Path | None
) -> Instance | Failure:
    """Spawn the process within the deadline, the wait for a free slot of the spawner included."""
    spec = binding.spec
    runtime.step("process.spawn")
    try:
        async with asyncio.timeout(deadline.left()):
            launch = launch_of(binding, scratch_folder)
            child = await runtime.spawner.spawn(launch, spec.timeouts.launch)
    except LaunchFailed as error:
        detail = {**error.detail, "hint": error.hint} if error.hint else dict(error.detail)
        return Failure(error.code, error.message, origin=Origin.SYSTEM, plugin=spec.id, detail=detail)
    except TimeoutError:
        return _start_timeout(spec)
    open_files = launch.limits.open_files if launch.policy is None else launch.policy.limits.open_files
    notes.note_start(runtime.services.journal, spec.id, binding.confinement, child, open_files)
    return Instance(binding, runtime, child, scratch_folder)


def _start_timeout(spec: PluginSpec) -> Failure:
    return Failure(Code.TIMEOUT, "the call timed out before the plugin was started", plugin=spec.id)


def _side(binding: Binding, runtime: Runtime, era: str) -> HostSide:
    return HostSide(
        granted=binding.granted,
        nonce=secrets.randbits(64),
        config=binding.config,
        secrets=binding.secrets,
        projects=(binding.project.id,),
        storage=runtime.services.storage is not None or runtime.services.elsewhere is not None,
        pid=os.getpid(),
        era=era,
    )


def launch_of(binding: Binding, scratch_folder: Path | None = None, command: Sequence[str] | None = None) -> Launch:
    """How to start the plugin's program, or `command` in its place."""
    spec = resolve_references(binding.spec, binding.config, binding.secrets, os.environ)
    argv = resolve(command or spec.command, spec.root, host_search_path(os.environ))
    known = [(name, binding.project.fact(fact)) for name, fact in spec.env_facts]
    facts = tuple((name, value) for name, value in known if value is not None)
    policy = binding.confinement.policy
    if policy is not None and scratch_folder is not None:
        policy = replace(
            policy, write=(*policy.write, scratch_folder), own=(*policy.own, os.path.realpath(scratch_folder))
        )
    environ = os.environ if policy is None else sandbox_environ(policy, os.environ, Path.home())
    inherit = (*spec.env_inherit, *binding.inherit_env)
    env = build_env(inherit, environ, (*facts, *spec.env), (*proxy_variables(policy), *binding.env))
    verify = None
    if release.is_release(spec.root):
        verify = functools.partial(release.verify, spec.root)
        env = {**NO_BYTECODE, **env}
    cwd = spec.cwd or spec.root
    return Launch(argv=argv, cwd=cwd, env=env, limits=binding.limits, label=spec.id, policy=policy, verify=verify)
