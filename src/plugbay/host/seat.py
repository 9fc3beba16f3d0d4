"""`Seat`: one child, the link to it, and what its owner knows about its end.

Owns how a bound plugin becomes a greeted child: command, environment, machine, pipes, greeting, each within the call's
own deadline. Knows nothing of leases, pools or restarts.
"""

from __future__ import annotations

import asyncio
import os
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from plugbay.contracts.registry import CONTRACTS, HostSide
from plugbay.host.discretion import Discretion
from plugbay.host.ports import Trace
from plugbay.host.reception import Reception, Services
from plugbay.link.deadlines import Deadlines
from plugbay.link.hooks import Hooks
from plugbay.link.link import Link
from plugbay.link.stream import PipeStream
from plugbay.model.errors import Code, Failure, Origin
from plugbay.model.spec import PluginSpec
from plugbay.process import diagnose
from plugbay.process.child import Child, Spawner
from plugbay.process.command import Launch, LaunchFailed, build_env, host_search_path, resolve
from plugbay.process.limits import Rlimits
from plugbay.wire.fast_json import MsgspecCodec


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
    refusal: Failure | None = None
    """Why it may not be started at all."""


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

    __slots__ = ("_parting", "_reception", "_runtime", "_settled", "binding", "child", "discretion", "link")

    def __init__(self, binding: Binding, runtime: Runtime, child: Child) -> None:
        """Bind a new child to a link. Nothing is awaited between the child's birth and here."""
        self.binding = binding
        self.child = child
        self._runtime = runtime
        self._settled = False
        self._parting = False
        spec = binding.spec
        machine = CONTRACTS[spec.contract].host_machine(spec, _side(binding, runtime), runtime.codec)
        stream = PipeStream(asyncio.get_running_loop(), *child.take_pipes())
        self.discretion = Discretion(binding.secrets)
        child.stderr.clean = self.discretion.line
        self._reception = reception = Reception(
            spec, binding.granted, runtime.services, self.discretion, binding.log_level
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

    def explain(self, failure: Failure) -> Failure:
        """Add what only the owner of the process knows: how it ended and what it last wrote to stderr."""
        self.child.stderr.drain_now()
        tail = self.child.stderr.tail()
        more: dict[str, object] = {"stderr_tail": tail} if tail else {}
        status = self.child.exit
        if status is not None:
            more |= {"exit_code": status.code, "signal": status.signal, "exit": status.describe()}
        if status is not None and failure.code == Code.CRASHED:
            more["cause"], hint = diagnose.early_exit(self.child.argv, status, tail)
            more |= {"hint": hint} if hint else {}
        return self.discretion.failure(failure.with_detail(self.binding.spec.id, **more))


async def open_seat(binding: Binding, runtime: Runtime, deadline: Deadline) -> Seat | Failure:
    """A greeted child; a `Failure` says why there is none, and then nothing of it is left."""
    child = binding.refusal or await _spawn(binding, runtime, deadline)
    if isinstance(child, Failure):
        return child
    seat = Seat(binding, runtime, child)
    try:
        failure = await seat.link.open(min(binding.spec.timeouts.handshake, deadline.left()))
    except BaseException:
        seat.leave()
        raise
    if failure is not None:
        seat.leave()
        return failure
    return seat


async def _spawn(binding: Binding, runtime: Runtime, deadline: Deadline) -> Child | Failure:
    """Start a child within the call's own time, the wait for a free slot included."""
    spec = binding.spec
    runtime.step("process.spawn")
    try:
        async with asyncio.timeout(deadline.left()):
            return await runtime.spawner.spawn(_launch(binding), spec.timeouts.launch)
    except LaunchFailed as error:
        detail = {**error.detail, "hint": error.hint} if error.hint else dict(error.detail)
        return Failure(Code.LAUNCH_FAILED, error.message, origin=Origin.SYSTEM, plugin=spec.id, detail=detail)
    except TimeoutError:
        return Failure(Code.TIMEOUT, "the time for the call ran out before the plugin was started", plugin=spec.id)


def _side(binding: Binding, runtime: Runtime) -> HostSide:
    return HostSide(
        granted=binding.granted,
        nonce=secrets.randbits(64),
        config=binding.config,
        secrets=binding.secrets,
        projects=(binding.project.id,),
        storage=runtime.services.storage is not None,
        pid=os.getpid(),
    )


def _launch(binding: Binding) -> Launch:
    spec = binding.spec
    argv = resolve(spec.command, spec.root, host_search_path(os.environ))
    known = [(name, binding.project.fact(fact)) for name, fact in spec.env_facts]
    facts = tuple((name, value) for name, value in known if value is not None)
    env = build_env((*spec.env_inherit, *binding.inherit_env), os.environ, (*facts, *spec.env), binding.env)
    return Launch(argv=argv, cwd=Path(spec.cwd or spec.root), env=env, limits=binding.limits, label=spec.id)
