"""`Host`: the one page that tells the story of a call — resolve, authorize, lease, call, conclude, record.

    async with Host.load("plugins/", config="plugbay.toml") as host:
        forecast = await host.call("weather_forecast", {"city": "Lima"}, timeout=5)

Owns the public API and the order of its steps; every step is somebody else's. Works from any task, any loop and any
thread: a call from another loop is carried to the loop the host was started on. `SyncHost` is the same without a loop.
"""

from __future__ import annotations

import asyncio
import difflib
import os
import time
from collections.abc import Coroutine, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from plugbay.host import config as configuration
from plugbay.host import policy
from plugbay.host.call_log import MemoryCallLog
from plugbay.host.catalog import Catalog, Entry
from plugbay.host.discovery import Found, discover
from plugbay.host.policy import Decision
from plugbay.host.ports import CallLog, CallRecord, Trace
from plugbay.host.seat import Binding, Deadline, Runtime
from plugbay.host.supervisor import Supervisor
from plugbay.link.deadlines import Deadlines
from plugbay.model.errors import CallFailed, Code, Failure, ManifestInvalid, PlugbayError
from plugbay.model.events import CallFinished
from plugbay.model.ids import CALL_ID_BYTES, call_id
from plugbay.model.operations import InvokeTool
from plugbay.model.spec import Export, PluginSpec
from plugbay.process.child import Spawner
from plugbay.wire.fast_json import MsgspecCodec
from plugbay.wire.strict_json import Unencodable

T = TypeVar("T")

MAX_INPUT = 60 << 20
"""Bytes of one input: with the message around it, less than the 64 MiB a plugin must be ready to buffer."""

LONGEST_CALL = 3600.0
"""Seconds; no caller may wait longer, whatever it asks for."""


@dataclass(frozen=True, slots=True)
class CallResult:
    """How one call ended. `output` is JSON bytes; `value()` decodes them."""

    record: CallRecord
    output: Any
    codec: MsgspecCodec

    @property
    def failure(self) -> Failure | None:
        return self.record.failure

    def value(self) -> Any:
        """The output as Python values; None when there is none."""
        return None if self.output is None else self.codec.load(self.output)


@dataclass(frozen=True, slots=True)
class PluginStatus:
    """One plugin as an operator sees it."""

    spec: PluginSpec
    state: str
    granted: tuple[str, ...]
    busy: int
    ready: int


