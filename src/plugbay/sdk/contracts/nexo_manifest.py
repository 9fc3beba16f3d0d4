"""Who a plugin says it is to a nexo host: its manifest, its id and the names of its tools in nexo's alphabet.

One source serves several contracts, so a plugin called `example.weather` is `example_weather` there, and its tool
`forecast` is `example_weather_forecast`. Reads the few fields the SDK needs; whether a manifest is good is for the host
to judge.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

ALPHABET = frozenset("abcdefghijklmnopqrstuvwxyz0123456789_")


def nexo_id(id: str) -> str:
    """An id in nexo's alphabet: lower case, and `_` for whatever else is not in it."""
    return "".join(char if char in ALPHABET else "_" for char in id.lower())


def offered_name(id: str, tool: str) -> str:
    """The name of a tool as plugin `id` offers it: with the plugin's prefix, unless it has one."""
    return tool if tool.startswith((f"{id}_", f"ext_{id}_")) else f"{id}_{nexo_id(tool)}"


def parse(text: str) -> dict[str, Any]:
    """A `nexo-plugin.toml`; raises ValueError when it does not say who the plugin is."""
    import tomllib

    manifest = tomllib.loads(text)
    table = manifest.get("plugin")
    wanted = {"id": _is_id, "version": _is_text}
    for key, is_good in wanted.items():
        if not isinstance(table, dict) or not is_good(table.get(key)):
            raise ValueError(f"the manifest has no usable plugin.{key}")
    return manifest


def declared_tools(manifest: dict[str, Any]) -> list[str]:
    """The tools a manifest promises; a host turns away a plugin that offers any other."""
    extends = manifest.get("plugin", {}).get("extends", {})
    return list(extends.get("tools", ()))


def default_manifest(id: str, version: str, name: str, description: str) -> dict[str, Any]:
    """What a plugin without a manifest of its own echoes."""
    return {"plugin": {"id": nexo_id(id), "version": version, "name": name or id, "description": description}}


def _is_text(value: object) -> bool:
    return isinstance(value, str) and bool(value.strip())


def _is_id(value: object) -> bool:
    return isinstance(value, str) and value[:1].isalpha() and ALPHABET.issuperset(value)
