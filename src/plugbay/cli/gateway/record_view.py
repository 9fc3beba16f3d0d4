"""A record of the control plane as an outline for people: nested values below their names, without JSON's signs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from plugbay.cli.render import output

LONGEST_INLINE = 72
"""Characters of an object or a list that stays on one line."""


def show_record(record: dict[str, Any], *, most: int | None = None) -> None:
    """Print the fields of a record, of each at most so many lines."""
    width = max(map(len, record), default=0) + 2
    for name, value in record.items():
        lines = list(_outline(value)) or ["-"]
        if most is not None and len(lines) > most:
            lines[most - 1 :] = [f"… {len(lines) - most + 1} more lines: --json shows all"]
        output.out().field(name, "\n".join(lines), indent=0, width=width)


def _outline(value: Any) -> Iterator[str]:
    """The lines of a value; empty values inside of it are left out."""
    inline = _inline(value)
    if inline is not None:
        yield from inline.split("\n") if inline else ()
        return
    for name, inner in value.items() if isinstance(value, dict) else (("", inner) for inner in value):
        lines = list(_outline(inner))
        if not lines:
            continue
        if not name:
            yield f"- {lines[0]}"
            yield from (f"  {line}" for line in lines[1:])
        elif isinstance(inner, dict | list) and _inline(inner) is None:
            yield f"{name}:"
            yield from (f"  {line}" for line in lines)
        else:
            yield f"{name}: {lines[0]}"
            yield from (f"  {line}" for line in lines[1:])


def _inline(value: Any) -> str | None:
    """A scalar, or a short collection of scalars, as one text; None for others."""
    if value is None or value in ({}, []):
        return ""
    if isinstance(value, str):
        return value
    if not isinstance(value, dict | list):
        return output.json_bytes(value).decode()
    inner = list(value.values() if isinstance(value, dict) else value)
    if any(isinstance(one, dict | list) and one for one in inner):
        return None
    texts = [_inline(one) or "" for one in inner]
    pairs = [f"{name}: {text}" for name, text in zip(value, texts, strict=True) if text]
    line = ", ".join(pairs if isinstance(value, dict) else texts)
    return line if len(line) <= LONGEST_INLINE and "\n" not in line else None
