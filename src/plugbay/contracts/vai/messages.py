"""The vai frames: their keys, the operations of each `op`, request bodies, response bodies, and the two hellos.

    → {"protocol":"vai.rpc.v1","type":"hello","role":"host","host":{"name":…,"version":…}}
    ← {"protocol":"vai.rpc.v1","type":"hello","role":"plugin","plugin":{"package_id":…,"version":…}}
    → {"protocol":"vai.rpc.v1","type":"request","id":"req_1","op":"tool.invoke","body":{"export_id":…,…}}
    ← {"protocol":"vai.rpc.v1","type":"event","request_id":"req_1","event":{"type":"progress",…}}
    → {"protocol":"vai.rpc.v1","type":"cancel","request_id":"req_1","reason":"deadline_exceeded"}
    ← {"protocol":"vai.rpc.v1","type":"response","id":"req_1","ok":true,"body":{"status":…,"result":…}}
    ← {"protocol":"vai.rpc.v1","type":"response","id":"req_1","ok":false,"error":{"code":…,"message":…}}
    → {"protocol":"vai.rpc.v1","type":"shutdown"}

Requests and responses have an `id`; frames in between have a `request_id`. A plugin must be exactly the installed
package: another id or version is a sign of tampering, and it gets no request. Members that the host sets itself
(context, config, secrets, attempt) cannot be replaced by a caller's request. No message quotes a value: secrets are
among them. A hook acknowledges and has no result; other work has one, and work that ends early may leave a checkpoint.
"""

from __future__ import annotations

from plugbay.contracts.vai import errors
from plugbay.contracts.vai.errors import IDENTITY_MISMATCH, INVALID_FRAME
from plugbay.model.errors import Code, Failure, Origin, Outcome
from plugbay.model.operations import Compact, InvokeTool, RunHarness, RunHook
from plugbay.model.values import Value
from plugbay.wire.content_length import OPEN_HEADERS
from plugbay.wire.strict_json import Unencodable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from plugbay.model.operations import Operation
    from plugbay.wire.strict_json import Codec

PROTOCOL = "vai.rpc.v1"
"""The only version of the contract that is spoken here."""
MAX_BODY = OPEN_HEADERS.max_body
"""Bytes of a frame. A larger one ends the conversation, so none is sent."""
MAX_ID = 256
"""Characters of an id: every answer repeats it, and has to fit a frame whatever was asked."""
HELLO, REQUEST, EVENT, RESPONSE, CANCEL, SHUTDOWN = "hello request event response cancel shutdown".split()
HOST_READS = ("protocol", "type", "role", "plugin", "id", "request_id", "ok", "body", "error")
HOST_READS_RAW = ("event",)
PLUGIN_READS = ("protocol", "type", "role", "host", "id", "request_id", "op", "body")
USER_CANCELLED = "user_cancelled"
CANCEL_REASONS = ("deadline_exceeded", USER_CANCELLED, "run_cancelled", "host_shutdown", "binding_disabled")
"""The reasons of a cancellation in the contract."""


class Identity(Value):
    """The identity of a plugin, and the kind of each export that it has a handler for."""

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
    """`who`: the identity of the sender, under the name of its role."""
    return _START + b'"hello","role":"%b","%b":%b}' % (role.encode(), role.encode(), who)


def request(id: str, op: str, body: bytes) -> bytes:
    """`id`: one of `request_id`."""
    return _START + b'"request","id":"%b","op":"%b","body":%b}' % (id.encode(), op.encode(), body)


def event(id: bytes, event: bytes) -> bytes:
    return _START + b'"event","request_id":%b,"event":%b}' % (id, event)


def response(id: bytes, body: bytes) -> bytes:
    return _START + b'"response","id":%b,"ok":true,"body":%b}' % (id, body)


def refusal(id: bytes, error: bytes) -> bytes:
    return _START + b'"response","id":%b,"ok":false,"error":%b}' % (id, error)


def cancel(id: bytes, reason: str) -> bytes:
    """A reason outside of the contract becomes `user_cancelled`."""
    known = reason if reason in CANCEL_REASONS else USER_CANCELLED
    return _START + b'"cancel","request_id":%b,"reason":"%b"}' % (id, known.encode())


def check_greeting(plugin: Any, package_id: str, version: str) -> dict[str, Any] | Failure:
    """HOST: the plugin as `Ready` carries it, or why it must go."""
    if not isinstance(plugin, dict):
        return _unwelcome(INVALID_FRAME, "its hello does not identify the plugin")
    expected = {"package_id": package_id, "version": version}
    got = {name: plugin.get(name) for name in expected}
    if got != expected:
        said = {name: f"{value:.200}" if isinstance(value, str) else None for name, value in got.items()}
        missing = [name for name, value in said.items() if value is None]
        claims = (
            f"names no {' and no '.join(missing)}" if missing else f"says it is {' '.join(map(str, said.values()))}"
        )
        what = f"it {claims}, but {package_id} {version} is installed"
        return _unwelcome(IDENTITY_MISMATCH, what, expected=expected, got=said)
    return {**expected, "warnings": []}


def _unwelcome(code: str, why: str, **more: Any) -> Failure:
    what = f"the plugin was not accepted: {why}"
    return Failure(Code.HANDSHAKE_FAILED, what, origin=Origin.PLUGIN, detail={"plugin_code": code, **more})


