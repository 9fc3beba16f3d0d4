"""`PluginLoader`: collects the state of each plugin for a page from host, journal, events and meters."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

import msgspec

from plugbay.host.journal import Note, describe_facts
from plugbay.host.ports import CallRecord
from plugbay.host.status import PluginStatus
from plugbay.host.supervision.resident import TROUBLE
from plugbay.model.errors import Failure, Outcome
from plugbay.model.spec import Export
from plugbay.server.dashboard.text import moment
from plugbay.server.domain.errors import not_found
from plugbay.server.domain.gateway import Gateway
from plugbay.server.domain.meters import Labels
from plugbay.server.domain.operator_plugins import NumberedEvent


class LifecycleEvent(msgspec.Struct, frozen=True):
    """The last lifecycle event of a resident plugin."""

    word: str
    """`started`, `crashed`, `respawning`, …"""
    at: float
    facts: str


class PluginSnapshot(msgspec.Struct, frozen=True):
    """Everything a page shows of one plugin."""

    status: PluginStatus
    since: float
    """When the server started."""
    refusal: Failure | None = None
    """Why it may not run."""
    kept: tuple[str, ...] | None = None
    """Grants in plugbay.toml; None: not decided yet."""
    happened: LifecycleEvent | None = None
    trouble: str = ""
    """The last problem, as text."""
    calls: int = 0
    failures: int = 0
    failed: CallRecord | None = None
    """Its last call that failed."""


class PluginLoader:
    """Loads all plugins; concurrent streams share a snapshot."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._since = gateway.clock.now()
        self._looked_at = -math.inf
        self._found: dict[str, PluginSnapshot] = {}

    def plugins(self, age: float = 0.0) -> list[PluginSnapshot]:
        """All plugins, at most `age` seconds old."""
        now = self._gateway.clock.monotonic()
        if now - self._looked_at >= age:
            counted = count_calls(self._gateway.meters.counters.get("calls", {}))
            found = [_snapshot(self._gateway, self._since, status, counted) for status in self._gateway.host.plugins()]
            self._looked_at, self._found = now, {each.status.spec.id: each for each in found}
        return list(self._found.values())

    def plugin(self, plugin_id: str, age: float = 0.0) -> PluginSnapshot:
        """One plugin; raises `not_found`."""
        self.plugins(age)
        if plugin_id not in self._found:
            raise not_found("plugin", plugin_id)
        return self._found[plugin_id]


def exports_of(gateway: Gateway, plugin_id: str) -> dict[str, Export]:
    """Exports of a plugin by full name."""
    return {name: each for name, each in gateway.host.exports().items() if name.rpartition("/")[0] == plugin_id}


def _snapshot(
    gateway: Gateway, since: float, status: PluginStatus, counted: Mapping[str, tuple[int, int]]
) -> PluginSnapshot:
    plugin_id = status.spec.id
    section = gateway.host.config.plugins.get(plugin_id)
    kept = None if section is None else section.grants
    calls, failures = counted.get(plugin_id, (0, 0))
    return PluginSnapshot(
        status,
        since,
        gateway.host.refusal(plugin_id),
        None if kept is None else tuple(kept),
        lifecycle_event(gateway.host_events.lifecycle.get(plugin_id)),
        last_trouble(gateway.host.journal.recent(plugin_id)),
        calls,
        failures,
        gateway.calls.last_failures.get(plugin_id),
    )


def count_calls(series: Mapping[Labels, float]) -> dict[str, tuple[int, int]]:
    """Calls and failures of each plugin since the start. A cancelled call is not a failure."""
    found: dict[str, tuple[int, int]] = {}
    for key, times in series.items():
        labels = dict(key)
        plugin = labels.get("plugin", "")
        calls, failures = found.get(plugin, (0, 0))
        bad = labels.get("status") in (Outcome.FAILED, Outcome.RETRYABLE_FAILURE)
        found[plugin] = (calls + int(times), failures + (int(times) if bad else 0))
    return found


def lifecycle_event(event: NumberedEvent | None) -> LifecycleEvent | None:
    """The lifecycle event in a bus event."""
    at = None if event is None else moment(event.data["timestamp"])
    if event is None or at is None:
        return None
    facts = {name: value for name, value in event.data["payload"].items() if name != "plugin_id"}
    return LifecycleEvent(event.topic.rpartition(".")[2], at, describe_facts(facts))


def last_trouble(notes: Iterable[Note]) -> str:
    """The last note about a problem; empty if there is none."""
    texts = [f"{note.kind.replace('_', ' ')}: {note.text}" for note in notes if note.kind in TROUBLE]
    return texts[-1] if texts else ""
