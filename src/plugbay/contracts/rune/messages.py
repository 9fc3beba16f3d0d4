"""The four rune messages: how each looks on the wire, and which keys it must have.

    → {"type":"handshake","protocol_version":"rterm.plugin.v1"}
    ← {"type":"handshake","manifest":{"plugin_id":…,"plugin_version":…,"protocol_version":…,"exposed_tools":[…]}}
    → {"type":"request","request_id":…,"tool_name":…,"context":{…},"input":…}
    ← {"type":"response","request_id":…,"status":"ok","output":…}
    ← {"type":"response","request_id":…,"status":"error","error":{"code":…,"message":…}}

Keys are matched exactly. `machine.py` has the states.
"""

from __future__ import annotations

from plugbay.model.values import Value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from plugbay.wire.strict_json import Codec

PROTOCOL = "rterm.plugin.v1"

MAX_PLUGIN_LINE = 1 << 20
"""Bytes of one plugin line after trimming: 1,048,576 is legal, one more is not."""

MAX_HOST_LINE = 64 << 20
"""The contract sets no limit for what the host sends; a plugin must still not buffer without end."""

HOST_READS = ("type", "manifest", "request_id", "status", "error", "metadata")
HOST_READS_RAW = ("output",)
PLUGIN_READS = ("type", "protocol_version", "request_id", "tool_name", "context")
PLUGIN_READS_RAW = ("input",)

CONTEXT_KEYS = ("workspace_id", "widget_id", "repo_root", "role_id", "mode_id")
"""The context a rune host may send; each is left out when it is empty."""


class Identity(Value):
    """The identity of a plugin in its handshake."""

    __slots__ = ("capabilities", "plugin_id", "plugin_version", "tools")

    def __init__(
        self, plugin_id: str, plugin_version: str, tools: tuple[str, ...], capabilities: tuple[str, ...] = ()
    ) -> None:
        self.plugin_id = plugin_id
        self.plugin_version = plugin_version
        self.tools = tools
        self.capabilities = capabilities


def handshake_request(codec: Codec) -> bytes:
    return codec.encode({"type": "handshake", "protocol_version": PROTOCOL})


def handshake_reply(codec: Codec, identity: Identity) -> bytes:
    manifest = {
        "plugin_id": identity.plugin_id,
        "plugin_version": identity.plugin_version,
        "protocol_version": PROTOCOL,
        "exposed_tools": list(identity.tools),
        "capabilities": list(identity.capabilities),
    }
    return codec.encode({"type": "handshake", "manifest": manifest})


def execute_request(codec: Codec, request_id: str, tool: str, context: Mapping[str, Any], input: Any) -> bytes:
    known = {key: context[key] for key in CONTEXT_KEYS if context.get(key)}
    return codec.encode(
        {"type": "request", "request_id": request_id, "tool_name": tool, "context": known, "input": input}
    )


def ok_response(codec: Codec, request_id: str, output: Any) -> bytes:
    return codec.encode({"type": "response", "request_id": request_id, "status": "ok", "output": output})


def error_response(codec: Codec, request_id: str, code: str, message: str) -> bytes:
    error = {"code": code, "message": message}
    return codec.encode({"type": "response", "request_id": request_id, "status": "error", "error": error})


def request_id(nonce: int, number: int) -> str:
    """`plugin_req_` and sixteen hex digits, unguessable through the nonce, distinct through the number."""
    return f"plugin_req_{(nonce + number) & 0xFFFF_FFFF_FFFF_FFFF:016x}"
