"""`Fleet`: a plugin whose exports say how much apart from others their work is to be done.

    isolated    a fresh child for each invocation
    worker      one child for all invocations of an org with the same access, gone when it is idle for long
    inline      as worker, and the host's own org has one ready before anybody asks

One org's child never serves another org, and a confined child serves only exports that ask for the same access: it has
the network and the scratch directory exactly when the export that it serves has them. Owns which child serves whom, how
many idle ones are kept, and that a child which left a call without an answer serves nobody new. How children live is
their supervisors' business.
"""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from plugbay.host.limits import Turns
from plugbay.host.ports import DEFAULT_ORG
from plugbay.host.supervision.instance import Binding, Deadline, Runtime
from plugbay.host.supervision.per_call import PerCallLease, PerCallSupervisor
from plugbay.host.supervision.resident import ResidentSupervisor
from plugbay.model.errors import Failure
from plugbay.model.lifecycle import State
from plugbay.model.spec import Export, PluginSpec

if TYPE_CHECKING:
    from plugbay.model.operations import PluginOp

INLINE, ISOLATED = "inline", "isolated"

IDLE_SECONDS = 300.0
"""A worker that nobody needs for so long goes; the next invocation starts another."""

MAX_WORKERS = 64
"""Workers of one plugin; the one that was used longest ago goes first, if it is idle. Where all are busy, an org more
has a child for its invocation alone, of which there are as many as the plugin's concurrency."""

_BY_RANK = (State.RUNNING, State.SPAWNING, State.BACKOFF, State.SHUTTING_DOWN, State.QUARANTINED, State.IDLE)
"""Which of its workers' states a fleet shows: the first of these that one of them is in."""


def has_class(export: Export) -> bool:
    """Whether the export's work is done in invocations: it says how much apart from others."""
    return "execution_class" in export.facts


def has_classes(spec: PluginSpec) -> bool:
    """Whether a plugin has such exports; then all of them are."""
    return any(has_class(export) for export in spec.exports)


class Served(NamedTuple):
    """Whom a worker serves."""

    org: str
    share: frozenset[str]
    """The access of the exports (`Binding.share`)."""


class Worker(ResidentSupervisor):
    """The child of one org, for exports with the same access."""

    def __init__(self, binding: Binding, runtime: Runtime, fleet: Fleet, served: Served) -> None:
        super().__init__(binding, runtime)
        self._fleet = fleet
        self._served = served

    def forsaken(self) -> None:
        self._fleet.replace(self._served, self)


