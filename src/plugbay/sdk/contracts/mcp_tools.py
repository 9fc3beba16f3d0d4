"""An author's tools as MCP has them: their definitions, and what comes of a call.

    a text                  content
    an object               structured content, with its JSON as the text
    anything else           the same, as the `result` in an object: structured content is always one
    ToolResult              all of it, as the author says

What is yielded is put together: MCP has no word for a part of an answer. Knows no threads and no wire.
"""

from __future__ import annotations

from plugbay.sdk.results import RESULT, ToolResult, as_text, items_of, merged
from plugbay.sdk.types.handlers import Pieces

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from plugbay.sdk.types.handlers import Tool

HINTS = {
    "read_only": {"readOnlyHint": True},
    "idempotent_write": {"readOnlyHint": False, "destructiveHint": False, "idempotentHint": True},
    "non_idempotent_write": {"readOnlyHint": False, "destructiveHint": True, "idempotentHint": False},
}
"""By a tool's effect, what a client is told; of one whose effect is unknown, nothing, and it thinks the worst."""


def definition(name: str, tool: Tool) -> dict[str, Any]:
    """An entry of `tools/list`."""
    said = {
        "name": name,
        "description": tool.description,
        "inputSchema": {**tool.input_schema, "type": "object"},
        "outputSchema": promised(tool.output_schema),
        "annotations": HINTS.get(tool.effect),
    }
    return {key: value for key, value in said.items() if value not in (None, "")}


def promised(schema: dict[str, Any] | None) -> dict[str, Any] | None:
    """The schema of structured content for a tool that returns what `schema` says."""
    if schema is None or not _is_wrapped(schema):
        return schema
    shared = {"$defs": schema["$defs"]} if "$defs" in schema else {}
    inner = {name: rule for name, rule in schema.items() if name != "$defs"}
    return {"type": "object", "properties": {RESULT: inner}, "required": [RESULT], **shared}


def _is_wrapped(schema: Mapping[str, Any]) -> bool:
    return schema.get("type") != "object"


class Called(Pieces):
    """What a tool returned or yielded, as the result of a call."""

    __slots__ = ("_check", "_schema")

    def __init__(self, tool: Tool, check: Callable[[], None]) -> None:
        super().__init__(tool.written)
        self._check = check
        self._schema = tool.output_schema

    def add(self, piece: Any) -> None:
        self._check()
        super().add(piece)

    def whole(self, value: Any) -> dict[str, Any]:
        if isinstance(value, ToolResult):
            return _said(value)
        return _said(self._result(self._write(value)))

    def end(self) -> dict[str, Any]:
        if self._whole is not None:
            return self.whole(self._whole)
        if all(isinstance(piece, str) for piece in self._pieces):
            return _said(self._result("".join(self._pieces)))
        if all(isinstance(piece, str) or _is_item(piece) for piece in self._pieces):
            return _said(ToolResult(merged(self._pieces)))
        return _said(self._result(self._pieces))

    def _result(self, value: Any) -> ToolResult:
        """What is no object, or is not promised to be one, is inside of one."""
        is_bare = isinstance(value, dict) and (self._schema is None or not _is_wrapped(self._schema))
        output = value if is_bare else {RESULT: value}
        if value is None or isinstance(value, str):
            return ToolResult(value or (), None if self._schema is None else output)
        return ToolResult((), output)


def _is_item(piece: Any) -> bool:
    return isinstance(piece, dict) and isinstance(piece.get("type"), str)


def _is_ascii(item: Mapping[str, Any]) -> bool:
    """Whether an item is certainly JSON: plain text, of plain letters."""
    words = item.get("text")
    return len(item) == 2 and item["type"] == "text" and isinstance(words, str) and words.isascii()


def _said(result: ToolResult) -> dict[str, Any]:
    content, output = items_of(result.content), result.structured_output
    if output is not None and not content:
        content = items_of(as_text(output))
    elif not all(_is_ascii(item) for item in content):
        as_text({"content": content})  # what cannot be sent is an error of the author's, not of the conversation
    return {
        "content": content,
        **({} if output is None else {"structuredContent": dict(output)}),
        **({"isError": True} if result.is_error else {}),
    }
