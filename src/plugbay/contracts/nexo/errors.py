"""nexo's error codes to and from ours.

Owns the bands: -334xx tools, -330xx channels, -331xx models, -333xx vectors, and JSON-RPC's own. The number on the wire
survives in `detail["plugin_code"]`, its name in the contract in `detail["kind"]`, and what `error.data` may carry for
it beside them. Messages begin with the contract's words for the number: operators search logs for them.
"""

from __future__ import annotations

from plugbay.contracts.rpc import error_text, sendable
from plugbay.model.errors import Code, Failure, Origin
from plugbay.model.operations import (
    Chat,
    CompleteChat,
    DeleteVectors,
    InvokeTool,
    Publish,
    RecallMemory,
    RunHook,
    SearchVectors,
    SendOutbound,
    Shutdown,
    StartChannel,
    StopChannel,
    UpsertVectors,
)
from plugbay.model.values import Value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

METHOD_NOT_FOUND, INVALID_PARAMS, INTERNAL_ERROR, SHUTDOWN_FAILED = -32601, -32602, -32603, -32000
TOOL_NOT_FOUND, TOOL_FAILED = -33401, -33403

MAX_WAIT = 2**53
"""The largest `retry_after` that is used; a larger one is ignored."""

WIRE_CODES = range(-(2**31), 2**31)
"""The range of error codes that peers in all languages can hold."""


class _Meaning(Value):
    """One number of the contract: our code, its own name, and the keys of `data`."""

    __slots__ = ("code", "data", "kind", "retryable")

    def __init__(self, code: str, kind: str, *data: str, retryable: bool = False) -> None:
        self.code = code
        self.kind = kind
        self.data = data
        self.retryable = retryable


MEANINGS = {
    -32700: _Meaning(Code.PLUGIN_ERROR, "parse_error"),
    -32600: _Meaning(Code.PLUGIN_ERROR, "invalid_request"),
    METHOD_NOT_FOUND: _Meaning(Code.NOT_FOUND, "method_not_found"),
    INVALID_PARAMS: _Meaning(Code.INVALID_INPUT, "invalid_params"),
    INTERNAL_ERROR: _Meaning(Code.PLUGIN_ERROR, "internal_error"),
    SHUTDOWN_FAILED: _Meaning(Code.PLUGIN_ERROR, "shutdown_failed"),
    -33001: _Meaning(Code.UNAVAILABLE, "connection_failed", retryable=True),
    -33002: _Meaning(Code.PLUGIN_ERROR, "authentication_failed"),
    -33003: _Meaning(Code.INVALID_INPUT, "recipient_invalid", "recipient", "reason"),
    -33004: _Meaning(Code.OVERLOADED, "rate_limited", "retry_after_secs", retryable=True),
    -33005: _Meaning(Code.NOT_FOUND, "unsupported_feature", "feature"),
    -33101: _Meaning(Code.UNAVAILABLE, "connection_failed", retryable=True),
    -33102: _Meaning(Code.PLUGIN_ERROR, "authentication_failed"),
    -33103: _Meaning(Code.OVERLOADED, "rate_limited", "retry_after_secs", retryable=True),
    -33104: _Meaning(Code.NOT_FOUND, "model_not_found"),
    -33105: _Meaning(Code.INVALID_INPUT, "context_overflow"),
    -33301: _Meaning(Code.NOT_FOUND, "collection_not_found", "collection"),
    -33302: _Meaning(Code.INVALID_INPUT, "dimension_mismatch", "expected", "got"),
    -33303: _Meaning(Code.OVERLOADED, "rate_limited", "retry_after_secs", retryable=True),
    -33304: _Meaning(Code.PLUGIN_ERROR, "write_failed"),
    TOOL_NOT_FOUND: _Meaning(Code.TOOL_NOT_EXPOSED, "tool_not_found"),
    -33402: _Meaning(Code.INVALID_INPUT, "tool_argument_invalid", "details"),
    TOOL_FAILED: _Meaning(Code.PLUGIN_ERROR, "tool_execution_failed"),
    -33404: _Meaning(Code.UNAVAILABLE, "tool_unavailable", "retry_after_ms", retryable=True),
    -33405: _Meaning(Code.PLUGIN_ERROR, "tool_denied"),
}