class Fleet:
    """All children of one plugin, for all orgs."""

    def __init__(self, binding: Binding, runtime: Runtime) -> None:
        self.binding = binding
        self._runtime = runtime
        exports = [export for export in binding.spec.exports if has_class(export)]
        self._turns = Turns(binding.concurrency)
        self._isolated = {
            share: PerCallSupervisor(binding.serving(share), runtime, turns=self._turns)
            for share in dict.fromkeys(map(binding.share, exports))
        }
        self._workers: OrderedDict[Served, Worker] = OrderedDict()
        """The one that was used longest ago first."""
        self._leaving: set[asyncio.Task[Any]] = set()
        self._past = 0
        self._stopped = False
        self._inline = [export for export in exports if export.facts["execution_class"] == INLINE]
        self._pooled = {binding.share(export) for export in exports if export.facts["execution_class"] == ISOLATED}

    # Who serves whom.

    def serving(self, execution_class: str, org: str, export: Export) -> PerCallSupervisor | Worker:
        """Who gives out children for an invocation of this export, in this class and for this org."""
        served = Served(org, self.binding.share(export))
        if execution_class == ISOLATED or self._stopped:
            return self._isolated[served.share]
        worker = self._workers.get(served)
        if worker is None:
            self._thin_out()
            if len(self._workers) >= MAX_WORKERS:
                return self._isolated[served.share]
            worker = self._workers[served] = Worker(self._staying(served), self._runtime, self, served)
        self._workers.move_to_end(served)
        return worker

    def _staying(self, served: Served) -> Binding:
        """How a worker is bound: an inline one of the host's own org stays, all others go when they are idle."""
        binding = self.binding.serving(served.share)
        inline = any(self.binding.share(export) == served.share for export in self._inline)
        if inline and served.org == DEFAULT_ORG:
            return replace(binding, spec=replace(binding.spec, eager=True))
        return replace(binding, spec=replace(binding.spec, idle_seconds=IDLE_SECONDS))

    def replace(self, served: Served, worker: Worker) -> None:
        """This worker does not answer: it finishes what it has begun for others and goes. The next one gets another."""
        if self._workers.get(served) is worker:
            del self._workers[served]
            text = f"its child for {served.org} did not answer in time; it is replaced when its other work is done"
            self._runtime.services.journal.note(self.binding.spec.id, "replaced", text)
            self._let_go(worker)

    def _thin_out(self) -> None:
        """Make room for one more, if one of them is idle. Busy workers stay."""
        idle = [served for served, worker in self._workers.items() if not worker.busy]
        for served in idle[: max(0, len(self._workers) + 1 - MAX_WORKERS)]:
            self._let_go(self._workers.pop(served))

    def _let_go(self, worker: Worker) -> None:
        self._past += worker.generation
        task = asyncio.get_running_loop().create_task(worker.retire())
        self._leaving.add(task)
        task.add_done_callback(self._leaving.discard)

    # What an operator sees.

    @property
    def _all(self) -> list[PerCallSupervisor | Worker]:
        return [*self._isolated.values(), *self._workers.values()]

    @property
    def state(self) -> State:
        states = {supervisor.state for supervisor in self._all}
        return next((state for state in _BY_RANK if state in states), State.STOPPED)

    @property
    def generation(self) -> int:
        return self._past + sum(supervisor.generation for supervisor in self._all)

    @property
    def busy(self) -> int:
        return sum(supervisor.busy for supervisor in self._all)

    @property
    def ready(self) -> int:
        return sum(supervisor.ready for supervisor in self._all)

    @property
    def pid(self) -> int | None:
        """Of the only child, where there is just one that stays."""
        pids = [pid for worker in self._workers.values() if (pid := worker.pid) is not None]
        return pids[0] if len(pids) == 1 else None

    @property
    def starting(self) -> asyncio.Future[Any] | None:
        """Done when every start that is under way has ended."""
        starts = [item.starting for item in self._all if item.starting is not None]
        return asyncio.gather(*starts, return_exceptions=True) if starts else None

    @property
    def counters(self) -> dict[str, int]:
        total: Counter[str] = Counter()
        for supervisor in self._all:
            total.update(supervisor.counters)
        return dict(total)

    # A supervisor like any other.

    def begin(self, after: asyncio.Future[float] | None = None) -> None:
        """Have ready what should be ready ahead of time; children of a predecessor may still be busy meanwhile."""
        for share in self._pooled:
            self._isolated[share].begin()
        for export in self._inline:
            self.serving(INLINE, DEFAULT_ORG, export).begin()

    def at_once(self) -> PerCallLease | None:
        return None

    async def lease(self, deadline: Deadline) -> PerCallLease | Failure:
        """A child of its own, for those who want to see that one starts; invocations ask `serving` first."""
        return await next(iter(self._isolated.values())).lease(deadline)

    def tell(self, op: PluginOp) -> bool:
        """False: there is no one child to tell."""
        return False

    def shown(self) -> None:
        """Nothing to do: there is nothing to look at."""

    async def retire(self) -> float:
        await asyncio.gather(self._turns.drain(), *(worker.retire() for worker in self._workers.values()))
        await self.stop()
        return 0.0

    async def stop(self) -> None:
        self._stopped = True
        await asyncio.gather(*(supervisor.stop() for supervisor in self._all))
        if self._leaving:
            await asyncio.wait(self._leaving)
