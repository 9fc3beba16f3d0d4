"""The failure of a source as the failure of the adapter's own call: one table for all targets.

The numbers and names of one contract mean nothing to another, so they are left out between two contracts, and the
machine of the target puts its own number to the code. A source that cannot run is `unavailable`: for the other host
the adapter runs well. The other host gets the translated code, also in words: `crashed` would read like its own
verdict on the adapter. Loaded by every adapter.
"""

from __future__ import annotations

from plugbay.model.errors import CODES, Code, Failure, Origin
from plugbay.sdk.errors import HandlerError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

CODE_FOR = {
    **{code: code for code in CODES},
    Code.LAUNCH_FAILED: Code.UNAVAILABLE,
    Code.HANDSHAKE_FAILED: Code.UNAVAILABLE,
    Code.PROTOCOL_VERSION_MISMATCH: Code.UNAVAILABLE,
    Code.SANDBOX_UNAVAILABLE: Code.UNAVAILABLE,
    Code.QUARANTINED: Code.UNAVAILABLE,
    Code.CAPABILITY_NOT_DECLARED: Code.CAPABILITY_NOT_ALLOWED,
    Code.CRASHED: Code.PLUGIN_ERROR,
    Code.MALFORMED_RESPONSE: Code.PLUGIN_ERROR,
    Code.FRAME_TOO_LARGE: Code.PLUGIN_ERROR,
    Code.TIMEOUT: Code.PLUGIN_ERROR,
    Code.INTERNAL: Code.PLUGIN_ERROR,
}
"""The code of the adapter's failure for each code of the source's."""

VERDICTS_OF_RUNE = {Code.TOOL_NOT_EXPOSED: Code.NOT_FOUND, Code.CAPABILITY_NOT_ALLOWED: Code.PLUGIN_ERROR}
"""Codes that a host of rune says itself about a plugin, and the code of a plugin's answer in their place."""

CARRIED = ("errors", "hint", "capability", "exit_code", "signal")
"""Details that mean the same for every contract."""

OPERATORS = frozenset({"stderr_tail", "exit", "line", "said", "command", "cwd"})
"""Details that stay with the operator: the output of the source, and where it is."""


class SourceFailed(HandlerError):
    """Raised by a handler of an adapter: the source's failure is its answer."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self._failure = failure

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._failure,)

    def failure(self) -> Failure:
        return self._failure


def translate(failure: Failure, source: str, target: str) -> Failure:
    """The failure of a plugin of contract `source` as the answer to a host of contract `target`."""
    code = CODE_FOR[failure.code]
    own = failure.detail if source == target and code == failure.code else {}
    if target == "rune":
        code = VERDICTS_OF_RUNE.get(code, code)
    carried = {key: failure.detail[key] for key in CARRIED if key in failure.detail}
    more = {key: value for key, value in own.items() if key not in OPERATORS}
    return Failure(
        code,
        failure.message,
        origin=Origin.PLUGIN,
        detail={"plugin_code": code, **carried, **more},
        retryable=failure.retryable,
        retry_after_ms=failure.retry_after_ms,
    )
