"""Tool outputs as MCP results, and partial results as MCP progress.

There are three shapes of outputs: MCP's own, vai's, and plain JSON. Failures are converted by
`plugbay.contracts.mcp.errors`. Raw bytes are decoded only where needed.
"""

from __future__ import annotations

from typing import Any

import msgspec

from plugbay.mcp_server.listing import MCP_FACT, promises_object
from plugbay.model.errors import Code, Failure, Origin
from plugbay.model.spec import Export

MEDIA = frozenset({"image", "audio"})
"""Content types that vai and MCP share, if the data is inline."""

LONGEST_MESSAGE = 2000
"""Characters; a partial result may have megabytes."""


def tool_result(export: Export, output: Any) -> Any:
    """The MCP result for the output of a tool; a `Failure` when the output violates the declared schema."""
    if MCP_FACT in export.facts:
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


def failed_result(export: Export, failure: Failure) -> dict[str, Any] | None:
    """The MCP result for the output that a vai plugin answered with its failure; None when there is none."""
    result = failure.detail.get("result")
    if "execution_class" not in export.facts or not isinstance(result, dict):
        return None
    return _of_vai({**result, "content": result["content"] if isinstance(result.get("content"), list) else []})


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
    """A vai content item as MCP content; unknown types become JSON text."""
    if not isinstance(item, dict):
        return _text(item if isinstance(item, str) else msgspec.json.encode(item).decode())
    if item.get("type") == "text" and isinstance(item.get("text"), str):
        return _text(item["text"])
    source = item.get("source") if item.get("type") in MEDIA else None
    if isinstance(source, dict) and {"data", "media_type"} <= source.keys():
        return {"type": item["type"], "data": source["data"], "mimeType": source["media_type"]}
    return _text(msgspec.json.encode(item).decode())


class ProgressCounter:
    """Turns the partial results of one call into progress: MCP progress passes unchanged, other items are counted."""

    __slots__ = ("_count",)

    def __init__(self) -> None:
        self._count = 0

    def next(self, item: Any) -> dict[str, Any]:
        """`{"progress", "total"?, "message"?}` for one item."""
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
