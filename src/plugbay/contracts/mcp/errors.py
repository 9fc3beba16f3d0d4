"""Failures as MCP errors and results, and back: one table for both roles.

A failed call is either a JSON-RPC error or, for tools, a result with `isError`, which a model reads. Our code, the
origin and the detail travel beside them under `FAILURE`, in `data` or in `_meta`, and only where they would be lost
otherwise: the error of a hosted server is passed on unchanged.
"""

from __future__ import annotations

from plugbay.contracts.mcp.messages import FAILURE
from plugbay.contracts.rpc import error_text, sendable
from plugbay.model.errors import CODES, ORIGINS, Code, Failure, Origin
from plugbay.model.operations import AskUser, CompleteChat, GetPrompt, InvokeTool, ListRoots, ReadResource

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

PARSE_ERROR, INVALID_REQUEST = -32700, -32600
METHOD_NOT_FOUND, INVALID_PARAMS, INTERNAL_ERROR = -32601, -32602, -32603
RESOURCE_NOT_FOUND = -32002
"""Of the handshake era; the modern one says `INVALID_PARAMS`."""
MISSING_CAPABILITY, UNSUPPORTED_VERSION = -32021, -32022
USER_REJECTED = -1

MEANINGS = {
    METHOD_NOT_FOUND: Code.NOT_FOUND,
    INVALID_PARAMS: Code.INVALID_INPUT,
    RESOURCE_NOT_FOUND: Code.NOT_FOUND,
    MISSING_CAPABILITY: Code.CAPABILITY_NOT_ALLOWED,
    UNSUPPORTED_VERSION: Code.PROTOCOL_VERSION_MISMATCH,
    USER_REJECTED: Code.CAPABILITY_NOT_ALLOWED,
}
"""Our code for a number on the wire; every other number is a plain plugin error."""

_NUMBERS = {
    Code.INVALID_INPUT: INVALID_PARAMS,
    Code.TOOL_NOT_EXPOSED: INVALID_PARAMS,
    Code.NOT_FOUND: METHOD_NOT_FOUND,
    Code.PROTOCOL_VERSION_MISMATCH: UNSUPPORTED_VERSION,
}
"""The number for a code of ours; every other code is an internal error."""

_BY_OPERATION: dict[tuple[type, str], int] = {
    (GetPrompt, Code.NOT_FOUND): INVALID_PARAMS,
    (ReadResource, Code.NOT_FOUND): RESOURCE_NOT_FOUND,
    (CompleteChat, Code.CAPABILITY_NOT_ALLOWED): USER_REJECTED,
}

PROTOCOL = frozenset({Code.TOOL_NOT_EXPOSED, Code.NOT_FOUND})
"""Failures of a tool call that are no tool's doing, so that no model reads them: there is no such tool."""

WIRE_CODES = range(-(2**31), 2**31)
"""The range of error codes that peers in all languages can hold."""

_HOST_SERVICES = frozenset({AskUser, CompleteChat, ListRoots})

NO_TEXT = "the tool reported an error without a message"


# What a peer said.


def from_error(op: type, method: str, error: Any) -> Failure:
    """The `error` of an answer to `op`, asked for with `method`. Nothing in it is trusted."""
    if not isinstance(error, dict):
        return Failure(Code.MALFORMED_RESPONSE, f"the error in the answer to {method} is not an object")
    data = error.get("data")
    told = _told(data.get(FAILURE), by_host=op in _HOST_SERVICES) if isinstance(data, dict) else None
    return told or _plain_error(op, error)


def _plain_error(op: type, error: dict[str, Any]) -> Failure:
    number = error.get("code")
    detail: dict[str, Any] = {"plugin_code": number} if type(number) is int else {}
    if error.get("data") is not None:
        detail["data"] = error["data"]
    code = MEANINGS.get(number, Code.PLUGIN_ERROR) if type(number) is int else Code.PLUGIN_ERROR
    if op is ReadResource and number == INVALID_PARAMS:
        code = Code.NOT_FOUND  # its only parameter is the address
    origin = Origin.HOST if op in _HOST_SERVICES else Origin.PLUGIN
    return Failure(code, error_text(error), origin=origin, detail=detail)


