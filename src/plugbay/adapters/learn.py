"""Makes the pin of an adapter: starts the sources that declare their offer at run time, and maps what they offer."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from plugbay.adapters.mapping import (
    CONTRACTS,
    NOT_SELECTED,
    RUNE,
    Mapped,
    Row,
    adapter_id,
    adapter_version,
    map_exports,
)
from plugbay.adapters.pin import USUAL_VARIABLES, Pin, Settings, Source
from plugbay.host.catalog.catalog import Entry
from plugbay.host.catalog.runtime_exports import declares_at_run_time
from plugbay.host.discovery.folders import MULTI_PLUGIN_MANIFESTS
from plugbay.host.host import Host
from plugbay.model.errors import CallFailed, PlugbayError
from plugbay.model.spec import KINDS, PluginSpec

LEARN_SECONDS = 60.0
"""For a source to declare its offer: package runners download programs first."""


class NothingMaps(PlugbayError):
    """The sources have no export that a host of the target can use, or none was selected. `rows` has the reasons."""

    def __init__(self, target: str, rows: Sequence[Row]) -> None:
        self.target = target
        self.rows = tuple(rows)
        exports = [row for row in rows if row.kind in KINDS]
        reasons = "; ".join(f"{row.kind} {row.name}: {row.note}" for row in exports)
        text = f"nothing here maps to {target}: {reasons or 'there is no export at all'}"
        if exports and all(row.note == NOT_SELECTED for row in exports):
            text = f"--only matches no export; there are {', '.join(f'{row.plugin}/{row.name}' for row in exports)}"
        super().__init__(text)

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
            raise CallFailed(refusal.with_detail(plugin_id))
    failures = await host.meet(*undeclared, timeout=timeout) if undeclared else {}
    for plugin_id, failure in failures.items():
        raise CallFailed(failure.with_detail(plugin_id))


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
    rows = (*mapped.rows, *(row for source in sources for row in _variable_rows(host, source, target)))
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
    return pin, rows


def _map(host: Host, target: str, named: str, ids: Sequence[str], only: Sequence[str]) -> Mapped:
    entries: list[Entry] = [entry for entry in host.calls.catalog.entries() if entry.spec.id in ids]
    timeouts = {id: host.config.plugin(id).timeouts.call for id in ids}
    return map_exports(target, named, entries, only, timeouts)


_REFERENCE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-[^}]*)?\}")
"""A reference to a variable of the environment, in the declaration of a server."""


def _variable_rows(host: Host, source: Source, target: str) -> Iterator[Row]:
    """The variables of this environment that a source uses, and that its adapter does not bring along."""
    spec = host.specs[source.id]
    texts = [value for _, value in spec.env]
    if source.id in host.config.mcp:
        texts.append(host.config.mcp[source.id].model_dump_json())
    elif Path(source.path).name in MULTI_PLUGIN_MANIFESTS:
        texts.append(json.dumps(json.loads(Path(source.path).read_bytes())["mcpServers"][source.id]))
    inherited = (*spec.env_inherit, *host.config.plugin(source.id).inherit_env)
    used = (*inherited, *(name for text in texts for name in _REFERENCE.findall(text)))
    names = sorted({name for name in used if name in os.environ} - {*USUAL_VARIABLES})
    if names:
        note = "adapter.json does not keep their values; its host must give them to the adapter"
        if target == RUNE:
            note = "rune gives an adapter no variables; write them into process.env of rterm-plugin.json"
        yield Row(source.id, "variables", ", ".join(names), note=note)


def _approval(host: Host, plugin_id: str) -> dict[str, object]:
    """The operator's approval, else one of everything that the source offers now."""
    known = host.runtime_exports.approval(plugin_id)
    return (known or host.runtime_exports.candidate(plugin_id)).to_json(plugin_id)
