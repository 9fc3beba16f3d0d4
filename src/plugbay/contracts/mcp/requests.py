"""What a client asks of a server: operations into parameters, and parameters into operations.

Owns which method carries which operation and which capability of the server it needs. Refuses to know frames, ids,
states, and who asks.
"""

from __future__ import annotations

from plugbay.contracts.mcp import messages
from plugbay.contracts.mcp.messages import LEVELS, as_object, own_meta
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

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from plugbay.model.operations import Operation
    from plugbay.wire.strict_json import Codec

SUPPORTS = frozenset({InvokeTool, ReadResource, GetPrompt, CompleteArgument, WatchResource, SetLogLevel, CheckHealth})

NEEDS = {
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


# What a host writes.


def written(op: Any, codec: Codec) -> tuple[str, bytes] | Failure:
    """The method that asks for `op`, and its parameters as the members of an object; or why they cannot be sent."""
    try:
        if type(op) is InvokeTool:
            return messages.CALL_TOOL, _call(op, codec)
        method, params = _METHODS[type(op)](op, codec)
        return method, codec.encode(params)[1:-1]
    except ValueError as error:  # of which `Unencodable` is one
        return Failure(Code.INVALID_INPUT, f"the input cannot be sent as JSON: {error}")


def _call(op: InvokeTool, codec: Codec) -> bytes:
    """The arguments go out as they were encoded before; they may be missing, which is an empty object."""
    arguments = codec.encode(op.input).strip()
    if arguments == b"null":
        arguments = b"{}"
    if not arguments.startswith(b"{"):
        raise ValueError("the arguments of a tool must be an object")
    if arguments.find(b"\n") >= 0:
        arguments = codec.encode(codec.decode(arguments))
    return messages.call_prefix(op.tool, codec) + arguments


def _texts(given: Any, codec: Codec) -> dict[str, str]:
    """The arguments of a prompt are texts: what is none is written as JSON, and null is left out."""
    values = given if given is None or isinstance(given, dict) else codec.load(given)
    return {
        key: value if isinstance(value, str) else codec.encode(value).decode()
        for key, value in as_object(values).items()
        if value is not None
    }


def _completion(op: CompleteArgument, codec: Codec) -> dict[str, Any]:
    given = op.request if isinstance(op.request, dict) else codec.load(op.request)
    return {key: value for key, value in as_object(given).items() if key != CONTEXT}


_METHODS: dict[type, Callable[[Any, Codec], tuple[str, dict[str, Any]]]] = {
    ReadResource: lambda op, codec: (messages.READ_RESOURCE, {"uri": op.uri}),
    GetPrompt: lambda op, codec: (messages.GET_PROMPT, {"name": op.prompt, "arguments": _texts(op.input, codec)}),
    CompleteArgument: lambda op, codec: (messages.COMPLETE, _completion(op, codec)),
    WatchResource: lambda op, codec: (messages.SUBSCRIBE if op.wanted else messages.UNSUBSCRIBE, {"uri": op.uri}),
    SetLogLevel: lambda op, codec: (messages.SET_LEVEL, {"level": op.level}),
    CheckHealth: lambda op, codec: (messages.PING, {}),
}


# What a plugin reads.


def read(method: str, params: dict[str, Any]) -> Operation | str | None:
    """The operation that `method` asks for, or what is wrong with its parameters; None: there is no such method."""
    reader = _READERS.get(method)
    if reader is None:
        return None
    meta = own_meta(as_object(params.get("_meta")))
    return reader(params, {CONTEXT: meta} if meta else {})


def _tool(params: dict[str, Any], context: dict[str, Any]) -> Operation | str:
    name, arguments = params.get("name"), params.get("arguments")
    if not (isinstance(name, str) and name):
        return "name must be a string that is not empty"
    if not (arguments is None or isinstance(arguments, dict)):
        return "arguments must be an object"
    return InvokeTool(name, arguments or {}, context)


def _resource(params: dict[str, Any], context: dict[str, Any]) -> Operation | str:
    uri = params.get("uri")
    return ReadResource(uri, context) if isinstance(uri, str) and uri else "uri must be a string that is not empty"


def _prompt(params: dict[str, Any], context: dict[str, Any]) -> Operation | str:
    name, arguments = params.get("name"), params.get("arguments")
    if not (isinstance(name, str) and name):
        return "name must be a string that is not empty"
    if not (arguments is None or isinstance(arguments, dict)):
        return "arguments must be an object"
    return GetPrompt(name, arguments or {}, context)


def _argument(params: dict[str, Any], context: dict[str, Any]) -> Operation | str:
    if not isinstance(params.get("ref"), dict) or not isinstance(params.get("argument"), dict):
        return "ref and argument must be objects"
    return CompleteArgument({key: value for key, value in params.items() if key != CONTEXT})


def _watched(wanted: bool) -> Callable[[dict[str, Any], dict[str, Any]], Operation | str]:
    def read(params: dict[str, Any], context: dict[str, Any]) -> Operation | str:
        uri = params.get("uri")
        return WatchResource(uri, wanted) if isinstance(uri, str) and uri else "uri must be a string that is not empty"

    return read


def _level(params: dict[str, Any], context: dict[str, Any]) -> Operation | str:
    level = params.get("level")
    return SetLogLevel(level) if level in LEVELS else f"level must be one of {', '.join(LEVELS)}"


_READERS: dict[str, Callable[[dict[str, Any], dict[str, Any]], Operation | str]] = {
    messages.CALL_TOOL: _tool,
    messages.READ_RESOURCE: _resource,
    messages.GET_PROMPT: _prompt,
    messages.COMPLETE: _argument,
    messages.SUBSCRIBE: _watched(True),
    messages.UNSUBSCRIBE: _watched(False),
    messages.SET_LEVEL: _level,
}
