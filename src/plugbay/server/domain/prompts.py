"""What a model is asked: the blocks of a chain as messages, the tools of a run as functions.

Pure. Thinking is left out: it was for nobody but the model that had it. What a model cannot be shown is named instead.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from plugbay.server.domain.blocks import Block

Message = dict[str, Any]

_ROLES = {"input": "user", "response": "assistant"}


def system_prompt(blocks: Iterable[Mapping[str, Any]]) -> str | None:
    """What the system blocks say, in their order."""
    texts = [words(block.get("content", ())) for block in blocks if block["kind"] == "system"]
    return "\n\n".join(filter(None, texts)) or None


def messages(blocks: Iterable[Mapping[str, Any]]) -> list[Message]:
    """The rest of them. Calls of tools belong to the response before them, where there is one."""
    found: list[Message] = []
    for block in blocks:
        kind = block["kind"]
        if kind in _ROLES:
            found.append(_said(_ROLES[kind], block))
        elif kind == "tool_call":
            _call(found, block)
        elif kind == "tool_result":
            found.append({"role": "tool", "tool_call_id": block["tool_call_id"], "content": _result(block)})
    return found


def _said(role: str, block: Mapping[str, Any]) -> Message:
    content = block.get("content", ())
    message: Message = {"role": role, "content": words(content)}
    images = [image for item in content if (image := _image(item)) is not None]
    return {**message, "attachments": images} if images else message


def _call(found: list[Message], block: Mapping[str, Any]) -> None:
    if not found or found[-1]["role"] != "assistant":
        found.append({"role": "assistant", "content": None})
    call = {"id": block["tool_call_id"], "name": block["name"], "arguments": block.get("input", {})}
    found[-1].setdefault("tool_calls", []).append(call)


def _result(block: Mapping[str, Any]) -> str:
    """What a tool said; where it has no words, its structured output."""
    text = words(block.get("content", ()))
    structured = block.get("structured_output")
    return text if text or structured is None else msgspec.json.encode(structured).decode()


def words(content: Sequence[Mapping[str, Any]] | tuple[()]) -> str:
    """The texts of some content, and names for what else there is."""
    return "\n".join(word for item in content if (word := _word(item)))


def _word(item: Mapping[str, Any]) -> str:
    if item.get("type") == "text":
        return str(item.get("text", ""))
    return "" if _image(item) is not None else f"[{item.get('type')}]"


def _image(item: Mapping[str, Any]) -> dict[str, Any] | None:
    """An image as a provider takes it; None for all else, and for one that only we have."""
    source = item.get("source")
    if item.get("type") != "image" or not isinstance(source, Mapping):
        return None
    if source.get("type") == "url" and isinstance(source.get("url"), str):
        return {"kind": "image", "url": source["url"]}
    if source.get("type") == "base64" and isinstance(source.get("data"), str):
        return {"kind": "image", "mime_type": source.get("media_type"), "base64": source["data"]}
    return None


def function(name: str, description: str, schema: Any) -> dict[str, Any]:
    """A tool as a model sees it."""
    return {"name": name, "description": description, "parameters": schema or {"type": "object"}}


def replied(text: str | None, calls: Iterable[Mapping[str, Any]]) -> list[Block]:
    """A model's reply as blocks: what it said, then what it asks for."""
    said = [{"kind": "response", "content": [{"type": "text", "text": text}]}] if text else []
    asked = [
        {
            "kind": "tool_call",
            "content": [],
            "tool_call_id": call["id"],
            "name": call["name"],
            "input": call["arguments"],
        }
        for call in calls
    ]
    return [*said, *asked]
