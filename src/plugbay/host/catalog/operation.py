"""From a caller's input to an operation: one export and one JSON input become one operation.

Has the input schemas of all kinds of exports that bring none. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from plugbay.contracts.mcp.offers import FACT, address
from plugbay.host.services.llm.chat import REQUEST_SCHEMA, ChatRequest
from plugbay.model.errors import Code, Failure
from plugbay.model.operations import (
    CallMethod,
    Chat,
    Compact,
    DeleteVectors,
    DispatchCli,
    GetPrompt,
    InvokeTool,
    ReadResource,
    Render,
    RunHarness,
    RunHook,
    SearchVectors,
    SendOutbound,
    StartChannel,
    StopChannel,
    UpsertVectors,
)
from plugbay.model.spec import Export
from plugbay.wire.fast_json import MsgspecCodec

if TYPE_CHECKING:
    from plugbay.model.operations import PluginOp

DEFAULT_SIZE = (80, 24)
"""Columns and lines of a terminal of unknown size."""

LONGEST_SIDE = 65_535
"""Cells of a screen in one direction: viewports have 16-bit sides."""

_TEXT = {"type": "string", "minLength": 1}
_SIDE = {"type": "integer", "minimum": 1, "maximum": LONGEST_SIDE}

INPUTS: dict[str, Any] = {
    "hook": {"type": "object", "description": "The event that is passed to the hook."},
    "channel": {
        "type": "object",
        "required": ["action"],
        "properties": {
            "action": {"enum": ["start", "stop", "send"]},
            "instance": {"type": ["string", "null"], "description": "start: which account of this kind"},
            "message": {
                "type": "object",
                "required": ["kind"],
                "properties": {"kind": {"enum": ["text", "media", "custom"]}},
                "description": "send: {kind: text, to, body} or {kind: media, to, url, caption?} or {kind: custom, …}",
            },
        },
        "if": {"properties": {"action": {"const": "send"}}},
        "then": {"required": ["message"]},
        "additionalProperties": False,
    },
    "llm_provider": REQUEST_SCHEMA,
    "vector_backend": {
        "type": "object",
        "required": ["action", "collection"],
        "properties": {
            "action": {"enum": ["upsert", "search", "delete"]},
            "collection": _TEXT,
            "records": {"type": "array"},
            "query": {"type": "object", "required": ["embedding"]},
            "ids": {"type": "array", "items": {"type": "string"}},
        },
        "oneOf": [
            {"properties": {"action": {"const": "upsert"}}, "required": ["records"]},
            {"properties": {"action": {"const": "search"}}, "required": ["query"]},
            {"properties": {"action": {"const": "delete"}}, "required": ["ids"]},
        ],
        "additionalProperties": False,
    },
    "compactor": {
        "type": "object",
        "required": ["source", "target"],
        "properties": {
            "compaction_id": _TEXT,
            "source": {
                "type": "object",
                "required": ["projection"],
                "properties": {
                    "chain_id": {"type": ["string", "null"]},
                    "projection": {
                        "type": "object",
                        "required": ["blocks"],
                        "properties": {
                            "blocks": {"type": "array", "items": {"type": "object"}},
                            "pinned_items": {"type": "array", "items": {"type": "object"}},
                            "token_estimate": {"type": "integer", "minimum": 0},
                        },
                    },
                },
            },
            "target": {
                "type": "object",
                "required": ["max_input_tokens"],
                "properties": {
                    "max_input_tokens": {"type": "integer", "minimum": 1},
                    "target_model": _TEXT,
                    "target_context": {**_TEXT, "description": "the kind of conversation, such as coding"},
                },
            },
            "policy": {"type": "object"},
        },
        "additionalProperties": False,
    },
    "harness": {
        "type": "object",
        "properties": {
            "mode": {"enum": ["start", "resume"], "default": "start"},
            "target": {
                "type": "object",
                "properties": {"execution_id": _TEXT},
                "description": "session_id, chain_id, execution_id",
            },
            "trigger": {"type": "object", "required": ["type"], "properties": {"type": _TEXT}},
            "policy": {"type": "object", "description": "max_depth, max_child_runs, allow_compaction"},
        },
        "if": {"required": ["mode"], "properties": {"mode": {"const": "resume"}}},
        "then": {"required": ["target"], "properties": {"target": {"required": ["execution_id"]}}},
        "additionalProperties": False,
    },
    "screen": {
        "type": "object",
        "properties": {
            "width": {**_SIDE, "default": DEFAULT_SIZE[0]},
            "height": {**_SIDE, "default": DEFAULT_SIZE[1]},
        },
        "additionalProperties": False,
    },
    "cli_namespace": {
        "type": "object",
        "properties": {
            "argv": {
                "type": "array",
                "items": {"type": "string"},
                "default": [],
                "description": "the words after the namespace",
            },
        },
        "additionalProperties": False,
    },
}
"""The input schema of each kind of export; tools bring their own."""


def operation(
    export: Export, payload: msgspec.Raw, codec: MsgspecCodec, context: Mapping[str, Any], stream: bool = False
) -> PluginOp | Failure:
    """The operation for an input that matches the export's schema already."""
    if export.facts.get("unsupported"):
        return Failure(Code.UNAVAILABLE, f"{export.name} cannot run here: {export.facts['unsupported']}")
    if export.kind == "tool":
        return InvokeTool(export.name, payload, context)
    if export.kind == "method":
        return CallMethod(export.name, payload, context)
    if export.kind == "hook":
        return RunHook(export.name, payload, context)
    if export.kind == "resource":
        uri = address(export, codec.load(payload))
        return ReadResource(uri, context) if uri else Failure(Code.NOT_FOUND, f"{export.name} has no address")
    if export.kind == "prompt":
        return GetPrompt(export.facts[FACT]["name"], payload, context)
    # A compactor of kaged has no execution class: it is called through its hook, never by itself.
    if export.kind in _BY_INVOCATION and "execution_class" in export.facts:
        return _BY_INVOCATION[export.kind](export.name, codec.load(payload), context)
    build = _BUILDERS.get(export.kind)
    if build is None:
        return Failure(Code.NOT_FOUND, f"{export.name} is a {export.kind}, which cannot be called")
    return build(export.name, codec.load(payload), stream)


