"""What is asked: operations into bodies of requests, and bodies into operations.

What the host says of its own accord (the context, config, secrets, which try this is) can never be replaced by what a
caller put into its request. Refuses to know frames, ids and states, and never quotes a value: secrets are among them.
"""

from __future__ import annotations

from plugbay.contracts.vai import errors
from plugbay.contracts.vai.messages import BESIDE, METHODS
from plugbay.model.errors import Code, Failure
from plugbay.wire.strict_json import Unencodable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from plugbay.contracts.vai.messages import Method
    from plugbay.model.operations import Operation
    from plugbay.wire.strict_json import Codec

_BY_NAME = {method.name: method for method in METHODS}

_OBJECTS = "context config secrets input event source target policy trigger checkpoint".split()
_TEXTS = "tool_execution_id delivery_id compaction_id mode".split()
_TYPES: dict[str, type] = {**dict.fromkeys(_OBJECTS, dict), **dict.fromkeys(_TEXTS, str), "attempt": int}
_WORDS: dict[type, str] = {dict: "an object", str: "a string", int: "an integer"}


def written(method: Method, op: Any, codec: Codec) -> bytes | Failure:
    """HOST: the body that asks for `op`, or why there is none."""
    ours = {"export_id": getattr(op, method.kind), **op.context}
    payload = getattr(op, method.payload)
    try:
        if not method.parts:
            return codec.encode({**ours, method.payload: payload})
        parts = payload if isinstance(payload, dict) else codec.load(codec.dump(payload))
        if not isinstance(parts, dict):
            return Failure(Code.INVALID_INPUT, f"what a {method.kind} is asked must be an object")
        return codec.encode({**ours, **parts, **ours})
    except Unencodable as error:
        return Failure(Code.INVALID_INPUT, f"it cannot be sent as JSON: {error}")


def judge(name: Any, body: Any, exports: Mapping[str, str]) -> Operation | tuple[str, str]:
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
    op = _read(method, export_id, body)
    return (errors.INVALID_FRAME, op) if isinstance(op, str) else op


def _read(method: Method, export_id: str, body: dict[str, Any]) -> Operation | str:
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
