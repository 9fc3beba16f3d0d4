"""vai's codes to and from ours.

Two layers that never mix: `ok=false` says that a frame could not be dealt with, a status in the body of `ok=true` how
the work ended. Either way the code on the wire survives in `detail["plugin_code"]`.
"""

from __future__ import annotations

from plugbay.contracts.rpc import sendable
from plugbay.model.errors import Code, Failure, Origin, Outcome

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

INVALID_FRAME = "protocol.invalid_frame"
UNSUPPORTED_VERSION = "protocol.unsupported_version"
UNKNOWN_OP = "protocol.unknown_op"
UNKNOWN_EXPORT = "protocol.unknown_export"
DUPLICATE_ID = "protocol.duplicate_id"
FRAME_TOO_LARGE = "protocol.frame_too_large"
OVERLOADED = "protocol.overloaded"
INVALID_RESPONSE = "protocol.invalid_response"
IDENTITY_MISMATCH = "plugin.identity_mismatch"

MAX_CODE = 200
"""Characters of a code: a word, not a story."""

_FROM_PLUGIN = {
    UNKNOWN_OP: Code.TOOL_NOT_EXPOSED,
    UNKNOWN_EXPORT: Code.TOOL_NOT_EXPOSED,
    OVERLOADED: Code.OVERLOADED,
    FRAME_TOO_LARGE: Code.FRAME_TOO_LARGE,
    UNSUPPORTED_VERSION: Code.PROTOCOL_VERSION_MISMATCH,
}
"""Our codes for `ok=false`; any other code is a plugin error."""

_OUTCOMES = {"invalid_input": Code.INVALID_INPUT, "not_found": Code.NOT_FOUND}
"""The two codes of failed work with a meaning of their own; with every other one it is a plugin error."""

_REFUSALS = {
    Code.TOOL_NOT_EXPOSED: UNKNOWN_EXPORT,
    Code.OVERLOADED: OVERLOADED,
    Code.FRAME_TOO_LARGE: FRAME_TOO_LARGE,
}
"""Failures of a plugin that are no outcome of the work: `ok=false`. All others are."""


# Errors that come.


def refused(error: Any) -> Failure:
    """HOST: the `error` of `ok=false`. Nothing in it is trusted."""
    if not isinstance(error, dict):
        return invalid("it has ok=false without an error")
    code = _code(error)
    ours = _FROM_PLUGIN.get(code, Code.PLUGIN_ERROR)
    what = _text(error) or f"the plugin refused the request with {code or 'no code'}"
    return Failure(
        ours,
        what,
        origin=Origin.PLUGIN,
        detail={"plugin_code": code},
        retryable=ours == Code.OVERLOADED,
        retry_after_ms=_retry_after(error),
    )


def ended(status: str, error: Any) -> Failure:
    """HOST: work that ended with another status than success; `error` may say why."""
    said = error if isinstance(error, dict) else {}
    code = _code(said)
    reason = f" and the code {code}" if code else " without a message"
    what = _text(said) or f"the plugin ended with {status}{reason}"
    ours = _OUTCOMES.get(code, Code.PLUGIN_ERROR) if status == Outcome.FAILED else Code.PLUGIN_ERROR
    return Failure(
        Code.CANCELLED if status == Outcome.CANCELLED else ours,
        what,
        origin=Origin.PLUGIN,
        detail={"plugin_code": code} if code else {},
        retryable=status == Outcome.RETRYABLE_FAILURE,
        retry_after_ms=_retry_after(said),
    )


def invalid(why: str) -> Failure:
    """HOST: a response that the contract does not know."""
    what = f"the response cannot be used: {why}"
    return Failure(Code.MALFORMED_RESPONSE, what, origin=Origin.PLUGIN, detail={"plugin_code": INVALID_RESPONSE})


def _code(error: dict[str, Any]) -> str:
    code = error.get("code")
    return code[:MAX_CODE] if isinstance(code, str) else ""


def _text(error: dict[str, Any]) -> str:
    text = error.get("message")
    return sendable(text) if isinstance(text, str) and text.strip() else ""


def _retry_after(error: dict[str, Any]) -> int | None:
    after = error.get("retry_after_ms")
    return after if type(after) is int and after >= 0 else None


# Errors we give.


def refusal_of(failure: Failure) -> str | None:
    """PLUGIN: the code with which a request is refused; None when the failure is an outcome of the work."""
    return _REFUSALS.get(failure.code)


def error(code: str, message: str, retry_after_ms: int | None = None) -> dict[str, Any]:
    """An `error` as either layer has it; it reaches the host even when it is huge or no UTF-8."""
    after = {} if retry_after_ms is None else {"retry_after_ms": retry_after_ms}
    return {"code": sendable(code[:MAX_CODE]), "message": sendable(message), **after}


def error_of(failure: Failure) -> dict[str, Any]:
    """PLUGIN: why the work had no success. A handler may say the code itself."""
    code = str(failure.detail.get("plugin_code") or failure.code)
    return error(code, failure.message.strip() or f"it failed with {failure.code}", failure.retry_after_ms)
