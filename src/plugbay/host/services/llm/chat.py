"""The values of a chat with a language model: request, reply, and the chunks of a stream.

Their JSON form is that of nexo's `llm.chat`. `Assembly` makes one reply of chunks. Nothing here raises for input of a
peer: errors are returned as reasons.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, TypeGuard

import msgspec

from plugbay.contracts.schemas import compile_schema
from plugbay.model.errors import Code, Failure
from plugbay.wire.fast_json import MsgspecCodec
from plugbay.wire.json_gate import Malformed

Chunk = dict[str, Any]
"""One piece of a stream; `CHUNK_TEXTS` lists the six types."""

CHUNK_TEXTS: dict[str, tuple[str, ...]] = {
    "text_delta": ("delta",),
    "tool_call_start": ("id", "name"),
    "tool_call_args_delta": ("id", "delta"),
    "tool_call_end": ("id",),
    "usage": (),
    "end": (),
}
"""The types of chunks, each with the fields that must be text. `usage` and `end` carry an object instead."""

ROLES = frozenset({"system", "user", "assistant", "tool"})
PLAIN_ENDINGS = frozenset({"stop", "length", "tool_use"})
"""Finish reasons with a name of their own; every other is `other:<reason>`."""

STREAM_NO_END = "other:stream-no-end"
"""The finish reason of a stream without an `end`."""

MAX_STREAM_CHARS = 8 << 20
"""Characters of text and tool arguments in one stream: 128 Ki tokens, the longest replies, have half a million."""

MAX_STREAM_CHUNKS = 200_000
"""Pieces of one stream. A model sends about one per token, and the longest replies have 128 Ki tokens."""

REQUEST_SCHEMA: dict[str, Any] = {
    "type": "object",
    "required": ["model", "messages"],
    "properties": {
        "model": {"type": "string", "minLength": 1},
        "messages": {"type": "array", "minItems": 1, "items": {"type": "object", "required": ["role"]}},
        "max_tokens": {"type": "integer", "minimum": 1},
        "temperature": {"type": "number"},
        "system_prompt": {"type": ["string", "null"]},
        "tools": {"type": "array"},
        "tool_choice": {"type": "object"},
        "stop_sequences": {"type": "array", "items": {"type": "string"}},
        "system_blocks": {"type": "array"},
        "cache_tools": {"type": "boolean"},
    },
    "additionalProperties": False,
}
"""The JSON form of a `ChatRequest`, as callers write it."""

_CODEC = MsgspecCodec()


@cache
def _request_validator() -> Any:
    return compile_schema(REQUEST_SCHEMA)


class ChatRequest(msgspec.Struct, frozen=True):
    """A chat request. Messages, tools and blocks are JSON objects as nexo defines them."""

    model: str
    messages: Sequence[Mapping[str, Any]]
    max_tokens: int = 4096
    temperature: float = 0.7
    system_prompt: str | None = None
    tools: Sequence[Mapping[str, Any]] = ()
    tool_choice: Mapping[str, Any] = msgspec.field(default_factory=lambda: {"kind": "auto"})
    stop_sequences: Sequence[str] = ()
    system_blocks: Sequence[Mapping[str, Any]] = ()
    cache_tools: bool = False

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> ChatRequest | str:
        """The request that a caller wrote as a plain object, or why it is invalid."""
        written = dict(value)
        try:
            first = next(iter(_request_validator().iter_errors(written)), None)
        except ValueError as error:
            return f"it is not JSON: {error}"
        return cls(**written) if first is None else "/".join([*map(str, first.instance_path), first.message])

    def to_json(self) -> dict[str, Any]:
        """The `request` object of `llm.chat`: six keys always, the other four unless empty."""
        optional = {
            "system_prompt": self.system_prompt,
            "tools": list(self.tools),
            "stop_sequences": list(self.stop_sequences),
            "system_blocks": list(self.system_blocks),
        }
        return {
            "model": self.model,
            "messages": list(self.messages),
            "max_tokens": self.max_tokens,
            "temperature": self.temperature,
            "tool_choice": dict(self.tool_choice),
            "cache_tools": self.cache_tools,
            **{name: value for name, value in optional.items() if value},
        }


class Usage(msgspec.Struct, frozen=True):
    """The tokens of a request and its reply."""

    prompt_tokens: int = 0
    completion_tokens: int = 0

    @classmethod
    def from_json(cls, value: Any) -> Usage | None:
        """The usage in a JSON object; None when it is not one."""
        if not isinstance(value, dict):
            return None
        prompt, completion = value.get("prompt_tokens"), value.get("completion_tokens")
        return cls(prompt, completion) if _is_count(prompt) and _is_count(completion) else None

    def to_json(self) -> dict[str, int]:
        return {"prompt_tokens": self.prompt_tokens, "completion_tokens": self.completion_tokens}


class ChatReply(msgspec.Struct, frozen=True):
    """A model's reply: text, tool calls `{id, name, arguments}`, or both."""

    text: str | None
    tool_calls: tuple[dict[str, Any], ...] = ()
    usage: Usage = Usage()
    finish_reason: str = "stop"
    """`stop`, `length`, `tool_use` or `other:<reason>`."""
    cache_usage: Mapping[str, int] | None = None

    @classmethod
    def from_json(cls, result: Any) -> ChatReply | str:
        """The reply in the result of `llm.chat`, or why it is invalid. A missing usage counts as zero."""
        if not isinstance(result, dict):
            return "the result is not an object"
        content = _content(result.get("content"))
        if isinstance(content, str):
            return content
        usage = Usage.from_json(result["usage"]) if result.get("usage") is not None else Usage()
        if usage is None:
            return "usage must have the counts prompt_tokens and completion_tokens"
        finish = finish_from_json(result.get("finish_reason"))
        if finish is None:
            return "finish_reason is not an object with a kind"
        cache_usage = result.get("cache_usage")
        if cache_usage is not None and not _is_counts(cache_usage):
            return "cache_usage is not an object of counts"
        return cls(*content, usage, finish, cache_usage)

    def to_json(self) -> dict[str, Any]:
        """The result of `llm.chat`. It has room for text or tool calls; where there are both, the calls go."""
        content: dict[str, Any] = {"type": "text", "text": self.text or ""}
        if self.tool_calls:
            content = {"type": "tool_calls", "tool_calls": list(self.tool_calls)}
        result = {
            "content": content,
            "usage": self.usage.to_json(),
            "finish_reason": finish_to_json(self.finish_reason),
        }
        return result if self.cache_usage is None else {**result, "cache_usage": dict(self.cache_usage)}


