"""Calls to a plugin: arguments and `_context` become one object of parameters, and are told apart again.

Owns what may stand in a context. Plugins make file names of the ids they are given, so a host sends only ids that are
safe as one; and a call whose own arguments hold `_context` is refused, not merged. Refuses to know ids of calls, frames
and states.
"""

from __future__ import annotations

from plugbay.contracts.kaged import errors, texts
from plugbay.contracts.kaged.messages import HOOK, MAX_SENT, on_wire
from plugbay.model.errors import Code, Failure
from plugbay.model.operations import CallMethod, InvokeTool, RunHook
from plugbay.wire.json_gate import Malformed
from plugbay.wire.strict_json import Unencodable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from plugbay.contracts.kaged.greeting import Promise
    from plugbay.contracts.kaged.messages import Identity
    from plugbay.wire.strict_json import Codec

CONTEXT = "_context"

MAX_ID = 128
"""Characters of an id; as a file name with an ending it stays below what file systems take."""

LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-"

ENVELOPE_ROOM = 256
"""Bytes of a frame around its parameters; more than the name of a hook and an id ever take."""

UNUSUAL = (CONTEXT.encode(), b"\\u", b"\n")
"""Encoded arguments with none of these are passed on unread: they cannot hold the key, and are on one line."""


# What a host writes.


def written(op: InvokeTool | CallMethod | RunHook, promise: Promise, codec: Codec) -> tuple[str, bytes] | Failure:
    """The method and the parameters of a call, or why it must not be made."""
    method = _method(op, promise)
    context = safe_context(op.context)
    if isinstance(method, Failure):
        return method
    if isinstance(context, Failure):
        return context
    try:
        params = _hook(op.event, context, codec) if isinstance(op, RunHook) else _arguments(op.input, context, codec)
    except (Unencodable, Malformed) as error:
        return _invalid(f"the input cannot be sent as JSON: {error}")
    return params if isinstance(params, Failure) else (method, params)


def _method(op: InvokeTool | CallMethod | RunHook, promise: Promise) -> str | Failure:
    """What is called; a plugin knows its hooks best, everything else must be in its manifest."""
    if isinstance(op, RunHook):
        return HOOK + op.hook
    if isinstance(op, CallMethod):
        return op.method if op.method in promise.methods else errors.not_declared("method", op.method, promise.methods)
    if op.tool not in promise.tools:
        return errors.not_declared("tool", op.tool, promise.tools)
    return on_wire(promise.name, op.tool)


def _arguments(given: Any, context: dict[str, Any], codec: Codec) -> bytes | Failure:
    """The arguments with the context spliced in; they are looked into only when there is a reason."""
    body = codec.encode(given).strip()
    if any(body.find(sign) >= 0 for sign in UNUSUAL):
        value = codec.decode(body)
        if isinstance(value, dict) and CONTEXT in value:
            return _invalid(f"the arguments must not hold {CONTEXT!r}: that is the host's to say")
        body = codec.encode(value)
    if body[:1] != b"{":
        return _invalid("the arguments must be an object")
    inner = body[1:-1].strip()
    return b'{%b%b"_context":%b}' % (inner, b"," if inner else b"", codec.encode(context))


def _hook(given: Any, context: dict[str, Any], codec: Codec) -> bytes | Failure:
    event = given if isinstance(given, dict) else codec.decode(codec.encode(given))
    if not isinstance(event, dict):
        return _invalid("the event must be an object")
    if CONTEXT in event:
        return _invalid(f"the event must not hold {CONTEXT!r}: that is the host's to say")
    params = {**texts.as_texts(event, codec.encode), CONTEXT: context}
    body, room = codec.encode(params), MAX_SENT - ENVELOPE_ROOM
    return body if len(body) <= room else codec.encode(texts.fitted(params, room, codec.encode))


def safe_context(given: Mapping[str, Any]) -> dict[str, Any] | Failure:
    """The fields of a context that may be sent, or which of them is wrong. Null is absent.

    A field the contract does not know travels when it is a safe id, and is left out otherwise.
    """
    fields: dict[str, Any] = {}
    for key, value in given.items():
        if value is None:
            continue
        fits, wanted = _FIELDS.get(key, _OTHER)
        if fits(value):
            fields[key] = value
        elif wanted:
            return _invalid(f"the context's {key} must be {wanted}")
    return fields


def _is_id(value: Any) -> bool:
    if not isinstance(value, str) or not 0 < len(value) <= MAX_ID or value.strip(f"{LETTERS}."):
        return False
    return ".." not in value and value != "."


def _is_agent_path(value: Any) -> bool:
    """`primary`, then any number of `.subagents.<key>`."""
    if not isinstance(value, str):
        return False
    first, *rest = value.split(".")
    words, keys = rest[::2], rest[1::2]
    pairs = len(words) == len(keys) and all(word == "subagents" for word in words)
    return first == "primary" and pairs and all(_is_id(key) for key in keys)


def _is_root(value: Any) -> bool:
    return isinstance(value, str) and value.startswith("/") and "\0" not in value and ".." not in value.split("/")


_AN_ID = f"1 to {MAX_ID} letters, digits, '.', '_' and '-', no '.' alone and no '..'"
_FIELDS: dict[str, tuple[Callable[[Any], bool], str]] = {
    "project_id": (_is_id, _AN_ID),
    "session_id": (_is_id, _AN_ID),
    "request_id": (_is_id, _AN_ID),
    "agent_path": (_is_agent_path, "'primary', followed by '.subagents.<key>' for each level below"),
    "project_root": (_is_root, "an absolute path without '..'"),
}
_OTHER: tuple[Callable[[Any], bool], str] = (_is_id, "")


def _invalid(what: str) -> Failure:
    return Failure(Code.INVALID_INPUT, what)


# What a plugin reads.


def read(identity: Identity, name: str, params: Any) -> InvokeTool | CallMethod | RunHook | None:
    """The call that `name` makes to this plugin; None when it has no such tool, method or hook.

    Parameters that are no object are no arguments, and a context that is none is empty.
    """
    given = params if isinstance(params, dict) else {}
    said = given.get(CONTEXT)
    context = said if isinstance(said, dict) else {}
    arguments = {key: value for key, value in given.items() if key != CONTEXT}
    if name.startswith(HOOK):
        hook = name[len(HOOK) :]
        return RunHook(hook, arguments, context) if hook in identity.hooks else None
    plugin, _, tool = name.partition(".")
    if plugin == identity.name and tool in identity.tools:
        return InvokeTool(tool, arguments, context)
    return CallMethod(name, arguments, context) if name in identity.methods else None
