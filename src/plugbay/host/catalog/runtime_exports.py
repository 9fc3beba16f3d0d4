"""`Offers`: what plugins offer that say so themselves, at their greeting and whenever it changes, as far as that is
approved.

Owns which exports such a plugin has: those of its approval until it has spoken, then those it still offers exactly as
they were approved. What is new or changed is barred until it is approved, what is gone is gone. A host that approves
everything for one run takes every word as it comes. Refuses to know how plugins are started and called.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from plugbay.contracts.mcp.offers import exports_of, wished_name
from plugbay.host.catalog.approvals import PARTS, Change, Offer, Pin, Pins, changes, definitions, instructed, launch_of
from plugbay.host.catalog.catalog import Catalog
from plugbay.host.inbound.handler import Services
from plugbay.host.stamps import utc_now
from plugbay.host.supervision.protocol_cache import ProtocolCache
from plugbay.model.errors import Code, ConfigInvalid, Failure, Origin
from plugbay.model.spec import Export, PluginSpec

TELLERS = {"mcp": exports_of}
"""Contracts that leave to the plugin what it offers: by name, how its word becomes exports and warnings."""

CHANGED = "plugin.catalog.changed"
"""The topic of the event that the exports of a plugin are not what they were."""

SOURCE = "plugin.catalog"

MAX_VERSION = 100
"""Characters of a server's word for its version, which goes into the record of each call."""

RUNS_ANOTHER = "its command, its folder or its variables are not those that were approved"

FIELDS = frozenset(
    "name title description inputSchema outputSchema annotations icons execution uri uriTemplate mimeType size "
    "arguments _meta".split()
)
"""What a definition may say. Any other key is a server's own word, which may be meant for a model to read."""


def tells(spec: PluginSpec) -> bool:
    """Whether only the plugin itself knows what it offers, so that it has to be approved."""
    return spec.contract in TELLERS


class Offers:
    """What is known, and what is approved, of every plugin that says itself what it offers."""

    def __init__(self, pins: Pins, protocol_cache: ProtocolCache, trusts: Callable[[str], bool]) -> None:
        """`trusts` says whose every word is approved, for as long as this host lives."""
        self._pins = pins
        self._protocol_cache = protocol_cache
        self._trusts = trusts
        self._tellers: dict[str, str] = {}
        """By plugin: what is run, as approvals name it."""
        self._approved: dict[str, Pin] = {}
        self._stamps: dict[str, tuple[int, int, int] | None] = {}
        """By plugin: which approval was read last."""
        self._told: dict[str, Mapping[str, Any]] = {}
        """By plugin: the greeting of its last child, with what it offers now."""
        self._drifted: dict[str, list[Change]] = {}
        self.problems: dict[str, str] = {}
        """By plugin: why an approval that is there cannot be used."""

    def learn(self, specs: Iterable[PluginSpec]) -> dict[str, PluginSpec]:
        """All these plugins by id, those that are approved with what was approved."""
        return {spec.id: self._known(spec) if tells(spec) else spec for spec in specs}

    def forget(self, plugin_id: str) -> None:
        """Another program stands in the plugin's place: nothing that the one before has said holds for it."""
        for known in (self._tellers, self._approved, self._stamps, self._told, self._drifted, self.problems):
            known.pop(plugin_id, None)

    def _known(self, spec: PluginSpec) -> PluginSpec:
        self._tellers[spec.id] = launch_of(spec)
        pin = self._read(spec.id)
        if pin is None:
            return spec
        return replace(spec, exports=_exports(spec, pin.offer)[0], version=_version(spec, pin.server))

    def _read(self, plugin_id: str) -> Pin | None:
        """What is approved of a plugin now: an operator may approve more, or nothing any more, while we run."""
        stamp = self._pins.stamp(plugin_id)
        if plugin_id in self._stamps and self._stamps[plugin_id] == stamp:
            return self._approved.get(plugin_id)
        self._stamps[plugin_id] = stamp
        self._approved.pop(plugin_id, None)
        self.problems.pop(plugin_id, None)
        try:
            pin = self._pins.load(plugin_id)
        except ConfigInvalid as error:
            self.problems[plugin_id] = str(error)
            return None
        if pin is None:
            return None
        if pin.launch not in ("", self._tellers[plugin_id]):
            self.problems[plugin_id] = RUNS_ANOTHER
            return None
        self._approved[plugin_id] = pin
        return pin

    def approved(self, plugin_id: str) -> bool:
        """Whether the plugin may run as far as this is concerned: others need no approval."""
        return plugin_id not in self._tellers or plugin_id in self._approved or self._trusts(plugin_id)

    def unknown(self) -> list[str]:
        """The plugins of which nobody knows yet what they offer."""
        return [each for each in self._tellers if each not in self._approved and each not in self._told]

    def pin(self, plugin_id: str) -> Pin | None:
        """What was approved of a plugin."""
        return self._approved.get(plugin_id)

    def hello(self, plugin_id: str) -> Mapping[str, Any] | None:
        """What a plugin said of itself in its last greeting, with what it offers now; None before that."""
        return self._told.get(plugin_id)

    def drift(self, plugin_id: str) -> list[Change]:
        """How what a plugin offers differs from what was approved; nothing before it has spoken."""
        return list(self._drifted.get(plugin_id, ()))

    def candidate(self, plugin_id: str) -> Pin:
        """The approval of everything that the plugin offers now, for whoever decides on it."""
        hello = self._told[plugin_id]
        program, server = self._protocol_cache.program(plugin_id), hello.get("server") or {}
        launch = self._tellers[plugin_id]
        return Pin(hello["offer"], str(hello.get("era", "")), program, server, utc_now(), launch)

    def approve(self, plugin_id: str, pin: Pin) -> None:
        """Keep an approval; raises `ConfigInvalid`. Whoever has the plugin learn again takes it over."""
        self._pins.save(plugin_id, pin)

    # What plugins say.

    def greeted(self, plugin_id: str, hello: Mapping[str, Any]) -> None:
        """A child has said what it is."""
        self._told[plugin_id] = dict(hello)
        if "era" in hello:
            self._protocol_cache.learn(plugin_id, hello["era"])

    def offered(self, plugin_id: str, offer: Offer) -> None:
        """A child offers something else from now on."""
        self._told[plugin_id] = {**self._told.get(plugin_id, {}), "offer": offer}

    def judged(self, spec: PluginSpec) -> tuple[PluginSpec, dict[str, Failure], list[str]]:
        """The plugin with what it offers and may, what else it has by name and why that is barred, and warnings."""
        hello = self._told[spec.id]
        offer: Offer = hello["offer"]
        server = hello.get("server") or {}
        spec = replace(spec, version=_version(spec, server))
        pin = self._read(spec.id)
        drift = [] if pin is None else [*changes(pin.offer, offer), *instructed(pin.server, server)]
        self._drifted[spec.id] = drift
        if self._trusts(spec.id):
            everything, warnings = _exports(spec, offer)
            return replace(spec, exports=everything), {}, warnings
        if pin is None:
            return replace(spec, exports=()), {}, []
        different = {(change.part, change.name): change for change in drift}
        allowed, warnings = _exports(spec, _without(offer, different))
        barred = {
            wished_name(change.part, change.after): _barred(spec.id, change)
            for change in drift
            if change.after is not None and change.part in PARTS
        }
        return replace(spec, exports=allowed), barred, [*warnings, *map(str, drift)]


