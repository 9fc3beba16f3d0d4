"""Judging a child's answer to `initialize`: is it who it should be, and does it offer what its manifest promised?

Owns the identity and catalogue checks in their order (first failure wins). The echoed manifest is read for its id and
nothing else: the host trusts the file it parsed itself. Refuses to know frames and states.
"""

from __future__ import annotations

from plugbay.model.errors import Code, Failure

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

TOOL_KEYS = ("name", "description", "input_schema")


def judge(result: Any, expected_id: str, declared: Iterable[str]) -> dict[str, Any] | Failure:
    """What the child said about itself, as `Ready` carries it, or why it must go."""
    if not isinstance(result, dict):
        return _failed("the answer to initialize is not an object")
    manifest = result.get("manifest")
    table = manifest.get("plugin") if isinstance(manifest, dict) else None
    plugin_id = table.get("id") if isinstance(table, dict) else None
    if not isinstance(plugin_id, str):
        return _failed("the answer to initialize has no manifest with a plugin.id")
    if plugin_id not in (expected_id, expected_id.partition(".")[0]):
        ids = {"expected_id": expected_id, "plugin_id": plugin_id}
        return _failed(f"the plugin calls itself {plugin_id!r}, not {expected_id!r}", **ids)
    tools = _catalogue(result["tools"]) if "tools" in result else []
    if isinstance(tools, Failure):
        return tools
    names = {tool["name"] for tool in tools}
    promised = list(declared)
    drift = sorted(names.difference(promised))
    if drift:
        return _failed(f"offers tools its manifest does not declare: {', '.join(drift)}", undeclared=drift)
    version = result.get("server_version")
    missing = [name for name in promised if name not in names]
    return {
        "plugin_id": plugin_id,
        "server_version": version if isinstance(version, str) else "",
        "tools": tools,
        "warnings": _warnings(missing, version),
    }


def _catalogue(entries: Any) -> list[dict[str, Any]] | Failure:
    if not isinstance(entries, list):
        return _failed("tools in the answer to initialize is not an array")
    tools: dict[str, dict[str, Any]] = {}
    for position, entry in enumerate(entries):
        if not _is_tool(entry):
            wanted = "name and description (strings) and input_schema (an object)"
            return _failed(f"tools[{position}] in the answer to initialize must hold {wanted}")
        if entry["name"] in tools:
            return _failed(f"offers the tool {entry['name']!r} twice")
        tools[entry["name"]] = {key: entry[key] for key in TOOL_KEYS}
    return list(tools.values())


def _is_tool(entry: Any) -> bool:
    if not isinstance(entry, dict):
        return False
    name, description, schema = (entry.get(key) for key in TOOL_KEYS)
    return isinstance(name, str) and name != "" and isinstance(description, str) and isinstance(schema, dict)


def _warnings(missing: list[str], version: Any) -> list[str]:
    warnings = [f"declares the tool {name!r} but does not offer it; calls to it will fail" for name in missing]
    if not isinstance(version, str):
        warnings.append("does not say its server_version")
    return warnings


def _failed(what: str, **detail: Any) -> Failure:
    return Failure(Code.HANDSHAKE_FAILED, what, detail=detail)
