"""Bytes from a plugin as text that is safe to show: in a terminal, in a log, in an error."""

from __future__ import annotations

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