_UNNAMED = _Meaning(Code.PLUGIN_ERROR, "")

_TOOL = {
    Code.TOOL_NOT_EXPOSED: TOOL_NOT_FOUND,
    Code.INVALID_INPUT: -33402,
    Code.UNAVAILABLE: -33404,
    Code.OVERLOADED: -33404,
    Code.CAPABILITY_NOT_ALLOWED: -33405,
}
_CHANNEL = {
    Code.UNAVAILABLE: -33001,
    Code.INVALID_INPUT: -33003,
    Code.OVERLOADED: -33004,
    Code.NOT_FOUND: -33005,
}
_MODEL = {
    Code.UNAVAILABLE: -33101,
    Code.OVERLOADED: -33103,
    Code.NOT_FOUND: -33104,
    Code.INVALID_INPUT: INVALID_PARAMS,
}
_VECTORS = {Code.OVERLOADED: -33303, Code.NOT_FOUND: -33301, Code.INVALID_INPUT: INVALID_PARAMS}
_PLAIN = {Code.NOT_FOUND: METHOD_NOT_FOUND, Code.INVALID_INPUT: INVALID_PARAMS}
"""The number of a handler's failure without a number of its own."""

_CHANNELS = frozenset({StartChannel, StopChannel, SendOutbound})
_GENERAL = 326
_BANDS: dict[type, tuple[int, dict[str, int], int]] = {
    InvokeTool: (334, _TOOL, TOOL_FAILED),
    **dict.fromkeys(_CHANNELS, (330, _CHANNEL, INTERNAL_ERROR)),
    Chat: (331, _MODEL, INTERNAL_ERROR),
    **dict.fromkeys((UpsertVectors, SearchVectors, DeleteVectors), (333, _VECTORS, INTERNAL_ERROR)),
    RunHook: (_GENERAL, _PLAIN, INTERNAL_ERROR),
    **dict.fromkeys((Publish, RecallMemory), (_GENERAL, {Code.INVALID_INPUT: INVALID_PARAMS}, INTERNAL_ERROR)),
    CompleteChat: (_GENERAL, {}, INTERNAL_ERROR),
    Shutdown: (_GENERAL, {}, SHUTDOWN_FAILED),
}
"""For each operation: the hundred of its numbers, our codes that have one there, and the number of all others."""