def update(offers: Offers, spec: PluginSpec, catalog: Catalog, services: Services) -> PluginSpec:
    """Take a plugin's word into the catalogue, tell whoever listens what has changed, and note what is odd."""
    fresh, barred, remarks = offers.judged(spec)
    replace_exports(fresh, barred, catalog, services)
    for text in remarks:
        services.journal.note(spec.id, "offer", text)
    return fresh


def replace_exports(spec: PluginSpec, barred: Mapping[str, Failure], catalog: Catalog, services: Services) -> None:
    """Let the catalogue have what a plugin offers from now on, and tell whoever listens what has changed."""
    before = {entry.full_name: entry.export for entry in catalog.entries() if entry.spec.id == spec.id}
    was_barred = catalog.barred(spec.id)
    catalog.offer(spec, barred)
    after = {entry.full_name: entry.export for entry in catalog.entries() if entry.spec.id == spec.id}
    if after != before or barred.keys() != was_barred.keys():
        payload = {
            "plugin_id": spec.id,
            "added": [name for name in after if name not in before],
            "removed": [name for name in before if name not in after],
            "changed": [name for name in after if name in before and after[name] != before[name]],
            "disabled": [f"{spec.id}/{name}" for name in barred],
        }
        services.publish_event(CHANGED, SOURCE, payload)


def _exports(spec: PluginSpec, offer: Offer) -> tuple[tuple[Export, ...], list[str]]:
    exports, warnings = TELLERS[spec.contract](offer)
    return tuple(exports), warnings


def _version(spec: PluginSpec, server: Mapping[str, Any]) -> str:
    """What the server calls its version: its manifest may not know it."""
    return str(server.get("version") or spec.version)[:MAX_VERSION]


def _without(offer: Offer, different: Mapping[tuple[str, str], Change]) -> Offer:
    """What of an offer is as it was approved."""
    kept: dict[str, list[dict[str, Any]]] = {}
    for (part, name), definition in definitions(offer).items():
        if (part, name) not in different:
            kept.setdefault(part, []).append(definition)
    return kept


def _barred(plugin_id: str, change: Change) -> Failure:
    fields = list(dict.fromkeys(field if field in FIELDS else "other fields" for field in change.fields))
    what = f"its {', '.join(fields)} changed" if fields else "it is new"
    text = f"{change.name} is disabled: {what} since {plugin_id} was approved"
    hint = f"plugbay mcp diff {plugin_id} shows the difference, plugbay mcp approve {plugin_id} accepts it"
    # Not the definitions: their words are what nobody has approved.
    detail = {"hint": hint, "changed": fields}
    return Failure(Code.CAPABILITY_NOT_ALLOWED, text, origin=Origin.POLICY, plugin=plugin_id, detail=detail)
