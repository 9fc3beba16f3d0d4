"""The status of each plugin for operators: its spec, grants, state, confinement and counters."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

import msgspec
from msgspec.structs import replace

from plugbay.host.authorization import policy
from plugbay.host.bindings import Bindings
from plugbay.host.catalog.runtime_exports import declares_at_run_time
from plugbay.host.confinement.policy import Confinement
from plugbay.host.journal import Journal
from plugbay.host.supervision.supervisor import Supervisor
from plugbay.model.lifecycle import PENDING
from plugbay.model.spec import PluginSpec
from plugbay.process.child import Child


class PluginStatus(msgspec.Struct, frozen=True):
    """The status of one plugin."""

    spec: PluginSpec
    state: str
    granted: tuple[str, ...]
    busy: int
    ready: int
    pid: int | None = None
    generation: int = 0
    counters: Mapping[str, int] = msgspec.field(default_factory=dict)
    """Counters of events that failed no call: noise, refused publishes, dropped events."""
    confinement: Confinement = msgspec.field(default_factory=Confinement)
    """How it is confined, or why it is not."""
    limits: str = ""
    """Enforcement of its resource limits: `full`, `full (v1)`, `degraded`; empty while no process is confined."""
    disabled: tuple[str, ...] = ()
    """Names of its exports that are not approved."""
    missing: tuple[str, ...] = ()
    """Requested capabilities that a pending plugin waits for."""

    @property
    def needs_approval(self) -> bool:
        """Whether the plugin declares its exports at run time, so that they need an approval."""
        return declares_at_run_time(self.spec)


def statuses(
    specs: Iterable[PluginSpec],
    supervisors: Mapping[str, Supervisor],
    bindings: Bindings,
    journal: Journal,
    processes: Iterable[Child],
) -> list[PluginStatus]:
    """The status of each of these plugins."""
    limits = {process.label: process.limits_state for process in processes}
    plugins = [(spec, supervisors.get(spec.id), journal.counts(spec.id)) for spec in specs]
    return [replace(plugin_status(*each, bindings), limits=limits.get(each[0].id, "")) for each in plugins]


def plugin_status(
    spec: PluginSpec, supervisor: Supervisor | None, counts: Mapping[str, int], bindings: Bindings
) -> PluginStatus:
    """The status of a plugin. Without a supervisor its host is not running, and its confinement is only planned."""
    decision = bindings.decide(spec.id)
    granted = policy.effective(spec, decision)
    if supervisor is None:
        planned = bindings.confinement(spec)
        return PluginStatus(spec, "stopped", granted, 0, 0, counters=dict(counts), confinement=planned)
    return PluginStatus(
        spec,
        PENDING if policy.is_pending(spec, decision) else supervisor.state,
        granted,
        supervisor.busy,
        supervisor.ready,
        supervisor.pid,
        supervisor.generation,
        dict(Counter(counts) + Counter(supervisor.counters)),
        supervisor.binding.confinement,
        missing=policy.missing(spec, decision),
    )
