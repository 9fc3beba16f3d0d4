"""rune's errors to and from our codes.

Two layers that never mix: the nine codes are the host's verdict about a plugin process; an `error` object inside a
response is the plugin's own answer about its input.
"""

from __future__ import annotations

from plugbay.model.errors import Code, Failure, Origin
from plugbay.model.text import printable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

PLUGIN_CODES = {"invalid_input": Code.INVALID_INPUT, "not_found": Code.NOT_FOUND}
"""The two plugin error codes with a meaning of their own; every other one is a plain plugin error."""


def from_wire(code: str, message: str) -> Failure:
    """A plugin's own error as a failure; its code survives in the detail."""
    return Failure(
        PLUGIN_CODES.get(code, Code.PLUGIN_ERROR), message, origin=Origin.PLUGIN, detail={"plugin_code": code}
    )


MAX_ERROR_CODE, MAX_ERROR_TEXT = 200, 65_536
"""Characters; whatever has to be escaped, the line stays under its limit."""


def to_wire(failure: Failure) -> tuple[str, str]:
    """A handler's failure as (code, message) for an error response; rune requires a non-blank message.

    An error must reach the host even when it is huge or quotes a file name that is not UTF-8.
    """
    code = str(failure.detail.get("plugin_code") or failure.code)[:MAX_ERROR_CODE]
    message = failure.message.strip()[:MAX_ERROR_TEXT] or f"the tool failed with {failure.code}"
    return _utf8(code), _utf8(message)


def _utf8(text: str) -> str:
    return text.encode("utf-8", "backslashreplace").decode()


def excerpt(line: bytes) -> str:
    """At most 200 bytes of an offending line, safe to print."""
    return printable(line[:200])


def malformed(what: str, line: bytes, **more: Any) -> Failure:
    return Failure(Code.MALFORMED_RESPONSE, what, detail={"line": excerpt(line), **more})


def handshake_failed(what: str) -> Failure:
    return Failure(Code.HANDSHAKE_FAILED, what)
