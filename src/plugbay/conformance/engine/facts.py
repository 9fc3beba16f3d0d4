"""Named values that scenarios use and the spec does not have, for the contracts that need them.

`…_facts` has the values of every conversation with a plugin, `…_about` those of a conversation about one export. An MCP
server lists its exports only in the conversation, so `apply_hello` adds them to the spec.
"""

from __future__ import annotations

import os
import time
import tomllib
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from msgspec.structs import replace

from plugbay.conformance.engine import inputs
from plugbay.contracts.ainb.messages import ABI_VERSION, INIT, granted_names
from plugbay.contracts.ainb.spec import FILE_NAME
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
from plugbay.contracts.vai.messages import HOOK, PROTOCOL
from plugbay.model.errors import Outcome
from plugbay.model.spec import Export, PluginSpec

# ainb. The manifest is read again instead of the spec: some scenarios check that the plugin returns it unchanged.

RESERVED_TOPICS = ("ui.close_request", "ui.state")
"""Topics that any plugin with the bus may publish to, although no manifest names them."""

GATED = {
    "topic": ("host/snapshot/get", "host/snapshot/subscribe", "host/snapshot/publish"),
    "network": ("host/network/fetch",),
    "read_path": ("host/fs/read_dir", "host/fs/read_file"),
}
"""Kind of access → the methods that need it."""


def ainb_facts(spec: PluginSpec) -> Mapping[str, Any]:
    """Named values of every conversation with this plugin."""
    manifest = tomllib.loads((spec.root / FILE_NAME).read_text("utf-8"))
    publications = list(manifest.get("provides", {}).get("snapshots", []))
    kinds = {access.kind for access in spec.access}
    path = str(spec.root / FILE_NAME)
    return {
        "manifest": manifest,
        "init": _init(path, granted_names(spec.capabilities)),
        "init_ungranted": _init(path, []),
        "init_elsewhere": _init("/nonexistent/plugbay/manifest.toml", granted_names(spec.capabilities)),
        "publications": publications,
        "may_publish": [*publications, *RESERVED_TOPICS],
        "bus": [access.target or "*" for access in spec.access if access.kind == "topic"],
        "read_roots": [os.path.expanduser(access.target) for access in spec.access if access.kind == "read_path"],
        "gated_methods": [method for kind, methods in GATED.items() if kind in kinds for method in methods],
    }


def _init(manifest_path: str, granted: list[str]) -> dict[str, Any]:
    params = {
        "manifest_path": manifest_path,
        "granted_capabilities": granted,
        "abi_version": ABI_VERSION,
        "config": None,
    }
    return {"jsonrpc": "2.0", "id": 1, "method": INIT, "params": params}


# vai.

SECRET = "plugbay-conformance-f3b1c7d2e9a8"
"""In the value of every secret, and nowhere else."""

DEADLINE_SECONDS = 120
"""From now to the deadline of a request: longer than any scenario takes."""

HELLO = {"protocol": PROTOCOL, "type": "hello", "role": "host", "host": {"name": "conformance", "version": "1.0.0"}}

_PREFIXES = {"invocation": "inv", "trace": "tr", "project": "proj", "session": "sess", "chain": "ch"}
IDS = {
    f"{name}_id": f"{_PREFIXES.get(name, name)}_conformance"
    for name in "invocation trace org project session chain run".split()
}

NO_GATEWAY: dict[str, Any] = {"base_url": None, "delegation_token": None, "scopes": []}

ODD: dict[str, dict[str, Any]] = {
    "tool": {"input": {"plugbay_conformance": [None]}},
    "hook": {"event": {"type": "plugbay.conformance", "summary": {}}},
    "compactor": {
        "source": {
            "chain_id": "ch_conformance",
            "projection": {
                "transport": "artifact",
                "artifact": {"path": "nothing.json", "media_type": "x/y", "size_bytes": 1, "sha256": "0" * 64},
                "token_estimate": 1,
            },
        }
    },
    "harness": {"mode": "resume", "checkpoint": {"kind": "plugbay_conformance", "data": None}},
}
"""By kind, an input that a handler can hardly use: a meaningless value, a missing file."""


