"""The ainb methods: their names, which operation each carries, and which parameters hold its fields.

    → {"jsonrpc":"2.0","id":1,"method":"plugin/init","params":{"manifest_path":…,"granted_capabilities":[…],…}}
    ← {"jsonrpc":"2.0","id":1,"method":"host/snapshot/subscribe","params":{"topic":…}}
    → {"jsonrpc":"2.0","id":1,"result":{}}
    ← {"jsonrpc":"2.0","id":1,"result":{"name":…,"version":…,"abi_version":2,"manifest":{…}}}
    → {"jsonrpc":"2.0","id":2,"method":"plugin/render","params":{"viewport":{…},"generation":0,"screen_id":…}}
    → {"jsonrpc":"2.0","method":"plugin/handle_key","params":{"screen_id":…,"key":{…},"generation":1}}

Requests and notifications are two tables: what is in one cannot be said as the other. Knows no states: what may be said
when is `machine.py`'s.
"""

from __future__ import annotations

from plugbay.contracts.ainb.fields import Field
from plugbay.model.operations import (
    DeliverSnapshot,
    DispatchCli,
    FetchUrl,
    GetSnapshot,
    InvokeAction,
    PerformAction,
    PressKey,
    PublishSnapshot,
    ReadFile,
    ReadFolder,
    Render,
    SubscribeSnapshot,
    UseMouse,
    WriteLog,
)
from plugbay.model.values import Value
from plugbay.wire.content_length import STRICT_HEADERS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

ABI_VERSION = 2
"""The only version of the contract that is spoken here."""

MAX_BODY = STRICT_HEADERS.max_body
"""Bytes of a frame's body. Whoever reads a larger one gives up the conversation, so none is sent."""

MAX_EVENTS = 4_096
"""Snapshots that wait for such a plugin; the oldest give way, so one that was stuck hears of the latest first."""

MAX_QUEUED = 64 << 20
"""Bytes of snapshots that wait for a plugin that does not read: a publish of thirty chunks of the usual 2 MiB."""

HOST_KIND = "plugbay"
"""What the host calls itself in `plugin/init`."""

INIT, SHUTDOWN = "plugin/init", "plugin/shutdown"

CAPABILITIES = (
    "read_sessions",
    "write_plugin_data",
    "event_bus",
    "network",
    "spawn_subprocess",
    "read_claude_logs",
    "read_codex_logs",
    "read_paths",
    "event_stream_subscribe",
    "spawn_managed_subprocess",
    "unix_socket_dial",
    "secrets:read",
    "workspace:write",
)
"""Every capability there is, in the order in which `plugin/init` lists those that are granted."""


class Identity(Value):
    """What a plugin answers to `plugin/init`, which operations it has handlers for, and its command-line namespaces."""

    __slots__ = ("manifest", "name", "namespaces", "serves", "version")

    def __init__(
        self,
        name: str,
        version: str,
        manifest: dict[str, Any] | None = None,
        serves: frozenset[type] = frozenset({Render, DispatchCli}),
        namespaces: tuple[str, ...] = (),
    ) -> None:
        self.name = name
        self.version = version
        self.manifest = manifest or {}
        self.serves = serves
        self.namespaces = namespaces


class Method(Value):
    """One method: its name, the operation it carries, and the fields of its parameters."""

    __slots__ = ("fields", "name", "op")

    def __init__(self, name: str, op: type, *fields: Field) -> None:
        self.name = name
        self.op = op
        self.fields = fields


_TOPIC = Field("topic", "text")
_SCREEN = Field("screen_id", "text", "screen")
_GENERATION = Field("generation", "count", default=0)

INVOKE_ACTION = Method(
    "host/action/invoke",
    InvokeAction,
    Field("action", "text"),
    Field("payload", "bytes", "data"),
    Field("timeout_ms", "count", default=0),
)
"""Asked of the host by a plugin, and by the host of the plugin that owns the action."""

PLUGIN_REQUESTS = (
    Method(
        "plugin/render",
        Render,
        Field("viewport", "viewport"),
        _GENERATION,
        Field("screen_id", "text", "screen", default=""),
    ),
    Method("plugin/cli_dispatch", DispatchCli, Field("namespace", "text"), Field("argv", "texts")),
    INVOKE_ACTION,
)
"""What a host asks of a plugin, besides `plugin/init` and `plugin/shutdown`."""

PLUGIN_NOTIFICATIONS = (
    Method("plugin/handle_event", DeliverSnapshot, _TOPIC, Field("payload", "bytes", "data")),
    Method("plugin/handle_key", PressKey, _SCREEN, Field("key", "key"), _GENERATION),
    Method("plugin/handle_mouse", UseMouse, _SCREEN, Field("mouse", "mouse"), _GENERATION),
    Method(
        "plugin/handle_action",
        PerformAction,
        Field("action_id", "text", "action"),
        Field("payload", "any", default=None),
    ),
)
"""What a host tells a plugin."""

HOST_REQUESTS = (
    Method("host/snapshot/get", GetSnapshot, _TOPIC),
    Method("host/snapshot/subscribe", SubscribeSnapshot, _TOPIC),
    INVOKE_ACTION,
    Method("host/fs/read_dir", ReadFolder, Field("path", "text")),
    Method("host/fs/read_file", ReadFile, Field("path", "text")),
    Method(
        "host/network/fetch",
        FetchUrl,
        Field("url", "text"),
        Field("method", "text", default=""),
        Field("body", "bytes?", default=None),
        Field("headers", "pairs", default=()),
    ),
)
"""What a plugin asks of the host. Whatever else real hosts offer is unknown to this one."""

HOST_NOTIFICATIONS = (
    Method("host/snapshot/publish", PublishSnapshot, _TOPIC, Field("payload", "bytes", "data")),
    Method(
        "host/log", WriteLog, Field("level", "level"), Field("message", "text"), Field("fields", "any", default=None)
    ),
)
"""What a plugin tells the host."""


def granted_names(granted: tuple[str, ...]) -> list[str]:
    """The names of granted capabilities, without what they are narrowed to; those nobody knows come last."""
    names = dict.fromkeys(capability.partition("=")[0] for capability in granted)
    return [*(name for name in CAPABILITIES if name in names), *(name for name in names if name not in CAPABILITIES)]
