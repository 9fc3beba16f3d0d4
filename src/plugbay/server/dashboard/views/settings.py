"""Values of the settings page: a field for each knob and each setting without one, and the secrets by name. Pure."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from typing import Any

import msgspec
from msgspec.structs import replace

from plugbay.model.knobs import shown
from plugbay.server.dashboard.forms import CHOICE, FLAG, INTEGER, NUMBER, TEXT, Field, fields_of, written

KNOB_KINDS = {"range": NUMBER, "int_range": INTEGER, "enum": CHOICE, "boolean": FLAG}
"""The kind of field of each type of knob; others are text."""


class Setting(msgspec.Struct, frozen=True):
    """A setting with its field."""

    field: Field
    changed: bool
    """Changed here, so that it can be reset."""


class Secret(msgspec.Struct, frozen=True):
    """A secret by its name."""

    name: str
    description: str
    required: bool
    is_set: bool


class SettingsPage(msgspec.Struct, frozen=True):
    """The settings of a plugin."""

    settings: tuple[Setting, ...]
    secrets: tuple[Secret, ...]
    problems: tuple[str, ...]

    @property
    def fields(self) -> tuple[Field, ...]:
        return tuple(each.field for each in self.settings)

    def with_fields(self, fields: Collection[Field]) -> SettingsPage:
        """The same page with these fields, in the same order."""
        pairs = zip(self.settings, fields, strict=True)
        return replace(self, settings=tuple(replace(setting, field=field) for setting, field in pairs))


def settings_page(described: Mapping[str, Any], changed: Collection[str]) -> SettingsPage:
    """The page of settings that `PluginSettings.describe` returned; `changed` are the fields that were changed here."""
    config, knobs = described["config"], described["knobs"]
    bound = {knob["field"] for knob in knobs}
    settings = [Setting(_knob_field(knob), knob["field"] in changed) for knob in knobs]
    for field in fields_of(described["config_schema"], depth=0) or ():
        if field.name not in bound:
            settings.append(Setting(_schema_field(field, config), field.name in changed))
    secrets = tuple(
        Secret(item["name"], str(item["description"]), item["required"], item["set"]) for item in described["secrets"]
    )
    problems = tuple(": ".join(filter(None, (each["path"], each["message"]))) for each in described["problems"])
    return SettingsPage(tuple(settings), secrets, problems)


def changes_of(fields: Collection[Field], made: Mapping[str, Any]) -> dict[str, Any]:
    """The submitted values that differ from those of the fields."""
    return {
        field.name: made[field.name]
        for field in fields
        if field.name in made and written(field.kind, made[field.name]) != field.value
    }


def _knob_field(knob: Mapping[str, Any]) -> Field:
    kind, value = KNOB_KINDS.get(knob["type"], TEXT), knob["value"]
    values, labels = knob.get("values") or (), knob.get("labels") or {}
    return Field(
        knob["name"],
        kind,
        value is not None,
        knob["label"] or knob["name"],
        " ".join(filter(None, (knob["description"], _rules(knob)))),
        "" if value is None else written(kind, value),
        tuple(map(_json, values)) if kind == CHOICE else (),
        tuple(str(labels.get(shown(each), shown(each))) for each in values) if kind == CHOICE else (),
        _bound(knob.get("min")),
        _bound(knob.get("max")),
        _bound(knob.get("step")),
    )


def _schema_field(field: Field, config: Mapping[str, Any]) -> Field:
    if field.name not in config:
        return replace(field, value="")
    return replace(field, value=written(field.kind, config[field.name]), required=True)


def _rules(knob: Mapping[str, Any]) -> str:
    """The bounds and the default of a knob in words."""
    low, high, step, unit = (knob.get(name) for name in ("min", "max", "step", "unit"))
    parts = []
    if low is not None and high is not None:
        parts.append(f"{low:g} to {high:g}")
    if unit:
        parts.append(str(unit))
    if step is not None and step != 1:
        parts.append(f"steps of {step:g}")
    if knob.get("max_length") is not None:
        parts.append(f"at most {knob['max_length']} characters")
    if knob.get("prefixes"):
        parts.append(f"begins with {' or '.join(map(str, knob['prefixes']))}")
    if knob["default"] is not None:
        parts.append(f"default {shown(knob['default'])}")
    return f"({', '.join(parts)})" if parts else ""


def _bound(value: Any) -> str:
    return "" if value is None else _json(value)


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
