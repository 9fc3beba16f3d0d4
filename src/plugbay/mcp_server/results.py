"""From what a tool answered to a result of MCP: text for the model, an object for programs.

Owns the three shapes there are: MCP's own, vai's, and plain JSON. Failures are not its business: one table of the
contract has them. Raw bytes stay raw where nobody needs to look inside.

`Steps`: what a plugin says before its answer, as MCP's progress: a number that grows, and a text.

An MCP server's own progress passes as it is; pieces and events of other contracts are counted.
"""

from __future__ import annotations

from typing import Any

import msgspec

from plugbay.mcp_server.listing import FACT, promises_object
from plugbay.model.errors import Code, Failure, Origin
from plugbay.model.spec import Export

MEDIA = frozenset({"image", "audio"})
"""Content of vai that MCP carries too, as long as it is there and not only linked to."""


def tool_result(export: Export, output: Any) -> Any:
    """The result object for the JSON that a tool answered with, or a `Failure` when it broke its promise."""
    if FACT in export.facts:
        return output
    if "execution_class" in export.facts:
        return _of_vai(msgspec.json.decode(output))
    raw = bytes(memoryview(output)) if output is not None else b"null"
    is_object = raw[:1] == b"{"
    if promises_object(export) and not is_object:
        text = f"{export.name} promises an object with its output schema, and answered with something else"
        return Failure(Code.MALFORMED_RESPONSE, text, origin=Origin.PLUGIN)
    if is_object:
        return {"content": [_text(raw.decode())], "structuredContent": msgspec.Raw(raw)}
    value = msgspec.json.decode(raw)
    if value is None:
        return {"content": []}
    return {"content": [_text(value if isinstance(value, str) else raw.decode())]}


def _text(text: str) -> dict[str, str]:
    return {"type": "text", "text": text}


def _of_vai(result: dict[str, Any]) -> dict[str, Any]:
    structured = result.get("structured_output")
    content = [_item(item) for item in result.get("content", ())]
    if isinstance(structured, dict) and not content:
        content = [_text(msgspec.json.encode(structured).decode())]
    return {
        "content": content,
        **({"structuredContent": structured} if isinstance(structured, dict) else {}),
        **({"isError": True} if result.get("is_error") else {}),
    }


def _item(item: Any) -> dict[str, Any]:
    """An item of vai's content as MCP knows it; what it has no word for is shown as the JSON it is."""
    if not isinstance(item, dict):
        return _text(item if isinstance(item, str) else msgspec.json.encode(item).decode())
    if item.get("type") == "text" and isinstance(item.get("text"), str):
        return _text(item["text"])
    source = item.get("source") if item.get("type") in MEDIA else None
    if isinstance(source, dict) and {"data", "media_type"} <= source.keys():
        return {"type": item["type"], "data": source["data"], "mimeType": source["media_type"]}
    return _text(msgspec.json.encode(item).decode())


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