def from_result(result: dict[str, Any]) -> Failure:
    """A result with `isError`."""
    meta = result.get("_meta")
    told = _told(meta.get(FAILURE), by_host=False) if isinstance(meta, dict) else None
    return told or _plain_result(result)


def _plain_result(result: dict[str, Any]) -> Failure:
    return Failure(Code.PLUGIN_ERROR, content_text(result) or NO_TEXT, origin=Origin.PLUGIN, detail={"result": result})


def content_text(result: dict[str, Any]) -> str:
    """The texts in a result's content, one below the other."""
    content = result.get("content")
    items = content if isinstance(content, list) else []
    texts = [item.get("text") for item in items if isinstance(item, dict) and item.get("type") == "text"]
    return "\n".join(text for text in texts if isinstance(text, str))


def _told(said: Any, *, by_host: bool) -> Failure | None:
    """A failure that travelled whole; None when that is not one.

    A host reports who decided. A server always reports itself: it must not claim a decision of the operator.
    """
    if not isinstance(said, dict):
        return None
    code, origin, message, detail = (said.get(key) for key in ("code", "origin", "message", "detail"))
    if not (
        isinstance(code, str) and isinstance(origin, str) and isinstance(message, str) and isinstance(detail, dict)
    ):
        return None
    if code not in CODES or origin not in ORIGINS:
        return None
    wait = said.get("retry_after_ms")
    return Failure(
        code,
        message,
        origin=origin if by_host else Origin.PLUGIN,
        detail=detail,
        retryable=said.get("retryable") is True,
        retry_after_ms=wait if type(wait) is int and wait >= 0 else None,
    )


# What we say.


def is_for_the_model(op: type, failure: Failure) -> bool:
    """Whether a failure is the result of a tool; otherwise it is an error of the protocol."""
    is_servers_own = type(failure.detail.get("plugin_code")) is int
    return op is InvokeTool and failure.code not in PROTOCOL and not is_servers_own


def to_result(failure: Failure, answered: dict[str, Any] | None = None) -> dict[str, Any]:
    """A failure as a result with `isError`; one that a hosted server gave goes on as it came.

    `answered` is the result that a plugin of another contract answered with its failure, in the shape of MCP.
    """
    given = failure.detail.get("result")
    if isinstance(given, dict) and given.get("isError") is True and _same(_plain_result(given), failure):
        return given
    text = sendable(failure.message) or f"it failed with {failure.code}"
    said = {"type": "text", "text": text}
    return {
        **(answered or {}),
        "content": [*(answered or {}).get("content", ()), said],
        "isError": True,
        "_meta": {FAILURE: _whole(failure)},
    }


def to_error(op: type, failure: Failure, *, modern: bool = False) -> tuple[int, str, dict[str, Any] | None]:
    """A failure as (code, message, data); one that a hosted server gave goes on as it came."""
    detail, message = failure.detail, sendable(failure.message) or f"it failed with {failure.code}"
    number, data = _number(op, failure, modern), detail.get("data")
    plain: dict[str, Any] = {"code": number, "message": message, "data": data}
    if _same(_plain_error(op, plain), failure):
        return number, message, data
    if number == MISSING_CAPABILITY and "requires" in detail:
        return number, message, {"requiredCapabilities": detail["requires"], FAILURE: _whole(failure)}
    own = data if isinstance(data, dict) else {}
    return number, message, {**own, FAILURE: _whole(failure)}


def _number(op: type, failure: Failure, modern: bool) -> int:
    """The number a failure brings, else that of our code; a modern server says two of them differently."""
    given = failure.detail.get("plugin_code")
    if type(given) is int and given in WIRE_CODES and not (modern and given == RESOURCE_NOT_FOUND):
        return given
    if modern and "requires" in failure.detail:
        return MISSING_CAPABILITY
    number = _BY_OPERATION.get((op, failure.code)) or _NUMBERS.get(failure.code, INTERNAL_ERROR)
    return INVALID_PARAMS if modern and number == RESOURCE_NOT_FOUND else number


def _same(one: Failure, other: Failure) -> bool:
    """Whether the two are indistinguishable on the wire; the plugin of a failure is the host's to report."""
    return _whole(one) == _whole(other)


def _whole(failure: Failure) -> dict[str, Any]:
    retryable = {"retryable": True} if failure.retryable else {}
    return {**failure.to_json(), "message": sendable(failure.message), **retryable}
