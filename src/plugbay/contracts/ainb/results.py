"""Answers: which shape each must have when it comes, and which it is given when it goes.

A picture stays unread here: whoever paints it looks at its cells. Everything else is read, and held to its shape, where
it arrives. Refuses to know ids and states.
"""

from __future__ import annotations

from plugbay.contracts.ainb import fields
from plugbay.contracts.ainb.fields import Field, base64
from plugbay.model.errors import Code, Failure
from plugbay.model.operations import (
    DispatchCli,
    FetchUrl,
    GetSnapshot,
    InvokeAction,
    ReadFile,
    ReadFolder,
    Render,
    Shutdown,
    SubscribeSnapshot,
)
from plugbay.wire.strict_json import Unencodable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from plugbay.wire.strict_json import Codec

NOTHING = b"{}"
"""Of requests that only want to be heard. Never null: peers refuse that."""

UNKNOWN_NAMESPACE = 2
"""The exit code of a command line whose namespace the plugin does not have."""

_SHAPES: dict[type, tuple[Field, ...]] = {
    GetSnapshot: (Field("payload", "bytes?", "data", default=None), Field("version", "count")),
    InvokeAction: (Field("payload", "bytes"),),
    ReadFolder: (Field("entries", "entries"),),
    ReadFile: (Field("bytes", "bytes"),),
    FetchUrl: (Field("status", "u16"), Field("headers", "pairs"), Field("body", "bytes")),
    DispatchCli: (Field("stdout", "bytes"), Field("stderr", "bytes"), Field("exit_code", "i32")),
}

_BARE = frozenset({InvokeAction, ReadFolder, ReadFile})
"""Answers whose one field is all of the value."""

_HEARD = frozenset({SubscribeSnapshot, Shutdown})


def written(op: type, value: Any, codec: Codec) -> bytes | Failure:
    """What a handler answered `op` with, as a result; a `Failure` when it has no form there."""
    if op in _HEARD:
        return NOTHING
    shape = _SHAPES.get(op, ())
    values = {shape[0].attribute: value} if op in _BARE else value
    if not isinstance(values, dict):
        return Failure(Code.INVALID_INPUT, "it must be an object")
    return fields.written(shape, values, codec) if shape else _picture(values, codec)


def _picture(value: dict[str, Any], codec: Codec) -> bytes | Failure:
    try:
        return codec.encode(value)
    except Unencodable as error:
        return Failure(Code.INVALID_INPUT, f"it cannot be sent as JSON: {error}")


def read(op: type, result: Any, codec: Codec) -> tuple[Any, str]:
    """The value in the raw result of an answer to `op`, and what is wrong with it."""
    if op is Render:
        return result, ""
    if op in _HEARD:
        return None, ""
    shape = _SHAPES[op]
    values = fields.read(shape, codec.load(result), "it")
    if isinstance(values, str):
        return None, values
    if op is DispatchCli:
        return codec.dump({**values, **{name: base64(values[name]) for name in ("stdout", "stderr")}}), ""
    return (values[shape[0].attribute] if op in _BARE else values), ""


def no_such_namespace(namespace: str, namespaces: tuple[str, ...]) -> dict[str, Any]:
    """How a plugin answers a command line that is none of its own."""
    what = f"unknown namespace {namespace!r}; this plugin has {', '.join(namespaces) or 'none'}\n"
    return {"stdout": "", "stderr": base64(what.encode()), "exit_code": UNKNOWN_NAMESPACE}
