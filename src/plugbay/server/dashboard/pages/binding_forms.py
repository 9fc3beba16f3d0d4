"""The form of a binding, for a new one and for a change: its values, the settings in it, and the dry run behind it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from plugbay.model.spec import Export
from plugbay.server.api.middleware import parse_json
from plugbay.server.dashboard import forms
from plugbay.server.dashboard.authentication import Visit
from plugbay.server.dashboard.pages.orgs import POLICY, POLICY_FIELDS
from plugbay.server.dashboard.views.bindings import (
    Change,
    ConfigForm,
    Merge,
    Settings,
    config_form,
    settings_of,
    slots_of,
)
from plugbay.server.domain.bindings import ACTIVE, DISABLED, DRAFT, DryRun
from plugbay.server.domain.secrets import parse_reference
from plugbay.store.bindings import BindingRow

STATUSES = (ACTIVE, DRAFT, DISABLED)

CONFIG, SLOT = "config:", "secret:"
"""Prefixes of the fields of a form."""


class Review(msgspec.Struct, frozen=True):
    """The dry run of a change, and the form that makes it."""

    changes: tuple[Change, ...]
    result: DryRun
    document: str
    """The request that the button sends, as JSON."""
    merged: Merge | None = None
    """Set when another operator has changed the binding meanwhile."""
    permissions: tuple[Change, ...] = ()
    """The differences in the rights of the plugin."""

    @property
    def is_conflict(self) -> bool:
        return self.merged is not None and bool(self.merged.theirs)


def read_document(visit: Visit) -> dict[str, Any]:
    """The request in a form of a dry run; raises `request.invalid_json`."""
    found = parse_json(visit.field("document").encode())
    return found if isinstance(found, dict) else {}


def opened_settings(visit: Visit, row: BindingRow) -> Settings:
    """The settings that the page was opened with; those of now if the form has none."""
    try:
        found = forms.input_of_json(visit.field("base"))
    except forms.Invalid:
        found = {}
    now = settings_of(row)
    usable = isinstance(found, dict) and all(type(found.get(name)) is type(now[name]) for name in now)
    return {name: found[name] for name in now} if usable else now


def typed_settings(visit: Visit, export: Export, base: Mapping[str, Any]) -> Settings:
    """The settings of a submitted form; parts that it does not have are those of `base`. Raises `Invalid`."""
    settings, parts = dict(base), visit.form.get("part", ())
    if "traffic" in parts:
        settings["traffic_percent"] = _percent(visit.field("traffic_percent"))
    if "settings" not in parts:
        return settings
    settings["package_version"] = visit.field("package_version") or settings["package_version"]
    settings["status"] = visit.field("status") or settings["status"]
    settings["secrets"] = {
        slot: visit.field(SLOT + slot).strip() for slot in slots_of(export) if visit.field(SLOT + slot).strip()
    }
    settings["config"] = _typed_config(visit, export)
    settings["policy"] = forms.input_of(POLICY_FIELDS, forms.with_prefix(POLICY, visit.form))
    return settings


def _typed_config(visit: Visit, export: Export) -> dict[str, Any]:
    if "config_json" in visit.form:
        found = forms.input_of_json(visit.field("config_json"))
        if not isinstance(found, dict):
            raise forms.Invalid("the settings must be a JSON object")
        return found
    fields = forms.fields_of(export.facts.get("config_schema")) or ()
    return forms.input_of(fields, forms.with_prefix(CONFIG, visit.form))


def _percent(text: str) -> int:
    if not text.isascii() or not text.isdigit() or int(text) > 100:
        raise forms.Invalid("the traffic is a whole number from 0 to 100")
    return int(text)


def form_values(
    visit: Visit, export: Export, settings: Settings, refused: bool, fields: tuple[forms.Field, ...]
) -> dict[str, Any]:
    """The fields of the form of a binding. A refused form shows what was typed, and marks what is wrong."""
    schema = export.facts.get("config_schema")
    config = config_form(schema, settings["config"], visit.query("as") == "json")
    policy = forms.fill(POLICY_FIELDS, settings["policy"])
    slots = [(slot, settings["secrets"].get(slot, "")) for slot in slots_of(export)]
    percent, version = settings["traffic_percent"], settings["package_version"]
    if refused and "settings" in visit.form.get("part", ()):
        config = _refilled(visit, schema, config, fields)
        policy = forms.refill(POLICY_FIELDS, forms.with_prefix(POLICY, visit.form))
        if fields and fields[0].key in {field.key for field in POLICY_FIELDS}:
            policy = fields
        slots = [(slot, visit.field(SLOT + slot)) for slot in slots_of(export)]
        version = visit.field("package_version") or version
    shown = [(slot, text if parse_reference(text) else "") for slot, text in slots]
    return {
        "config": config,
        "policy": policy,
        "limited": any(field.value for field in policy),
        "slots": shown,
        "percent": percent,
        "version": version,
        "status_now": settings["status"],
        "settings": settings,
        "statuses": [(name, name) for name in STATUSES],
    }


def _refilled(visit: Visit, schema: Any, config: ConfigForm, fields: tuple[forms.Field, ...]) -> ConfigForm:
    if "config_json" in visit.form:
        return ConfigForm(None, visit.field("config_json"), config.can_be_fields)
    own = forms.fields_of(schema) or ()
    marked = fields if fields and {field.key for field in fields} == {field.key for field in own} else ()
    return ConfigForm(marked or forms.refill(own, forms.with_prefix(CONFIG, visit.form)), config.json, True)
