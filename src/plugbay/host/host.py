"""`Host`: every plugin of some folders behind one API.

    async with Host.load("plugins/", config="plugbay.toml") as host:
        forecast = await host.call("weather_forecast", {"city": "Lima"}, timeout=5)

Owns what is public and the life of everything behind it: `calls` tells how a call goes, `assembly` puts the services
together. Works from any task, any loop and any thread: a call from another loop is carried to the loop the host was
started on. `SyncHost` is the same without a loop.
"""

from __future__ import annotations

import asyncio
import difflib
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from plugbay.host import config as configuration
from plugbay.host import policy
from plugbay.host.assembly import Backends, assemble
from plugbay.host.bus import Stream
from plugbay.host.call_log import MemoryCallLog
from plugbay.host.calls import CallResult, Calls
from plugbay.host.catalog import Catalog
from plugbay.host.discovery import Found, discover
from plugbay.host.plugin_backends import Channels
from plugbay.host.policy import Decision
from plugbay.host.ports import CallLog, Trace
from plugbay.host.seat import Binding, Runtime
from plugbay.host.services import hooks
from plugbay.host.services.agent_memory import AgentMemory
from plugbay.host.services.hooks import HookOutcome
from plugbay.host.services.llm.registry import LlmRegistry
from plugbay.host.services.vectors import VectorRegistry
from plugbay.host.streaming import CallStream
from plugbay.host.supervisor import Supervisor, supervise
from plugbay.link.deadlines import Deadlines
from plugbay.model.errors import CallFailed, Code, Failure, ManifestInvalid, PlugbayError
from plugbay.model.ids import full_name
from plugbay.model.operations import RunHook
from plugbay.model.spec import Export, Lifetime, PluginSpec
from plugbay.process.child import Spawner
from plugbay.wire.fast_json import MsgspecCodec

T = TypeVar("T")

CONCURRENCY = {Lifetime.PER_CALL: 32, Lifetime.RESIDENT: 256}
"""Calls of one plugin at the same time where the operator does not say: a process each, or a message each."""


@dataclass(frozen=True, slots=True)
class PluginStatus:
    """One plugin as an operator sees it."""

    spec: PluginSpec
    state: str
    granted: tuple[str, ...]
    busy: int
    ready: int
    pid: int | None = None
    generation: int = 0
    counters: Mapping[str, int] = field(default_factory=dict)
    """What happened to it without failing a call: noise, refused publishes, events dropped."""


