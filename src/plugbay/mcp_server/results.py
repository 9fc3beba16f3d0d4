"""Tool outputs as MCP results, and partial results as MCP progress.

There are three shapes of outputs: MCP's own, vai's, and plain JSON; the output of a command line becomes plain JSON.
`plain_value` is the way back, for contracts without content. Failures are converted by `plugbay.contracts.mcp.errors`.
Raw bytes are decoded only where needed.
"""

from __future__ import annotations

import base64
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
    raw = _plain_json(export, output)
    is_object = raw[:1] == b"{"
    if promises_object(export) and not is_object:
        text = f"{export.name} declares an object in its output schema, but returned something else"
        return Failure(Code.MALFORMED_RESPONSE, text, origin=Origin.PLUGIN)
    if is_object:
        return {"content": [_text(raw.decode())], "structuredContent": msgspec.Raw(raw)}
    value = msgspec.json.decode(raw)
    if value is None:
        return {"content": []}
    return {"content": [_text(value if isinstance(value, str) else raw.decode())]}


def has_content(export: Export) -> bool:
    """Whether the outputs of an export have content: its contract is MCP or vai."""
    return MCP_FACT in export.facts or "execution_class" in export.facts


def plain_value(export: Export, output: Any) -> Any:
    """The output of a tool as one JSON value, as `msgspec.Raw` where it needs no look.

    Of a result with content: its structured part if there is one, else its text, else the content.
    """
    if not has_content(export):
        return msgspec.Raw(_plain_json(export, output))
    result = tool_result(export, output)
    if not isinstance(result, dict):
        result = msgspec.json.decode(result)
    if result.get("structuredContent") is not None:
        return result["structuredContent"]
    content = result.get("content") or []
    texts = [item.get("text") for item in content if isinstance(item, dict) and item.get("type") == "text"]
    return "\n".join(map(str, texts)) if len(texts) == len(content) else {"content": content}


def _plain_json(export: Export, output: Any) -> bytes:
    if output is None:
        return b"null"
    return _command_output(output) if export.kind == "cli_namespace" else bytes(memoryview(output))


def _command_output(output: Any) -> bytes:
    """The output of a command line, whose bytes are base64 on the wire, as text."""
    said = msgspec.json.decode(output)
    texts = {name: base64.b64decode(said[name]).decode("utf-8", "replace") for name in ("stdout", "stderr")}
    return msgspec.json.encode({**texts, "exit_code": said["exit_code"]})


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
