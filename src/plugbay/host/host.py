"""`Host`: every plugin of some folders behind one API.

    async with Host.load("plugins/", config="plugbay.toml") as host:
        forecast = await host.call("weather_forecast", {"city": "Lima"}, timeout=5)

The public API of a host and the lifetime of everything behind it. Works from any task, loop and thread: a call from
another loop runs on the loop that the host was started on. `SyncHost` is the same without a loop.
"""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

from msgspec.structs import replace

from plugbay.host.assembly import Backends, Stores, assemble, register_exports
from plugbay.host.authorization import policy
from plugbay.host.bindings import Bindings, Options
from plugbay.host.calls.calls import Calls
from plugbay.host.calls.streaming import CallStream
from plugbay.host.catalog.approvals import Approvals, user_state
from plugbay.host.catalog.catalog import Catalog
from plugbay.host.catalog.probe import Probe
from plugbay.host.catalog.runtime_exports import RuntimeExports, remove_exports, replace_exports, update
from plugbay.host.config import config as configuration
from plugbay.host.confinement.protection import Protection
from plugbay.host.discovery.folders import Found, discover, reject_duplicates
from plugbay.host.discovery.servers import find_servers
from plugbay.host.disk.sqlite_files import IN_MEMORY
from plugbay.host.events.bus import BusEvent, Stream
from plugbay.host.events.snapshots import Snapshots
from plugbay.host.inbound.handler import Services
from plugbay.host.inbound.questions import AskClient, Questions
from plugbay.host.invocations.invocations import Invocations
from plugbay.host.journal import Journal
from plugbay.host.ports import BrokerStatus, CallLog, Checkpoints, InvocationLog, Trace
from plugbay.host.providers.agents import PRIMARY, Agents
from plugbay.host.providers.plugin_backends import Channels
from plugbay.host.recording.taps import Taps
from plugbay.host.records import MemoryCallLog
from plugbay.host.request import CallRequest, CallResult
from plugbay.host.screens.screens import CliOutput, CommandLines, Screens
from plugbay.host.services.actions import Actions
from plugbay.host.services.compaction import CompactionOutcome
from plugbay.host.services.hooks import HookOutcome
from plugbay.host.services.llm.registry import LlmRegistry
from plugbay.host.services.memory import AgentMemory
from plugbay.host.services.vectors import VectorRegistry
from plugbay.host.stamps import is_uuid
from plugbay.host.status import PluginStatus, statuses
from plugbay.host.supervision.instance import Runtime
from plugbay.host.supervision.per_org import has_execution_classes
from plugbay.host.supervision.protocol_cache import ProtocolCache
from plugbay.host.supervision.supervisor import Supervise, Supervisor, supervise
from plugbay.link.deadlines import Deadlines
from plugbay.model.errors import CallFailed, Code, Failure, ManifestInvalid, PlugbayError
from plugbay.model.gate import requested_capabilities
from plugbay.model.lifecycle import PENDING
from plugbay.model.protected import Entry
from plugbay.model.spec import Export, PluginSpec
from plugbay.model.topics import matches, subject_problem
from plugbay.wire.fast_json import MsgspecCodec

if TYPE_CHECKING:
    from opentelemetry.trace import Tracer

    from plugbay.model.operations import PluginOp

