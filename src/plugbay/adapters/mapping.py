"""What each export of a source is for a host of another contract, under which name, and what is left out and why.

Values in, values out. Every export has a row: one that cannot be carried has a reason instead of a form. Names and
definitions come from `plugbay.mcp_server.listing`, as for MCP clients and models.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any

import msgspec

from plugbay.adapters.pin import PinnedExport
from plugbay.contracts.schemas import schema_problem
from plugbay.host.catalog.catalog import Entry
from plugbay.mcp_server import listing
from plugbay.mcp_server.listing import INPUT_ARGUMENT, Alphabet, NameTable, NamingRule, as_tool, effect_of
from plugbay.model.operations import InvokeTool
from plugbay.model.spec import Export, PluginSpec
from plugbay.sdk.contract_support import supports
from plugbay.sdk.contracts.nexo import nexo_id, nexo_tool_name

RUNE, NEXO, KAGED, AINB, VAI, MCP = CONTRACTS = ("rune", "nexo", "kaged", "ainb", "vai", "mcp")

TOOL, METHOD, COMMAND, HOOK, COMPACTOR = "tool", "method", "command line", "hook", "compactor"
CHANNEL, MODEL, VECTORS, RESOURCE, PROMPT = "channel", "llm provider", "vector backend", "resource", "prompt"
"""The forms of an export for the other host."""

NAMES = {
    RUNE: Alphabet(re.compile(r"[^A-Za-z0-9_.-]+")),
    NEXO: Alphabet(re.compile(r"[^a-z0-9_]+"), 32, lower=True),
    KAGED: Alphabet(re.compile(r"[^a-z0-9_-]+"), lower=True),
    AINB: Alphabet(re.compile(r"[^A-Za-z0-9_.-]+")),
    VAI: Alphabet(re.compile(r"[^a-z0-9_]+"), lower=True),
    MCP: listing.MODELS,
}
"""The alphabet of tool names in each contract. The 32 characters of nexo include the plugin's id and `_`."""

IDS = {
    RUNE: Alphabet(re.compile(r"[^A-Za-z0-9_.-]+")),
    NEXO: Alphabet(re.compile(r"[^a-z0-9_]+"), 20, lower=True),
    KAGED: Alphabet(re.compile(r"[^a-z0-9_-]+"), lower=True),
    AINB: Alphabet(re.compile(r"[^A-Za-z0-9_.-]+")),
    VAI: Alphabet(re.compile(r"[^a-z0-9_.-]+"), lower=True),
    MCP: listing.MODELS,
}
"""The alphabet of plugin ids. An id of nexo may have 32 characters; 20 leave room for the names of its tools."""

FORMS: Mapping[str, Mapping[str, str]] = {
    RUNE: {"tool": TOOL, "method": TOOL, "cli_namespace": TOOL},
    NEXO: {
        **{"tool": TOOL, "method": TOOL, "cli_namespace": TOOL, "hook": HOOK},
        **{"channel": CHANNEL, "llm_provider": MODEL, "vector_backend": VECTORS},
    },
    KAGED: {"tool": TOOL, "method": METHOD, "cli_namespace": TOOL, "hook": HOOK, "compactor": COMPACTOR},
    AINB: {"tool": TOOL, "method": TOOL, "cli_namespace": COMMAND},
    VAI: {"tool": TOOL, "method": TOOL, "cli_namespace": TOOL, "hook": HOOK, "compactor": COMPACTOR},
    MCP: {"tool": TOOL, "method": TOOL, "cli_namespace": TOOL, "resource": RESOURCE, "prompt": PROMPT},
}
"""By target and kind of export, its form there."""

REASONS = {
    "hook": "{target} has no event {name}",
    "compactor": "{target} has no compactors",
    "harness": "a harness acts through the gateway of its own host",
    "channel": "{target} has no channels",
    "llm_provider": "{target} has no model providers",
    "vector_backend": "{target} has no vector backends",
    "screen": "a screen is drawn for the terminal of its own host",
    "resource": "{target} has no resources",
    "prompt": "{target} has no prompts",
}
"""Why an export without a form is left out."""

