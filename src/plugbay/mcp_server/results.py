"""From what a tool answered to a result of MCP: text for the model, an object for programs.

Owns the three shapes there are: MCP's own, vai's, and plain JSON. Failures are not its business: one table of the
contract has them. Raw bytes stay raw where nobody needs to look inside.
"""

from __future__ import annotations

from typing import Any

import msgspec

from plugbay.mcp_server.definitions import FACT, promises_object
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