def vai_facts(spec: PluginSpec) -> Mapping[str, Any]:
    """Named values of every conversation with this plugin."""
    compactors = [export for export in spec.exports if export.kind == "compactor"]
    return {
        "hello": HELLO,
        "secret": SECRET,
        "secret_slots": sorted({slot for export in spec.exports for slot in _permissions(export)["secret_slots"]}),
        "schemas": [export.name for export in spec.exports if export.output_schema is not None],
        "scratch": [export.name for export in compactors if _permissions(export)["filesystem"] == "scratch"],
    }


def vai_about(export: Export | None, place: str) -> Mapping[str, Any]:
    """Named values of a conversation about this export."""
    if export is None:
        return {"beside": {}, "event_type": "", "output_schema": {}, "statuses": [], "odd": {}, "other_op": ""}
    acknowledged = ["ack"] if export.kind == HOOK else []
    return {
        "beside": _common_keys(export, place),
        "event_type": next(iter(export.facts.get("subscribes_to", ())), ""),
        "output_schema": {} if export.output_schema is None else export.output_schema,
        "statuses": [*acknowledged, *_OUTCOMES],
        "other_op": "tool.invoke" if export.kind != "tool" else "hook.handle",
        # An export that changes state is called only with inputs that its author wrote down.
        "odd": ODD[export.kind] if inputs.is_harmless(export) else {},
    }


_OUTCOMES = (Outcome.SUCCEEDED, Outcome.FAILED, Outcome.CANCELLED, Outcome.RETRYABLE_FAILURE)


def _common_keys(export: Export, place: str) -> dict[str, Any]:
    """The keys that the bodies of all requests have."""
    asked, schema = _permissions(export), export.facts["config_schema"]
    permissions = {name: asked[name] for name in ("network", "filesystem")}
    deadline = datetime.fromtimestamp(time.time() + DEADLINE_SECONDS, UTC)
    context = {
        **IDS,
        "deadline_at": deadline.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        "scratch_dir": place if asked["filesystem"] == "scratch" else None,
        "gateway": NO_GATEWAY,
        "permissions": permissions,
    }
    return {
        "export_id": export.name,
        "context": context,
        "config": {} if schema is None else inputs.value_for(schema),
        "secrets": {slot: f"{SECRET}-{slot}" for slot in asked["secret_slots"]},
    }


def _permissions(export: Export) -> Mapping[str, Any]:
    permissions: Mapping[str, Any] = export.facts["permissions"]
    return permissions


# MCP.

CLIENT_INFO = {"name": "conformance", "version": "1.0.0"}

AT_ONCE = 4
"""Calls of one tool at the same time: MCP sets no limit, and every server must accept a few."""

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


def mcp_facts(spec: PluginSpec) -> Mapping[str, Any]:
    """Named values of every conversation with this server; assumes the handshake until its hello is known."""
    return {
        **GREETINGS,
        "handshake": [HANDSHAKE],
        "stdio": [] if spec.url else ["stdio"],
        "schemas": [export.name for export in spec.exports if export.output_schema is not None],
    }


def apply_hello(spec: PluginSpec, hello: Mapping[str, Any]) -> tuple[PluginSpec, dict[str, Any]]:
    """The spec with the exports that the server listed, and the named values that follow from its hello."""
    exports, _ = exports_of(hello["offer"])
    known = replace(
        spec, exports=tuple(_export(export) for export in exports if "uriTemplate" not in _definition(export))
    )
    return known, {
        **mcp_facts(known),
        "handshake": [HANDSHAKE] if hello["era"] == HANDSHAKE else [],
        "logging": ["logging"] if "logging" in hello["capabilities"] else [],
    }


def _export(export: Export) -> Export:
    """Add the effect class, which decides whether a tool may be called: without `readOnlyHint` it is unknown."""
    annotations = _definition(export).get("annotations")
    reads = isinstance(annotations, dict) and annotations.get("readOnlyHint") is True
    effect = {"effect_class": inputs.READ_ONLY if reads else "unknown"} if export.kind == "tool" else {}
    return replace(export, facts={**export.facts, **effect, "max_concurrency": AT_ONCE})


def mcp_about(export: Export | None, place: str) -> Mapping[str, Any]:
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
