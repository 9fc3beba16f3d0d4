"""From an export to its definition in MCP. What an MCP server said of itself is said again, unchanged.

Owns titles, schemas and hints about effects. Decides with values; refuses to know who asks and how a call goes.
"""

from __future__ import annotations

from typing import Any

from plugbay.model.spec import Export

FACT = "mcp"
"""Where an export of an MCP server keeps the server's own definition."""

WRAPPED = "input"
"""The one argument of a tool whose input is no object; MCP's arguments are one."""

EFFECTS: dict[str, dict[str, bool]] = {
    "read_only": {"readOnlyHint": True},
    "idempotent_write": {"readOnlyHint": False, "destructiveHint": False, "idempotentHint": True},
    "non_idempotent_write": {"readOnlyHint": False, "destructiveHint": True, "idempotentHint": False},
}
"""By effect class. Whoever does not know says nothing: MCP's own defaults assume the worst."""

TIERS: dict[tuple[str, bool], str] = {
    ("safe", False): "read_only",
    ("dangerous", True): "non_idempotent_write",
    ("destructive", True): "non_idempotent_write",
}
"""Effects of rune's tools: by how much approval they ask for, and whether they change anything."""

ANYTHING: dict[str, Any] = {"type": "object"}
"""The schema of a tool that does not say what it takes."""


def tool(export: Export, served: str) -> dict[str, Any]:
    """How `tools/list` describes a tool."""
    own = export.facts.get(FACT)
    if own is not None:
        return own if own.get("name") == served else {**own, "name": served}
    title = export.facts.get("display_name")
    hints = _hints(export)
    return {
        "name": served,
        **({"title": title} if title else {}),
        **({"description": export.description} if export.description else {}),
        "inputSchema": _input_schema(export),
        **({"outputSchema": export.output_schema} if promises_object(export) else {}),
        **({"annotations": hints} if hints else {}),
    }


def prompt(export: Export, served: str) -> dict[str, Any]:
    """How `prompts/list` describes a prompt; only MCP servers have any."""
    own: dict[str, Any] = export.facts[FACT]
    return own if own.get("name") == served else {**own, "name": served}


def own_name(export: Export) -> str:
    """What its author calls it; a host may have to call a prompt otherwise that has the name of a tool."""
    name: str = export.facts.get(FACT, {}).get("name", export.name)
    return name


def takes_object(export: Export) -> bool:
    """Whether MCP's arguments are the tool's input; otherwise its input is one of them."""
    schema = export.input_schema
    return not isinstance(schema, dict) or schema.get("type", "object") == "object"


def promises_object(export: Export) -> bool:
    """Whether the tool says what object it answers with: what `structuredContent` then has to be."""
    return isinstance(export.output_schema, dict) and export.output_schema.get("type") == "object"


def _input_schema(export: Export) -> dict[str, Any]:
    schema = export.input_schema
    if not isinstance(schema, dict):
        return ANYTHING
    if not takes_object(export):
        return {"type": "object", "properties": {WRAPPED: schema}, "required": [WRAPPED]}
    return schema if "type" in schema else {"type": "object", **schema}


def _hints(export: Export) -> dict[str, bool]:
    facts = export.facts
    effect = facts.get("effect_class") or TIERS.get((facts.get("approval_tier", ""), facts.get("mutating", True)), "")
    return EFFECTS.get(effect, {})
