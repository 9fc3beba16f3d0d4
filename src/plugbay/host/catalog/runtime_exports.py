"""`RuntimeExports`: the exports of plugins that declare them only at run time, as far as they are approved.

Until its first greeting such a plugin has the exports of its approval; then those that it still offers exactly as
approved. New and changed definitions are disabled until they are approved. Trusted plugins need no approval.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from plugbay.contracts.mcp.offers import wished_name
from plugbay.contracts.registry import CONTRACTS
from plugbay.host.catalog.approvals import (
    PARTS,
    Approval,
    Approvals,
    Change,
    Offer,
    changes,
    definitions,
    instruction_changes,
    launch_digest,
)
from plugbay.host.stamps import utc_now
from plugbay.host.supervision.protocol_cache import ProtocolCache
from plugbay.model.errors import Code, ConfigInvalid, Failure, Origin
from plugbay.model.spec import Export, PluginSpec

if TYPE_CHECKING:
    from plugbay.host.catalog.catalog import Catalog
    from plugbay.host.inbound.handler import Services

RUNTIME_CONTRACTS = {
    name: contract.runtime_exports for name, contract in CONTRACTS.items() if contract.runtime_exports is not None
}
"""Contracts whose plugins declare their exports at run time: how each makes exports and warnings of an offer."""

CHANGED = "plugin.catalog.changed"
"""The topic of the event that is published when the exports of a plugin change."""

SOURCE = "plugin.catalog"

MAX_VERSION = 100
"""Characters of a server's version, which goes into the record of each call."""

LAUNCH_CHANGED = "its command, its folder or its variables changed since it was approved"

FIELDS = frozenset(
    "name title description inputSchema outputSchema annotations icons execution uri uriTemplate mimeType size "
    "arguments _meta".split()
)
"""Known keys of a definition. Other keys are not named in failures: a model may read them."""


def declares_at_run_time(spec: PluginSpec) -> bool:
    """Whether the plugin declares its exports at run time, so that they need an approval."""
    return spec.contract in RUNTIME_CONTRACTS


class RuntimeExports:
    """The exports and approvals of every plugin that declares its exports at run time."""

    def __init__(self, approvals: Approvals, protocol_cache: ProtocolCache, trusts: Callable[[str], bool]) -> None:
        """`trusts` tells for which plugins everything is approved, for as long as this host lives."""
        self._approvals = approvals
        self._protocol_cache = protocol_cache
        self._trusts = trusts
        self._launches: dict[str, str] = {}
        """By plugin: the digest of its declaration, as in approvals."""
        self._approved: dict[str, Approval] = {}
        self._stamps: dict[str, tuple[int, int, int] | None] = {}
        """By plugin: the stamp of the approval that was read last."""
        self._greetings: dict[str, Mapping[str, Any]] = {}
        """By plugin: the greeting of its last instance, with its current offer."""
        self._drift: dict[str, list[Change]] = {}
        self.problems: dict[str, str] = {}
        """By plugin: why its stored approval cannot be used."""

    def learn(self, specs: Iterable[PluginSpec]) -> dict[str, PluginSpec]:
        """All these plugins by id; those with an approval get their approved exports."""
        return {spec.id: self._with_approved(spec) if declares_at_run_time(spec) else spec for spec in specs}

    def forget(self, plugin_id: str) -> None:
        """Forget everything about a plugin whose program was replaced."""
        for known in (self._launches, self._approved, self._stamps, self._greetings, self._drift, self.problems):
            known.pop(plugin_id, None)

    def _with_approved(self, spec: PluginSpec) -> PluginSpec:
        self._launches[spec.id] = launch_digest(spec)
        approval = self._read(spec.id)
        if approval is None:
            return spec
        return replace(spec, exports=_exports(spec, approval.offer)[0], version=_version(spec, approval.server))

    def _read(self, plugin_id: str) -> Approval | None:
        """The current approval of a plugin: an operator may change or remove it while the host runs."""
        stamp = self._approvals.stamp(plugin_id)
        if plugin_id in self._stamps and self._stamps[plugin_id] == stamp:
            return self._approved.get(plugin_id)
        self._stamps[plugin_id] = stamp
        self._approved.pop(plugin_id, None)
        self.problems.pop(plugin_id, None)
        try:
            approval = self._approvals.load(plugin_id)
        except ConfigInvalid as error:
            self.problems[plugin_id] = str(error)
            return None
        if approval is None:
            return None
        if approval.launch not in ("", self._launches[plugin_id]):
            self.problems[plugin_id] = LAUNCH_CHANGED
            return None
        self._approved[plugin_id] = approval
        return approval

    def is_approved(self, plugin_id: str) -> bool:
        """Whether the plugin has its approval, or needs none."""
        return plugin_id not in self._launches or plugin_id in self._approved or self._trusts(plugin_id)

    def unknown(self) -> list[str]:
        """The plugins whose exports are not known yet."""
        return [each for each in self._launches if each not in self._approved and each not in self._greetings]

    def approval(self, plugin_id: str) -> Approval | None:
        """The approval of a plugin."""
        return self._approved.get(plugin_id)

    def hello(self, plugin_id: str) -> Mapping[str, Any] | None:
        """The last greeting of a plugin, with its current offer; None before the first."""
        return self._greetings.get(plugin_id)

    def drift(self, plugin_id: str) -> list[Change]:
        """The differences between a plugin's offer and its approval; none before its first greeting."""
        return list(self._drift.get(plugin_id, ()))

    def candidate(self, plugin_id: str) -> Approval:
        """An approval of everything that the plugin offers now, not stored yet."""
        hello = self._greetings[plugin_id]
        program, server = self._protocol_cache.program(plugin_id), hello.get("server") or {}
        launch = self._launches[plugin_id]
        return Approval(hello["offer"], str(hello.get("era", "")), program, server, utc_now(), launch)

    def approve(self, plugin_id: str, approval: Approval) -> None:
        """Store an approval; raises `ConfigInvalid`. It takes effect with the next `learn`."""
        self._approvals.save(plugin_id, approval)

    # Greetings and changes.

    def on_greeting(self, plugin_id: str, hello: Mapping[str, Any]) -> None:
        """An instance has greeted."""
        self._greetings[plugin_id] = dict(hello)
        if "era" in hello:
            self._protocol_cache.learn(plugin_id, hello["era"])

    def on_change(self, plugin_id: str, offer: Offer) -> None:
        """An instance has changed its offer."""
        self._greetings[plugin_id] = {**self._greetings.get(plugin_id, {}), "offer": offer}

    def evaluate(self, spec: PluginSpec) -> tuple[PluginSpec, dict[str, Failure], list[str]]:
        """The plugin with its approved exports, the failures of the disabled ones by name, and warnings."""
        hello = self._greetings[spec.id]
        offer: Offer = hello["offer"]
        server = hello.get("server") or {}
        spec = replace(spec, version=_version(spec, server))
        approval = self._read(spec.id)
        drift = (
            [] if approval is None else [*changes(approval.offer, offer), *instruction_changes(approval.server, server)]
        )
        self._drift[spec.id] = drift
        if self._trusts(spec.id):
            everything, warnings = _exports(spec, offer)
            return spec.with_exports(everything), {}, warnings
        if approval is None:
            return spec.with_exports(()), {}, []
        different = {(change.part, change.name): change for change in drift}
        allowed, warnings = _exports(spec, _unchanged(offer, different))
        disabled = {
            wished_name(change.part, change.after): _disabled_failure(spec.id, change)
            for change in drift
            if change.after is not None and change.part in PARTS
        }
        return spec.with_exports(allowed), disabled, [*warnings, *map(str, drift)]


