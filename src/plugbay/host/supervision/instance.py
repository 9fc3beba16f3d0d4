"""`Seat`: one child, the link to it, and what its owner knows about its end.

Owns how a bound plugin becomes a greeted child: command, environment, machine, pipes, greeting, each within the call's
own deadline. Knows nothing of leases, pools or restarts.
"""

from __future__ import annotations

import asyncio
import os
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from plugbay.contracts.registry import CONTRACTS, HostSide
from plugbay.host.config.references import resolved
from plugbay.host.confinement import notes
from plugbay.host.confinement.memory_watch import MemoryWatch
from plugbay.host.confinement.policy import Confinement, proxies, seen_inside
from plugbay.host.confinement.scratch import Scratch
from plugbay.host.confinement.state_watch import StateWatch
from plugbay.host.confinement.watch import Watch
from plugbay.host.disk import tree
from plugbay.host.inbound.handler import Reception, Services
from plugbay.host.ports import Trace
from plugbay.host.recording.redaction import Discretion
from plugbay.host.recording.taps import Taps
from plugbay.host.supervision.arrivals import Arrivals
from plugbay.host.supervision.protocol_cache import Eras
from plugbay.link.deadlines import Deadlines
from plugbay.link.link import Hooks, Link
from plugbay.link.stream import PipeStream
from plugbay.model.errors import Code, Failure, Origin
from plugbay.model.protected import Protected
from plugbay.model.spec import Export, PluginSpec
from plugbay.process import diagnose
from plugbay.process.child import Child, Spawner
from plugbay.process.command import Launch, LaunchFailed, build_env, host_search_path, resolve
from plugbay.process.limits import Rlimits
from plugbay.wire.fast_json import MsgspecCodec

COVER_SECONDS = 1.0
"""Between two looks at the covers of all plugins."""


@dataclass(frozen=True, slots=True)
class Runtime:
    """What all plugins of one host share."""

    spawner: Spawner
    deadlines: Deadlines
    codec: MsgspecCodec
    trace: Trace | None = None
    services: Services = field(default_factory=Services)
    greeted: Callable[[str, Mapping[str, Any]], None] | None = None
    """Told the plugin's id and what its resident child said about itself."""
    taps: Taps | None = None
    eras: Eras = field(default_factory=Eras)
    """In which era each program is greeted, where its contract has several."""
    state_watch: StateWatch = field(default_factory=StateWatch)
    memory_watch: MemoryWatch = field(default_factory=MemoryWatch)
    cover_watch: Watch = field(default_factory=lambda: Watch(COVER_SECONDS))
    """Whether protected paths are still out of the sight of confined plugins."""
    arrivals: Arrivals = field(default_factory=Arrivals)

    def step(self, name: str) -> None:
        if self.trace is not None:
            self.trace(name)


@dataclass(frozen=True, slots=True)
class Project:
    """What the host's plugins work for."""

    id: str = "default"
    root: Path = field(default_factory=Path.cwd)
    config_root: Path | None = None
    """Where plugins may keep their own configuration; None: they are told of none."""
    shown: bool = False
    """Whether the operator named the root; the folder a host happens to be started in is nobody's business."""

    @property
    def roots(self) -> tuple[dict[str, str], ...]:
        """The folders that the work is about, as plugins are told of them that ask."""
        return ({"uri": self.root.as_uri(), "name": self.id},) if self.shown else ()

    def fact(self, name: str) -> str | None:
        """What a spec's `env_facts` ask for, if it is known."""
        facts = {
            "project.id": self.id,
            "project.root": self.root,
            "config.root": self.config_root,
            "search.path": host_search_path(os.environ),
        }
        return None if facts[name] is None else str(facts[name])