RESERVED_PARAMETERS = {KAGED: "_context"}
"""The parameter that a target adds to every call itself."""

MAX_SCHEMA = 128 << 10
"""Bytes of a schema; a vai host reads at most 256 KiB, with indentation."""

LONGEST_SECONDS = 3_600.0
"""Of a call, in every contract."""

NOT_SELECTED = "left out by --only"

ASKING = frozenset({"memory.recall", "llm.complete", "read_sessions", "event_bus"})
ASKING_PREFIX = "scope="
"""Capabilities for requests of a plugin to its host."""

_SEMVER = re.compile(r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(-[0-9A-Za-z-]+(\.[0-9A-Za-z-]+)*)?")


class Row(msgspec.Struct, frozen=True):
    """One export, or another declaration of a source, and what becomes of it."""

    plugin: str
    kind: str
    name: str
    form: str = ""
    """What it is for the other host; empty: it is left out."""
    served: str = ""
    note: str = ""
    """Why it is left out, or what is different."""

    def to_json(self) -> dict[str, Any]:
        """The public shape, as in `plugbay adapt --explain --json`."""
        return {
            "plugin": self.plugin,
            "kind": self.kind,
            "name": self.name,
            "form": self.form or None,
            "served": self.served or None,
            "note": self.note or None,
        }


class Mapped(msgspec.Struct, frozen=True):
    """The exports for the other host, and a row for everything that the sources have."""

    exports: tuple[PinnedExport, ...]
    rows: tuple[Row, ...]


def map_exports(
    target: str,
    adapter_id: str,
    entries: Sequence[Entry],
    only: Sequence[str] = (),
    timeouts: Mapping[str, float | None] = MappingProxyType({}),
) -> Mapped:
    """Map the exports of all sources; raises `NamesCollide` when two get the same name.

    `timeouts` are the operator's seconds for a call, by plugin.
    """
    names = _Names(target, adapter_id, several=len({entry.spec.id for entry in entries}) > 1)
    exports: list[PinnedExport] = []
    rows: list[Row] = []
    for entry in entries:
        mapped = _map(target, entry, names, only, timeouts.get(entry.spec.id))
        if isinstance(mapped, Row):
            rows.append(mapped)
            continue
        export, note = mapped
        exports.append(export)
        rows.append(Row(export.plugin, export.kind, export.name, export.form, names.seen(export), note))
    exports, rows = _one_compactor(exports, rows)
    specs = {entry.spec.id: entry.spec for entry in entries}
    return Mapped(tuple(exports), (*rows, *(row for spec in specs.values() for row in _other_rows(target, spec))))


class _Names:
    """The names of all forms; two exports of one form never share a name."""

    def __init__(self, target: str, adapter_id: str, *, several: bool) -> None:
        alphabet = NAMES[target]
        if target == NEXO:  # the SDK puts the id before each name
            alphabet = alphabet._replace(longest=alphabet.longest - len(nexo_id(adapter_id)) - 1)
        self._rule: NamingRule = partial(listing.qualified_name if several else listing.short_name, alphabet=alphabet)
        self._tables: dict[str, NameTable] = {}
        self._prefix = nexo_id(adapter_id) if target == NEXO else ""

    def seen(self, export: PinnedExport) -> str:
        """The name as the other host shows it."""
        is_prefixed = self._prefix and export.form == TOOL
        return nexo_tool_name(self._prefix, export.served) if is_prefixed else export.served

    def add(self, form: str, plugin_id: str, name: str) -> str:
        own = name.removeprefix(f"{self._prefix}_") or name
        return self._tables.setdefault(form, NameTable(self._rule)).add(plugin_id, own)


def _map(
    target: str, entry: Entry, names: _Names, only: Sequence[str], timeout: float | None
) -> Row | tuple[PinnedExport, str]:
    spec, export = entry.spec, entry.export
    plugin, kind, name = spec.id, export.kind, export.name
    form = FORMS[target].get(kind, "")
    reason = "" if form else REASONS[kind].format(target=target, name=name)
    events = _events(target, entry) if form == HOOK else ()
    if form == HOOK and not events:
        reason = REASONS[kind].format(target=target, name=", ".join(_own_events(entry)))
    if form == COMPACTOR and spec.contract != target:
        reason = f"the conversation of a compactor has another shape in {target}"
    reason = reason or str(export.facts.get("unsupported") or "")
    if _needs_task(export):
        reason = "its server runs it only as a task of MCP, and plugbay calls tools without tasks"
    if not listing.is_selected(entry, only):
        reason = NOT_SELECTED
    if reason:
        return Row(plugin, kind, name, note=reason)
    tool = as_tool(entry)
    schema, note = trim_schema(target, tool.input_schema)
    if schema is None:
        return Row(plugin, kind, name, note=note)
    keeps_name = form in (HOOK, CHANNEL, MODEL, VECTORS, RESOURCE, PROMPT, METHOD, COMMAND)
    return (
        PinnedExport(
            plugin,
            kind,
            name,
            form,
            name if keeps_name else names.add(form, plugin, listing.original_name(export)),
            description=tool.description,
            input_schema=schema,
            output_schema=_output_schema(export.output_schema),
            effect=effect_of(export) or "unknown",
            # The deadline of vai is in the manifest. Elsewhere the host of the source decides, when it is called.
            timeout=call_seconds(spec, export.facts, timeout) if target == VAI else None,
            wraps=not listing.takes_object(tool),
            events=events,
        ),
        note,
    )


def _needs_task(export: Export) -> bool:
    """Whether an MCP server refuses plain calls of a tool."""
    execution = export.facts.get(listing.MCP_FACT, {}).get("execution")
    return isinstance(execution, dict) and execution.get("taskSupport") == "required"


def _one_compactor(exports: list[PinnedExport], rows: list[Row]) -> tuple[list[PinnedExport], list[Row]]:
    """A plugin has one compactor: of several sources, the first."""
    spare = [export for export in exports if export.form == COMPACTOR][1:]
    kept = [export for export in exports if export not in spare]
    for export in spare:
        at = next(at for at, row in enumerate(rows) if (row.plugin, row.name, row.form) == (*_key(export), COMPACTOR))
        rows[at] = Row(export.plugin, export.kind, export.name, note="a plugin has one compactor")
    return kept, rows


def _key(export: PinnedExport) -> tuple[str, str]:
    return export.plugin, export.name


def _own_events(entry: Entry) -> tuple[str, ...]:
    """The events of a hook: a hook of vai has a list of them, any other is called for the event of its name."""
    events = entry.export.facts.get("subscribes_to")
    return tuple(map(str, events)) if isinstance(events, list | tuple) else (entry.export.name,)


def _events(target: str, entry: Entry) -> tuple[str, ...]:
    """The events of a hook that the other host has, too."""
    return tuple(event for event in _own_events(entry) if supports(target, "hooks", event, entry.spec.id))


def _other_rows(target: str, spec: PluginSpec) -> Iterator[Row]:
    """The declarations beside the exports."""
    topics = ", ".join(dict.fromkeys((*spec.subscribes, *spec.snapshots)))
    if topics:
        yield Row(spec.id, "subscription", topics, note="it gets the events of the adapter's own host")
    if spec.publishes:
        yield Row(
            spec.id,
            "publication",
            ", ".join(spec.publishes),
            note="its events stay on the bus of the adapter's own host",
        )
    if spec.commands:
        yield Row(spec.id, "command", ", ".join(spec.commands), note="a command needs the palette of its own host")
    settings = spec.settings
    if settings.config_schema or settings.secrets_schema or settings.knobs:
        yield Row(spec.id, "settings", "config, secrets", note="they are set in the adapter's plugbay.toml")
    asking = [name for name in spec.capabilities if name in ASKING or name.startswith(ASKING_PREFIX)]
    if asking:
        yield Row(
            spec.id,
            "requests",
            ", ".join(asking),
            note=f"the adapter's own host answers them, not the host of {target}",
        )
    if spec.capabilities:
        text = "they are granted to the adapter's own host, by --grant or plugbay.toml"
        yield Row(spec.id, "capabilities", ", ".join(spec.capabilities), note=text)


# Schemas.


def trim_schema(target: str, schema: Any) -> tuple[dict[str, Any] | None, str]:
    """The input schema that the other host gets, and what was changed; no schema: the target cannot carry the tool."""
    if not isinstance(schema, dict):
        return {"type": "object"}, ""
    if schema.get("type", "object") != "object":
        schema = {"type": "object", "properties": {INPUT_ARGUMENT: schema}, "required": [INPUT_ARGUMENT]}
    reserved = RESERVED_PARAMETERS.get(target)
    if reserved in (schema.get("properties") or ()):
        return None, f"{target} adds the parameter {reserved} to every call itself"
    plain = {"type": "object", **{key: value for key, value in schema.items() if key not in ("$schema", "$id")}}
    problem = _problem(plain)
    if problem is None:
        return plain, ""
    note = f"the schema is reduced to names and types, and checked by plugbay: {problem}"
    reduced = _reduce(plain)
    return (reduced, note) if _problem(reduced) is None else ({"type": "object"}, note)


def _problem(schema: dict[str, Any]) -> str | None:
    size = len(json.dumps(schema))
    return f"it has {size:,} bytes" if size > MAX_SCHEMA else schema_problem(schema)


_TYPES = frozenset("string number integer boolean object array null".split())


def _reduce(schema: Mapping[str, Any]) -> dict[str, Any]:
    """The names, types and descriptions of the properties."""
    properties = schema.get("properties")
    known = properties if isinstance(properties, dict) else {}
    required = schema.get("required")
    names = [name for name in required if name in known] if isinstance(required, list) else []
    kept = {name: _reduce_property(rule) for name, rule in known.items()}
    return {"type": "object", "properties": kept, **({"required": names} if names else {})}


def _reduce_property(rule: Any) -> dict[str, Any]:
    said = rule if isinstance(rule, dict) else {}
    kind, text = said.get("type"), said.get("description")
    return {
        **({"type": kind} if isinstance(kind, str) and kind in _TYPES else {}),
        **({"description": text[:1000]} if isinstance(text, str) else {}),
    }


def _output_schema(schema: Any) -> dict[str, Any] | None:
    """The schema of the plain value; None where it does not describe an object that can be checked."""
    usable = isinstance(schema, dict) and schema.get("type") == "object" and _problem(schema) is None
    return dict(schema) if usable else None


# The adapter's own name, version and times.


def adapter_id(target: str, id: str) -> str:
    """An id within the alphabet of the target. vai keeps the publisher of an id."""
    if target == VAI and "/" in id:
        publisher, _, name = id.partition("/")
        return f"{listing.short_name(id, publisher, IDS[target])}/{listing.short_name(id, name, IDS[target])}"
    return listing.short_name(id, id, IDS[target])


def adapter_version(specs: Iterable[PluginSpec]) -> str:
    """The version of the only source, if it is a semantic one."""
    versions = [spec.version for spec in specs]
    return versions[0] if len(versions) == 1 and _SEMVER.fullmatch(versions[0]) else "1.0.0"


def call_seconds(spec: PluginSpec, facts: Mapping[str, Any], timeout: float | None = None) -> float:
    """Seconds for a call of an export: the operator's, if there are some, else those of its contract."""
    given = facts.get("timeout_ms")
    usual = spec.patience.get(InvokeTool.__name__, spec.timeouts.call)
    seconds = usual if timeout is None else timeout
    if isinstance(given, int):
        seconds = given / 1000 if timeout is None else min(given / 1000, timeout)
    return min(max(seconds, 1.0), LONGEST_SECONDS)