def _content(content: Any) -> tuple[str | None, tuple[dict[str, Any], ...]] | str:
    """Text and tool calls in the `content` of a result, or why it is invalid."""
    if not isinstance(content, dict):
        return "content is not an object"
    if content.get("type") == "text":
        text = content.get("text")
        return (text, ()) if isinstance(text, str) else "content of type text has no text"
    if content.get("type") != "tool_calls":
        return "content must be of type text or tool_calls"
    calls = content.get("tool_calls")
    if not isinstance(calls, list) or not calls or not all(map(_is_tool_call, calls)):
        return "tool_calls is not a list of objects with an id, a name and arguments"
    return None, tuple(
        {"id": call["id"], "name": call["name"], "arguments": call.get("arguments", {})} for call in calls
    )


def _is_tool_call(call: Any) -> bool:
    return isinstance(call, dict) and isinstance(call.get("id"), str) and isinstance(call.get("name"), str)


def _is_counts(value: Any) -> bool:
    return isinstance(value, dict) and all(map(_is_count, value.values()))


def _is_count(value: Any) -> TypeGuard[int]:
    return type(value) is int and value >= 0


def finish_to_json(finish_reason: str) -> dict[str, str]:
    """`{kind, reason?}` for a finish reason."""
    if finish_reason in PLAIN_ENDINGS:
        return {"kind": finish_reason}
    return {"kind": "other", "reason": finish_reason.removeprefix("other:")}


def finish_from_json(value: Any) -> str | None:
    """The finish reason in `{kind, reason?}`; None when it is invalid. An unknown kind becomes `other:<kind>`."""
    kind = value.get("kind") if isinstance(value, dict) else None
    if not isinstance(kind, str) or kind in PLAIN_ENDINGS:
        return kind if isinstance(kind, str) else None
    reason = value.get("reason") if kind == "other" else kind
    return f"other:{reason}" if isinstance(reason, str) and reason else "other:unspecified"


def messages_problem(messages: Any) -> str | None:
    """Why the messages of a chat are invalid; None when they are valid."""
    if not isinstance(messages, list) or not messages:
        return "messages is not a list with at least one message"
    for number, message in enumerate(messages):
        if not isinstance(message, dict) or message.get("role") not in ROLES:
            return f"messages[{number}] has no role of {', '.join(sorted(ROLES))}"
        silent = message.get("content") is None and bool(message.get("tool_calls"))
        if not silent and not isinstance(message.get("content"), str):
            return f"messages[{number}] has no text as content"
    return None