def update(runtime_exports: RuntimeExports, spec: PluginSpec, catalog: Catalog, services: Services) -> PluginSpec:
    """Put a plugin's current exports into the catalogue, publish what changed, and journal the warnings."""
    fresh, disabled, warnings = runtime_exports.evaluate(spec)
    replace_exports(fresh, disabled, catalog, services)
    for text in warnings:
        services.journal.note(spec.id, "offer", text)
    return fresh


def replace_exports(spec: PluginSpec, disabled: Mapping[str, Failure], catalog: Catalog, services: Services) -> None:
    """Replace a plugin's exports in the catalogue, and publish what changed."""
    before = _exports_of(spec.id, catalog)
    was_disabled = catalog.disabled(spec.id)
    catalog.replace(spec, disabled)
    after = _exports_of(spec.id, catalog)
    if after != before or disabled.keys() != was_disabled.keys():
        payload = {
            "plugin_id": spec.id,
            "added": [name for name in after if name not in before],
            "removed": [name for name in before if name not in after],
            "changed": [name for name in after if name in before and after[name] != before[name]],
            "disabled": [f"{spec.id}/{name}" for name in disabled],
        }
        services.publish_event(CHANGED, SOURCE, payload)


def remove_exports(plugin_id: str, catalog: Catalog, services: Services) -> None:
    """Remove a plugin from the catalogue, and publish the names that are gone."""
    removed = list(_exports_of(plugin_id, catalog))
    catalog.remove(plugin_id)
    payload = {"plugin_id": plugin_id, "added": [], "removed": removed, "changed": [], "disabled": []}
    services.publish_event(CHANGED, SOURCE, payload)


def _exports_of(plugin_id: str, catalog: Catalog) -> dict[str, Export]:
    return {entry.full_name: entry.export for entry in catalog.entries() if entry.spec.id == plugin_id}


def _exports(spec: PluginSpec, offer: Offer) -> tuple[tuple[Export, ...], list[str]]:
    exports, warnings = RUNTIME_CONTRACTS[spec.contract](offer)
    return tuple(exports), warnings


def _version(spec: PluginSpec, server: Mapping[str, Any]) -> str:
    """The version that the server reports: its manifest may have none."""
    return str(server.get("version") or spec.version)[:MAX_VERSION]


def _unchanged(offer: Offer, different: Mapping[tuple[str, str], Change]) -> Offer:
    """The part of an offer that equals the approved one."""
    kept: dict[str, list[dict[str, Any]]] = {}
    for (part, name), definition in definitions(offer).items():
        if (part, name) not in different:
            kept.setdefault(part, []).append(definition)
    return kept


def _disabled_failure(plugin_id: str, change: Change) -> Failure:
    fields = list(dict.fromkeys(field if field in FIELDS else "other fields" for field in change.fields))
    what = f"its {', '.join(fields)} changed" if fields else "it is new"
    text = f"{change.name} is disabled: {what} since {plugin_id} was approved"
    hint = f"plugbay mcp diff {plugin_id} shows the difference, plugbay mcp approve {plugin_id} accepts it"
    # Not the definitions: their texts are not approved.
    detail = {"hint": hint, "changed": fields}
    return Failure(Code.CAPABILITY_NOT_ALLOWED, text, origin=Origin.POLICY, plugin=plugin_id, detail=detail)
