"""Calls of a kaged plugin: how tools, methods and hooks are written and read, and what an answer must look like.

Plugins make file names of the ids they are given, so a host sends only ids that are safe as one. A call whose own
arguments hold `_context` is refused, not merged. The long texts of a hook are sent as strings, cut to fit one line: a
plugin reads any other value there as empty, so a list of messages goes as its JSON text. The beginning is cut, because
a hook is about the newest words. Results of tools, methods and hooks are passed on undecoded.
"""

from __future__ import annotations

from plugbay.contracts.kaged import errors, storage
from plugbay.contracts.kaged.messages import HOOK, MAX_SENT, wire_name
from plugbay.contracts.rpc import malformed
from plugbay.model.errors import Code, Failure
from plugbay.model.operations import CallMethod, InvokeTool, RunHook
from plugbay.wire.json_gate import Malformed
from plugbay.wire.strict_json import ABSENT, Unencodable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from plugbay.contracts.kaged.messages import Identity, Promise
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


def write_call(op: InvokeTool | CallMethod | RunHook, promise: Promise, codec: Codec) -> tuple[str, bytes] | Failure:
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
    """The called export; hooks are the plugin's own matter, all others must be in its manifest."""
    if isinstance(op, RunHook):
        return HOOK + op.hook
    if isinstance(op, CallMethod):
        return op.method if op.method in promise.methods else errors.not_declared("method", op.method, promise.methods)
    if op.tool not in promise.tools:
        return errors.not_declared("tool", op.tool, promise.tools)
    return wire_name(promise.name, op.tool)


def _arguments(given: Any, context: dict[str, Any], codec: Codec) -> bytes | Failure:
    """The arguments with the context spliced in; they are looked into only when there is a reason."""
    body = codec.encode(given).strip()
    if any(body.find(sign) >= 0 for sign in UNUSUAL):
        value = codec.decode(body)
        if isinstance(value, dict) and CONTEXT in value:
            return _invalid(f"the arguments must not hold {CONTEXT!r}: the host sets it")
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
        return _invalid(f"the event must not hold {CONTEXT!r}: the host sets it")
    params = {**stringify_arguments(event, codec.encode), CONTEXT: context}
    body, room = codec.encode(params), MAX_SENT - ENVELOPE_ROOM
    return body if len(body) <= room else codec.encode(fit_text(params, room, codec.encode))


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


def read_call(identity: Identity, name: str, params: Any) -> InvokeTool | CallMethod | RunHook | None:
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


def read_answer(
    op: type, method: str, message: Any, line: bytes, load: Callable[[Any], Any]
) -> tuple[Any, Failure | None]:
    """An answer to `op`, asked for with `method`, as (value, failure)."""
    error, result = message.error, message.result
    if error is not ABSENT:
        failure = errors.from_wire(op, method, error)
        if result is not ABSENT:
            what = f"the answer to {method} has both a result and an error ({failure.message})"
            failure = malformed(what, line, **failure.detail)
        return None, failure
    if result is ABSENT:
        return None, malformed(f"the answer to {method} has neither a result nor an error", line)
    if op not in errors.STORAGE:
        return result, None
    value, problem = storage.read_result(op, load(result))
    return (None, malformed(f"the answer to {method}: {problem}", line)) if problem else (value, None)


def is_unknown_method(error: Any) -> bool:
    """Whether an answer's `error` says that the peer does not know what it was asked for."""
    return isinstance(error, dict) and error.get("code") == errors.METHOD_NOT_FOUND


TEXTS = ("transcript", "messages_being_compacted", "messages_remaining", "strategy", "trigger")
"""The parameters that a plugin reads as strings."""
MARKER_ROOM = 64
"""Bytes kept for the words that say how much was cut."""
LONGEST_PIECE = 1 << 16
"""Characters measured at once; a text is walked from its end in such pieces, then in ever smaller ones."""


def stringify_arguments(event: dict[str, Any], encode: Callable[[Any], bytes]) -> dict[str, Any]:
    """The event with a string for every text; null says nothing and is left out."""
    said = {key: value for key, value in event.items() if value is not None or key not in TEXTS}
    return {key: _text(value, encode) if key in TEXTS else value for key, value in said.items()}


def _text(value: Any, encode: Callable[[Any], bytes]) -> str:
    return value if isinstance(value, str) else encode(value).decode()


def fit_text(params: dict[str, Any], room: int, encode: Callable[[Any], bytes]) -> dict[str, Any]:
    """The parameters with their texts cut so that they encode to at most `room` bytes, if texts can make them fit.

    Every text may have an equal part of the room; what a short one leaves goes to the longer ones.
    """
    sizes = {key: _size(params[key], encode) for key in TEXTS if key in params}
    left = room - len(encode({**params, **dict.fromkeys(sizes, "")}))
    cut = dict(params)
    for position, key in enumerate(sorted(sizes, key=lambda key: sizes[key])):
        share = max(left, 0) // (len(sizes) - position)
        if sizes[key] > share:
            cut[key] = _ending(params[key], share - MARKER_ROOM, encode)
        left -= min(sizes[key], share)
    return cut


def _ending(text: str, room: int, encode: Callable[[Any], bytes]) -> str:
    """The end of `text` that encodes to at most `room` bytes, after a word about the rest."""
    begin, step = len(text), LONGEST_PIECE
    while begin and step:
        piece = text[max(begin - step, 0) : begin]
        size = _size(piece, encode)
        if size <= room:
            begin -= len(piece)
            room -= size
        else:
            step //= 2
    return f"[{begin:,} characters cut] {text[begin:]}"


def _size(text: str, encode: Callable[[Any], bytes]) -> int:
    """Bytes of a text inside its quotes; they add up, since every character is escaped for itself."""
    return len(encode(text)) - 2