@dataclass(frozen=True, slots=True)
class Binding:
    """A plugin as the operator bound it."""

    spec: PluginSpec
    granted: tuple[str, ...] = ()
    env: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    inherit_env: tuple[str, ...] = ()
    config: Mapping[str, Any] | None = None
    secrets: Mapping[str, Any] | None = field(default=None, repr=False)
    project: Project = field(default_factory=Project)
    pool: int = 0
    concurrency: int = 32
    """Calls of this plugin at the same time; more wait, within their own deadline."""
    log_level: str = "info"
    """What the plugin logs below this is dropped."""
    limits: Rlimits = field(default_factory=Rlimits)
    confinement: Confinement = field(default_factory=Confinement)
    protected: Protected = field(default_factory=Protected)
    """What the host opens for it under no circumstances."""
    scratch: Scratch | None = None
    """Where its children have their rooms; None: they have none."""
    refusal: Failure | None = None
    """Why it may not be started at all."""
    narrowed: Mapping[frozenset[str], Confinement] = field(default_factory=dict)
    """Where exports differ in what the operating system holds them to: the confinement of the processes that serve
    exports with exactly these capabilities. Empty: one confinement suits all exports."""

    def share(self, export: Export) -> frozenset[str]:
        """Which exports one process may serve: those with the same share. Empty where one confinement suits all."""
        held = frozenset(item.capability for item in self.spec.access)
        return held.intersection(export.capabilities) if self.narrowed else frozenset()

    def serving(self, share: frozenset[str]) -> Binding:
        """The same for processes that serve the exports of one share and no others."""
        if not self.narrowed:
            return self
        confinement = self.narrowed[share]
        scratch = self.scratch if confinement.rooms else None
        refusal = self.refusal or confinement.refusal
        return replace(self, confinement=confinement, scratch=scratch, refusal=refusal, narrowed={})


class Deadline:
    """A moment on the loop's clock; everything a call does shares one."""

    __slots__ = ("_loop", "at")

    def __init__(self, seconds: float) -> None:
        self._loop = asyncio.get_running_loop()
        self.at = self._loop.time() + seconds

    def left(self) -> float:
        return max(0.0, self.at - self._loop.time())


