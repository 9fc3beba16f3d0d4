"""Makes the pin of an adapter: starts the sources that declare their offer at run time, and maps what they offer."""

from __future__ import annotations

from collections.abc import Sequence

from plugbay.adapters.mapping import (
    CONTRACTS,
    Mapped,
    Row,
    adapter_id,
    adapter_version,
    map_exports,
)
from plugbay.adapters.pin import Pin, Settings, Source
from plugbay.host.catalog.catalog import Entry
from plugbay.host.catalog.runtime_exports import declares_at_run_time
from plugbay.host.host import Host
from plugbay.model.errors import CallFailed, PlugbayError
from plugbay.model.spec import KINDS, PluginSpec

LEARN_SECONDS = 60.0
"""For a source to declare its offer: package runners download programs first."""


class NothingMaps(PlugbayError):
    """The sources have no export that a host of the target can use. `rows` has the reasons."""

    def __init__(self, target: str, rows: Sequence[Row]) -> None:
        self.target = target
        self.rows = tuple(rows)
        reasons = "; ".join(f"{row.kind} {row.name}: {row.note}" for row in rows if row.kind in KINDS)
        super().__init__(f"nothing here maps to {target}: {reasons or 'there is no export at all'}")

    def __reduce__(self) -> tuple[type[NothingMaps], tuple[str, tuple[Row, ...]]]:
        return type(self), (self.target, self.rows)


async def learn(host: Host, timeout: float = LEARN_SECONDS) -> None:
    """Start the sources whose exports or definitions are not known yet; raises `CallFailed`."""
    undeclared = [
        plugin_id
        for plugin_id, spec in host.specs.items()
        if plugin_id in host.runtime_exports.unknown() or _lacks_definitions(spec)
    ]
    for plugin_id in undeclared:
        refusal = host.refusal(plugin_id)
        if refusal is not None:
            raise CallFailed(refusal)
    failures = await host.meet(*undeclared, timeout=timeout) if undeclared else {}
    for failure in failures.values():
        raise CallFailed(failure)


def _lacks_definitions(spec: PluginSpec) -> bool:
    """Whether the greeting brings the descriptions and schemas of its tools (nexo)."""
    return any(
        export.kind == "tool" and not export.description and export.input_schema is None and not export.facts
        for export in spec.exports
    )


def make_pin(
    host: Host,
    target: str,
    sources: Sequence[Source],
    settings: Settings,
    *,
    id: str = "",
    only: Sequence[str] = (),
) -> tuple[Pin, tuple[Row, ...]]:
    """The pin of a host that has learnt its sources, and the rows of all exports.

    Raises `NamesCollide`, or `NothingMaps`.
    """
    assert target in CONTRACTS
    specs = [host.specs[source.id] for source in sources]
    named = adapter_id(target, id or specs[0].id)
    mapped = _map(host, target, named, [source.id for source in sources], only)
    if not mapped.exports:
        raise NothingMaps(target, mapped.rows)
    first = specs[0]
    pin = Pin(
        target,
        named,
        adapter_version(specs),
        sources,
        mapped.exports,
        settings,
        name=first.name if len(specs) == 1 else named,
        description=first.description if len(specs) == 1 else f"Tools of {', '.join(spec.id for spec in specs)}",
        approvals={spec.id: _approval(host, spec.id) for spec in specs if declares_at_run_time(spec)},
    )
    return pin, mapped.rows


def _map(host: Host, target: str, named: str, ids: Sequence[str], only: Sequence[str]) -> Mapped:
    entries: list[Entry] = [entry for entry in host.calls.catalog.entries() if entry.spec.id in ids]
    return map_exports(target, named, entries, only)


def _approval(host: Host, plugin_id: str) -> dict[str, object]:
    """The operator's approval, else one of everything that the source offers now."""
    known = host.runtime_exports.approval(plugin_id)
    return (known or host.runtime_exports.candidate(plugin_id)).to_json(plugin_id)
