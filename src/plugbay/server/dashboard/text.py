"""Formats values for pages: untrusted text, times, sizes, JSON. Pure.

Invisible and bidirectional characters are shown as escapes, and long text is cut. The templates escape HTML.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

from plugbay.model.text import printable
from plugbay.server.domain import clock

MAX_TEXT = 64 << 10
"""Characters of one value on a page."""

MAX_JSON = 64 << 10
"""Characters of a document that is shown, spread over lines."""

_INVISIBLE = (0x00AD, 0x180E, *range(0x200B, 0x200D), *range(0x2060, 0x2065), *range(0xFFF9, 0xFFFC))
_TAGS = range(0xE0000, 0xE0080)
"""Tag characters: an invisible copy of ASCII that can hide instructions to a language model."""

_ESCAPES = {code: f"\\u{code:04x}" for code in _INVISIBLE} | {code: f"\\U{code:08x}" for code in _TAGS}


def visible(text: str, most: int = MAX_TEXT) -> str:
    """The text with invisible characters escaped and lines kept; long text is cut with a note."""
    if len(text) <= most and text.isascii() and text.isprintable():
        return text  # the common case
    lines = text[:most].split("\n")
    shown = "\n".join(printable(line.encode("utf-8", "backslashreplace")) for line in lines).translate(_ESCAPES)
    return shown if len(text) <= most else f"{shown}… ({len(text) - most:,} more characters)"


def as_json(value: Any, *, spread: bool = True, most: int = MAX_JSON) -> str:
    """A value as JSON, over lines or in one; cut where it is too long."""
    separators = None if spread else (",", ":")
    text = json.dumps(value, ensure_ascii=False, indent=2 if spread else None, separators=separators, default=str)
    return text if len(text) <= most else f"{text[:most]}… ({len(text) - most:,} more characters)"


_UNITS = (("day", 86_400), ("h", 3_600), ("min", 60), ("s", 1))


def ago(at: float, now: float) -> str:
    """`3 min ago`; the script on the page uses the same words."""
    seconds = max(0, int(now - at))
    if seconds < 5:
        return "now"
    name, size = next(unit for unit in _UNITS if seconds >= unit[1])
    count = seconds // size
    return f"{count} {name}{'s' if name == 'day' and count > 1 else ''} ago"


def utc(at: float) -> str:
    """A moment for machines and tooltips: `2026-03-12T20:00:00Z`."""
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def time_of_day(at: str) -> str:
    """The time in an RFC 3339 text: `20:00:00`; the text itself if it is invalid."""
    day, _, time = at.partition("T")
    return time[:8] if day and len(time) >= 8 else at


def moment(at: str) -> float | None:
    """The time of an RFC 3339 text; None if it is invalid."""
    try:
        return clock.moment(at)
    except ValueError:
        return None


def duration(milliseconds: float) -> str:
    """`4.2 ms`, `1.50 s`, `2 min 5 s`: about three significant digits."""
    if milliseconds < 10:
        return f"{milliseconds:.1f} ms"
    if milliseconds < 1_000:
        return f"{milliseconds:.0f} ms"
    if milliseconds < 60_000:
        return f"{milliseconds / 1000:.2f} s"
    minutes, seconds = divmod(round(milliseconds / 1000), 60)
    return f"{minutes:,} min {seconds} s"


def size(number: int) -> str:
    """`256 MiB`; in bytes if it is not a multiple of a unit."""
    for unit, name in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if number and number % unit == 0:
            return f"{number // unit:,} {name}"
    return f"{number:,} bytes"


def megabytes(number: float) -> str:
    """`12.5 MiB`, `1.25 GiB`: about three significant digits."""
    mebibytes = number / (1 << 20)
    return f"{mebibytes / 1024:.3g} GiB" if mebibytes >= 1000 else f"{mebibytes:.3g} MiB"


def minute_of_day(minute: int) -> str:
    """`14:05`, in UTC, of a minute since the epoch."""
    return datetime.fromtimestamp(minute * 60, UTC).strftime("%H:%M")


def count(number: int, noun: str) -> str:
    """`1 plugin`, `2 plugins`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def sentence(text: str) -> str:
    """A message of an error as a sentence."""
    return f"{text[:1].upper()}{text[1:]}" + ("" if text.endswith((".", "!", "?")) else ".")