_BY_INVOCATION: dict[str, Callable[[str, Any, Mapping[str, Any]], PluginOp]] = {
    "compactor": Compact,
    "harness": RunHarness,
}


def _channel(kind: str, value: dict[str, Any], stream: bool) -> PluginOp:
    if value["action"] == "send":
        return SendOutbound(kind, value["message"])
    return StartChannel(kind, value.get("instance")) if value["action"] == "start" else StopChannel(kind)


def _chat(provider: str, value: dict[str, Any], stream: bool) -> PluginOp:
    request = ChatRequest(**value).to_json()
    return Chat(provider, value["model"], request, stream=stream)


def _vectors(backend: str, value: dict[str, Any], stream: bool) -> PluginOp:
    collection = value["collection"]
    if value["action"] == "upsert":
        return UpsertVectors(backend, collection, value["records"])
    if value["action"] == "search":
        return SearchVectors(backend, collection, {"limit": 10, **value["query"]})
    return DeleteVectors(backend, collection, value["ids"])


def _screen(screen: str, value: dict[str, Any], stream: bool) -> PluginOp:
    width, height = DEFAULT_SIZE
    # JSON Schema takes 80.0 for an integer, the wire does not.
    return Render(screen, int(value.get("width", width)), int(value.get("height", height)))


def _namespace(namespace: str, value: dict[str, Any], stream: bool) -> PluginOp:
    return DispatchCli(namespace, value.get("argv", []))


_BUILDERS: dict[str, Callable[[str, dict[str, Any], bool], PluginOp]] = {
    "channel": _channel,
    "llm_provider": _chat,
    "vector_backend": _vectors,
    "screen": _screen,
    "cli_namespace": _namespace,
}
