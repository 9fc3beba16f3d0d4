"""kaged's error codes to and from ours.

Owns JSON-RPC's numbers, -32000 for everything they do not name, and what travels in `error.data`. The number on the
wire survives in `detail["plugin_code"]`, the peer's `data` in `detail["data"]` unless it is huge: beside what the host
finds out itself and never in its place.
"""

from __future__ import annotations

from plugbay.contracts.rpc import error_text, sendable
from plugbay.model.errors import CODES, Code, Failure, Origin
from plugbay.model.operations import (
    CallMethod,
    DeleteStored,
    GetStored,
    InvokeTool,
    ListStored,
    RunHook,
    SetStored,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

PARSE_ERROR, INVALID_REQUEST, METHOD_NOT_FOUND, INVALID_PARAMS, INTERNAL_ERROR = -32700, -32600, -32601, -32602, -32603
DEFINED = -32000
"""A failure for which JSON-RPC has no code; `data` has the details."""

MAX_DATA = 65_536
"""Characters of an error's `data` as Python writes it: failures are remembered, a thousand of them at a time."""

WIRE_CODES = range(-(2**31), 2**31)
"""The range of error codes that peers in all languages can hold."""

STORAGE = frozenset({GetStored, SetStored, DeleteStored, ListStored})
"""The requests of plugins; all other operations are requests of the host."""

_MEANINGS = {METHOD_NOT_FOUND: Code.NOT_FOUND, INVALID_PARAMS: Code.INVALID_INPUT}

_NUMBERS = {
    Code.TOOL_NOT_EXPOSED: METHOD_NOT_FOUND,
    Code.INVALID_INPUT: INVALID_PARAMS,
    Code.INTERNAL: INTERNAL_ERROR,
}
"""The number of a failure without a number of its own; all others are `DEFINED`."""


def from_wire(op: type, method: str, error: Any) -> Failure:
    """The `error` of an answer to `op`, asked for with `method`, as a failure. Nothing in it is trusted."""
    if not isinstance(error, dict):
        return Failure(Code.MALFORMED_RESPONSE, f"the error in the answer to {method} is not an object")
    code, data = error.get("code"), error.get("data")
    number: int | None = code if type(code) is int else None
    detail: dict[str, Any] = {} if number is None else {"plugin_code": number}
    if isinstance(data, dict):
        size = len(str(data))
        detail |= {"data": data} if size <= MAX_DATA else {"data_left_out": size}
    origin = Origin.HOST if op in STORAGE else Origin.PLUGIN
    return Failure(_our_code(op, number, data), error_text(error), origin=origin, detail=detail)


def _our_code(op: type, number: int | None, data: Any) -> str:
    if op in STORAGE:
        return _hosts_code(number, data)
    if number == METHOD_NOT_FOUND and op in (InvokeTool, CallMethod):
        return Code.TOOL_NOT_EXPOSED
    return Code.PLUGIN_ERROR if number is None else _MEANINGS.get(number, Code.PLUGIN_ERROR)


def _hosts_code(number: int | None, data: Any) -> str:
    """A host says its own code in `data`; without one, storage that is not there is unavailable."""
    said = data.get("code") if isinstance(data, dict) else None
    if isinstance(said, str) and said in CODES:
        return said
    return Code.INVALID_INPUT if number == INVALID_PARAMS else Code.UNAVAILABLE


def to_wire(op: type, failure: Failure) -> tuple[int, str, dict[str, Any] | None]:
    """A failure as (code, message, data) for the answer to `op`; data only where there is some to give."""
    given = failure.detail.get("plugin_code")
    number = given if type(given) is int and given in WIRE_CODES else _number(op, failure)
    message = failure.message.strip() or f"it failed with {failure.code}"
    return number, sendable(message), _data(op, failure, given)


def _number(op: type, failure: Failure) -> int:
    if op is RunHook and failure.code == Code.NOT_FOUND:
        return METHOD_NOT_FOUND
    return _NUMBERS.get(failure.code, DEFINED)


def _data(op: type, failure: Failure, given: Any) -> dict[str, Any] | None:
    """The details of a failure beside its number; a code in words goes where plugins of the contract put it."""
    if op in STORAGE:
        return {"code": failure.code}
    own = failure.detail.get("data")
    more = (
        own if isinstance(own, dict) else {key: failure.detail[key] for key in failure.detail if key != "plugin_code"}
    )
    word = {"code": given} if isinstance(given, str) else {}
    return {**word, **more} or None


def not_declared(kind: str, name: str, declared: Iterable[str]) -> Failure:
    """The host's own verdict on a tool or method that the manifest does not have."""
    what = f"the plugin does not declare the {kind} {name!r}; it declares {', '.join(declared) or 'none'}"
    return Failure(Code.TOOL_NOT_EXPOSED, what)