class Seat:
    """One child and the link to it. Made by `open_seat`."""

    __slots__ = tuple("_killed_for _parting _reception _runtime _settled binding child discretion link lodging".split())

    def __init__(self, binding: Binding, runtime: Runtime, child: Child, lodging: Path | None = None) -> None:
        """Bind a new child to a link. Nothing is awaited between the child's birth and here."""
        self.binding = binding
        self.child = child
        self.lodging = lodging
        """Where its rooms are, if it has any."""
        self._runtime = runtime
        self._settled = False
        self._parting = False
        self._killed_for: diagnose.Words | None = None
        spec = binding.spec
        side = _side(binding, runtime, runtime.eras.begin(spec, child.argv))
        machine = CONTRACTS[spec.contract].host_machine(spec, side, runtime.codec)
        stream = PipeStream(asyncio.get_running_loop(), *child.take_pipes())
        self.discretion = Discretion(binding.secrets)
        child.stderr.clean = self.discretion.line
        self._reception = reception = Reception(
            spec,
            binding.granted,
            runtime.services,
            self.discretion,
            binding.log_level,
            binding.project.roots,
            binding.protected,
        )
        hooks = Hooks(
            handler=reception.answer,
            notified=reception.notified,
            noise=reception.noise,
            faulted=self._faulted,
            explain=self.explain,
            trace=runtime.trace,
        )
        self.link = Link(machine, stream, runtime.deadlines, hooks, has_process=True)
        reception.meet(self.link)
        child.on_exit(lambda _: self.link.peer_exited())
        if runtime.taps is not None:
            runtime.taps.seated(spec, self.link, child, self.discretion)
        policy = binding.confinement.policy
        if policy is not None:
            runtime.memory_watch.begin(child, policy, self._uses_too_much)
        if child.cell is not None and child.cell.guarded:
            runtime.cover_watch.begin(child, child.cell.uncovered, self._sees_too_much)
        if policy is not None and policy.state is not None:
            runtime.state_watch.begin(child, policy.state, policy.limits.state, self._keeps_too_much)

    @property
    def counters(self) -> dict[str, int]:
        link = self.link
        counts = {"events_dropped": link.dropped, "keys_dropped": link.urgent_dropped, "late_answers": link.late}
        return {name: count for name, count in counts.items() if count}

    @property
    def keeps_alive(self) -> bool:
        """Whether it waits for something that may come at any time, and so is not idle however long nobody uses it."""
        return self._reception.keeps_alive

    def alive(self) -> bool:
        """Whether it can still be asked: neither its conversation nor its process has ended, seen or not."""
        return self.link.fault is None and not self.child.has_ended()

    def settle(self) -> None:
        """The child stays: it hears of its topics, and a conversation that breaks is the end of it."""
        self._settled = True
        assert self.link.hello is not None
        if self._runtime.greeted is not None:
            self._runtime.greeted(self.binding.spec.id, self.link.hello.hello)
        self._reception.attach()

    def leave(self) -> None:
        """Kill whatever is left of the child and let go of its pipes."""
        self._unsettle()
        self.child.kill()
        self.link.close()

    async def farewell(self) -> Failure | None:
        """Part as the contract says, within its times, and kill what is left; a `Failure` says what went wrong."""
        self._parting = True
        self._unsettle()
        timeouts = self.binding.spec.timeouts
        # Where SIGTERM follows, the times are parts of one: who answers soon has the rest of it to clean up.
        budget = Deadline(timeouts.farewell + timeouts.teardown)
        try:
            failure = await self.link.farewell(timeouts.farewell)
            gone = await self.child.wait(budget.left() if timeouts.term > 0 else timeouts.teardown)
            if gone is None and timeouts.term > 0:
                self.child.terminate()
                gone = await self.child.wait(timeouts.term)
            if gone is None and failure is None:
                failure = Failure(Code.TIMEOUT, "it said good-bye, but was still running when its time was over")
        finally:
            self.leave()
        return failure

    def _unsettle(self) -> None:
        self._settled = False
        self._reception.detach()

    def _faulted(self, failure: Failure) -> None:
        if self._settled and not self._parting:
            self.child.kill()

    def _keeps_too_much(self, why: str) -> None:
        assert self.binding.confinement.policy is not None
        folder = str(self.binding.confinement.policy.state)
        self._end(notes.TOO_MUCH_STATE, notes.too_much_state(folder, why))

    def _uses_too_much(self, why: str) -> None:
        self._end(notes.OUT_OF_MEMORY, notes.too_much_memory(why))

    def _sees_too_much(self, path: str) -> None:
        self._end(notes.UNCOVERED, notes.uncovered(path))

    def _end(self, kind: str, words: diagnose.Words) -> None:
        """Kill a child that uses, keeps or sees more than it may."""
        self._killed_for = words
        notes.killed(self._runtime.services.journal, self.binding.spec.id, kind, words[0])
        self.child.kill()

    def explain(self, failure: Failure) -> Failure:
        """Add what only the owner of the process knows: how it ended and what it last wrote to stderr."""
        self.child.stderr.drain_now()
        tail = self.child.stderr.tail()
        more: dict[str, object] = {"stderr_tail": tail} if tail else {}
        status = self.child.exit
        if status is not None:
            more |= {"exit_code": status.code, "signal": status.signal, "exit": status.describe()}
        if status is not None and failure.code == Code.CRASHED:
            known = self._killed_for
            policy = self.binding.confinement.policy
            if known is None and policy is not None and self.child.oom:
                known = notes.out_of_memory(status, policy.limits.memory)
            more["cause"], hint = diagnose.early_exit(self.child.argv, status, tail, known=known)
            more |= {"hint": hint} if hint else {}
        return self.discretion.failure(failure.with_detail(self.binding.spec.id, **more))


async def open_seat(binding: Binding, runtime: Runtime, deadline: Deadline | None = None) -> Seat | Failure:
    """A greeted child; a `Failure` says why there is none, and then nothing of it is left.

    Without a deadline it has the times of its contract, from the moment that it is its turn to arrive.
    """
    try:
        async with asyncio.timeout(None if deadline is None else deadline.left()):
            place = await runtime.arrivals.place()
    except TimeoutError:
        return _too_late(binding.spec)
    timeouts = binding.spec.timeouts
    try:
        return await _arrive(binding, runtime, deadline or Deadline(timeouts.launch + timeouts.handshake))
    finally:
        place.free()


