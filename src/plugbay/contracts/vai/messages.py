"""The vai frames: how each looks on the wire, which keys it has, and which operation each `op` carries.

    → {"protocol":"vai.rpc.v1","type":"hello","role":"host","host":{"name":…,"version":…}}
    ← {"protocol":"vai.rpc.v1","type":"hello","role":"plugin","plugin":{"package_id":…,"version":…}}
    → {"protocol":"vai.rpc.v1","type":"request","id":"req_1","op":"tool.invoke","body":{"export_id":…,…}}
    ← {"protocol":"vai.rpc.v1","type":"event","request_id":"req_1","event":{"type":"progress",…}}
    → {"protocol":"vai.rpc.v1","type":"cancel","request_id":"req_1","reason":"deadline_exceeded"}
    ← {"protocol":"vai.rpc.v1","type":"response","id":"req_1","ok":true,"body":{"status":…,"result":…}}
    ← {"protocol":"vai.rpc.v1","type":"response","id":"req_1","ok":false,"error":{"code":…,"message":…}}
    → {"protocol":"vai.rpc.v1","type":"shutdown"}

Requests and responses have an `id`; what is said about one in between has a `request_id`. Knows no states: what may be
said when is `machine.py`'s.
"""

from __future__ import annotations

from plugbay.model.operations import Compact, InvokeTool, RunHarness, RunHook
from plugbay.model.values import Value
from plugbay.wire.content_length import OPEN_HEADERS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

PROTOCOL = "vai.rpc.v1"
"""The only version of the contract that is spoken here."""

MAX_BODY = OPEN_HEADERS.max_body
"""Bytes of a frame. Whoever reads a larger one gives up the conversation, so none is sent."""

MAX_ID = 256
"""Characters of an id: every answer repeats it, and has to fit a frame whatever was asked."""

HELLO, REQUEST, EVENT, RESPONSE, CANCEL, SHUTDOWN = "hello request event response cancel shutdown".split()

HOST_READS = ("protocol", "type", "role", "plugin", "id", "request_id", "ok", "body", "error")
HOST_READS_RAW = ("event",)
PLUGIN_READS = ("protocol", "type", "role", "host", "id", "request_id", "op", "body")

USER_CANCELLED = "user_cancelled"
CANCEL_REASONS = ("deadline_exceeded", USER_CANCELLED, "run_cancelled", "host_shutdown", "binding_disabled")
"""What a plugin may be told about why it is cancelled."""


class Identity(Value):
    """Who a plugin says it is, and the kind of each export it has handlers for."""

    __slots__ = ("exports", "package_id", "version")

    def __init__(self, package_id: str, version: str, exports: Mapping[str, str] | None = None) -> None:
        self.package_id = package_id
        self.version = version
        self.exports = dict(exports or {})


class Method(Value):
    """One `op`: the kind of export it is for, its operation, and the keys of its body beside those all bodies have.

    `payload` is the operation's field with what is asked. It stands in the body under its own name, or as its `parts`,
    of which `optional` ones may be missing. `beside` says which try of which piece of work this is.
    """

    __slots__ = ("beside", "kind", "name", "op", "optional", "parts", "payload")

    def __init__(
        self,
        name: str,
        kind: str,
        op: type,
        payload: str,
        *,
        parts: tuple[str, ...] = (),
        optional: tuple[str, ...] = (),
        beside: tuple[str, ...] = (),
    ) -> None:
        self.name = name
        self.kind = kind
        self.op = op
        self.payload = payload
        self.parts = parts
        self.optional = optional
        self.beside = beside


HOOK = "hook"
"""The one kind whose good answer is an acknowledgement and carries nothing."""

METHODS = (
    Method("tool.invoke", "tool", InvokeTool, "input", beside=("tool_execution_id",)),
    Method("hook.handle", HOOK, RunHook, "event", beside=("delivery_id", "attempt")),
    Method("compactor.compact", "compactor", Compact, "request", parts=("compaction_id", "source", "target", "policy")),
    Method(
        "harness.run",
        "harness",
        RunHarness,
        "request",
        parts=("mode", "target", "trigger", "policy"),
        optional=("checkpoint",),
    ),
)

BESIDE = ("context", "config", "secrets")
"""Keys that a body of any kind may have beside what is asked."""


def request_id(number: int) -> str:
    """The id of a host's nth request."""
    return f"req_{number}"


def read_id(value: Any) -> str | None:
    """An id that can be answered; None where there is none."""
    return value if type(value) is str and 0 < len(value) <= MAX_ID else None


def glimpsed_id(head: bytes) -> str | None:
    """The id of a frame that cannot be read, seen from its beginning.

    None where that is not certain: nothing that might hold another one may have been opened before it.
    """
    before, _, after = head.lstrip().partition(b'"id":')
    opening, quote, rest = after.partition(b'"')
    id, closing, _ = rest.partition(b'"')
    outermost = before.startswith(b"{") and before.count(b"{") == 1 and b"[" not in before
    if not (outermost and quote and closing and not opening.strip() and id.isascii() and b"\\" not in id):
        return None
    text = id.decode("ascii")
    return read_id(text) if text.isprintable() else None


# Frames, of parts that are JSON already.

_START = b'{"protocol":"%b","type":' % PROTOCOL.encode()

SHUTDOWN_FRAME = _START + b'"shutdown"}'


def hello(role: str, who: bytes) -> bytes:
    """`who`: what the sender says about itself, under the name of its role."""
    return _START + b'"hello","role":"%b","%b":%b}' % (role.encode(), role.encode(), who)


def request(id: bytes, op: str, body: bytes) -> bytes:
    return _START + b'"request","id":%b,"op":"%b","body":%b}' % (id, op.encode(), body)


def event(id: bytes, event: bytes) -> bytes:
    return _START + b'"event","request_id":%b,"event":%b}' % (id, event)


def response(id: bytes, body: bytes) -> bytes:
    return _START + b'"response","id":%b,"ok":true,"body":%b}' % (id, body)


def refusal(id: bytes, error: bytes) -> bytes:
    return _START + b'"response","id":%b,"ok":false,"error":%b}' % (id, error)


def cancel(id: bytes, reason: str) -> bytes:
    """What is no word of the contract means that somebody no longer wants the answer."""
    known = reason if reason in CANCEL_REASONS else USER_CANCELLED
    return _START + b'"cancel","request_id":%b,"reason":"%b"}' % (id, known.encode())
