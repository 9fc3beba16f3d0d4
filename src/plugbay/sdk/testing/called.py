"""What a tool returned, seen from a client of MCP, which has it as content and structured content. For tests alone."""

from __future__ import annotations

from plugbay.sdk.results import RESULT

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from plugbay.model.spec import Export


def called_value(result: Mapping[str, Any], tool: Export) -> Any:
    """The value that made this result."""
    content, output = result.get("content") or [], result.get("structuredContent")
    if output is None:
        texts = [item["text"] for item in content if item.get("type") == "text"]
        return "".join(texts) if content and len(texts) == len(content) else content or None
    return output[RESULT] if set(output) == {RESULT} and not _promises_more(tool) else output


def _promises_more(tool: Export) -> bool:
    """Whether `result` is a key of the author's: then its schema has another form than one of ours."""
    schema = tool.output_schema
    return schema is not None and schema.get("required") != [RESULT]