def tool_arguments(text: str) -> Any:
    """The arguments of a tool call from the text a model wrote; where that is not JSON, the text itself."""
    if not text.strip():
        return {}
    try:
        return _CODEC.decode(text.encode("utf-8", "replace"))
    except Malformed:
        return text


def chunk_problem(chunk: Any) -> str | None:
    """Why one chunk by itself is invalid; None when it is valid."""
    kind = chunk.get("type") if isinstance(chunk, dict) else None
    if not isinstance(kind, str) or kind not in CHUNK_TEXTS:
        return f"a chunk is not an object with a type of {', '.join(CHUNK_TEXTS)}"
    for name in CHUNK_TEXTS[kind]:
        if not isinstance(chunk.get(name), str):
            return f"a chunk of type {kind} has no text as {name}"
    if kind == "usage" and Usage.from_json(chunk.get("usage")) is None:
        return "a chunk of type usage must have the counts prompt_tokens and completion_tokens"
    if kind == "end" and finish_from_json(chunk.get("finish_reason")) is None:
        return "a chunk of type end has no finish_reason with a kind"
    return None


def chunks_of(reply: ChatReply) -> list[Chunk]:
    """Text and tool calls of a reply as chunks, for a provider that was asked to stream and answered all at once."""
    chunks: list[Chunk] = [{"type": "text_delta", "delta": reply.text}] if reply.text else []
    for call in reply.tool_calls:
        arguments = _CODEC.encode(call["arguments"]).decode()
        chunks += [
            {"type": "tool_call_start", "id": call["id"], "name": call["name"]},
            {"type": "tool_call_args_delta", "id": call["id"], "delta": arguments},
            {"type": "tool_call_end", "id": call["id"]},
        ]
    return chunks


class Assembly:
    """Makes one reply of chunks. A stream ends once: after its `end` only a late usage counts."""

    __slots__ = ("_arguments", "_chars", "_chunks", "_finish", "_names", "_text", "_usage")

    def __init__(self) -> None:
        self._text: list[str] = []
        self._names: dict[str, str] = {}
        self._arguments: dict[str, list[str]] = {}
        self._usage: Usage | None = None
        self._finish: str | None = None
        self._chars = 0
        self._chunks = 0

    @property
    def ended(self) -> bool:
        """Whether the stream has had its `end`."""
        return self._finish is not None

    @property
    def finish_reason(self) -> str:
        """The finish reason, or `STREAM_NO_END`."""
        return self._finish or STREAM_NO_END

    def add(self, chunk: Any) -> Failure | None:
        """Add one chunk; after a failure the stream cannot be used."""
        problem = chunk_problem(chunk)
        if problem is not None:
            return Failure(Code.MALFORMED_RESPONSE, problem)
        self._chunks += 1
        self._chars += len(chunk["delta"]) if "delta" in CHUNK_TEXTS[chunk["type"]] else 0
        if self._chunks > MAX_STREAM_CHUNKS:
            return Failure(Code.FRAME_TOO_LARGE, f"the stream has more than {MAX_STREAM_CHUNKS:,} chunks")
        if self._chars > MAX_STREAM_CHARS:
            return Failure(Code.FRAME_TOO_LARGE, f"the stream has more than {MAX_STREAM_CHARS:,} characters")
        problem = self._take(chunk)
        return None if problem is None else Failure(Code.MALFORMED_RESPONSE, problem)

    def _take(self, chunk: Chunk) -> str | None:
        kind = chunk["type"]
        if kind == "usage":
            self._usage = Usage.from_json(chunk["usage"])
        elif self.ended:
            return None
        elif kind == "end":
            self._finish = finish_from_json(chunk["finish_reason"])
        elif kind == "text_delta":
            if chunk["delta"]:
                self._text.append(chunk["delta"])
        else:
            return self._take_call(kind, chunk)
        return None

    def _take_call(self, kind: str, chunk: Chunk) -> str | None:
        call = chunk["id"]
        if (kind == "tool_call_start") == (call in self._names):
            return "a tool call was started twice" if call in self._names else f"{kind} before its tool_call_start"
        if kind == "tool_call_start":
            self._names[call] = chunk["name"]
            self._arguments[call] = []
        elif kind == "tool_call_args_delta":
            self._arguments[call].append(chunk["delta"])
        return None

    def finish(self) -> ChatReply:
        """The reply, as far as it came."""
        calls = tuple(
            {"id": call, "name": name, "arguments": tool_arguments("".join(self._arguments[call]))}
            for call, name in self._names.items()
        )
        text = "".join(self._text)
        return ChatReply(text or (None if calls else ""), calls, self._usage or Usage(), self.finish_reason)
