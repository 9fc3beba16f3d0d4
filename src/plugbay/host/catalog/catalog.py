"""`Catalog`: every export of every plugin, by full and by short name, with its input schema.

Contracts may leave descriptions and schemas, or all exports, to the greeting; the catalogue is updated then. Schemas
are compiled at their first use. No I/O: `resolve` is on the path of every call.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Any

import msgspec
from msgspec.structs import force_setattr, replace

from plugbay.contracts.schemas import Preview, compile_schema
from plugbay.host.catalog.operation import INPUTS
from plugbay.host.supervision.per_org import has_execution_class
from plugbay.model.errors import Code, Failure
from plugbay.model.ids import full_name
from plugbay.model.spec import Export, PluginSpec
from plugbay.wire.fast_json import MsgspecCodec

MAX_LISTED = 12
"""Names shown in an error; more would not help a reader."""


class InputCheck:
    """An input schema, compiled at its first use: of a plugin with thousands of tools, few are ever called."""

    __slots__ = ("_schema", "_validator")

    def __init__(self, schema: Any) -> None:
        self._schema = schema
        self._validator: Any = None

    def validator(self) -> Any:
        """The compiled schema; None when there is none, or it cannot be compiled."""
        if self._validator is None and self._schema is not None:
            try:
                self._validator = compile_schema(self._schema)
            except ValueError:
                self._schema = None
        return self._validator


class Entry(msgspec.Struct, frozen=True):
    """One export and the plugin it belongs to."""

    spec: PluginSpec
    export: Export
    check: InputCheck
    full_name: str = ""
    """The name that callers use. `__post_init__` sets this field and the next one."""
    by_invocation: bool = False
    """Whether its calls are invocations: recorded, with retries."""

    def __post_init__(self) -> None:
        force_setattr(self, "full_name", full_name(self.spec.id, self.export.name))
        force_setattr(self, "by_invocation", has_execution_class(self.export))

    def check_input(self, payload: bytes, codec: MsgspecCodec) -> Failure | None:
        """Why the JSON input does not match the input schema, with the path and the rule."""
        validator = self.check.validator()
        if validator is None:
            return None
        value = codec.load(payload)
        if validator.is_valid(value):
            return None
        errors = [
            {"path": "/".join(map(str, error.instance_path)) or "input", "rule": error.message}
            for error in islice(validator.iter_errors(value), MAX_LISTED)
        ]
        first = errors[0]
        return Failure(
            Code.INVALID_INPUT,
            f"the input does not fit {self.export.name}'s schema: {first['path']}: {first['rule']}",
            plugin=self.spec.id,
            detail={"errors": errors},
        )


class Catalog:
    """All exports of a set of plugins.

    A plugin may use one name for exports of different kinds, such as a screen and a command line. A lookup with a kind
    finds that one; a lookup without a kind finds the first in the manifest.
    """

    def __init__(self, specs: Iterable[PluginSpec]) -> None:
        self._named: dict[str, Entry]
        self._by_plugin: dict[str, list[Entry]] = {spec.id: _entries(spec) for spec in specs}
        """By plugin."""
        self._disabled: dict[str, dict[str, Failure]] = {}
        """By plugin and name: why an export is disabled."""
        self._index()

    def _index(self) -> None:
        self._all: dict[tuple[str, str], Entry] = {}
        """By kind and full name."""
        self._full: dict[str, Entry] = {}
        self._short: dict[str, list[str]] = {}
        for entries in self._by_plugin.values():
            for entry in entries:
                self._add(entry)
        self._index_names()

    def _index_names(self) -> None:
        self._named = {}
        """By every unambiguous name: the one lookup of nearly every call. An alias gives way to any name."""
        for entry in self._all.values():
            if entry.export.alias:
                self._named[entry.export.alias] = self._named[full_name(entry.spec.id, entry.export.alias)] = entry
        for short, names in self._short.items():
            if len(names) == 1:
                self._named[short] = self._full[names[0]]
            else:
                self._named.pop(short, None)
        self._named |= self._full

    def _add(self, entry: Entry) -> None:
        name = entry.full_name
        self._all[entry.export.kind, name] = entry
        if name not in self._full:
            self._full[name] = entry
            if self._is_short(entry.export.name):
                self._short.setdefault(entry.export.name, []).append(name)

    def _is_short(self, name: str) -> bool:
        """Whether an export may have a short name: not one that reads like the full name of another plugin's export."""
        owner, slash, _ = name.partition("/")
        return not slash or owner not in self._by_plugin

    def entries(self) -> list[Entry]:
        """Every export, in the order of the plugins and of their manifests."""
        return list(self._all.values())

    def named(self) -> dict[str, Entry]:
        """The export of each full name."""
        return dict(self._full)

    def of_kind(self, kind: str) -> list[Entry]:
        """Every export of one kind, in the same order."""
        return [entry for entry in self._all.values() if entry.export.kind == kind]

    def replace(self, spec: PluginSpec, disabled: Mapping[str, Failure]) -> None:
        """Replace the exports of a plugin; `disabled` has the failures of those that are not callable, by name."""
        self._by_plugin[spec.id] = _entries(spec, self._by_plugin.get(spec.id, ()))
        self._disabled[spec.id] = dict(disabled)
        self._index()

    def remove(self, plugin_id: str) -> None:
        """Remove a plugin with its exports."""
        self._by_plugin.pop(plugin_id, None)
        self._disabled.pop(plugin_id, None)
        self._index()

    def disabled(self, plugin_id: str) -> dict[str, Failure]:
        """The disabled exports of a plugin, by name, and why."""
        return dict(self._disabled.get(plugin_id, {}))

    def learn(self, plugin_id: str, tools: Iterable[Mapping[str, Any]]) -> list[str]:
        """Take descriptions and schemas of tools from a greeting; returns why some of them cannot be used."""
        unusable = []
        preview = Preview()
        for tool in tools:
            entry = self._all.get(("tool", full_name(plugin_id, tool["name"])))
            if entry is None:
                continue
            schema = tool.get("input_schema")
            problem = None if schema is None else preview.problem(schema)
            if problem is not None:
                unusable.append(f"the schema of {tool['name']} cannot be enforced, so inputs go unchecked: {problem}")
                schema = None
            if (schema, tool["description"]) != (entry.export.input_schema, entry.export.description):
                export = replace(entry.export, description=tool["description"], input_schema=schema)
                self._replace(entry, Entry(entry.spec, export, InputCheck(schema)))
        self._index_names()  # once, because it visits every name
        return unusable

    def _replace(self, old: Entry, new: Entry) -> None:
        entries = self._by_plugin[old.spec.id]
        entries[next(at for at, entry in enumerate(entries) if entry is old)] = new
        name = old.full_name
        self._all[old.export.kind, name] = new
        if self._full[name] is old:
            self._full[name] = new

    def current(self, entry: Entry) -> Entry | Failure:
        """The current entry of the same export; a `Failure` when it is gone or disabled."""
        known = self._all.get((entry.export.kind, entry.full_name))
        return known or self.resolve(entry.full_name, entry.export.kind)

    def resolve(self, name: str, kind: str = "") -> Entry | Failure:
        """The export called `name`, of that kind if one is given: full names always work, short ones if unique."""
        if not kind and (entry := self._named.get(name)) is not None:
            return entry
        found = self._resolve_kind(name, kind) if kind else self._unresolved(name)
        return found if isinstance(found, Entry) else self._why_disabled(name) or found

    def _why_disabled(self, name: str) -> Failure | None:
        for plugin_id, disabled in self._disabled.items():
            for short, failure in disabled.items():
                if name == full_name(plugin_id, short) or (name == short and self._is_short(name)):
                    return failure
        return None

    def _unresolved(self, name: str) -> Failure:
        names = self._short.get(name)
        if names:
            text = f"{name!r} is offered by {len(names)} plugins; use one of {', '.join(names[:MAX_LISTED])}"
            return Failure(Code.NOT_FOUND, text, detail={"candidates": names[:MAX_LISTED]})
        return _unknown("nothing here", name, list(self._full), list(self._short))

    def _resolve_kind(self, name: str, kind: str) -> Entry | Failure:
        entry = self._all.get((kind, name))
        if entry is not None:
            return entry
        entries, noun = self.of_kind(kind), kind.replace("_", " ")
        named = [entry for entry in entries if entry.export.name == name] if self._is_short(name) else []
        if len(named) == 1:
            return named[0]
        if named:
            candidates = [entry.full_name for entry in named][:MAX_LISTED]
            text = f"{len(named)} plugins have a {noun} {name!r}; use one of {', '.join(candidates)}"
            return Failure(Code.NOT_FOUND, text, detail={"candidates": candidates})
        full, short = [entry.full_name for entry in entries], [entry.export.name for entry in entries]
        return _unknown(f"no {noun}", name, full, short)


def _entries(spec: PluginSpec, before: Iterable[Entry] = ()) -> list[Entry]:
    """The exports of a plugin. A compiled schema is kept where the schema has not changed."""
    known = {(entry.export.kind, entry.export.name): entry for entry in before}
    entries = []
    for export in spec.exports:
        if export.input_schema is None and export.kind in INPUTS:
            export = replace(export, input_schema=INPUTS[export.kind])
        same = known.get((export.kind, export.name))
        is_same = same is not None and same.export.input_schema == export.input_schema
        entries.append(Entry(spec, export, same.check if same and is_same else InputCheck(export.input_schema)))
    return entries


def _unknown(subject: str, name: str, full: list[str], short: list[str]) -> Failure:
    near = difflib.get_close_matches(name, [*full, *short], n=3)
    listed = near or full[:MAX_LISTED]
    text = f"{subject} is called {name!r}"
    if near:
        text += f"; did you mean {', '.join([*near[:-2], ' or '.join(near[-2:])])}?"
    elif listed:
        text += f"; there is {', '.join(listed)}"
    return Failure(Code.NOT_FOUND, text, detail={"candidates": listed})
