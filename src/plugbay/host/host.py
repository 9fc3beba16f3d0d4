"""`Host`: every plugin of some folders behind one API.

    async with Host.load("plugins/", config="plugbay.toml") as host:
        forecast = await host.call("weather_forecast", {"city": "Lima"}, timeout=5)

Owns what is public and the life of everything behind it: `calls` tells how a call goes. Works from any task, loop and
thread: a call from another loop is carried to the loop the host was started on. `SyncHost` is the same without a loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

from plugbay.host.assembly import Backends, assemble
from plugbay.host.authorization import policy
from plugbay.host.bindings import Bindings, Options
from plugbay.host.calls.call_log import MemoryCallLog
from plugbay.host.calls.calls import CallResult
from plugbay.host.calls.invocation_result import InvocationResult
from plugbay.host.calls.streaming import CallStream
from plugbay.host.calls.tracing import calls_with
from plugbay.host.catalog.approvals import Pins, user_state
from plugbay.host.catalog.catalog import Catalog
from plugbay.host.catalog.probe import Strangers
from plugbay.host.catalog.runtime_exports import Offers, update
from plugbay.host.config import config as configuration
from plugbay.host.confinement.protection import Protection
from plugbay.host.discovery.folders import Found, discover, reject_duplicates
from plugbay.host.discovery.servers import declared
from plugbay.host.facilities import Facilities
from plugbay.host.inbound.questions import Questions
from plugbay.host.invocations.context import Order
from plugbay.host.invocations.invocations import Invocations
from plugbay.host.ports import CallLog, Checkpoints, InvocationLog, Trace
from plugbay.host.providers.agents import PRIMARY, Agents
from plugbay.host.recording.taps import Taps
from plugbay.host.screens.command_lines import CliOutput, Namespaces
from plugbay.host.screens.screens import Screens
from plugbay.host.services.compaction import CompactionOutcome
from plugbay.host.services.hooks import HookOutcome
from plugbay.host.status import PluginStatus, statuses
from plugbay.host.supervision.instance import Runtime
from plugbay.host.supervision.per_org import has_execution_classes
from plugbay.host.supervision.protocol_cache import ProtocolCache
from plugbay.host.supervision.supervisor import Supervisor, supervise
from plugbay.link.deadlines import Deadlines
from plugbay.model.errors import CallFailed, Code, Failure, ManifestInvalid, PlugbayError
from plugbay.model.protected import Entry
from plugbay.model.spec import Export, PluginSpec
from plugbay.wire.fast_json import MsgspecCodec

if TYPE_CHECKING:
    from opentelemetry.trace import Tracer

    from plugbay.model.operations import PluginOp

T = TypeVar("T")


class Host(Facilities):
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
        invocation_log: InvocationLog | None = None,
        checkpoints: Checkpoints | None = None,
        log_dir: str | Path | None = None,
        state_dir: str | Path | None = None,
        trace: Trace | None = None,
        record: str | Path | None = None,
        questions: Questions | None = None,
        trusted: Iterable[str] = (),
        tracer: Tracer | None = None,
        protected: Iterable[Entry] = (),
    ) -> None:
        """`eager=False` starts no plugin before it is needed; `unconfined` ignores that some ask for a sandbox.

        `questions` puts what plugins ask to a person; without it they are told that nobody answers. Plugins that are
        `trusted` may offer what they like, approved or not, for as long as this host lives. With a `tracer` of
        OpenTelemetry's each call is a span. `protected` is out of every plugin's reach, like the host's own files.
        """
        self.config = config or configuration.Config()
        self.found = reject_duplicates([*found, *declared(self.config)])
        self.call_log: CallLog = call_log or MemoryCallLog()
        self._eager = eager
        self._trace = trace
        self.tracer = tracer
        self._log_dir = _absolute(log_dir or self.config.host.log_dir)
        self._codec = MsgspecCodec()
        granted, trusts = (frozenset([one] if isinstance(one, str) else one) for one in (grants, trusted))
        options = Options(granted, grant_all, unconfined, trusts)
        state = _absolute(state_dir or self.config.host.state_dir)
        self._protocol_cache = ProtocolCache(state, self.config.declared_eras)
        self.offers = Offers(Pins(state or user_state()), self._protocol_cache, options.trusts)
        self._specs = self.offers.learn(item.spec for item in self.found if item.spec)
        self.protection = Protection(self.config, state, self._log_dir, protected, self.found)
        self._bindings = Bindings(self.config, options, state, self.offers.approved, self.protection)
        self.decisions = {plugin_id: self._bindings.decide(plugin_id) for plugin_id in self._specs}
        catalog = Catalog(self._specs.values())
        self.calls = calls_with(tracer)(catalog, self.decisions, self.call_log, self._codec, trace)
        self._strangers = Strangers(self.calls.catalog, lambda: self.calls.supervisors, self._unknown)
        self.calls.meet = self._strangers.look_for
        self._backends: Backends = assemble(self.config, self.calls, state)
        self.questions = questions
        self._backends.services.offered = self._offered
        self.invocations = self.calls.invocations = Invocations(
            self._codec,
            self._backends.services.journal,
            lambda entry: self._bindings.for_export(entry.spec, entry.export),
            state,
            log=invocation_log,
            checkpoints=checkpoints,
            scratch=self._bindings.scratch,
            new_trace=self.calls.new_trace,
        )
        self._agents = Agents(self.config.agents, self._specs, self.calls)
        self._screens = Screens(self.calls)
        self._backends.services.delivered = self._screens.touch
        self._namespaces = Namespaces(self.calls, self._screens.answered)
        self.taps = Taps(self._specs, record, self._backends.services.journal.note)
        self.tap = self.taps.open
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
        usable = {item.root for item in found if not item.errors}  # one file may name several plugins
        for item in found:
            if item.errors and item.root in roots and item.root not in usable:
                raise ManifestInvalid(str(item.root), item.errors)
        return cls(found, loaded, **options)

    # Starting and stopping.

    async def start(self) -> None:
        """Bind to the running loop. Children start when they are first needed; eager plugins and pools start now."""
        if self._runtime is not None:
            raise PlugbayError("this host has been started already")
        self._loop = asyncio.get_running_loop()
        self._runtime = runtime = Runtime(
            self._bindings.spawner(self._log_dir, self.journal),
            Deadlines(self._loop),
            self._codec,
            self._trace,
            self._backends.services,
            self._greeted,
            self.taps,
            self._protocol_cache,
        )
        try:
            await self._backends.open()
            if any(map(has_execution_classes, self._specs.values())):
                await self.invocations.open()
        except BaseException:
            self._runtime = None
            await runtime.spawner.close()
            raise
        if self._runtime is not runtime:
            await self._backends.close()
            raise PlugbayError("this host was stopped while it was being started")
        for agent, names in self._agents.missing().items():
            text = f"the agent {agent} names {', '.join(names)}, and there is no such plugin here"
            self._backends.services.journal.note("host", "agent_plugin_missing", text)
        self.calls.supervisors = {spec.id: self._supervise(spec, runtime) for spec in self._specs.values()}
        for plugin_id, supervisor in self.calls.supervisors.items():
            if self._eager and policy.admit(self._specs[plugin_id], self.decisions[plugin_id]) is None:
                supervisor.begin()

    async def settled(self, timeout: float | None = None) -> bool:
        """Wait until no plugin is being started; False when that takes longer than `timeout`."""
        return await self._carry(self._settled(timeout))

    async def _settled(self, timeout: float | None) -> bool:
        starting = [item.starting for item in self.calls.supervisors.values() if item.starting is not None]
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
        await self.invocations.stop()
        stops = [supervisor.stop() for supervisor in self.calls.supervisors.values()]
        await asyncio.gather(*stops, return_exceptions=True)
        await runtime.spawner.close()
        runtime.deadlines.close()
        await self._backends.close()
        self.taps.close()

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
        ask = self.calls.with_input({} if input is None else input, context or {})
        attempt = self.calls.attempt(name, ask, timeout)
        result = await attempt if self._loop is asyncio.get_running_loop() else await self._carry(attempt)
        return result.value_or_raise()

    async def attempt(
        self,
        name: str,
        input: Any = None,
        *,
        timeout: float | None = None,
        context: Mapping[str, Any] | None = None,
        on_progress: Callable[[Any], None] | None = None,
        kind: str = "",
    ) -> CallResult:
        """Call an export and return how it ended; a failure is a value here. `kind` tells exports of one name apart."""
        ask = self.calls.with_input({} if input is None else input, context or {}, stream=on_progress is not None)
        return await self._carry(self.calls.attempt(name, ask, timeout, on_progress, kind))

    async def ask(
        self,
        name: str,
        op: PluginOp,
        *,
        kind: str = "",
        timeout: float | None = None,
        on_progress: Callable[[Any], None] | None = None,
    ) -> CallResult:
        """Ask the plugin of an export for an operation as it stands: the argument of a prompt, some other address."""
        return await self._carry(self.calls.attempt(name, lambda _: op, timeout, on_progress, kind))

    async def meet(self, *plugins: str, timeout: float | None = None) -> dict[str, Failure]:
        """Greet these plugins, or all that may run and have not said yet what they offer; who could not be, and why."""
        return await self._carry(self._strangers.meet(plugins, timeout))

    async def invoke(
        self,
        name: str,
        input: Any = None,
        *,
        timeout: float | None = None,
        on_progress: Callable[[Any], None] | None = None,
        **order: Any,
    ) -> InvocationResult:
        """Have work done in invocations; `order` are the fields of `Order`: who asks, what for, as what it is bound."""
        wanted = Order(**order)
        ask = self.calls.with_input({} if input is None else input, {})
        result = await self._carry(self.calls.attempt(name, ask, timeout, on_progress, order=wanted))
        return InvocationResult(result, tuple(wanted.records))

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

    async def fire(
        self,
        hook: str,
        event: Mapping[str, Any],
        *,
        agent: str = PRIMARY,
        context: Mapping[str, Any] | None = None,
        timeout: float | None = None,
    ) -> HookOutcome:
        """Ask every plugin of an agent that handles `hook` about `event`, in order; one that fails is passed over."""
        return await self._carry(self._agents.fire(agent, hook, event, context or {}, timeout))

    async def compact(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        agent: str = PRIMARY,
        trigger: str = "manual",
        context: Mapping[str, Any] | None = None,
    ) -> CompactionOutcome:
        """Make an agent's conversation shorter: its plugins have their say, the agent's own strategy does the rest."""
        return await self._carry(self._agents.compact(agent, messages, trigger, context or {}))

    async def run_cli(self, namespace: str, argv: Sequence[str], *, timeout: float | None = None) -> CliOutput:
        """Have a plugin run a command line of its namespace; raises `CallFailed` when it comes to no end of its own."""
        return await self._carry(self._namespaces.run(namespace, argv, timeout))

    async def _carry(self, work: Coroutine[Any, Any, T]) -> T:
        """Run `work` on the host's own loop, whichever loop asks; here when there is none to carry anything to."""
        if self._loop is None or self._loop is asyncio.get_running_loop() or not self._loop.is_running():
            return await work
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._loop))

    # Looking.

    def exports(self) -> dict[str, Export]:
        """Every export by its full name."""
        return {name: entry.export for name, entry in self.calls.catalog.named().items()}

    def plugins(self) -> list[PluginStatus]:
        """Every usable plugin and what it is doing."""
        children = () if self._runtime is None else self._runtime.spawner.children.values()
        found = statuses(self._specs.values(), self.calls.supervisors, self._bindings, self.journal, children)
        return [replace(status, disabled=tuple(self.calls.catalog.barred(status.spec.id))) for status in found]

    @property
    def mistyped_ids(self) -> dict[str, str]:
        """Ids in plugbay.toml that no plugin here has but that look like one: settings that silently do nothing."""
        return self.config.mistyped(self._specs)

    @property
    def problems(self) -> list[Found]:
        """Folders that could not be loaded as they are, or only with warnings."""
        return [item for item in self.found if item.problems]

    async def reload(self, plugin_id: str) -> None:
        """Start afresh with the plugin's next call; calls that run or wait are finished first."""
        supervisor = self.calls.supervisors.get(plugin_id)
        if supervisor is None or self._runtime is None:
            raise CallFailed(Failure(Code.NOT_FOUND, f"no running plugin is called {plugin_id!r}"))
        await self._carry(self._replace(plugin_id, supervisor, self._runtime))

    async def _replace(self, plugin_id: str, old: Supervisor, runtime: Runtime) -> None:
        """The successor is in place before the first await, so nobody meets a plugin that is neither."""
        if self.calls.supervisors[plugin_id] is not old:
            return
        self.calls.supervisors[plugin_id] = fresh = self._supervise(self._specs[plugin_id], runtime)
        retired = asyncio.ensure_future(old.retire())
        if policy.admit(self._specs[plugin_id], self.decisions[plugin_id]) is None:
            fresh.begin(after=retired)
        await asyncio.shield(retired)

    # Details.

    def _supervise(self, spec: PluginSpec, runtime: Runtime) -> Supervisor:
        return supervise(self._bindings.bind(spec), runtime)

    def _greeted(self, plugin_id: str, hello: Mapping[str, Any]) -> None:
        """A resident child has said what it is."""
        problems = self.calls.catalog.learn(plugin_id, hello.get("tools", ()))
        for text in (*hello.get("warnings", ()), *problems):
            self.journal.note(plugin_id, "greeting", text)
        if "offer" in hello:
            self.offers.greeted(plugin_id, hello)
            self._update(plugin_id)

    def _offered(self, plugin_id: str, offer: Mapping[str, Any]) -> None:
        """A resident child offers something else from now on."""
        self.offers.offered(plugin_id, offer)
        self._update(plugin_id)

    def _update(self, plugin_id: str) -> None:
        spec = self._specs[plugin_id]
        self._specs[plugin_id] = update(self.offers, spec, self.calls.catalog, self._backends.services)

    def _unknown(self) -> dict[str, Failure | None]:
        """Plugins of which nobody knows what they offer, and why each may not run."""
        return {each: policy.admit(self._specs[each], self.decisions[each]) for each in self.offers.unknown()}


def _absolute(path: str | Path | None) -> Path | None:
    return None if path is None else Path(path).absolute()
