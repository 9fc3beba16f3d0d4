"""ainb's error codes to and from ours.

Owns the numbers, the texts that plugins match on, and what a host tells a plugin of its own failures: by code, never
by another plugin's number. The number on the wire survives in `detail["plugin_code"]`, the peer's `data` in
`detail["data"]` unless it is huge.
"""

from __future__ import annotations

from plugbay.contracts.rpc import error_text
from plugbay.model.errors import Code, Failure, Origin
from plugbay.model.operations import DispatchCli, FetchUrl, InvokeAction, ReadFile, Render

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

METHOD_NOT_FOUND, INVALID_PARAMS, INTERNAL_ERROR = -32601, -32602, -32603
CAPABILITY_DENIED, ACTION_TIMEOUT, MANIFEST_VALIDATION = -32001, -32002, -32003

DENIED = "capability denied: "
"""How the message of every denial begins; what follows is the capability."""

MAX_DATA = 65_536
"""Characters of an error's `data` as Python writes it: failures are remembered, a thousand of them at a time."""

WIRE_CODES = range(-(2**31), 2**31)
"""The range of the contract's error codes."""

_FROM_PLUGIN = {
    METHOD_NOT_FOUND: Code.NOT_FOUND,
    INVALID_PARAMS: Code.INVALID_INPUT,
    CAPABILITY_DENIED: Code.CAPABILITY_NOT_ALLOWED,
    ACTION_TIMEOUT: Code.TIMEOUT,
}
_FROM_HOST = {**_FROM_PLUGIN, METHOD_NOT_FOUND: Code.UNAVAILABLE}
"""A method that a host does not have is a service it does not offer."""

_NUMBERS = {
    Code.TOOL_NOT_EXPOSED: METHOD_NOT_FOUND,
    Code.INVALID_INPUT: INVALID_PARAMS,
    Code.NOT_FOUND: INVALID_PARAMS,
    Code.CAPABILITY_NOT_ALLOWED: CAPABILITY_DENIED,
}
"""The number of a failure; all others are `INTERNAL_ERROR`."""

_HANDLERS_NUMBERS = {**_NUMBERS, Code.TIMEOUT: ACTION_TIMEOUT}

_SIZED = (ReadFile, FetchUrl)
"""Requests for something that may be too large to be sent: the fault of what was asked for."""


# Errors that come.


def from_plugin(op: type, method: str, error: Any) -> Failure:
    """HOST: the `error` of a plugin's answer to `op`, asked for with `method`. Nothing in it is trusted."""
    failure = _failure(method, error, _FROM_PLUGIN, Code.PLUGIN_ERROR, Origin.PLUGIN)
    if failure.code == Code.NOT_FOUND and op in (Render, DispatchCli):
        return Failure(Code.TOOL_NOT_EXPOSED, failure.message, origin=Origin.PLUGIN, detail=failure.detail)
    return failure


def from_host(method: str, error: Any) -> Failure:
    """PLUGIN: the `error` of the host's answer; a denial names its capability in `detail`."""
    failure = _failure(method, error, _FROM_HOST, Code.INTERNAL, Origin.HOST)
    if failure.code == Code.CAPABILITY_NOT_ALLOWED and failure.message.startswith(DENIED):
        return failure.with_detail(capability=failure.message.removeprefix(DENIED))
    return failure


def _failure(method: str, error: Any, codes: dict[int, str], otherwise: str, origin: str) -> Failure:
    if not isinstance(error, dict):
        return Failure(Code.MALFORMED_RESPONSE, f"the error in the answer to {method} is not an object", origin=origin)
    code, data = error.get("code"), error.get("data")
    number: int | None = code if type(code) is int else None
    detail: dict[str, Any] = {} if number is None else {"plugin_code": number}
    if data is not None:
        size = len(str(data))
        detail |= {"data": data} if size <= MAX_DATA else {"data_left_out": size}
    ours = otherwise if number is None else codes.get(number, otherwise)
    return Failure(ours, error_text(error), origin=origin, detail=detail)


# Errors we give: (code, message, data), with data only where there is some to give.


def not_found(method: str) -> tuple[int, str]:
    return METHOD_NOT_FOUND, f"method not found: {method}"


def to_plugin(op: Any, method: str, failure: Failure) -> tuple[int, str, dict[str, Any] | None]:
    """HOST: why a plugin's request for `op` was not done."""
    if failure.detail.get("absent") or failure.code == Code.UNAVAILABLE:
        return *not_found(method), None
    if failure.code == Code.CAPABILITY_NOT_ALLOWED:
        missing = str(failure.detail.get("capability") or failure.message)
        return CAPABILITY_DENIED, DENIED + missing.partition("=")[0], _data(failure)
    if failure.code == Code.TIMEOUT and isinstance(op, InvokeAction):
        return ACTION_TIMEOUT, f"action timed out: {op.action}", None
    too_large = failure.code == Code.FRAME_TOO_LARGE and isinstance(op, _SIZED)
    number = INVALID_PARAMS if too_large else _NUMBERS.get(failure.code, INTERNAL_ERROR)
    return number, _text(failure), _data(failure)


def to_host(failure: Failure) -> tuple[int, str, dict[str, Any] | None]:
    """PLUGIN: why a host's request was not done. A handler may say the number itself."""
    given = failure.detail.get("plugin_code")
    ours = _HANDLERS_NUMBERS.get(failure.code, INTERNAL_ERROR)
    number = given if type(given) is int and given in WIRE_CODES else ours
    return number, _text(failure), _data(failure)


def _data(failure: Failure) -> dict[str, Any] | None:
    data = failure.detail.get("data")
    return data if isinstance(data, dict) else None


def _text(failure: Failure) -> str:
    return failure.message.strip() or f"it failed with {failure.code}"