async def _arrive(binding: Binding, runtime: Runtime, deadline: Deadline) -> Seat | Failure:
    refusal = binding.refusal or await _full(binding)
    if refusal is not None:
        return refusal
    if binding.scratch is None:
        seat = await _seated(binding, runtime, deadline, None)
    else:
        seat = await _lodged(binding, binding.scratch, runtime, deadline)
    if isinstance(seat, Failure):
        return seat
    try:
        failure = await seat.link.open(min(binding.spec.timeouts.handshake, deadline.left()))
    except BaseException:
        seat.leave()
        raise
    if failure is not None:
        runtime.eras.forget(binding.spec.id)
        seat.leave()
        return failure
    return seat


async def _full(binding: Binding) -> Failure | None:
    """Why a plugin is not started that keeps more than it may: it would be killed at the first look."""
    policy = binding.confinement.policy
    if policy is None or policy.state is None:
        return None
    why = await asyncio.to_thread(tree.overfull, policy.state, policy.limits.state)
    if why is None:
        return None
    _, hint = notes.too_much_state(str(policy.state), why)
    text = f"its own folder {policy.state} is too full: {why}"
    return Failure(Code.UNAVAILABLE, text, origin=Origin.SYSTEM, plugin=binding.spec.id, detail={"hint": hint})


async def _lodged(binding: Binding, scratch: Scratch, runtime: Runtime, deadline: Deadline) -> Seat | Failure:
    """A child with a place for its rooms, which is gone when the child is."""
    lodging = await scratch.lodge(binding.spec.id)
    if isinstance(lodging, Failure):
        return lodging
    seat: Seat | Failure | None = None
    try:
        seat = await _seated(binding, runtime, deadline, lodging)
    finally:
        if isinstance(seat, Seat):
            seat.child.on_exit(lambda _: scratch.vacated(lodging))
        else:
            scratch.vacated(lodging)
    return seat


async def _seated(binding: Binding, runtime: Runtime, deadline: Deadline, lodging: Path | None) -> Seat | Failure:
    """Start a child within the call's own time, the wait for a free slot included."""
    spec = binding.spec
    runtime.step("process.spawn")
    try:
        async with asyncio.timeout(deadline.left()):
            launch = launch_of(binding, lodging)
            child = await runtime.spawner.spawn(launch, spec.timeouts.launch)
    except LaunchFailed as error:
        detail = {**error.detail, "hint": error.hint} if error.hint else dict(error.detail)
        return Failure(error.code, error.message, origin=Origin.SYSTEM, plugin=spec.id, detail=detail)
    except TimeoutError:
        return _too_late(spec)
    open_files = launch.limits.open_files if launch.policy is None else launch.policy.limits.open_files
    notes.started(runtime.services.journal, spec.id, binding.confinement, child, open_files)
    return Seat(binding, runtime, child, lodging)


def _too_late(spec: PluginSpec) -> Failure:
    return Failure(Code.TIMEOUT, "the time for the call ran out before the plugin was started", plugin=spec.id)


def _side(binding: Binding, runtime: Runtime, era: str) -> HostSide:
    return HostSide(
        granted=binding.granted,
        nonce=secrets.randbits(64),
        config=binding.config,
        secrets=binding.secrets,
        projects=(binding.project.id,),
        storage=runtime.services.storage is not None,
        pid=os.getpid(),
        era=era,
    )


def launch_of(binding: Binding, lodging: Path | None = None, command: Sequence[str] | None = None) -> Launch:
    """How the plugin's program, or another command in its place, is started."""
    spec = resolved(binding.spec, binding.config, binding.secrets, os.environ)
    argv = resolve(command or spec.command, spec.root, host_search_path(os.environ))
    known = [(name, binding.project.fact(fact)) for name, fact in spec.env_facts]
    facts = tuple((name, value) for name, value in known if value is not None)
    policy = binding.confinement.policy
    if policy is not None and lodging is not None:
        policy = replace(policy, write=(*policy.write, lodging), own=(*policy.own, os.path.realpath(lodging)))
    environ = seen_inside(policy, os.environ, Path.home())
    inherit = (*spec.env_inherit, *binding.inherit_env)
    env = build_env(inherit, environ, (*facts, *spec.env), (*proxies(policy), *binding.env))
    cwd = Path(spec.cwd or spec.root)
    return Launch(argv=argv, cwd=cwd, env=env, limits=binding.limits, label=spec.id, policy=policy)
