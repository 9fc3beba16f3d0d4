"""What can be called: every export of every plugin, by full and by short name, with its input schema compiled once.

A leaf of the walk: dictionaries and validators, no I/O.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice
from typing import Any

import msgspec

from plugbay.contracts.schemas import compile_schema
from plugbay.model.errors import Code, Failure
from plugbay.model.ids import full_name
from plugbay.model.spec import Export, PluginSpec
from plugbay.wire.fast_json import MsgspecCodec

MAX_LISTED = 12
"""Names shown in an error; more help nobody."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One export and the plugin it belongs to."""

    spec: PluginSpec
    export: Export
    validator: Any

    @property
    def full_name(self) -> str:
        return full_name(self.spec.id, self.export.name)

    def check_input(self, payload: msgspec.Raw, codec: MsgspecCodec) -> Failure | None:
        """Why the JSON that will be sent does not fit the input schema, naming the path and the rule."""
        if self.validator is None:
            return None
        value = codec.load(payload)
        if self.validator.is_valid(value):
            return None
        errors = [
            {"path": "/".join(map(str, error.instance_path)) or "input", "rule": error.message}
            for error in islice(self.validator.iter_errors(value), MAX_LISTED)
        ]
        first = errors[0]
        return Failure(
            Code.INVALID_INPUT,
            f"the input does not fit {self.export.name}'s schema: {first['path']}: {first['rule']}",
            plugin=self.spec.id,
            detail={"errors": errors},
        )


class Catalog:
    """All exports of a set of plugins."""

    def __init__(self, specs: Iterable[PluginSpec]) -> None:
        self._full: dict[str, Entry] = {}
        self._short: dict[str, list[Entry]] = {}
        for spec in specs:
            for export in spec.exports:
                entry = Entry(spec, export, _compile(export.input_schema))
                self._full[entry.full_name] = entry
                self._short.setdefault(export.name, []).append(entry)

    def entries(self) -> list[Entry]:
        return list(self._full.values())

    def resolve(self, name: str) -> Entry | Failure:
        """The export called `name`: full names always work, short ones where they are unique."""
        entry = self._full.get(name)
        if entry is not None:
            return entry
        entries = self._short.get(name, ())
        if len(entries) == 1:
            return entries[0]
        if entries:
            names = [entry.full_name for entry in entries]
            text = f"{name!r} is offered by {len(names)} plugins; use one of {', '.join(names[:MAX_LISTED])}"
            return Failure(Code.NOT_FOUND, text, detail={"candidates": names[:MAX_LISTED]})
        return self._unknown(name)

    def _unknown(self, name: str) -> Failure:
        near = difflib.get_close_matches(name, [*self._full, *self._short], n=3)
        listed = near or list(self._full)[:MAX_LISTED]
        text = f"nothing here is called {name!r}"
        if near:
            text += f"; did you mean {' or '.join(near)}?"
        elif listed:
            text += f"; there is {', '.join(listed)}"
        return Failure(Code.NOT_FOUND, text, detail={"candidates": listed})


def _compile(schema: Any) -> Any:
    """None when there is nothing to check; manifest readers have replaced what cannot be compiled."""
    return None if schema is None else compile_schema(schema)
