"""OpenAI's chat format, which most servers of language models speak: our values to its bodies, its bodies to ours.

Owns every name of that format. Refuses to know HTTP, time and who asks: bytes and values in, values out. Nothing here
raises for what a server sends; what is wrong comes back as a `Failure`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from plugbay.host.services.llm.chat import ChatReply, ChatRequest, Chunk, Usage, finish_to_json, tool_arguments
from plugbay.host.services.llm.openai_errors import stream_failure
from plugbay.model.errors import Code, Failure, Origin
from plugbay.wire.fast_json import MsgspecCodec
from plugbay.wire.json_gate import Malformed

DONE = b"[DONE]"
"""The data of the last event of a stream."""

MAX_TOOL_CALLS = 128
"""Tool calls in one reply: as many as a request may offer tools. A stream could open endlessly many otherwise."""

_ENDINGS = {"stop": "stop", "length": "length", "tool_calls": "tool_use", "function_call": "tool_use"}
_CHOICES = {"auto": "auto", "any": "required", "none": "none"}
_CODEC = MsgspecCodec()


# What we ask.


def chat_body(request: ChatRequest, token_limit_field: str, *, stream: bool) -> dict[str, Any] | Failure:
    """The body of `POST /chat/completions`, or why this request has none."""
    messages = _system(request)
    for message in request.messages:
        written = _message(message)
        if isinstance(written, Failure):
            return written
        messages.append(written)
    body: dict[str, Any] = {
        "model": request.model,
        "messages": messages,
        token_limit_field: request.max_tokens,
        "temperature": request.temperature,
    }
    if request.stop_sequences:
        body["stop"] = list(request.stop_sequences)
    if request.tools:
        body["tools"] = [{"type": "function", "function": dict(tool)} for tool in request.tools]
        body["tool_choice"] = _tool_choice(request.tool_choice)
    if stream:
        body |= {"stream": True, "stream_options": {"include_usage": True}}
    return body


def _system(request: ChatRequest) -> list[dict[str, Any]]:
    """One system message of the blocks and then the prompt. There are no words for how long to cache a block."""
    texts = [str(block.get("text", "")) for block in request.system_blocks]
    text = "\n\n".join(text for text in [*texts, request.system_prompt] if text)
    return [{"role": "system", "content": text}] if text else []


def _message(message: Mapping[str, Any]) -> dict[str, Any] | Failure:
    written: dict[str, Any] = {"role": message["role"], "content": message.get("content")}
    for name in ("name", "tool_call_id"):
        if message.get(name):
            written[name] = message[name]
    if message.get("tool_calls"):
        written["tool_calls"] = [_written_call(call) for call in message["tool_calls"]]
    parts = [_part(attachment) for attachment in message.get("attachments") or ()]
    failure = next((part for part in parts if isinstance(part, Failure)), None)
    if failure is None and parts:
        written["content"] = [{"type": "text", "text": message.get("content") or ""}, *parts]
    return failure or written


def _written_call(call: Mapping[str, Any]) -> dict[str, Any]:
    """A tool call of an earlier turn; arguments travel as text."""
    arguments = call.get("arguments", {})
    text = arguments if isinstance(arguments, str) else _CODEC.encode(arguments).decode()
    return {"id": call.get("id"), "type": "function", "function": {"name": call.get("name"), "arguments": text}}


def _part(attachment: Mapping[str, Any]) -> dict[str, Any] | Failure:
    """An image. A path is refused: whoever asks must not make the host read files for it."""
    url = attachment.get("url")
    if attachment.get("base64"):
        url = f"data:{attachment.get('mime_type')};base64,{attachment['base64']}"
    if attachment.get("kind") != "image" or not url:
        return Failure(Code.INVALID_INPUT, "an attachment must be an image, as base64 or with a url")
    return {"type": "image_url", "image_url": {"url": url}}


def _tool_choice(choice: Mapping[str, Any]) -> Any:
    if choice.get("kind") == "specific":
        return {"type": "function", "function": {"name": choice.get("name")}}
    return _CHOICES.get(str(choice.get("kind")), "auto")


# What comes back.


def read_reply(body: bytes) -> ChatReply | Failure:
    """The reply in the body of an answer."""
    value = _object(body)
    if isinstance(value, Failure):
        return value
    choice = _first(value.get("choices"))
    message = choice.get("message")
    if not isinstance(message, dict):
        return _malformed("the answer has no choices[0].message")
    text = message.get("content") or message.get("refusal")
    calls = [_read_call(call) for call in _list(message.get("tool_calls"))]
    if (text is not None and not isinstance(text, str)) or None in calls or len(calls) > MAX_TOOL_CALLS:
        return _malformed("the answer's message has content or tool calls of no known form")
    tool_calls = tuple(call for call in calls if call is not None)
    usage, cache_usage = _usage(value.get("usage"))
    ending = _ending(choice.get("finish_reason"), bool(tool_calls))
    return ChatReply(text or (None if tool_calls else ""), tool_calls, usage, ending, cache_usage)


def _read_call(call: Any) -> dict[str, Any] | None:
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(function, dict) or not isinstance(function.get("name"), str):
        return None
    arguments = function.get("arguments") or ""
    value = tool_arguments(arguments) if isinstance(arguments, str) else arguments
    return {"id": str(call.get("id") or function["name"]), "name": function["name"], "arguments": value}


def _ending(reason: Any, has_calls: bool) -> str:
    """Some servers say `stop` when they mean that tools are to be called."""
    known = _ENDINGS.get(reason) if isinstance(reason, str) else None
    if known == "stop" and has_calls:
        return "tool_use"
    return known or f"other:{reason if isinstance(reason, str) and reason else 'unspecified'}"


def _usage(value: Any) -> tuple[Usage, dict[str, int] | None]:
    """What it cost, and what of that came from a cache, where a server says so."""
    usage = Usage.from_json(value)
    if usage is None:
        return Usage(), None
    details = value.get("prompt_tokens_details")
    cached = details.get("cached_tokens") if isinstance(details, dict) else None
    if type(cached) is not int or not 0 <= cached <= usage.prompt_tokens:
        return usage, None
    return usage, {
        "cache_read_input_tokens": cached,
        "cache_creation_input_tokens": 0,
        "input_tokens": usage.prompt_tokens - cached,
        "output_tokens": usage.completion_tokens,
    }


def read_embeddings(body: bytes, count: int) -> list[list[float]] | Failure:
    """The vectors in the body of an answer, in the order of the texts."""
    value = _object(body)
    if isinstance(value, Failure):
        return value
    items = {item.get("index"): item.get("embedding") for item in _list(value.get("data")) if isinstance(item, dict)}
    vectors = [items.get(index) for index in range(count)]
    if not all(isinstance(vector, list) and vector and all(map(_is_number, vector)) for vector in vectors):
        return _malformed(f"the answer does not hold {count} vectors of numbers")
    return [[float(number) for number in vector] for vector in vectors if vector]


class StreamReader:
    """The events of a stream in, chunks out; `close` gives the chunks that only the end of the stream completes."""

    def __init__(self, secrets: Sequence[str] = ()) -> None:
        self._secrets = secrets
        self.done = False
        """Whether the server said that nothing follows."""
        self._calls: list[str] = []
        self._open: dict[int | str, str] = {}
        self._finish: Any = None
        self._usage: Usage | None = None

    def read(self, event: bytes) -> list[Chunk] | Failure:
        """The chunks in the data of one event."""
        if event == DONE:
            self.done = True
            return []
        value = _object(event)
        if isinstance(value, Failure):
            return value
        if value.get("error"):
            return stream_failure(value["error"], self._secrets)
        if value.get("usage"):
            self._usage = _usage(value["usage"])[0]
        choice = _first(value.get("choices"))
        self._finish = choice.get("finish_reason") or self._finish
        return self._delta(choice.get("delta") or {})

    def _delta(self, delta: Any) -> list[Chunk] | Failure:
        text = (delta.get("content") or delta.get("refusal") or "") if isinstance(delta, dict) else None
        if not isinstance(text, str):
            return _malformed("a delta of the stream is no object with text as content")
        chunks: list[Chunk] = [{"type": "text_delta", "delta": text}] if text else []
        for call in _list(delta.get("tool_calls")):
            pieces = self._call(call)
            if isinstance(pieces, Failure):
                return pieces
            chunks += pieces
        return chunks

    def _call(self, call: Any) -> list[Chunk] | Failure:
        """A piece of a tool call. The first has its name; the rest are told by their index, or where none is, by id.

        Some servers give every call the index 0, so an id that is new means a call that is new.
        """
        function = call.get("function") if isinstance(call, dict) else None
        if not isinstance(function, dict):
            return _malformed("a tool call of the stream has no function")
        key = call["index"] if type(call.get("index")) is int else str(call.get("id"))
        chunks: list[Chunk] = []
        if key not in self._open or str(call.get("id") or self._open[key]) != self._open[key]:
            name = function.get("name")
            if not isinstance(name, str) or len(self._calls) >= MAX_TOOL_CALLS:
                return _malformed(f"a tool call of the stream has no name, or there are more than {MAX_TOOL_CALLS}")
            self._open[key] = str(call.get("id") or f"call_{len(self._calls)}")
            self._calls.append(self._open[key])
            chunks.append({"type": "tool_call_start", "id": self._open[key], "name": name})
        arguments = function.get("arguments") or ""
        if not isinstance(arguments, str):
            return _malformed("a tool call of the stream has arguments that are no text")
        if arguments:
            chunks.append({"type": "tool_call_args_delta", "id": self._open[key], "delta": arguments})
        return chunks

    def close(self) -> list[Chunk]:
        """The end of every tool call, the usage and the end; whatever the server never said is left out."""
        chunks: list[Chunk] = [{"type": "tool_call_end", "id": id} for id in self._calls]
        if self._usage is not None:
            chunks.append({"type": "usage", "usage": self._usage.to_json()})
        if self._finish is not None:
            ending = _ending(self._finish, bool(self._calls))
            chunks.append({"type": "end", "finish_reason": finish_to_json(ending)})
        return chunks


def _object(body: bytes) -> dict[str, Any] | Failure:
    try:
        value = _CODEC.decode(body)
    except Malformed as error:
        return _malformed(f"the answer is {error}")
    return value if isinstance(value, dict) else _malformed("the answer is no JSON object")


def _first(choices: Any) -> dict[str, Any]:
    first = choices[0] if isinstance(choices, list) and choices else None
    return first if isinstance(first, dict) else {}


def _list(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list) else ()


def _is_number(value: Any) -> bool:
    return type(value) in (int, float)


def _malformed(message: str) -> Failure:
    return Failure(Code.MALFORMED_RESPONSE, message, origin=Origin.SYSTEM)