class Host:
    """Every plugin of some folders, callable by name."""

    def __init__(
        self,
        found: Iterable[Found],
        config: configuration.Config | None = None,
        *,
        grants: Iterable[str] = (),
        grant_all: bool = False,
        call_log: CallLog | None = None,
        log_dir: Path | None = None,
        trace: Trace | None = None,
    ) -> None:
        self.found = list(found)
        self.config = config or configuration.Config()
        self.call_log: CallLog = call_log or MemoryCallLog()
        self._extra_grants = frozenset([grants] if isinstance(grants, str) else grants)
        self._grant_all = grant_all
        self._trace = trace
        self._log_dir = log_dir or (Path(self.config.host.log_dir) if self.config.host.log_dir else None)
        self._codec = MsgspecCodec()
        self._specs = {item.spec.id: item.spec for item in self.found if item.spec}
        self._decisions = {plugin_id: self._decide(plugin_id) for plugin_id in self._specs}
        self._catalog = Catalog(self._specs.values())
        self._supervisors: dict[str, Supervisor] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._runtime: Runtime | None = None
        self._stopping: asyncio.Future[None] | None = None

    @classmethod
    def load(cls, *paths: str | Path, config: str | Path | None = None, **options: Any) -> Self:
        """A host for every plugin in `paths`: plugin folders, or folders of plugin folders.

        A broken plugin in a folder of plugins is left out and listed in `problems`; one that was named itself, or a
        path that is not there, raises `ManifestInvalid`.
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
        """Bind to the running loop. Children start when they are first needed, or now where a pool asks for it."""
        if self._runtime is not None:
            raise PlugbayError("this host has been started already")
        self._loop = asyncio.get_running_loop()
        self._runtime = Runtime(Spawner(self._log_dir, clean_up=True), Deadlines(self._loop), self._codec, self._trace)
        self._supervisors = {spec.id: self._supervise(spec, self._runtime) for spec in self._specs.values()}
        for supervisor in self._supervisors.values():
            supervisor.pool.fill()

    async def stop(self) -> None:
        """Kill every child, wait until nothing of them is left, and let go of the loop."""
        if self._runtime is not None:
            runtime, self._runtime = self._runtime, None
            self._stopping = asyncio.ensure_future(self._carry(self._shut_down(runtime)))
        if self._stopping is not None and self._stopping.get_loop() is asyncio.get_running_loop():
            await asyncio.shield(self._stopping)

    async def _shut_down(self, runtime: Runtime) -> None:
        """To the end, even when whoever asked for it is cancelled: otherwise children would stay."""
        await asyncio.gather(*(supervisor.stop() for supervisor in self._supervisors.values()))
        await runtime.spawner.close()
        runtime.deadlines.close()

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
        if result.failure is not None:
            raise CallFailed(result.failure, result.record.call_id)
        return result.value()

    async def attempt(
        self,
        name: str,
        input: Any = None,
        *,
        timeout: float | None = None,
        context: Mapping[str, Any] | None = None,
    ) -> CallResult:
        """Call an export and return how it ended; a failure is a value here."""
        return await self._carry(self._attempt(name, {} if input is None else input, timeout, context or {}))

    async def _attempt(self, name: str, input: Any, timeout: float | None, context: Mapping[str, Any]) -> CallResult:
        started_at, began = time.time(), time.monotonic()
        self._step("host.call")
        self._step("catalog.resolve")
        entry = self._catalog.resolve(name)
        finished = CallFinished(0, None, entry if isinstance(entry, Failure) else None)
        try:
            if isinstance(entry, Entry):
                finished = await self._run(entry, input, timeout, context)
        except Exception as error:
            finished = CallFinished(0, None, Failure(Code.INTERNAL, f"a bug in plugbay: {error!r}"))
        except BaseException:
            finished = CallFinished(0, None, _cancelled(entry))
            raise
        finally:
            record = self._record(name, entry, started_at, (time.monotonic() - began) * 1000, finished.failure)
            self._step("host.call.finished")
        return CallResult(record, finished.value, self._codec)

    async def _run(self, entry: Entry, input: Any, timeout: float | None, context: Mapping[str, Any]) -> CallFinished:
        """The story: judge what is asked, lease a child, ask it, see it off."""
        op = self._judge(entry, input, context)
        if isinstance(op, Failure):
            return CallFinished(0, None, op)
        supervisor = self._supervisors[entry.spec.id]
        patience = supervisor.binding.spec.timeouts.call if timeout is None else timeout
        deadline = Deadline(min(patience, LONGEST_CALL))
        lease = await supervisor.lease(deadline)
        if isinstance(lease, Failure):
            return CallFinished(0, None, lease)
        try:
            answer = await lease.link.call(op, deadline.left())
            return await lease.conclude(answer, deadline)
        finally:
            lease.release()

    def _judge(self, entry: Entry, input: Any, context: Mapping[str, Any]) -> InvokeTool | Failure:
        """What to ask the plugin, or why nothing is asked. Starts nothing."""
        self._step("policy.authorize")
        refusal = policy.authorize(entry.spec, entry.export, self._decisions[entry.spec.id])
        if refusal is not None:
            return refusal
        try:
            payload = self._codec.dump(input)
        except Unencodable as error:
            return Failure(Code.INVALID_INPUT, f"the input is not JSON: {error}")
        refusal = entry.check_input(payload, self._codec)
        if refusal is not None:
            return refusal
        if self._runtime is None or self._loop is not asyncio.get_running_loop():
            return Failure(Code.UNAVAILABLE, "the host is not running; start it, or use `async with`")
        if memoryview(payload).nbytes > MAX_INPUT:
            return Failure(Code.FRAME_TOO_LARGE, f"the input has more than {MAX_INPUT:,} bytes")
        return InvokeTool(entry.export.name, payload, context)

    def _record(
        self,
        name: str,
        entry: Entry | Failure,
        started_at: float,
        duration_ms: float,
        failure: Failure | None,
    ) -> CallRecord:
        spec = entry.spec if isinstance(entry, Entry) else None
        record = CallRecord(
            call_id=call_id(os.urandom(CALL_ID_BYTES)),
            plugin=spec.id if spec else "",
            version=spec.version if spec else "",
            contract=spec.contract if spec else "",
            export=entry.export.name if isinstance(entry, Entry) else name,
            started_at=started_at,
            duration_ms=round(duration_ms, 3),
            failure=failure.with_detail(spec.id) if failure and spec else failure,
        )
        self.call_log.finished(record)
        return record

    async def _carry(self, work: Coroutine[Any, Any, T]) -> T:
        """Run `work` on the host's own loop, whichever loop asks."""
        if self._loop is None or self._loop is asyncio.get_running_loop() or not self._loop.is_running():
            return await work
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._loop))

    # Looking.

    def exports(self) -> dict[str, Export]:
        """Every export by its full name."""
        return {entry.full_name: entry.export for entry in self._catalog.entries()}

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
        supervisor = self._supervisors.get(plugin_id)
        if supervisor is None or self._runtime is None:
            raise CallFailed(Failure(Code.NOT_FOUND, f"no running plugin is called {plugin_id!r}"))
        await self._carry(self._replace(plugin_id, supervisor, self._runtime))

    async def _replace(self, plugin_id: str, old: Supervisor, runtime: Runtime) -> None:
        """The successor is in place before the first await, so nobody meets a plugin that is neither."""
        if self._supervisors[plugin_id] is not old:
            return
        self._supervisors[plugin_id] = fresh = self._supervise(old.binding.spec, runtime)
        fresh.pool.fill()
        await old.retire()

    # Details.

    def _decide(self, plugin_id: str) -> Decision:
        decision = self.config.plugin(plugin_id).decision()
        if self._grant_all:
            return replace(decision, grant_all=True)
        if self._extra_grants:
            return replace(decision, grants=(decision.grants or frozenset()) | self._extra_grants)
        return decision

    def _supervise(self, spec: PluginSpec, runtime: Runtime) -> Supervisor:
        settings = self.config.plugin(spec.id)
        bound = replace(spec, timeouts=settings.timeouts.over(spec.timeouts))
        binding = Binding(
            spec=bound,
            granted=policy.effective(spec, self._decisions[spec.id]),
            env=tuple(settings.env.items()),
            inherit_env=tuple(settings.inherit_env),
            pool=settings.pool,
            concurrency=settings.concurrency,
        )
        return Supervisor(binding, runtime)

    def _status(self, spec: PluginSpec) -> PluginStatus:
        supervisor = self._supervisors.get(spec.id)
        granted = policy.effective(spec, self._decisions[spec.id])
        if supervisor is None:
            return PluginStatus(spec, "stopped", granted, 0, 0)
        return PluginStatus(spec, supervisor.state, granted, supervisor.busy, len(supervisor.pool))

    def _step(self, name: str) -> None:
        if self._trace is not None:
            self._trace(name)


def _cancelled(entry: Entry | Failure) -> Failure:
    """How a call ends whose caller went away: contracts differ in the word for it."""
    as_timeout = isinstance(entry, Entry) and entry.spec.cancelled_is_timeout
    return Failure(Code.TIMEOUT if as_timeout else Code.CANCELLED, "the caller cancelled the call")
