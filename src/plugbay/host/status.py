"""One plugin as an operator sees it: what it is, what it may, what it is doing, what happened. Decides nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from plugbay.host import policy
from plugbay.host.policy import Decision
from plugbay.host.supervisor import Supervisor
from plugbay.model.spec import PluginSpec


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


def status_of(
    spec: PluginSpec, supervisor: Supervisor | None, decision: Decision, counts: Mapping[str, int]
) -> PluginStatus:
    """The status of a plugin; without a supervisor, its host is not running."""
    granted = policy.effective(spec, decision)
    if supervisor is None:
        return PluginStatus(spec, "stopped", granted, 0, 0, counters=dict(counts))
    return PluginStatus(
        spec,
        supervisor.state,
        granted,
        supervisor.busy,
        supervisor.ready,
        supervisor.pid,
        supervisor.generation,
        dict(Counter(counts) + Counter(supervisor.counters)),
    )
