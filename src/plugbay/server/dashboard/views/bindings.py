"""Bindings on pages: settings, the difference of two, and the merge of two operators' changes. Pure.

Settings are compared value by value (`config.units`), so two operators who change different values of one binding keep
both changes, and a value that both changed is shown with both values before anything is saved.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import msgspec

from plugbay.model.spec import Export
from plugbay.server.api.routes.bindings import HIDDEN
from plugbay.server.dashboard import forms
from plugbay.server.dashboard.tables import Cell
from plugbay.server.dashboard.text import as_json
from plugbay.server.dashboard.views.tones import BAD, GOOD, OFF, WARN
from plugbay.server.domain.bindings import Share, Verdict
from plugbay.server.domain.secrets import parse_reference
from plugbay.store.bindings import BindingRow

STATUS_TONES = {"active": GOOD, "draft": WARN, "disabled": OFF, "available": GOOD, "quarantined": BAD}
"""Of bindings and packages, by their status."""

SETTINGS = ("package_version", "config", "secrets", "policy", "status", "traffic_percent")
"""The fields of a binding that can change."""

NESTED = ("config", "secrets", "policy")

LABELS = {"package_version": "version", "traffic_percent": "traffic"}

Settings = dict[str, Any]
Flat = dict[str, Any]
"""Settings by path: `config.units`."""


def settings_of(row: BindingRow) -> Settings:
    return {name: getattr(row, name) for name in SETTINGS}


def flatten(settings: Mapping[str, Any]) -> Flat:
    flat: Flat = {}
    for name, value in settings.items():
        if name in NESTED:
            flat.update({f"{name}.{key}": inner for key, inner in value.items()})
        else:
            flat[name] = value
    return flat


def unflatten(flat: Mapping[str, Any]) -> Settings:
    settings: Settings = {name: {} for name in NESTED}
    for path, value in flat.items():
        name, _, key = path.partition(".")
        if name in NESTED:
            settings[name][key] = value
        else:
            settings[path] = value
    return settings


class Change(msgspec.Struct, frozen=True):
    """One value that differs. None: there is none on that side."""

    path: str
    before: str | None
    after: str | None


def changes_between(before: Mapping[str, Any], after: Mapping[str, Any]) -> tuple[Change, ...]:
    """The values that differ, as text."""
    one, other = flatten(before), flatten(after)
    paths = [path for path in dict.fromkeys((*one, *other)) if not _same(one, other, path)]
    return tuple(Change(_label(path), _shown(one, path), _shown(other, path)) for path in paths)


def _same(one: Flat, other: Flat, path: str) -> bool:
    # As JSON: 1 and True are equal in Python.
    return path in one and path in other and json.dumps(one[path]) == json.dumps(other[path])


def _label(path: str) -> str:
    return LABELS.get(path, path)


def _shown(flat: Flat, path: str) -> str | None:
    if path not in flat:
        return None
    value = flat[path]
    if path.startswith("secrets.") and parse_reference(value) is None:
        return HIDDEN
    if path == "traffic_percent":
        return f"{value} %"
    return value if isinstance(value, str) else as_json(value, spread=False, most=2_000)


class Merge(msgspec.Struct, frozen=True):
    """The settings with the changes of two operators."""

    settings: Settings
    theirs: tuple[Change, ...]
    """Changed by the other one since the page was opened."""
    both: tuple[Change, ...]
    """Changed by both to different values: theirs as `before`, yours as `after`. Yours is in the settings."""


def merge(base: Mapping[str, Any], yours: Mapping[str, Any], now: Mapping[str, Any]) -> Merge:
    """Apply the changes from `base` to `yours` on the settings as they are now."""
    old, new, current = flatten(base), flatten(yours), flatten(now)
    merged = dict(current)
    both = []
    for path in dict.fromkeys((*old, *new)):
        if _same(old, new, path):
            continue
        if path in new:
            merged[path] = new[path]
        else:
            merged.pop(path, None)
        if not _unchanged(old, current, path) and not _unchanged(new, current, path):
            both.append(Change(_label(path), _shown(current, path), _shown(new, path)))
    return Merge(unflatten(merged), changes_between(base, now), tuple(both))


def _unchanged(one: Flat, other: Flat, path: str) -> bool:
    return (path not in one and path not in other) or _same(one, other, path)


# Forms.


class ConfigForm(msgspec.Struct, frozen=True):
    """The config of a binding as fields, or as JSON where fields cannot express it."""

    fields: tuple[forms.Field, ...] | None
    json: str
    can_be_fields: bool


def config_form(schema: Any, config: Mapping[str, Any], as_text: bool = False) -> ConfigForm:
    """Fields only if they would send back exactly this config."""
    fields = forms.fields_of(schema) if schema is not None else ()
    try:
        filled = None if fields is None else forms.fill(fields, config)
    except forms.Invalid:
        filled = None
    text = json.dumps(dict(config), ensure_ascii=False, indent=2)
    return ConfigForm(None if as_text else filled, text, filled is not None)


def defaults_of(schema: Any) -> dict[str, Any]:
    """The config that a schema proposes: its defaults."""
    properties = schema.get("properties") if isinstance(schema, Mapping) else None
    named = properties if isinstance(properties, Mapping) else {}
    return {
        name: each["default"]
        for name, each in named.items()
        if isinstance(each, Mapping) and each.get("default") is not None
    }


def slots_of(export: Export) -> tuple[str, ...]:
    """The secret slots that an export declares."""
    return tuple((export.facts.get("permissions") or {}).get("secret_slots", ()))


# Lists and facts.


def binding_row(row: BindingRow) -> tuple[Cell, ...]:
    return (
        Cell(row.export_id, row.export_kind, f"/bindings/{row.id}", mono=True),
        Cell(row.package_id, row.package_version),
        Cell(row.org_id, row.project_id or ""),
        Cell(row.status, tone=STATUS_TONES.get(row.status, "calm")),
        Cell(f"{row.traffic_percent} %", number=True),
        Cell(at=row.updated_at),
    )


BINDING_COLUMNS = ("Export", "Package", "Where", "Status", "Traffic", "Changed")


def permission_facts(verdict: Verdict) -> tuple[tuple[str, str], ...]:
    """The effective permissions and limits of a binding."""
    limits = {name: value for name, value in verdict.limits.items() if value is not None}
    granted = {**verdict.permissions.to_json(), **limits}
    return tuple((name.replace("_", " "), _words(value)) for name, value in granted.items())


def permission_changes(before: Verdict, after: Verdict) -> tuple[Change, ...]:
    """The permissions and limits that a change gives or takes, such as those of another version."""
    one, other = dict(permission_facts(before)), dict(permission_facts(after))
    names = dict.fromkeys((*one, *other))
    return tuple(Change(name, one.get(name), other.get(name)) for name in names if one.get(name) != other.get(name))


def _words(value: Any) -> str:
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value)) or "none"
    return value if isinstance(value, str) else as_json(value, spread=False)


class SharedTraffic(msgspec.Struct, frozen=True):
    """The bindings that share the traffic of an export at one scope."""

    others: tuple[tuple[str, str, int], ...]
    """Id, version and percent of the other active ones."""
    free: int
    """Percent that the others leave."""


def shared_traffic(row: BindingRow, active: tuple[BindingRow, ...]) -> SharedTraffic:
    same = [
        each
        for each in active
        if (each.package_id, each.export_id, each.project_id) == (row.package_id, row.export_id, row.project_id)
        and each.id != row.id
    ]
    taken = sum(Share(each.id, each.traffic_percent).percent for each in same)
    shown = tuple((each.id, each.package_version, each.traffic_percent) for each in same)
    return SharedTraffic(shown, max(0, 100 - taken))