def read_greeting(host: Any) -> dict[str, str]:
    """PLUGIN: what the host said about itself; what is missing reads as nothing."""
    said = host if isinstance(host, dict) else {}
    return {f"host_{name}": said[name] if isinstance(said.get(name), str) else "" for name in ("name", "version")}


ACK = "ack"
"""How a hook says that it succeeded."""
MAX_LEFT = 512 * 1024
"""Bytes of a result that a failure carries: twice the largest checkpoint. Failures are remembered, many at a time."""
_EARLY = frozenset({Outcome.FAILED, Outcome.RETRYABLE_FAILURE, Outcome.CANCELLED})


def read_response(kind: str, ok: Any, body: Any, error: Any, codec: Codec) -> tuple[Any, Failure | None]:
    """HOST: the value in a response to an export of this kind, or why there is none."""
    if ok is not True:
        return None, errors.refused(error) if ok is False else errors.invalid("it has neither ok=true nor ok=false")
    if not isinstance(body, dict):
        return None, errors.invalid("it has no body")
    status = body.get("status")
    if not isinstance(status, str):
        return None, errors.invalid("its body has no status")
    if status in _EARLY:
        return None, _early(status, body, codec)
    if kind == HOOK and status in (ACK, Outcome.SUCCEEDED):
        return codec.dump({}), None
    if status != Outcome.SUCCEEDED:
        return None, errors.invalid(f"its status {status!r:.100} is not one that a {kind} ends with")
    return _value(body, codec)


def _value(body: dict[str, Any], codec: Codec) -> tuple[Any, Failure | None]:
    if "result" not in body:
        return None, errors.invalid("it succeeded without a result")
    try:
        return codec.dump(body["result"]), None
    except Unencodable as error:
        return None, errors.invalid(str(error))


def _early(status: str, body: dict[str, Any], codec: Codec) -> Failure:
    failure = errors.ended(status, body.get("error"))
    result = body.get("result")
    if result is None:
        return failure
    size = len(codec.encode(result))
    return failure.with_detail(**({"result": result} if size <= MAX_LEFT else {"result_left_out": size}))


def success(kind: str, value: Any) -> dict[str, Any]:
    """PLUGIN: the body that says what came out."""
    return {"status": ACK} if kind == HOOK else {"status": Outcome.SUCCEEDED, "result": value}


def end(failure: Failure, *, leave: bool = True) -> dict[str, Any]:
    """PLUGIN: the body that says how it ended early, with what the handler leaves."""
    left = failure.detail.get("result") if leave else None
    return {
        "status": failure.outcome,
        "error": errors.error_of(failure),
        **({} if left is None else {"result": left}),
    }


_BY_NAME = {method.name: method for method in METHODS}
_OBJECTS = "context config secrets input event source target policy trigger checkpoint".split()
_TEXTS = "tool_execution_id delivery_id compaction_id mode".split()
_TYPES: dict[str, type] = {**dict.fromkeys(_OBJECTS, dict), **dict.fromkeys(_TEXTS, str), "attempt": int}
_WORDS: dict[type, str] = {dict: "an object", str: "a string", int: "an integer"}


def write_request(method: Method, op: Any, codec: Codec) -> bytes | Failure:
    """HOST: the body that asks for `op`, or why there is none."""
    ours = {"export_id": getattr(op, method.kind), **op.context}
    payload = getattr(op, method.payload)
    try:
        if not method.parts:
            return codec.encode({**ours, method.payload: payload})
        parts = payload if isinstance(payload, dict) else codec.load(codec.dump(payload))
        if not isinstance(parts, dict):
            return Failure(Code.INVALID_INPUT, f"the input of a {method.kind} must be an object")
        return codec.encode({**ours, **parts, **ours})
    except Unencodable as error:
        return Failure(Code.INVALID_INPUT, f"it cannot be sent as JSON: {error}")


def read_request(name: Any, body: Any, exports: Mapping[str, str]) -> Operation | tuple[str, str]:
    """PLUGIN: the operation that is asked of one of its exports, or the code and the words it is refused with."""
    if not isinstance(name, str):
        return errors.INVALID_FRAME, "missing op"
    method = _BY_NAME.get(name)
    if method is None:
        return errors.UNKNOWN_OP, f"unknown op {name!r:.100}"
    if not isinstance(body, dict):
        return errors.INVALID_FRAME, "missing body"
    export_id = body.get("export_id")
    if not isinstance(export_id, str):
        return errors.INVALID_FRAME, "the body has no export_id"
    if exports.get(export_id) != method.kind:
        return errors.UNKNOWN_EXPORT, f"this plugin has no {method.kind} {export_id!r:.100}"
    op = _read_params(method, export_id, body)
    return (errors.INVALID_FRAME, op) if isinstance(op, str) else op


def _read_params(method: Method, export_id: str, body: dict[str, Any]) -> Operation | str:
    """The operation, or what is wrong with its body. Null is the same as nothing."""
    required = method.parts or (method.payload,)
    names = (*required, *method.optional, *method.beside, *BESIDE)
    said = {name: body[name] for name in names if body.get(name) is not None}
    for name in required:
        if name not in said:
            return f"the body has no {name}"
    for name, value in said.items():
        if type(value) is not _TYPES[name]:
            return f"{name} must be {_WORDS[_TYPES[name]]}"
    beside = {name: said.pop(name) for name in (*BESIDE, *method.beside) if name in said}
    make: Callable[..., Operation] = method.op
    return make(export_id, said if method.parts else said[method.payload], beside)
