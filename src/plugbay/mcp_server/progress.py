"""`Steps`: what a plugin says before its answer, as MCP's progress: a number that grows, and a text.

An MCP server's own progress passes as it is; pieces and events of other contracts are counted.
"""

from __future__ import annotations

from typing import Any

import msgspec

LONGEST_MESSAGE = 2000
"""Characters; more than a person reads while waiting, and a piece of an answer may have megabytes."""


class Steps:
    """The progress of one call."""

    __slots__ = ("_count",)

    def __init__(self) -> None:
        self._count = 0

    def next(self, item: Any) -> dict[str, Any]:
        """`{"progress", "total"?, "message"?}` for whatever was said."""
        if isinstance(item, msgspec.Raw):
            item = msgspec.json.decode(item)
        if isinstance(item, dict) and type(item.get("progress")) in (int, float):
            return {name: item[name] for name in ("progress", "total", "message") if item.get(name) is not None}
        self._count += 1
        message = _message(item)
        return {"progress": self._count, **({"message": message[:LONGEST_MESSAGE]} if message else {})}


def _message(item: Any) -> str:
    if isinstance(item, str):
        return item
    if not isinstance(item, dict):
        return msgspec.json.encode(item).decode()
    for name in ("message", "text", "delta"):
        if isinstance(item.get(name), str):
            return str(item[name])
    content = item.get("content")
    if isinstance(content, list):
        return "".join(part["text"] for part in content if isinstance(part, dict) and isinstance(part.get("text"), str))
    return msgspec.json.encode(item).decode()
