"""`PerOrgSupervisor`: instances by the execution class of the invoked export.

    isolated    a new instance for each invocation
    worker      one instance for all invocations of an org with the same access, ended when it is idle for long
    inline      as worker; the host's own org has one that is started ahead of time and stays

An instance never serves two orgs, and a confined one serves only exports with the same access: it has the network and
the scratch folder only if the export that it serves has them. A worker that left a call unanswered is replaced.
"""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict
from typing import TYPE_CHECKING, Any, NamedTuple

from msgspec.structs import replace

from plugbay.host.limits import ConcurrencyLimit
from plugbay.host.ports import DEFAULT_ORG
from plugbay.host.supervision.binding import Binding
from plugbay.host.supervision.instance import Deadline, Runtime
from plugbay.host.supervision.per_call import PerCallLease, PerCallSupervisor
from plugbay.host.supervision.resident import ResidentSupervisor
from plugbay.model.errors import Failure
from plugbay.model.lifecycle import State
from plugbay.model.spec import Export, PluginSpec

if TYPE_CHECKING:
    from plugbay.model.operations import PluginOp

INLINE, ISOLATED = "inline", "isolated"

IDLE_SECONDS = 300.0
"""A worker without calls for so long is ended; the next invocation starts another."""

MAX_WORKERS = 64
"""Workers of one plugin. The least recently used idle one is ended first. If all are busy, invocations of a further org
get an instance each, within the plugin's concurrency."""

_BY_RANK = (State.RUNNING, State.SPAWNING, State.BACKOFF, State.SHUTTING_DOWN, State.QUARANTINED, State.IDLE)
"""The state of the plugin is the first of these that one of its supervisors is in."""


def has_execution_class(export: Export) -> bool:
    """Whether the export has an execution class, so its calls are invocations."""
    return "execution_class" in export.facts


def has_execution_classes(spec: PluginSpec) -> bool:
    """Whether the exports of a plugin have execution classes; then all of them do."""
    return any(has_execution_class(export) for export in spec.exports)


class WorkerKey(NamedTuple):
    """The invocations that a worker serves."""

    org: str
    share: frozenset[str]
    """The access of their exports (`Binding.share`)."""


class Worker(ResidentSupervisor):
    """The instance of one org, for exports with the same access."""

    def __init__(self, binding: Binding, runtime: Runtime, supervisor: PerOrgSupervisor, key: WorkerKey) -> None:
        super().__init__(binding, runtime)
        self._supervisor = supervisor
        self._key = key

    def on_abandoned(self) -> None:
        self._supervisor.replace(self._key, self)


