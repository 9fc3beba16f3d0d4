"""What an operator can set for a plugin whose exports are bound one by one.

    [plugins."acme/devkit"]
    config = { jira_search = { base_url = "https://acme.example" } }

Pure: each export has its part of the plugin's config under its own name, and all of them share the plugin's secrets,
each slot a text that is long enough to be kept out of what is said.
"""

from __future__ import annotations

from plugbay.host.invocations.context import requested
from plugbay.host.recording.redaction import SHORTEST
from plugbay.model.spec import PluginSpec, SettingsSpec


def settings_of(spec: PluginSpec) -> SettingsSpec:
    """The settings of a plugin: those of its manifest, and those of its exports where they have their own."""
    configs = {
        export.name: export.facts["config_schema"]
        for export in spec.exports
        if export.facts.get("config_schema") is not None
    }
    slots = dict.fromkeys(slot for export in spec.exports for slot in requested(export).secret_slots)
    known = spec.settings
    return SettingsSpec(
        config_schema=_object(configs) if configs else known.config_schema,
        secrets_schema=_object({slot: {"type": "string", "minLength": SHORTEST} for slot in slots})
        if slots
        else known.secrets_schema,
        knobs=known.knobs,
    )


def _object(properties: dict[str, object]) -> dict[str, object]:
    return {"type": "object", "properties": properties, "additionalProperties": False}
