"""`Known`: what is known of a plugin, gathered from everywhere it is known. Looks; words and order are `views`'."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from plugbay.host.admin import operating
from plugbay.host.journal import Note, in_words
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


@dataclass(frozen=True, slots=True)
class Happening:
    """What last happened to a plugin that stays."""

    word: str
    """`started`, `crashed`, `respawning`, …"""
    at: float
    facts: str


@dataclass(frozen=True, slots=True)
class Known:
    """One plugin, with everything a page may tell of it."""

    status: PluginStatus
    since: float
    """When the server began to look."""
    refusal: Failure | None = None
    """Why it may not run."""
    kept: tuple[str, ...] | None = None
    """What plugbay.toml grants it; None: nobody has decided."""
    happened: Happening | None = None
    trouble: str = ""
    """The last that went wrong with it, in words."""
    calls: int = 0
    failures: int = 0
    failed: CallRecord | None = None
    """Its last call that failed."""


class Looks:
    """Looks at all plugins; one look is enough for everybody who watches at the same time."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._since = gateway.clock.now()
        self._looked_at = -math.inf
        self._found: dict[str, Known] = {}

    def plugins(self, age: float = 0.0) -> list[Known]:
        """Every plugin of the host, as it was at most so many seconds ago."""
        now = self._gateway.clock.monotonic()
        if now - self._looked_at >= age:
            counted = tallies(self._gateway.meters.counters.get("calls", {}))
            found = [_known(self._gateway, self._since, status, counted) for status in self._gateway.host.plugins()]
            self._looked_at, self._found = now, {each.status.spec.id: each for each in found}
        return list(self._found.values())

    def plugin(self, plugin_id: str, age: float = 0.0) -> Known:
        """One of them; raises `not_found`."""
        self.plugins(age)
        if plugin_id not in self._found:
            raise not_found("plugin", plugin_id)
        return self._found[plugin_id]


def exports_of(gateway: Gateway, plugin_id: str) -> dict[str, Export]:
    """What a plugin offers, by full name."""
    return {name: each for name, each in gateway.host.exports().items() if name.rpartition("/")[0] == plugin_id}


def _known(gateway: Gateway, since: float, status: PluginStatus, counted: Mapping[str, tuple[int, int]]) -> Known:
    plugin_id = status.spec.id
    section = gateway.host.config.plugins.get(plugin_id)
    kept = None if section is None else section.grants
    calls, failures = counted.get(plugin_id, (0, 0))
    return Known(
        status,
        since,
        operating.refusal(gateway.host, plugin_id),
        None if kept is None else tuple(kept),
        happening(gateway.host_events.lifecycle.get(plugin_id)),
        last_trouble(gateway.host.journal.recent(plugin_id)),
        calls,
        failures,
        gateway.calls.last_failures.get(plugin_id),
    )


def tallies(series: Mapping[Labels, float]) -> dict[str, tuple[int, int]]:
    """Calls and failures of each plugin since the start. A call that was called off is no failure."""
    found: dict[str, tuple[int, int]] = {}
    for key, times in series.items():
        labels = dict(key)
        plugin = labels.get("plugin", "")
        calls, failures = found.get(plugin, (0, 0))
        bad = labels.get("status") in (Outcome.FAILED, Outcome.RETRYABLE_FAILURE)
        found[plugin] = (calls + int(times), failures + (int(times) if bad else 0))
    return found


def happening(event: NumberedEvent | None) -> Happening | None:
    """What a lifecycle event tells."""
    at = None if event is None else moment(event.data["timestamp"])
    if event is None or at is None:
        return None
    facts = {name: value for name, value in event.data["payload"].items() if name != "plugin_id"}
    return Happening(event.topic.rpartition(".")[2], at, in_words(facts))


def last_trouble(notes: Iterable[Note]) -> str:
    """The last remark about something that went wrong; empty without any."""
    told = [f"{note.kind.replace('_', ' ')}: {note.text}" for note in notes if note.kind in TROUBLE]
    return told[-1] if told else ""
