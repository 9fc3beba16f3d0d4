"""The nexo methods: their names, which operation each carries, and which parameter holds which of its fields.

    → {"jsonrpc":"2.0","id":1,"method":"initialize","params":{"nexo_version":…}}
    ← {"jsonrpc":"2.0","id":1,"result":{"manifest":{…},"server_version":…,"tools":[…]}}
    → {"jsonrpc":"2.0","id":2,"method":"tool.invoke","params":{"plugin_id":…,"tool_name":…,"args":…,"agent_id":…}}
    ← {"jsonrpc":"2.0","method":"broker.publish","params":{"topic":…,"event":{…}}}

Owns the limits and how a request is written; how one is read is `requests.py`'s. Knows no states: what may be said when
is `machine.py`'s.
"""

from __future__ import annotations

from plugbay.model.operations import (
    Chat,
    CompleteChat,
    DeleteVectors,
    DeliverEvent,
    InvokeTool,
    Publish,
    RecallMemory,
    RunHook,
    SearchVectors,
    SendOutbound,
    StartChannel,
    StopChannel,
    UpsertVectors,
)
from plugbay.model.values import Value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from plugbay.wire.strict_json import Codec

CONTRACT_VERSION = "1.10.0"
"""The version of the contract text this package implements."""

NEXO_VERSION = "0.2.0"
"""What the host says it is in `initialize`, and what a manifest's `min_nexo_version` is held against."""

MAX_HOST_LINE = 1 << 20
"""Bytes a child reads in one line, without the newline. Some count the newline too, so the host stays below: a line of
this size would be dropped over there without a word, and its call would time out."""

MAX_CHILD_LINE = 16 << 20
"""Bytes the host reads in one line. The contract names none and real hosts have none; screenshots are megabytes."""

MAX_EARLY_PUBLISHES = 64
"""Events kept of a child that publishes before its greeting was accepted; as many as the host queues the other way."""

READS = ("id", "method", "error")
READS_RAW = ("params", "result")
"""`jsonrpc` is not among them: nobody checks it, everybody writes it."""

INITIALIZE, SHUTDOWN = "initialize", "shutdown"
CHAT_DELTA, COMPLETE_DELTA = "llm.chat.delta", "llm.complete.delta"


class Identity(Value):
    """What a plugin answers to `initialize`, and which operations it has handlers for."""

    __slots__ = ("manifest", "server_version", "serves", "tools")

    def __init__(
        self,
        manifest: dict[str, Any],
        server_version: str,
        tools: tuple[dict[str, Any], ...] = (),
        serves: frozenset[type] = frozenset({InvokeTool, DeliverEvent}),
    ) -> None:
        self.manifest = manifest
        self.server_version = server_version
        self.tools = tools
        self.serves = serves

    @property
    def plugin_id(self) -> str:
        """The id in the manifest; empty when it has none."""
        table = self.manifest.get("plugin")
        id = table.get("id") if isinstance(table, dict) else None
        return id if isinstance(id, str) else ""


class Method(Value):
    """One method: its name, the operation it carries, and (parameter, field of the operation, kind) for each parameter.

    Kinds: "text", "text?" (may be null), "object", "array", "flag", "any"; `requests.py` holds what is read to them.
    """

    __slots__ = ("fields", "name", "op")

    def __init__(self, name: str, op: type, *fields: tuple[str, str, str]) -> None:
        self.name = name
        self.op = op
        self.fields = fields


TOOL = Method("tool.invoke", InvokeTool)
"""Written by `tool_prefix` and read by hand: it is the one method that is asked thousands of times a second."""

TO_CHILD = (
    TOOL,
    Method("broker.event", DeliverEvent, ("topic", "topic", "text"), ("event", "payload", "any")),
    Method("channel.start", StartChannel, ("kind", "kind", "text"), ("instance", "instance", "text?")),
    Method("channel.stop", StopChannel, ("kind", "kind", "text")),
    Method("channel.send_outbound", SendOutbound, ("kind", "kind", "text"), ("msg", "message", "object")),
    Method(
        "llm.chat",
        Chat,
        ("provider", "provider", "text"),
        ("model", "model", "text"),
        ("stream", "stream", "flag"),
        ("request", "request", "object"),
    ),
    Method("hook.on_hook", RunHook, ("hook_name", "hook", "text"), ("event", "event", "any")),
    Method(
        "memory.vector_upsert",
        UpsertVectors,
        ("backend", "backend", "text"),
        ("collection", "collection", "text"),
        ("records", "records", "array"),
    ),
    Method(
        "memory.vector_search",
        SearchVectors,
        ("backend", "backend", "text"),
        ("collection", "collection", "text"),
        ("query", "query", "object"),
    ),
    Method(
        "memory.vector_delete",
        DeleteVectors,
        ("backend", "backend", "text"),
        ("collection", "collection", "text"),
        ("ids", "ids", "array"),
    ),
)
"""What a host says to its child, besides `initialize`, `shutdown` and the deltas of an answer."""

TO_HOST = (
    Method("broker.publish", Publish, ("topic", "topic", "text"), ("event", "event", "object")),
    Method(
        "memory.recall",
        RecallMemory,
        ("agent_id", "agent_id", "text"),
        ("query", "query", "text"),
        ("limit", "limit", "any"),
    ),
    Method(
        "llm.complete",
        CompleteChat,
        ("provider", "provider", "text"),
        ("model", "model", "text"),
        ("messages", "messages", "array"),
        ("max_tokens", "max_tokens", "any"),
        ("temperature", "temperature", "any"),
        ("system_prompt", "system_prompt", "any"),
        ("stream", "stream", "any"),
    ),
)
"""What a child says to its host, besides the deltas of an answer."""

NOTIFICATIONS = frozenset({DeliverEvent, Publish})
"""What may be said without wanting an answer."""

TAKES_PLUGIN_ID = frozenset({InvokeTool, RunHook})
"""Operations whose parameters begin with the id of the plugin they go to."""


def params(method: Method, op: Any, plugin_id: str) -> dict[str, Any]:
    """The parameters of `op`; what a completion leaves unset is not mentioned."""
    filled = {key: getattr(op, field) for key, field, _ in method.fields}
    if method.op in TAKES_PLUGIN_ID:
        return {"plugin_id": plugin_id, **filled}
    if method.op is CompleteChat:
        return {key: value for key, value in filled.items() if value is not None and value is not False}
    return filled


def tool_prefix(codec: Codec, plugin_id: str, tool: str) -> bytes:
    """Everything of a `tool.invoke` between its id and its args."""
    return b'"method":"tool.invoke","params":{"plugin_id":%b,"tool_name":%b,"args":' % (
        codec.encode(plugin_id),
        codec.encode(tool),
    )


def identity_reply(identity: Identity) -> dict[str, Any]:
    """The result of `initialize`: exactly these keys, and no `tools` when there are none."""
    reply: dict[str, Any] = {"manifest": identity.manifest, "server_version": identity.server_version}
    if identity.tools:
        reply["tools"] = [
            {key: tool[key] for key in ("name", "description", "input_schema")} for tool in identity.tools
        ]
    return reply
