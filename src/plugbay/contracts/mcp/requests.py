"""Operations that a client asks of a server: requests and results, written and read.

Owns which method carries which operation, and which capability of the server it needs. A tool's result is decoded only
if something in it matters to the host; otherwise it is passed on as raw JSON. Fields that only the modern era has are
removed here, so that results look the same in both eras.
"""

from __future__ import annotations

from plugbay.contracts.mcp import errors, messages
from plugbay.contracts.mcp.messages import LEVELS, as_object, own_meta
from plugbay.contracts.rpc import malformed
from plugbay.model.errors import Code, Failure
from plugbay.model.operations import (
    CheckHealth,
    CompleteArgument,
    GetPrompt,
    InvokeTool,
    ReadResource,
    SetLogLevel,
    WatchResource,
)
from plugbay.model.values import Value
from plugbay.wire.strict_json import ABSENT, Unencodable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from plugbay.model.operations import Operation
    from plugbay.wire.strict_json import Codec

SUPPORTS = frozenset({InvokeTool, ReadResource, GetPrompt, CompleteArgument, WatchResource, SetLogLevel, CheckHealth})

METHOD_CAPABILITIES = {
    messages.CALL_TOOL: "tools",
    messages.READ_RESOURCE: "resources",
    messages.GET_PROMPT: "prompts",
    messages.COMPLETE: "completions",
    messages.SUBSCRIBE: "resources",
    messages.UNSUBSCRIBE: "resources",
    messages.SET_LEVEL: "logging",
}
"""The capability without which a server does not have the method."""

CAPABILITIES: dict[type, str] = {
    ReadResource: "resources",
    GetPrompt: "prompts",
    CompleteArgument: "completions",
    WatchResource: "resources",
    SetLogLevel: "logging",
}
"""The same by operation; what a server has of tools is in its offer."""

WATCHING = frozenset({messages.SUBSCRIBE, messages.UNSUBSCRIBE})
HANDSHAKE_ONLY = WATCHING | {messages.SET_LEVEL}

CONTEXT = "_meta"
"""Where the `_meta` of a request stands in the context of its operation, without what is the protocol's."""

COMPLETE, INPUT_REQUIRED = "complete", "input_required"

MODERN_FIELDS = ("resultType", "ttlMs", "cacheScope")
"""Keys that only results of the modern era have."""

NO_ANSWER = frozenset({CheckHealth, SetLogLevel, WatchResource})
"""Answered with nothing: that there is an answer is all."""

FRESH_MS = 0
"""How long a client may keep what we list without asking again: what plugins offer changes when they come and go."""

_BRACE = ord("{")
_PLAIN = (dict, list, str, int, float, bool, type(None))


# Requests, written by a client.


def write_request(op: Any, codec: Codec) -> tuple[str, bytes] | Failure:
    """The method that asks for `op`, and its parameters as the members of an object; or why they cannot be sent."""
    try:
        if type(op) is InvokeTool:
            return messages.CALL_TOOL, _write_call(op, codec)
        method, params = _WRITERS[type(op)](op, codec)
        return method, codec.encode(params)[1:-1]
    except ValueError as error:  # of which `Unencodable` is one
        return Failure(Code.INVALID_INPUT, f"the input cannot be sent as JSON: {error}")


def _write_call(op: InvokeTool, codec: Codec) -> bytes:
    """The arguments go out as they were encoded before; they may be missing, which is an empty object."""
    arguments = codec.encode(op.input).strip()
    if arguments == b"null":
        arguments = b"{}"
    if not arguments.startswith(b"{"):
        raise ValueError("the arguments of a tool must be an object")
    if arguments.find(b"\n") >= 0:
        arguments = codec.encode(codec.decode(arguments))
    return messages.call_prefix(op.tool, codec) + arguments


def _prompt_arguments(given: Any, codec: Codec) -> dict[str, str]:
    """The arguments of a prompt are texts: what is none is written as JSON, and null is left out."""
    values = given if given is None or isinstance(given, dict) else codec.load(given)
    return {
        key: value if isinstance(value, str) else codec.encode(value).decode()
        for key, value in as_object(values).items()
        if value is not None
    }


def _completion_params(op: CompleteArgument, codec: Codec) -> dict[str, Any]:
    given = op.request if isinstance(op.request, dict) else codec.load(op.request)
    return {key: value for key, value in as_object(given).items() if key != CONTEXT}


