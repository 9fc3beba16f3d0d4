"""What a model's handler returned, as the answer a host expects: one object, streamed in pieces or not.

A handler may return the text, the full result object, or anything that yields pieces of it: a `str` is a piece of
text, a `dict` a chunk of the contract's own (`text_delta`, `tool_call_start`, `tool_call_args_delta`, `tool_call_end`,
`usage`, `end`). Owns those shapes and how pieces become one answer; knows nothing of threads or of the wire.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any


class Answer:
    """An answer that grows piece by piece. With `send`, pieces go out as they come and the end repeats no text."""

    __slots__ = ("_calls", "_finish", "_send", "_texts", "_usage")

    def __init__(self, send: Callable[[dict[str, Any]], None] | None) -> None:
        self._send = send
        self._texts: list[str] = []
        self._calls: dict[str, dict[str, Any]] = {}
        self._usage: dict[str, Any] = {"prompt_tokens": 0, "completion_tokens": 0}
        self._finish: dict[str, Any] | None = None

    def add(self, piece: Any) -> None:
        """One piece more; a `str` or a chunk object."""
        chunk = {"type": "text_delta", "delta": piece} if isinstance(piece, str) else piece
        if not isinstance(chunk, dict) or not isinstance(chunk.get("type"), str):
            raise TypeError(f"a piece of an answer is a str or a chunk with a type, not {type(piece).__name__}")
        if chunk["type"] == "end":
            self._finish = chunk.get("finish_reason")
            return  # the answer itself is the end; a host must not see two
        self._keep(chunk)
        if self._send is not None:
            self._send(chunk)

    def _keep(self, chunk: dict[str, Any]) -> None:
        match chunk["type"]:
            case "usage":
                self._usage = chunk["usage"]
            case "tool_call_start":
                self._calls[chunk["id"]] = {"id": chunk["id"], "name": chunk["name"], "arguments": ""}
            case "tool_call_args_delta":
                self._calls[chunk["id"]]["arguments"] += chunk["delta"]
            case "text_delta" if self._send is None:
                self._texts.append(chunk["delta"])

    def whole(self, value: Any) -> dict[str, Any]:
        """The answer of a handler that returned everything at once."""
        if isinstance(value, str):
            self.add(value)
            return self.end()
        if not isinstance(value, dict):
            raise TypeError(f"a model answers with a str, a dict or pieces of them, not {type(value).__name__}")
        if self._send is None:
            return value
        content = value.get("content") or {}
        if content.get("type") != "text":
            return value
        self.add(content.get("text") or "")
        return {**value, "content": {"type": "text", "text": ""}}

    def end(self) -> dict[str, Any]:
        """The full result, after the last piece."""
        return {"content": self._content(), "usage": self._usage, "finish_reason": self._finish or self._default()}

    def _default(self) -> dict[str, Any]:
        return {"kind": "tool_use" if self._calls else "stop"}

    def _content(self) -> dict[str, Any]:
        if self._calls and self._send is None:  # there is room for one of the two, and the calls matter more
            calls = [{**call, "arguments": _value(call["arguments"])} for call in self._calls.values()]
            return {"type": "tool_calls", "tool_calls": calls}
        return {"type": "text", "text": "".join(self._texts)}


def _value(text: str) -> Any:
    """The arguments of a tool call: the JSON they are, or the text that no JSON could be made of."""
    from plugbay.wire.strict_json import Malformed, stdlib_codec

    try:
        return stdlib_codec().decode(text.encode()) if text else {}
    except (Malformed, UnicodeEncodeError):
        return text