class PerOrgSupervisor:
    """All instances of one plugin, for all orgs."""

    def __init__(self, binding: Binding, runtime: Runtime) -> None:
        self.binding = binding
        self._runtime = runtime
        exports = [export for export in binding.spec.exports if has_execution_class(export)]
        self._concurrency = ConcurrencyLimit(binding.concurrency)
        self._isolated = {
            share: PerCallSupervisor(binding.narrow(share), runtime, concurrency=self._concurrency)
            for share in dict.fromkeys(map(binding.share, exports))
        }
        self._workers: OrderedDict[WorkerKey, Worker] = OrderedDict()
        """Least recently used first."""
        self._leaving: set[asyncio.Task[Any]] = set()
        self._past_generations = 0
        self._stopped = False
        self._inline = [export for export in exports if export.facts["execution_class"] == INLINE]
        self._pooled = {binding.share(export) for export in exports if export.facts["execution_class"] == ISOLATED}

    # Workers.

    def for_export(self, execution_class: str, org: str, export: Export) -> PerCallSupervisor | Worker:
        """The supervisor that leases instances for invocations of this export, in this class and for this org."""
        key = WorkerKey(org, self.binding.share(export))
        if execution_class == ISOLATED or self._stopped:
            return self._isolated[key.share]
        worker = self._workers.get(key)
        if worker is None:
            self._evict_idle()
            if len(self._workers) >= MAX_WORKERS:
                return self._isolated[key.share]
            worker = self._workers[key] = Worker(self._worker_binding(key), self._runtime, self, key)
        self._workers.move_to_end(key)
        return worker

    def _worker_binding(self, key: WorkerKey) -> Binding:
        """The binding of a worker: an inline one of the host's own org stays, all others end when they are idle."""
        binding = self.binding.narrow(key.share)
        inline = any(self.binding.share(export) == key.share for export in self._inline)
        if inline and key.org == DEFAULT_ORG:
            return replace(binding, spec=replace(binding.spec, eager=True))
        return replace(binding, spec=replace(binding.spec, idle_seconds=IDLE_SECONDS))

    def replace(self, key: WorkerKey, worker: Worker) -> None:
        """Retire a worker that does not answer, after its other calls. The next call gets a new one."""
        if self._workers.get(key) is worker:
            del self._workers[key]
            text = f"its instance for {key.org} did not answer in time; it is replaced after its other calls"
            self._runtime.services.journal.note(self.binding.spec.id, "replaced", text)
            self._retire(worker)

    def _evict_idle(self) -> None:
        """Make room for one more worker by retiring idle ones. Busy workers stay."""
        idle = [key for key, worker in self._workers.items() if not worker.busy]
        for key in idle[: max(0, len(self._workers) + 1 - MAX_WORKERS)]:
            self._retire(self._workers.pop(key))

    def _retire(self, worker: Worker) -> None:
        self._past_generations += worker.generation
        task = asyncio.get_running_loop().create_task(worker.retire())
        self._leaving.add(task)
        task.add_done_callback(self._leaving.discard)

    # Status.

    @property
    def _all(self) -> list[PerCallSupervisor | Worker]:
        return [*self._isolated.values(), *self._workers.values()]

    @property
    def state(self) -> State:
        states = {supervisor.state for supervisor in self._all}
        return next((state for state in _BY_RANK if state in states), State.STOPPED)

    @property
    def generation(self) -> int:
        return self._past_generations + sum(supervisor.generation for supervisor in self._all)

    @property
    def busy(self) -> int:
        return sum(supervisor.busy for supervisor in self._all)

    @property
    def ready(self) -> int:
        return sum(supervisor.ready for supervisor in self._all)

    @property
    def pid(self) -> int | None:
        """Of the only worker; None if there are none or several."""
        pids = [pid for worker in self._workers.values() if (pid := worker.pid) is not None]
        return pids[0] if len(pids) == 1 else None

    @property
    def starting(self) -> asyncio.Future[Any] | None:
        """Done when every start in progress has ended."""
        starts = [item.starting for item in self._all if item.starting is not None]
        return asyncio.gather(*starts, return_exceptions=True) if starts else None

    @property
    def counters(self) -> dict[str, int]:
        total: Counter[str] = Counter()
        for supervisor in self._all:
            total.update(supervisor.counters)
        return dict(total)

    # The rest of `Supervisor`.

    def begin(self, after: asyncio.Future[float] | None = None) -> None:
        """Start pooled instances and inline workers. Instances of a predecessor may still be busy meanwhile."""
        for share in self._pooled:
            self._isolated[share].begin()
        for export in self._inline:
            self.for_export(INLINE, DEFAULT_ORG, export).begin()

    def try_lease(self) -> PerCallLease | None:
        return None

    async def lease(self, deadline: Deadline) -> PerCallLease | Failure:
        """An isolated instance, for checks that one starts; invocations call `for_export` first."""
        return await next(iter(self._isolated.values())).lease(deadline)

    def notify(self, op: PluginOp) -> bool:
        """False: there is no single instance to notify."""
        return False

    def mark_shown(self) -> None:
        """Nothing to do: such plugins have no screens."""

    async def retire(self) -> float:
        await asyncio.gather(self._concurrency.drain(), *(worker.retire() for worker in self._workers.values()))
        await self.stop()
        return 0.0

    async def stop(self) -> None:
        self._stopped = True
        await asyncio.gather(*(supervisor.stop() for supervisor in self._all))
        if self._leaving:
            await asyncio.wait(self._leaving)
