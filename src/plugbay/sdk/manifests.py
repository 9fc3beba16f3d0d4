"""The manifest of a plugin, written from what its code declares: nothing has to be said twice.

    print(kaged_manifest(plugin, command=["python3", "plugin.py"]))     # > kaged-plugin.yaml

Loaded by whoever names it, never by a plugin that serves. Whether the declarations make a good manifest is for those
to judge who read it: `plugbay inspect` says.
"""

from __future__ import annotations

from plugbay.contracts.kaged.messages import API_VERSION
from plugbay.sdk.kaged_names import carried_capabilities, carried_hooks, kaged_name

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from plugbay.sdk.handlers import Tool
    from plugbay.sdk.plugin import Plugin

MAX_DESCRIPTION = 200
"""Characters that the contract allows."""

BINDING = "config."
"""What the field that a knob turns is written after."""

YAML_WORDS = frozenset("y n yes no on off true false null".split())
"""Keys that some readers of YAML take for something else than text."""


def kaged_manifest(plugin: Plugin, command: Sequence[str]) -> str:
    """The text of a `kaged-plugin.yaml` for a plugin that is started with `command`."""
    said = {
        "name": kaged_name(plugin.id),
        "version": plugin.version,
        "kaged_api": API_VERSION,
        "description": (plugin.description or plugin.name or plugin.id)[:MAX_DESCRIPTION],
        "command": list(command),
        "capabilities": list(carried_capabilities(plugin.capabilities)),
        "tools": [_tool(tool) for tool in plugin.tools.values()],
        "methods": list(plugin.methods),
        "notifications": plugin.notifications,
        "hooks": list(carried_hooks(plugin)),
        "roles": _roles(plugin),
        "config_schema": plugin.config_schema,
        "system_config_schema": plugin.secrets_schema,
        "knobs": {name: _knob(facts) for name, facts in plugin.knobs.items()} or None,
    }
    return "".join(
        f"{line}\n" for line in _block({key: value for key, value in said.items() if value not in (None, [])})
    )


def _tool(tool: Tool) -> dict[str, Any]:
    return {"name": tool.name, "description": tool.description, "parameters_schema": tool.input_schema}


def _roles(plugin: Plugin) -> list[str]:
    """Whoever has a hook of a session observes."""
    observes = any(hook in plugin.hooks for hook in carried_hooks(plugin))
    return [*(["observer"] if observes else ()), *(["compactor"] if plugin.compaction is not None else ())]


def _knob(facts: Mapping[str, Any]) -> dict[str, Any]:
    field = str(facts["binds_to"]).removeprefix(BINDING)
    return {**facts, "binds_to": f"{BINDING}{field}"}


# YAML, in its block style: one line for each key, and values as in JSON.


def _block(value: Any) -> list[str]:
    if isinstance(value, dict) and value:
        return [line for key, item in value.items() for line in _entry(key, item)]
    if isinstance(value, list | tuple) and value:
        return [line for item in value for line in _hung("- ", _block(item))]
    return [_inline(value)]


def _entry(key: str, item: Any) -> list[str]:
    label = key if key.isascii() and key.isidentifier() and key.lower() not in YAML_WORDS else _inline(key)
    lines = _block(item)
    if isinstance(item, dict | list | tuple) and item:
        return [f"{label}:", *(f"  {line}" for line in lines)]
    return [f"{label}: {lines[0]}"]


def _hung(mark: str, lines: list[str]) -> list[str]:
    first, *rest = lines
    return [f"{mark}{first}", *(f"{' ' * len(mark)}{line}" for line in rest)]


def _inline(value: Any) -> str:
    """A scalar, or an empty collection. YAML reads no pair of surrogates as one character, so little is escaped."""
    import json

    text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    return "".join(char if char.isprintable() else f"\\U{ord(char):08x}" for char in text)