class Host:
    """Every plugin of some folders, callable by name."""

    def __init__(
        self,
        found: Iterable[Found],
        config: configuration.Config | None = None,
        *,
        grants: Iterable[str] = (),
        grant_all: bool = False,
        unconfined: bool = False,
        eager: bool = True,
        call_log: CallLog | None = None,
        log_dir: Path | None = None,
        trace: Trace | None = None,
    ) -> None:
        """`eager=False` starts no plugin before it is needed; `unconfined` ignores that some ask for a sandbox."""
        self.found = list(found)
        self.config = config or configuration.Config()
        self.call_log: CallLog = call_log or MemoryCallLog()
        self._extra_grants = frozenset([grants] if isinstance(grants, str) else grants)
        self._grant_all = grant_all
        self._unconfined = unconfined
        self._eager = eager
        self._trace = trace
        self._log_dir = log_dir or (Path(self.config.host.log_dir) if self.config.host.log_dir else None)
        self._codec = MsgspecCodec()
        self._specs = {item.spec.id: item.spec for item in self.found if item.spec}
        self._decisions = {plugin_id: self._decide(plugin_id) for plugin_id in self._specs}
        self._calls = Calls(Catalog(self._specs.values()), self._decisions, self.call_log, self._codec, trace)
        self._backends: Backends = assemble(self.config, self._calls)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._runtime: Runtime | None = None
        self._stopping: asyncio.Future[None] | None = None

    @classmethod
    def load(cls, *paths: str | Path, config: str | Path | None = None, **options: Any) -> Self:
        """A host for every plugin in `paths`: plugin folders, or folders of plugin folders.

        A broken plugin in a folder of plugins is left out and listed in `problems`; one that was named itself, or a
        path that is not there, raises `ManifestInvalid`. Options are those of `Host`.
        """
        loaded = configuration.load(Path(config)) if config is not None else None
        roots = [Path(path) for path in paths]
        found = discover(roots)
        for item in found:
            if item.errors and item.root in roots:
                raise ManifestInvalid(str(item.root), item.errors)
        return cls(found, loaded, **options)

    # Starting and stopping.

    async def start(self) -> None:
        """Bind to the running loop. Children start when they are first needed; eager plugins and pools start now."""
        if self._runtime is not None:
            raise PlugbayError("this host has been started already")
        await self._backends.open()
        self._loop = asyncio.get_running_loop()
        self._runtime = runtime = Runtime(
            Spawner(self._log_dir, clean_up=True),
            Deadlines(self._loop),
            self._codec,
            self._trace,
            self._backends.services,
            self._greeted,
        )
        self._calls.supervisors = {spec.id: self._supervise(spec, runtime) for spec in self._specs.values()}
        for plugin_id, supervisor in self._calls.supervisors.items():
            if self._eager and policy.admit(self._specs[plugin_id], self._decisions[plugin_id]) is None:
                supervisor.begin()

    async def settled(self, timeout: float | None = None) -> bool:
        """Wait until no plugin is being started; False when that takes longer than `timeout`."""
        return await self._carry(self._settled(timeout))

    async def _settled(self, timeout: float | None) -> bool:
        starting = [item.starting for item in self._calls.supervisors.values() if item.starting is not None]
        _, pending = await asyncio.wait(starting, timeout=timeout) if starting else (None, None)
        return not pending

    async def stop(self) -> None:
        """End every child, wait until nothing of them is left, and let go of the loop."""
        if self._runtime is not None:
            runtime, self._runtime = self._runtime, None
            self._stopping = asyncio.ensure_future(self._carry(self._shut_down(runtime)))
        if self._stopping is not None and self._stopping.get_loop() is asyncio.get_running_loop():
            await asyncio.shield(self._stopping)

    async def _shut_down(self, runtime: Runtime) -> None:
        """To the end, even when whoever asked for it is cancelled: otherwise children would stay."""
        await asyncio.gather(*(supervisor.stop() for supervisor in self._calls.supervisors.values()))
        await runtime.spawner.close()
        runtime.deadlines.close()
        await self._backends.close()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.stop()

    # Calling.

    async def call(
        self,
        name: str,
        input: Any = None,
        *,
        timeout: float | None = None,
        context: Mapping[str, Any] | None = None,
    ) -> Any:
        """Call an export and return its output; raises `CallFailed`."""
        result = await self.attempt(name, input, timeout=timeout, context=context)
        return result.value_or_raise()

    async def attempt(
        self,
        name: str,
        input: Any = None,
        *,
        timeout: float | None = None,
        context: Mapping[str, Any] | None = None,
        on_progress: Callable[[Any], None] | None = None,
    ) -> CallResult:
        """Call an export and return how it ended; a failure is a value here."""
        ask = self._calls.with_input({} if input is None else input, context or {}, stream=on_progress is not None)
        return await self._carry(self._calls.attempt(name, ask, timeout, on_progress))

    def stream(
        self,
        name: str,
        input: Any = None,
        *,
        timeout: float | None = None,
        context: Mapping[str, Any] | None = None,
    ) -> CallStream:
        """Call an export and iterate over what it says before its answer: progress, or pieces of a reply."""
        return CallStream(lambda each: self.attempt(name, input, timeout=timeout, context=context, on_progress=each))

    async def fire(self, hook: str, event: Mapping[str, Any], *, timeout: float | None = None) -> HookOutcome:
        """Ask every plugin that handles `hook` about `event`, in order; a plugin that fails is passed over."""

        async def ask(plugin_id: str, name: str, event: Mapping[str, Any]) -> dict[str, Any] | Failure:
            op = RunHook(name, dict(event))
            result = await self._calls.attempt(full_name(plugin_id, name), lambda _: op, timeout)
            if result.failure is not None:
                return result.failure
            value: dict[str, Any] = result.value()
            return value

        handlers = [entry.spec.id for entry in self._calls.catalog.of_kind("hook") if entry.export.name == hook]
        return await self._carry(hooks.fire(hook, event, handlers, ask))

    def publish(self, topic: str, payload: Any, *, source: str = "host") -> None:
        """Put an event on the bus. From the host's own loop."""
        self._backends.services.tell(topic, source, payload)

    def subscribe(self, *patterns: str, depth: int = 64) -> Stream:
        """Events of these topics as an async iterator, on the host's own loop. Try `plugin.lifecycle.>`."""
        return self._backends.services.bus.subscribe(*patterns, depth=depth)

    async def _carry(self, work: Coroutine[Any, Any, T]) -> T:
        """Run `work` on the host's own loop, whichever loop asks."""
        if self._loop is None or self._loop is asyncio.get_running_loop() or not self._loop.is_running():
            return await work
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._loop))

    # Services.

    @property
    def memory(self) -> AgentMemory | None:
        """What agents remember; None when it is not configured."""
        return self._backends.services.memory

    @property
    def llm(self) -> LlmRegistry:
        """Language models, from plugbay.toml and from plugins."""
        return self._backends.services.llm

    @property
    def vectors(self) -> VectorRegistry:
        """Vector backends: the embedded one and those of plugins."""
        return self._backends.vectors

    @property
    def channels(self) -> Channels:
        """Channels that plugins carry."""
        return self._backends.channels

    # Looking.

    def exports(self) -> dict[str, Export]:
        """Every export by its full name."""
        return {entry.full_name: entry.export for entry in self._calls.catalog.entries()}

    def plugins(self) -> list[PluginStatus]:
        """Every usable plugin and what it is doing."""
        return [self._status(spec) for spec in self._specs.values()]

    @property
    def mistyped_ids(self) -> dict[str, str]:
        """Ids in plugbay.toml that no plugin here has but that look like one: settings that silently do nothing."""
        strangers = [plugin_id for plugin_id in self.config.plugins if plugin_id not in self._specs]
        near = {stranger: difflib.get_close_matches(stranger, self._specs, n=1, cutoff=0.8) for stranger in strangers}
        return {stranger: matches[0] for stranger, matches in near.items() if matches}

    @property
    def problems(self) -> list[Found]:
        """Folders that could not be loaded as they are, or only with warnings."""
        return [item for item in self.found if item.problems]

    async def reload(self, plugin_id: str) -> None:
        """Start afresh with the plugin's next call; calls that run or wait are finished first."""
        supervisor = self._calls.supervisors.get(plugin_id)
        if supervisor is None or self._runtime is None:
            raise CallFailed(Failure(Code.NOT_FOUND, f"no running plugin is called {plugin_id!r}"))
        await self._carry(self._replace(plugin_id, supervisor, self._runtime))

    async def _replace(self, plugin_id: str, old: Supervisor, runtime: Runtime) -> None:
        """The successor is in place before the first await, so nobody meets a plugin that is neither."""
        if self._calls.supervisors[plugin_id] is not old:
            return
        self._calls.supervisors[plugin_id] = fresh = self._supervise(self._specs[plugin_id], runtime)
        retired = asyncio.ensure_future(old.retire())
        fresh.begin(after=retired)
        await asyncio.shield(retired)

    # Details.

    def _decide(self, plugin_id: str) -> Decision:
        decision = self.config.plugin(plugin_id).decision()
        if self._unconfined:
            decision = replace(decision, unconfined=True)
        if self._grant_all:
            return replace(decision, grant_all=True)
        if self._extra_grants:
            return replace(decision, grants=(decision.grants or frozenset()) | self._extra_grants)
        return decision

    def _supervise(self, spec: PluginSpec, runtime: Runtime) -> Supervisor:
        settings = self.config.plugin(spec.id)
        patience = spec.patience if settings.timeouts.call is None else {}
        binding = Binding(
            spec=replace(spec, timeouts=settings.timeouts.over(spec.timeouts), patience=patience),
            granted=policy.effective(spec, self._decisions[spec.id]),
            env=tuple(settings.env.items()),
            inherit_env=tuple(settings.inherit_env),
            pool=settings.pool,
            concurrency=settings.concurrency or CONCURRENCY[spec.lifetime],
        )
        return supervise(binding, runtime)

    def _greeted(self, plugin_id: str, hello: Mapping[str, Any]) -> None:
        """A resident child has said what it is."""
        problems = self._calls.catalog.learn(plugin_id, hello.get("tools", ()))
        for text in (*hello.get("warnings", ()), *problems):
            self._backends.services.journal.note(plugin_id, "greeting", text)

    def _status(self, spec: PluginSpec) -> PluginStatus:
        supervisor = self._calls.supervisors.get(spec.id)
        granted = policy.effective(spec, self._decisions[spec.id])
        counters = Counter(self._backends.services.journal.counts(spec.id))
        if supervisor is None:
            return PluginStatus(spec, "stopped", granted, 0, 0, counters=dict(counters))
        counters.update(supervisor.counters)
        return PluginStatus(
            spec,
            supervisor.state,
            granted,
            supervisor.busy,
            supervisor.ready,
            supervisor.pid,
            supervisor.generation,
            dict(counters),
        )
