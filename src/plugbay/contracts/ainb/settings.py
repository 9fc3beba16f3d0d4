"""`[[config]]`: the values a manifest lets an operator set, as knobs and as the schema of the plugin's config.

Owns what the kinds mean. A default is written as text in the manifest and travels as what its kind says: a number, a
boolean or text. Paths travel as they are written, `~` included: it is the plugin that expands it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from pydantic import ValidationError

from plugbay.contracts.ainb.sections import Setting
from plugbay.contracts.document import Path
from plugbay.contracts.draft import Draft
from plugbay.model.knobs import broken_rule, value_of
from plugbay.model.spec import Knob, SettingsSpec

_TYPES = {
    "path": ("path", "string"),
    "string": ("text", "string"),
    "bool": ("boolean", "boolean"),
    "enum": ("enum", "string"),
    "int": ("int_range", "integer"),
}
"""The type of knob, and the type of JSON, that each kind is."""


def check(draft: Draft) -> None:
    """Every rule about settings, on whatever is there."""
    seen: set[str] = set()
    for path, raw in draft.tables("config"):
        draft.warn_of_unknown(path, raw, tuple(Setting.model_fields))
        setting = _setting(raw)
        if setting is None:
            continue
        _key(draft, (*path, "key"), setting.key, seen)
        _sense(draft, path, setting)


def settings(entries: Iterable[Setting]) -> SettingsSpec:
    """What settings without a problem come to; none at all when there are none."""
    known = list(entries)
    if not known:
        return SettingsSpec()
    properties = {setting.key: _schema(setting) for setting in known}
    schema = {"type": "object", "properties": properties, "additionalProperties": False}
    return SettingsSpec(config_schema=schema, knobs=tuple(_knob(setting) for setting in known))


def _setting(raw: dict[str, Any]) -> Setting | None:
    """None when its shape is wrong, which is reported with the shape of everything else."""
    try:
        return Setting.model_validate(raw, strict=True)
    except ValidationError:
        return None


def _key(draft: Draft, path: Path, key: str, seen: set[str]) -> None:
    if not key.strip() or not key.isprintable():
        draft.error("invalid_name", path, f"{key!r:.60} names nothing")
    elif key in seen:
        draft.error("duplicate_setting", path, f"{key!r} is the key of two settings")
    seen.add(key)


def _sense(draft: Draft, path: Path, setting: Setting) -> None:
    if setting.kind == "enum" and not setting.choices:
        draft.error("missing_field", (*path, "choices"), "a setting of kind enum needs some")
        return
    if setting.kind != "enum" and setting.choices:
        draft.warn("choices_ignored", (*path, "choices"), f"a setting of kind {setting.kind} has none, ignored")
    knob = _knob(setting)
    broken = None if knob.default is None else broken_rule(knob, knob.default)
    if broken is not None:
        draft.error("setting_default", (*path, "default"), f"{broken[1]}, got {setting.default!r:.60}")


def _knob(setting: Setting) -> Knob:
    facts = {"values": list(dict.fromkeys(setting.choices))} if setting.kind == "enum" else {}
    knob = Knob(setting.key, _TYPES[setting.kind][0], setting.label, setting.key, facts=facts)
    # No default is the empty text, which is a value of free text and of nothing else.
    has_default = setting.default or setting.kind == "string"
    return replace(knob, default=value_of(knob, setting.default)) if has_default else knob


def _schema(setting: Setting) -> dict[str, Any]:
    """The default stands in the knob."""
    schema: dict[str, Any] = {"type": _TYPES[setting.kind][1], "description": setting.label}
    return {**schema, "enum": list(dict.fromkeys(setting.choices))} if setting.kind == "enum" else schema
