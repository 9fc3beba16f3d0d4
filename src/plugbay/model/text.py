"""Bytes from a plugin as text that is safe to show: in a terminal, in a log, in an error."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

_HARMFUL = (
    *(code for code in range(0x20) if code != 0x09),
    *range(0x7F, 0xA0),
    0x061C,
    *range(0x200E, 0x2010),
    *range(0x2028, 0x202F),
    *range(0x2066, 0x206A),
    0xFEFF,
)
"""Control characters, and what reorders or breaks a line of text on a screen. Tabs are fine."""

_ESCAPES = {code: f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" for code in _HARMFUL}


def printable(data: bytes) -> str:
    """Text that cannot move a cursor, forge a line or hide itself; what is not UTF-8 appears as `\\xNN`."""
    return data.decode("utf-8", "backslashreplace").translate(_ESCAPES)


_ERROR = r"(?:Uncaught )?[\w.]*(?:Error|Exception)(?: \[\w+\])?(?::|$)|panic: |thread '[^']*' panicked"
"""The line with which runtimes name an error: `ValueError: no`, `TypeError [ERR_X]: no`, `panic: no`."""


def error_excerpt(lines: Sequence[str], most: int) -> list[str]:
    """At most `most` lines of stderr: the last ones, or those from the line on that names the error.

    Node writes the error first and a long stack after it; the last lines alone would not say why it ended.
    """
    import re  # a plugin that starts does not need it

    named = [at for at, line in enumerate(lines) if re.match(_ERROR, line)]
    start = len(lines) - most
    if named and named[-1] < start:
        start = named[-1]
    start = max(0, start)
    return list(lines[start : start + most])