_WRITERS: dict[type, Callable[[Any, Codec], tuple[str, dict[str, Any]]]] = {
    ReadResource: lambda op, codec: (messages.READ_RESOURCE, {"uri": op.uri}),
    GetPrompt: lambda op, codec: (
        messages.GET_PROMPT,
        {"name": op.prompt, "arguments": _prompt_arguments(op.input, codec)},
    ),
    CompleteArgument: lambda op, codec: (messages.COMPLETE, _completion_params(op, codec)),
    WatchResource: lambda op, codec: (messages.SUBSCRIBE if op.wanted else messages.UNSUBSCRIBE, {"uri": op.uri}),
    SetLogLevel: lambda op, codec: (messages.SET_LEVEL, {"level": op.level}),
    CheckHealth: lambda op, codec: (messages.PING, {}),
}


# Requests, read by a server.


def read_request(method: str, params: dict[str, Any]) -> Operation | str | None:
    """The operation that `method` asks for, or what is wrong with its parameters; None: there is no such method."""
    reader = _READERS.get(method)
    if reader is None:
        return None
    meta = own_meta(as_object(params.get("_meta")))
    return reader(params, {CONTEXT: meta} if meta else {})


def _read_tool(params: dict[str, Any], context: dict[str, Any]) -> Operation | str:
    name, arguments = params.get("name"), params.get("arguments")
    if not (isinstance(name, str) and name):
        return "name must be a string that is not empty"
    if not (arguments is None or isinstance(arguments, dict)):
        return "arguments must be an object"
    return InvokeTool(name, arguments or {}, context)


def _read_resource(params: dict[str, Any], context: dict[str, Any]) -> Operation | str:
    uri = params.get("uri")
    return ReadResource(uri, context) if isinstance(uri, str) and uri else "uri must be a string that is not empty"


def _read_prompt(params: dict[str, Any], context: dict[str, Any]) -> Operation | str:
    name, arguments = params.get("name"), params.get("arguments")
    if not (isinstance(name, str) and name):
        return "name must be a string that is not empty"
    if not (arguments is None or isinstance(arguments, dict)):
        return "arguments must be an object"
    return GetPrompt(name, arguments or {}, context)


def _read_completion(params: dict[str, Any], context: dict[str, Any]) -> Operation | str:
    if not isinstance(params.get("ref"), dict) or not isinstance(params.get("argument"), dict):
        return "ref and argument must be objects"
    return CompleteArgument({key: value for key, value in params.items() if key != CONTEXT})


def _read_watch(wanted: bool) -> Callable[[dict[str, Any], dict[str, Any]], Operation | str]:
    def read(params: dict[str, Any], context: dict[str, Any]) -> Operation | str:
        uri = params.get("uri")
        return WatchResource(uri, wanted) if isinstance(uri, str) and uri else "uri must be a string that is not empty"

    return read


def _read_level(params: dict[str, Any], context: dict[str, Any]) -> Operation | str:
    level = params.get("level")
    return SetLogLevel(level) if level in LEVELS else f"level must be one of {', '.join(LEVELS)}"


_READERS: dict[str, Callable[[dict[str, Any], dict[str, Any]], Operation | str]] = {
    messages.CALL_TOOL: _read_tool,
    messages.READ_RESOURCE: _read_resource,
    messages.GET_PROMPT: _read_prompt,
    messages.COMPLETE: _read_completion,
    messages.SUBSCRIBE: _read_watch(True),
    messages.UNSUBSCRIBE: _read_watch(False),
    messages.SET_LEVEL: _read_level,
}


class InputRequired(Value):
    """Not the answer yet: questions by their keys, and what has to come back with the answers."""

    __slots__ = ("questions", "state")

    def __init__(self, questions: dict[str, Any], state: str | None) -> None:
        self.questions = questions
        self.state = state


# Answers, read by a client.


def read_answer(op: Any, method: str, message: Any, frame: bytes, codec: Codec) -> tuple[Any, Failure | None]:
    """The answer to `op`, asked for with `method`, as (value, failure); the value may be an `InputRequired`."""
    if message.error is not ABSENT:
        return None, errors.from_error(type(op), method, message.error)
    result = message.result
    if result is ABSENT:
        return None, malformed(f"the answer to {method} has neither a result nor an error", frame)
    if type(op) in NO_ANSWER:
        return None, None
    if is_plain_result(result, frame):
        return result, None
    value = codec.load(result)
    if not isinstance(value, dict):
        return None, malformed(f"the answer to {method} is not an object", frame)
    return _inspect_result(op, method, value, frame, codec)


