"""Named values for the scenarios of MCP: greetings of both protocol generations, and inputs that schemas refuse.

A server lists its exports only in the conversation, so `apply_hello` adds them to the spec.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from plugbay.conformance.engine import inputs
from plugbay.contracts.mcp.messages import (
    CAPABILITIES,
    CLIENT,
    DISCOVER,
    HANDSHAKE,
    INITIALIZE,
    INITIALIZED,
    MODERN_REVISIONS,
    REVISIONS,
    VERSION,
)
from plugbay.contracts.mcp.offers import exports_of
from plugbay.contracts.schemas import compile_schema
from plugbay.model.spec import Export, PluginSpec

CLIENT_INFO = {"name": "conformance", "version": "1.0.0"}

AT_ONCE = 4
"""Calls of one tool at the same time: MCP knows no limit, and every server has to take a few."""

NO_OBJECT = "plugbay"
"""Arguments that no tool takes, because arguments are an object."""

META = {VERSION: MODERN_REVISIONS[0], CLIENT: CLIENT_INFO, CAPABILITIES: dict[str, Any]()}

GREETINGS: dict[str, Any] = {
    "initialize": {
        "jsonrpc": "2.0",
        "id": 1,
        "method": INITIALIZE,
        "params": {"protocolVersion": REVISIONS[0], "capabilities": {}, "clientInfo": CLIENT_INFO},
    },
    "initialized": {"jsonrpc": "2.0", "method": INITIALIZED},
    "discover": {"jsonrpc": "2.0", "id": 1, "method": DISCOVER, "params": {"_meta": META}},
    "meta": META,
    "versions": list(REVISIONS),
}


def facts(spec: PluginSpec) -> Mapping[str, Any]:
    """Named values of every conversation with this server; assumes the handshake until its hello is known."""
    return {
        **GREETINGS,
        "handshake": [HANDSHAKE],
        "schemas": [export.name for export in spec.exports if export.output_schema is not None],
    }


def apply_hello(spec: PluginSpec, hello: Mapping[str, Any]) -> tuple[PluginSpec, dict[str, Any]]:
    """The spec with the exports that the server listed, and the named values that follow from its hello."""
    exports, _ = exports_of(hello["offer"])
    known = replace(
        spec, exports=tuple(_export(export) for export in exports if "uriTemplate" not in _definition(export))
    )
    return known, {
        **facts(known),
        "handshake": [HANDSHAKE] if hello["era"] == HANDSHAKE else [],
        "logging": ["logging"] if "logging" in hello["capabilities"] else [],
    }


def _export(export: Export) -> Export:
    """Add the effect class, which decides whether a tool may be called: without `readOnlyHint` it is unknown."""
    annotations = _definition(export).get("annotations")
    reads = isinstance(annotations, dict) and annotations.get("readOnlyHint") is True
    effect = {"effect_class": inputs.READ_ONLY if reads else "unknown"} if export.kind == "tool" else {}
    return replace(export, facts={**export.facts, **effect, "max_concurrency": AT_ONCE})


def about(export: Export | None, place: str) -> Mapping[str, Any]:
    """Named values of a conversation about this export."""
    if export is None:
        return {"address": "", "filled_in": {}, "misfit": NO_OBJECT, "output_schema": {}}
    return {
        "address": _definition(export).get("uri", ""),
        "filled_in": _fill_arguments(export),
        "misfit": next(_misfits(export), NO_OBJECT),
        "output_schema": {} if export.output_schema is None else export.output_schema,
    }


def _fill_arguments(export: Export) -> dict[str, str]:
    """Some text for every argument that a prompt must have."""
    arguments = _definition(export).get("arguments")
    entries = [entry for entry in arguments if isinstance(entry, dict)] if isinstance(arguments, list) else []
    return {str(entry.get("name")): "text" for entry in entries if entry.get("required")}


def _misfits(export: Export) -> Iterator[Any]:
    """Inputs that the schema of a tool does not allow."""
    try:
        schema = compile_schema(export.input_schema)
    except ValueError:
        return
    given = inputs.input_for(export)
    usual = given if isinstance(given, dict) else {}
    properties = export.input_schema.get("properties") if isinstance(export.input_schema, dict) else None
    odd = ({**usual, name: [None]} for name in (properties if isinstance(properties, dict) else ()))
    yield from (value for value in (*odd, {}, {"plugbay_conformance": [None]}) if not schema.is_valid(value))


def _definition(export: Export) -> Mapping[str, Any]:
    """The server's own definition."""
    definition = export.facts.get("mcp")
    return definition if isinstance(definition, dict) else {}