_NUMBERS = {(-number // 100, meaning.kind): number for number, meaning in MEANINGS.items()}

_HOST_SERVICES = frozenset({Publish, RecallMemory, CompleteChat})


def from_wire(op: type, method: str, error: Any) -> Failure:
    """The `error` of an answer to `op`, asked for with `method`, as a failure. Nothing in it is trusted."""
    if not isinstance(error, dict):
        return Failure(Code.MALFORMED_RESPONSE, f"the error in the answer to {method} is not an object")
    code, data = error.get("code"), error.get("data")
    number: int | None = code if type(code) is int else None
    meaning = _UNNAMED if number is None else MEANINGS.get(number, _UNNAMED)
    message = error_text(error)
    detail = _detail(number, meaning, data if isinstance(data, dict) else {})
    _complete(detail, op, method, message)
    return Failure(
        _our_code(op, number, meaning),
        _name_error(detail, message),
        origin=Origin.HOST if op in _HOST_SERVICES else Origin.PLUGIN,
        detail=detail,
        retryable=meaning.retryable,
        retry_after_ms=_retry_after_ms(detail),
    )


def _detail(number: int | None, meaning: _Meaning, data: dict[str, Any]) -> dict[str, Any]:
    named: dict[str, Any] = {} if number is None else {"plugin_code": number}
    if meaning.kind:
        named["kind"] = meaning.kind
    return {**named, **{key: data[key] for key in meaning.data if data.get(key) is not None}}


def _complete(detail: dict[str, Any], op: type, method: str, message: str) -> None:
    """The contract's default for missing data."""
    match detail.get("kind"):
        case "recipient_invalid":
            detail.setdefault("recipient", "")
            detail.setdefault("reason", message)
        case "unsupported_feature":
            detail.setdefault("feature", message)
        case "method_not_found" if op in _CHANNELS:
            detail.update(kind="unsupported_feature", feature=method)


_WORDS = {
    **{kind: kind.replace("_", " ") for kind in (meaning.kind for meaning in MEANINGS.values())},
    **{kind: kind.removeprefix("tool_").replace("_", " ") for kind in ("tool_argument_invalid", "tool_unavailable")},
    "tool_denied": "denied",
}
"""The contract's words for an error, by kind."""

_UNNAMED_KINDS = frozenset({"", "tool_execution_failed", *(MEANINGS[code].kind for code in MEANINGS if code > -33000)})
"""Kinds that say no more than the message of the plugin: an exception of a tool, and JSON-RPC's own errors."""


def _name_error(detail: dict[str, Any], message: str) -> str:
    """The message of an error with the contract's words for it in front: `rate limited; retry after 60s: slow down`."""
    kind = str(detail.get("kind", ""))
    if kind in _UNNAMED_KINDS:
        return message
    words = named = _WORDS[kind]
    wait = _retry_after_ms(detail)
    if wait is not None:
        named = f"{words}; retry after {wait // 1000 if wait % 1000 == 0 else wait / 1000}s"
    elif kind == "dimension_mismatch" and {"expected", "got"} <= detail.keys():
        named = f"{words}: expected {detail['expected']!s:.20}, got {detail['got']!s:.20}"
    spoken = message.strip().lower()
    if named in spoken:
        return message
    return named if spoken == words else f"{named}: {message}"


def _our_code(op: type, number: int | None, meaning: _Meaning) -> str:
    if op in _HOST_SERVICES and meaning.code == Code.PLUGIN_ERROR:
        return Code.UNAVAILABLE  # the host could not; the plugin that asked did nothing wrong
    if op is InvokeTool and number == METHOD_NOT_FOUND:
        return Code.TOOL_NOT_EXPOSED
    return meaning.code


def _retry_after_ms(detail: dict[str, Any]) -> int | None:
    for key, unit in (("retry_after_ms", 1), ("retry_after_secs", 1000)):
        wait: Any = detail.get(key)
        if type(wait) in (int, float) and 0 <= wait <= MAX_WAIT:
            return int(wait * unit)
    return None


def to_wire(op: type, failure: Failure) -> tuple[int, str, dict[str, Any] | None]:
    """A handler's failure as (code, message, data) for the answer to `op`; data only where there is some to give."""
    number = _number(op, failure)
    message = failure.message.strip() or f"it failed with {failure.code}"
    known = {key: _datum(failure, key) for key in MEANINGS.get(number, _UNNAMED).data}
    data = {key: value for key, value in known.items() if value is not None}
    return number, sendable(message), data or None


def _number(op: type, failure: Failure) -> int:
    """The number a failure brings, else that of its kind, else that of our code.

    Where the host answers, the first two belong to another plugin: a caller of the host sees no band but its own.
    """
    band, codes, otherwise = _BANDS[op]
    detail = failure.detail
    if detail.get("not_implemented"):
        return METHOD_NOT_FOUND
    if op not in _HOST_SERVICES:
        given, kind = detail.get("plugin_code"), str(detail.get("kind"))
        if type(given) is int and given in WIRE_CODES:
            return given
        named = _NUMBERS.get((band, kind)) or _NUMBERS.get((_GENERAL, kind))
        if named is not None:
            return named
    return codes.get(failure.code, otherwise)


def _datum(failure: Failure, key: str) -> Any:
    if key in failure.detail or failure.retry_after_ms is None:
        return failure.detail.get(key)
    waits = {"retry_after_ms": failure.retry_after_ms, "retry_after_secs": -(-failure.retry_after_ms // 1000)}
    return waits.get(key)


def tool_not_offered(tool: str, offered: Iterable[str]) -> Failure:
    """The host's own verdict on a tool that the manifest declares and the child did not bring."""
    what = f"tool not found: the plugin does not offer {tool!r}; it offers {', '.join(offered) or 'no tools'}"
    detail = {"plugin_code": TOOL_NOT_FOUND, "kind": MEANINGS[TOOL_NOT_FOUND].kind}
    return Failure(Code.TOOL_NOT_EXPOSED, what, detail=detail)