def _inspect_result(
    op: Any, method: str, value: dict[str, Any], frame: bytes, codec: Codec
) -> tuple[Any, Failure | None]:
    kind = value.get("resultType", COMPLETE)
    if kind == INPUT_REQUIRED:
        questions, state = value.get("inputRequests"), value.get("requestState")
        return InputRequired(as_object(questions), state if isinstance(state, str) else None), None
    if kind not in (COMPLETE, None):
        return None, malformed(f"the answer to {method} is of the kind {kind!r}, which was not requested", frame)
    plain = strip_modern_fields(value)
    if type(op) is InvokeTool and plain.get("isError") is True:
        return None, errors.from_result(plain)
    try:
        return codec.dump(plain), None
    except Unencodable as error:
        return None, malformed(f"the answer to {method} cannot be passed on: {error}", frame)


def is_plain_result(raw: Any, frame: bytes) -> bool:
    """Whether a raw result is an object in which nothing makes it an error, or an answer of the modern era.

    A key may be written with escapes, and texts have them for other reasons; then it is looked into as well.
    """
    if frame.find(b"resultType") >= 0 or frame.find(b"\\u") >= 0:
        return False
    if frame.find(b"isError") >= 0 and frame.count(b"isError") != frame.count(b'"isError":false'):
        return False
    if isinstance(raw, dict):
        return True
    try:
        return memoryview(raw)[0] == _BRACE
    except TypeError:
        return False


def strip_modern_fields(result: dict[str, Any]) -> dict[str, Any]:
    """A result without what only the modern era says around it."""
    plain = {key: value for key, value in result.items() if key not in MODERN_FIELDS}
    meta = plain.get("_meta")
    if isinstance(meta, dict) and messages.SERVER in meta:
        rest = {key: value for key, value in meta.items() if key != messages.SERVER}
        plain.pop("_meta")
        if rest:
            plain["_meta"] = rest
    return plain


# Results, built by a server.


def build_result(op: Any, value: Any, codec: Codec) -> dict[str, Any]:
    """A handler's value for `op`, as a result."""
    if type(op) in NO_ANSWER:
        return {}
    given = value if isinstance(value, _PLAIN) else codec.load(value)
    if type(op) is InvokeTool:
        return build_tool_result(given, codec)
    return as_object(given)


def build_tool_result(value: Any, codec: Codec) -> dict[str, Any]:
    """The result of a tool; a value that already is a result stays unchanged.

    Text is text; everything else is text in JSON, and an object is structured content as well.
    """
    if is_tool_result(value):
        return dict(value)
    if isinstance(value, str):
        return {"content": [{"type": "text", "text": value}]}
    content = [{"type": "text", "text": codec.encode(value).decode()}]
    return {"content": content, "structuredContent": value} if isinstance(value, dict) else {"content": content}


def is_tool_result(value: Any) -> bool:
    """Whether a value has the shape of a tool's result: content whose every part says its type."""
    content = value.get("content") if isinstance(value, dict) else None
    if not isinstance(content, list):
        return False
    return all(isinstance(part, dict) and isinstance(part.get("type"), str) for part in content)


def add_modern_fields(result: dict[str, Any], server: dict[str, str], *, cacheable: bool = False) -> dict[str, Any]:
    """A result as the modern era has it."""
    meta = {**as_object(result.get("_meta")), messages.SERVER: server}
    hints = {"ttlMs": FRESH_MS, "cacheScope": "private"} if cacheable else {}
    return {"resultType": COMPLETE, **result, **hints, "_meta": meta}


def is_cacheable(op: Any) -> bool:
    """Whether the modern era demands a lifetime with the result."""
    return type(op) is ReadResource


def build_progress(number: int, item: Any) -> dict[str, Any]:
    """Progress that has no number of its own."""
    return {"progress": number, "message": item} if isinstance(item, str) else {"progress": number}


def build_subscription_end(subscription: Any) -> dict[str, Any]:
    """The answer that ends a subscription in good order."""
    return {"resultType": COMPLETE, "_meta": {messages.SUBSCRIPTION: subscription}}