T = TypeVar("T")


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
        approvals: Approvals | None = None,
        supervise: Supervise = supervise,
    ) -> None:
        """`eager=False` starts no plugin before its first use; `unconfined` disables all sandboxes.

        `questions` shows questions of plugins to a person; without it they fail. Exports of `trusted` plugins need no
        approval for as long as this host lives. With an OpenTelemetry `tracer` each call is a span. `protected`
        entries are out of every plugin's reach, like the host's own files. `approvals` are read from the state folder
        unless they are given; then they hold with `grant_all` too. `supervise` makes the supervisors: others than the
        usual one have the instances of plugins elsewhere.
        """
        self.config = config or configuration.Config.default()
        self.found = reject_duplicates([*found, *find_servers(self.config)])
        self.call_log: CallLog = call_log or MemoryCallLog()
        self._eager = eager
        self._make_supervisor = supervise
        self._trace = trace
        self.tracer = tracer
        self._log_dir = _absolute(log_dir or self.config.host.log_dir)
        self._state_dir = state = _absolute(state_dir or self.config.host.state_dir)
        self._codec = MsgspecCodec()
        granted, trusts = (frozenset([one] if isinstance(one, str) else one) for one in (grants, trusted))
        requested = requested_capabilities(item.spec for item in self.found if item.spec)
        self._options = options = Options(granted, grant_all, unconfined, trusts, requested)
        self._protocol_cache = ProtocolCache(state, self.config.declared_eras)
        self.runtime_exports = RuntimeExports(
            approvals or Approvals(state or user_state()),
            self._protocol_cache,
            options.trusts if approvals is None else trusts.__contains__,
        )
        self._specs = self.runtime_exports.learn(item.spec for item in self.found if item.spec)
        self.protection = Protection(self.config, state, self._log_dir, protected, self.found)
        self._bindings = Bindings(self.config, options, state, self.runtime_exports.is_approved, self.protection)
        self.decisions = {plugin_id: self._bindings.decide(plugin_id) for plugin_id in self._specs}
        catalog = Catalog(self._specs.values())
        self.calls = _calls_type(tracer)(catalog, self.decisions, self.call_log, self._codec, trace)
        self._probe = Probe(self.calls.catalog, lambda: self.calls.supervisors, self._unknown_exports)
        self.calls.find_unknown = self._probe.find
        self._backends: Backends = assemble(self.config, self.calls, state)
        self.questions = questions
        self._backends.services.offered = self._on_offer_change
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
        self._agents = Agents(self.config.agents, self._specs, self.calls, self.journal.note)
        self._screens = Screens(self.calls)
        self._backends.services.delivered = self._screens.touch
        self._command_lines = CommandLines(self.calls, self._screens.answered)
        self.taps = Taps(self._specs, record, self._backends.services.journal.note)
        self.tap = self.taps.open
        self._loop: asyncio.AbstractEventLoop | None = None
        self._runtime: Runtime | None = None
        self._stopping: asyncio.Future[None] | None = None
        self._live_until: float | None = None
        self._leaving: dict[Supervisor, asyncio.Future[float]] = {}
        """Supervisors of removed plugins whose calls still run."""

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

    # Lifecycle.

    async def start(self) -> None:
        """Start on the running loop. Eager plugins and pools start now, all others with their first use."""
        if self._runtime is not None:
            raise PlugbayError("this host was already started")
        self._loop = asyncio.get_running_loop()
        self._runtime = runtime = Runtime(
            self._bindings.spawner(self._log_dir, self.journal),
            Deadlines(self._loop),
            self._codec,
            self._trace,
            self._backends.services,
            self._on_greeting,
            self.taps,
            self._protocol_cache,
        )
        if self._live_until is not None:
            runtime.spawner.warden.live_until(self._live_until)
        try:
            await self._backends.open()
            if any(map(has_execution_classes, self._specs.values())):
                await self.invocations.open()
        except BaseException:
            self._runtime = None
            await self._backends.close()
            await runtime.spawner.close()
            raise
        if self._runtime is not runtime:
            await self._backends.close()
            raise PlugbayError("this host was stopped while it was being started")
        for agent, names in self._agents.missing().items():
            text = f"the agent {agent} uses {', '.join(names)}, but there is no such plugin"
            self._backends.services.journal.note("host", "agent_plugin_missing", text)
        self.calls.supervisors = {spec.id: self._supervise(spec, runtime) for spec in self._specs.values()}
        for plugin_id, supervisor in self.calls.supervisors.items():
            if self._eager and self._admit(plugin_id):
                supervisor.begin()

    async def settled(self, timeout: float | None = None) -> bool:
        """Wait until no plugin is starting; False when that takes longer than `timeout`."""
        return await self._on_own_loop(self._settled(timeout))

    async def _settled(self, timeout: float | None) -> bool:
        starting = [item.starting for item in self.calls.supervisors.values() if item.starting is not None]
        _, pending = await asyncio.wait(starting, timeout=timeout) if starting else (None, None)
        return not pending

    async def stop(self) -> None:
        """Stop every instance, wait until no process is left, and release the loop."""
        if self._runtime is not None:
            runtime, self._runtime = self._runtime, None
            self._stopping = asyncio.ensure_future(self._on_own_loop(self._shut_down(runtime)))
        if self._stopping is not None and self._stopping.get_loop() is asyncio.get_running_loop():
            await asyncio.shield(self._stopping)

    async def _shut_down(self, runtime: Runtime) -> None:
        """Runs to its end even when the caller of `stop` is cancelled: otherwise processes would be left.

        At the end of the loop it is cancelled itself; files are closed then too.
        """
        try:
            await self.invocations.stop()
            stops = [supervisor.stop() for supervisor in (*self.calls.supervisors.values(), *self._leaving)]
            await asyncio.gather(*stops, return_exceptions=True)
            await runtime.spawner.close()
        finally:
            runtime.deadlines.close()
            self.taps.close()
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
        run = self.calls.run(CallRequest(name, input, timeout=timeout, context=context or {}))
        result = await run if self._loop is asyncio.get_running_loop() else await self._on_own_loop(run)
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
        """Call an export; a failure is a value here. `kind` distinguishes exports of one name."""
        return await self.run(CallRequest(name, input, kind, timeout, on_progress, context or {}))

    async def ask(
        self,
        name: str,
        op: PluginOp,
        *,
        kind: str = "",
        timeout: float | None = None,
        on_progress: Callable[[Any], None] | None = None,
    ) -> CallResult:
        """Send an operation as it is to the plugin of an export: a completion, a resource at another address."""
        return await self.run(CallRequest(name, None, kind, timeout, on_progress, make_operation=lambda _: op))

    async def invoke(
        self,
        name: str,
        input: Any = None,
        *,
        timeout: float | None = None,
        on_progress: Callable[[Any], None] | None = None,
        **fields: Any,
    ) -> CallResult:
        """Invoke an export; `fields` are those of `CallRequest`: ids, the binding, scopes."""
        return await self.run(CallRequest(name, input, "", timeout, on_progress, **fields))

    async def run(self, request: CallRequest) -> CallResult:
        """Run any call, from any loop; a failure is a value here."""
        run = self.calls.run(request)
        return await run if self._loop is asyncio.get_running_loop() else await self._on_own_loop(run)

    async def meet(self, *plugins: str, timeout: float | None = None) -> dict[str, Failure]:
        """Start these plugins, or all whose exports are unknown, to learn their exports; returns failures by plugin."""
        return await self._on_own_loop(self._probe.probe(plugins, timeout))

    def stream(
        self,
        name: str,
        input: Any = None,
        *,
        timeout: float | None = None,
        context: Mapping[str, Any] | None = None,
    ) -> CallStream:
        """Call an export and iterate over its progress, or over the pieces of its reply."""
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
        """Call `hook` of every plugin of an agent with `event`, in order; a plugin that fails is skipped."""
        return await self._on_own_loop(self._agents.fire(agent, hook, event, context or {}, timeout))

    async def compact(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        agent: str = PRIMARY,
        trigger: str = "manual",
        context: Mapping[str, Any] | None = None,
    ) -> CompactionOutcome:
        """Compact an agent's conversation with its plugins, and with the agent's built-in strategy."""
        return await self._on_own_loop(self._agents.compact(agent, messages, trigger, context or {}))

    async def run_cli(self, namespace: str, argv: Sequence[str], *, timeout: float | None = None) -> CliOutput:
        """Run a command line of a plugin; raises `CallFailed` when it does not exit by itself."""
        return await self._on_own_loop(self._command_lines.run(namespace, argv, timeout))

    async def _on_own_loop(self, work: Coroutine[Any, Any, T]) -> T:
        """Run `work` on the host's loop from any loop; on the current one while the host's loop does not run."""
        if self._loop is None or self._loop is asyncio.get_running_loop() or not self._loop.is_running():
            return await work
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._loop))

    # State.

    def exports(self) -> dict[str, Export]:
        """Every export by its full name."""
        return {name: entry.export for name, entry in self.calls.catalog.named().items()}

    def plugins(self) -> list[PluginStatus]:
        """The status of every usable plugin."""
        processes = () if self._runtime is None else self._runtime.spawner.children.values()
        plugins = statuses(self._specs.values(), self.calls.supervisors, self._bindings, self.journal, processes)
        return [replace(status, disabled=tuple(self.calls.catalog.disabled(status.spec.id))) for status in plugins]

    def processes(self) -> dict[str, list[int]]:
        """The ids of all running processes, by plugin."""
        found: dict[str, list[int]] = {}
        for child in () if self._runtime is None else tuple(self._runtime.spawner.children.values()):
            found.setdefault(child.label, []).append(child.pid)
        return found

    @property
    def mistyped_ids(self) -> dict[str, str]:
        """Ids in plugbay.toml that no plugin has, with the similar id of a plugin: their settings have no effect."""
        return self.config.mistyped(self._specs)

    @property
    def problems(self) -> list[Found]:
        """Folders that could not be loaded as they are, or only with warnings."""
        return [item for item in self.found if item.problems]

    async def reload(self, plugin_id: str) -> None:
        """Replace the plugin's instances; running and waiting calls finish first."""
        supervisor = self.calls.supervisors.get(plugin_id)
        if supervisor is None or self._runtime is None:
            raise CallFailed(Failure(Code.NOT_FOUND, f"there is no running plugin {plugin_id!r}"))
        await self._on_own_loop(self._replace(plugin_id, supervisor))

    async def _replace(self, plugin_id: str, old: Supervisor) -> None:
        """The new supervisor is installed before the first await, so a plugin always has one."""
        if self.calls.supervisors.get(plugin_id) is not old:
            return
        fresh = self.replace_supervisor(plugin_id)
        retired = asyncio.ensure_future(old.retire())
        if self._admit(plugin_id):
            fresh.begin(after=retired)
        await asyncio.shield(retired)

    # Services.

    def publish(self, topic: str, payload: Any, *, source: str = "host", session_id: str | None = None) -> BusEvent:
        """Publish an event, on the host's own loop; raises `ValueError` for an invalid topic or session id."""
        problem = subject_problem(topic)
        if problem is not None:
            raise ValueError(f"cannot publish to {topic!r}: {problem}")
        if session_id is not None and not is_uuid(session_id):
            raise ValueError(f"cannot publish to {topic!r}: the session id {session_id!r} is not a UUID")
        return self._backends.services.publish_event(topic, source, payload, session_id)

    def subscribers(self, topic: str) -> list[str]:
        """Ids of the plugins that run now and subscribe to this topic."""
        subscribed = [spec for spec in self._specs.values() if any(matches(each, topic) for each in spec.subscribes)]
        supervisors = self.calls.supervisors
        return [spec.id for spec in subscribed if spec.id in supervisors and supervisors[spec.id].pid is not None]

    def subscribe(self, *patterns: str, depth: int = 64) -> Stream:
        """Events of these topics as an async iterator, on the host's own loop. Try `plugin.lifecycle.>`."""
        return self._backends.services.bus.subscribe(*patterns, depth=depth)

    @property
    def broker(self) -> BrokerStatus | None:
        """The state and the counters of the broker that joins hosts; None when it is not configured."""
        broker = self._backends.broker
        return None if broker is None else broker.status

    @property
    def questions(self) -> Questions | None:
        """Shows questions of plugins to a person; None: such questions fail."""
        return self._backends.services.questions

    @questions.setter
    def questions(self, questions: Questions | None) -> None:
        self._backends.services.questions = questions

    @property
    def ask_client(self) -> AskClient | None:
        """Asks the MCP client that a plugin works for; None: the host answers from its own models and roots."""
        return self._backends.services.ask_client

    @ask_client.setter
    def ask_client(self, ask: AskClient | None) -> None:
        self._backends.services.ask_client = ask

    @property
    def memory(self) -> AgentMemory:
        """The memory of agents: of plugbay.toml, else a file in the state folder."""
        memory = self._backends.services.memory
        assert memory is not None, "`assemble` makes one"
        return memory

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
        """Channels of plugins, by kind."""
        return self._backends.channels

    @property
    def screens(self) -> Screens:
        """Screens of plugins, on the host's own loop."""
        return self._screens

    @property
    def snapshots(self) -> Snapshots:
        """The last value of each snapshot topic, on the host's own loop."""
        return self._backends.services.snapshots

    @property
    def actions(self) -> Actions:
        """Actions that plugins may invoke in the host, on the host's own loop."""
        return self._backends.services.actions

    @property
    def journal(self) -> Journal:
        """Log lines of plugins, and events that concern them."""
        return self._backends.services.journal

    # For hosts whose plugins are, or work, for hosts on other machines.

    @property
    def services(self) -> Services:
        """What the plugins may ask of this host."""
        return self._backends.services

    def place(self, supervise: Supervise, stores: Stores | None = None) -> None:
        """Have other supervisors, and other stores than files. Call it before `start`."""
        if self._runtime is not None:
            raise PlugbayError("this host was already started")
        self._make_supervisor = supervise
        if stores is not None:
            self._backends.use(stores)

    def live_until(self, moment: float) -> None:
        """Have all processes of this host killed at this time of the boot clock, unless a later one is given before.

        That happens also while this process stands still.
        """
        self._live_until = moment
        if self._runtime is not None:
            self._runtime.spawner.warden.live_until(moment)

    # Operations of an administrator, on the host's own loop. `admin` combines them.

    @property
    def specs(self) -> Mapping[str, PluginSpec]:
        """Every usable plugin by id, with its current exports."""
        return self._specs

    @property
    def log_dir(self) -> Path | None:
        """The folder of the plugins' stderr files; None: they are not kept."""
        return self._log_dir

    @property
    def state_dir(self) -> Path | None:
        """The folder of saved settings, secrets and storage; None: nothing is saved."""
        return self._state_dir

    @property
    def bindings(self) -> Bindings:
        """The operator's decisions and settings for every plugin."""
        return self._bindings

    @property
    def is_running(self) -> bool:
        """Whether the host was started and not stopped since."""
        return self._runtime is not None

    def supervisor(self, plugin_id: str) -> Supervisor | None:
        """The supervisor of a plugin; None for an unknown id, or while the host is not running."""
        return self.calls.supervisor(plugin_id)

    def refusal(self, plugin_id: str) -> Failure | None:
        """Why the plugin may not run with its current grants and approval; None when it may."""
        return policy.admit(self._specs[plugin_id], self.decisions[plugin_id])

    def replace_supervisor(self, plugin_id: str) -> Supervisor:
        """Give a plugin a new supervisor with its current spec and settings; the caller ends the old one."""
        if self._runtime is None:
            raise PlugbayError("this host is not running")
        fresh = self.calls.supervisors[plugin_id] = self._supervise(self._specs[plugin_id], self._runtime)
        return fresh

    def configure(self, config: configuration.Config) -> None:
        """Take another configuration; grants are decided anew at once, everything else with a plugin's next start."""
        self.config = config
        self._bindings.configure(config)
        self._protocol_cache.declared = config.declared_eras
        for plugin_id in self._specs:
            self.decisions[plugin_id] = self._bindings.decide(plugin_id)
        register_exports(self.calls, self._backends)

    async def prepare(self, spec: PluginSpec) -> None:
        """Open the stores that only a new release of a plugin needs; raises `PlugbayError`."""
        await self._backends.open_storage(spec)
        if has_execution_classes(spec) and not any(map(has_execution_classes, self._specs.values())):
            await self.invocations.open()

    def adopt(self, spec: PluginSpec) -> None:
        """Replace everything that is made from a plugin's spec and approval. The next start uses it.

        Runs without an await, so each call sees either the old plugin or the new one.
        """
        self.runtime_exports.forget(spec.id)
        self._specs |= self.runtime_exports.learn([spec])
        self.decisions[spec.id] = self._bindings.decide(spec.id)
        replace_exports(self._specs[spec.id], {}, self.calls.catalog, self._backends.services)
        register_exports(self.calls, self._backends)

    async def add(self, item: Found) -> None:
        """Host another plugin; raises `PlugbayError` when its stores cannot be opened. It starts as others do."""
        spec = item.spec
        assert spec is not None, "a plugin without a usable manifest is only listed in `found`"
        await self.prepare(spec)
        self.protection.add(item)
        self._bindings.add_requested(requested_capabilities([spec]))
        self.adopt(spec)
        fresh = self.replace_supervisor(spec.id)
        if self._admit(spec.id) and self._eager:
            fresh.begin()

    def remove(self, plugin_id: str) -> asyncio.Future[float]:
        """Stop hosting a plugin: new calls do not find it. The future is done when its calls have ended."""
        supervisor = self.calls.supervisors.pop(plugin_id)
        del self._specs[plugin_id]
        self.runtime_exports.forget(plugin_id)
        remove_exports(plugin_id, self.calls.catalog, self._backends.services)
        register_exports(self.calls, self._backends)
        retired = self._leaving[supervisor] = asyncio.ensure_future(supervisor.retire())
        retired.add_done_callback(lambda _: self._leaving.pop(supervisor))
        return retired

    def isolated(self, plugin_id: str) -> Host:
        """A second host, not started, with this plugin only. It trusts the plugin and shares no services."""
        is_declared = plugin_id in self.config.mcp
        only = {plugin_id: self.config.mcp[plugin_id]} if is_declared else {}
        found = [] if is_declared else [item for item in self.found if item.spec and item.spec.id == plugin_id]
        return Host(
            found,
            self.config.model_copy(
                update={"mcp": only, "broker": None, "memory": configuration.MemoryConfig(path=IN_MEMORY)}
            ),
            trusted=(plugin_id,),
            eager=False,
            unconfined=self._options.unconfined,
            log_dir=self._log_dir,
            state_dir=self._state_dir,
            protected=self.protection.everything,
        )

    # Details.

    def _admit(self, plugin_id: str) -> bool:
        """Whether the plugin may run now. The journal notes the grants or the approval that a pending one waits for."""
        refusal = self.refusal(plugin_id)
        if refusal is not None and policy.is_pending(self._specs[plugin_id], self.decisions[plugin_id]):
            text = refusal.message.removeprefix(f"{PENDING}: ")
            self.journal.note(plugin_id, PENDING, text, severity=logging.INFO)  # a request, and no incident
        return refusal is None

    def _supervise(self, spec: PluginSpec, runtime: Runtime) -> Supervisor:
        return self._make_supervisor(self._bindings.bind(spec), runtime)

    def _on_greeting(self, plugin_id: str, hello: Mapping[str, Any]) -> None:
        """A resident instance has greeted."""
        problems = self.calls.catalog.learn(plugin_id, hello.get("tools", ()))
        for text in (*hello.get("warnings", ()), *problems):
            self.journal.note(plugin_id, "greeting", text)
        if "offer" in hello:
            self.runtime_exports.on_greeting(plugin_id, hello)
            self._update(plugin_id)

    def _on_offer_change(self, plugin_id: str, offer: Mapping[str, Any]) -> None:
        """A resident instance has changed its offer."""
        self.runtime_exports.on_change(plugin_id, offer)
        self._update(plugin_id)

    def _update(self, plugin_id: str) -> None:
        spec = self._specs[plugin_id]
        self._specs[plugin_id] = update(self.runtime_exports, spec, self.calls.catalog, self._backends.services)

    def _unknown_exports(self) -> dict[str, Failure | None]:
        """Plugins whose exports are unknown, each with why it may not run, or None."""
        return {each: self.refusal(each) for each in self.runtime_exports.unknown()}


def _absolute(path: str | Path | None) -> Path | None:
    return None if path is None else Path(path).absolute()


INSTALL_TRACING = "pip install 'plugbay[otel]'"


def _calls_type(tracer: Tracer | None) -> Callable[..., Calls]:
    """Makes the `Calls` of a host. OpenTelemetry is imported only for a host with a tracer.

    Raises `PlugbayError` when it is not installed.
    """
    if tracer is None:
        return Calls
    try:
        from opentelemetry.trace import Tracer

        from plugbay.host.calls.tracing import TracedCalls
    except ImportError as error:
        raise PlugbayError(f"traces need the extra otel, for {error.name}; {INSTALL_TRACING}") from None
    if not isinstance(tracer, Tracer):
        raise TypeError(f"tracer must come from opentelemetry.trace.get_tracer(...), not {tracer!r:.100}")
    return functools.partial(TracedCalls, tracer)
