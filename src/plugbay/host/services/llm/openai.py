"""`OpenAiProvider`: language models behind any server with OpenAI's chat format.

Has the provider, the format (`chat_body`, `read_reply`, `StreamReader`) and the decoder of server-sent events. The
network is in `endpoint`. Nothing raises for what a server sends: errors become a `Failure`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing
from typing import Any, TypeVar

from plugbay.host.services.llm.chat import ChatReply, ChatRequest, Chunk, Usage, finish_to_json, tool_arguments
from plugbay.host.services.llm.endpoint import MAX_STREAM, Endpoint, stream_failure
from plugbay.host.services.llm.settings import CHAT_SECONDS, IDLE_SECONDS, STREAM_SECONDS, TokenLimitField
from plugbay.model.errors import CallFailed, Code, Failure, Origin
from plugbay.wire.fast_json import MsgspecCodec
from plugbay.wire.json_gate import Malformed
from plugbay.wire.lines import LineDecoder, TooLong
from plugbay.wire.strict_json import Unencodable

T = TypeVar("T")

MAX_TEXTS = 128
"""Texts in one request for vectors: a larger response would exceed the limit of a JSON body."""

SHORTEST_SECRET = 6
"""Header values below this length are switches, not secrets; redacting them would spoil messages."""


class OpenAiProvider:
    """The models of one server. An empty `models` allows any model name."""

    def __init__(
        self,
        name: str,
        base_url: str,
        api_key: str | None = None,
        *,
        models: Sequence[str] = (),
        headers: Mapping[str, str] | None = None,
        timeout: float = CHAT_SECONDS,
        stream_timeout: float = STREAM_SECONDS,
        idle_timeout: float = IDLE_SECONDS,
        max_retries: int = 2,
        token_limit_field: TokenLimitField = "max_tokens",
    ) -> None:
        given = dict(headers or {})
        secrets = [value for value in given.values() if len(value) >= SHORTEST_SECRET]
        authorization = {} if api_key is None else {"Authorization": f"Bearer {api_key}"}
        self.name = name
        self.models = tuple(models)
        self._endpoint = Endpoint(
            base_url,
            {**authorization, **given},
            [api_key, *secrets] if api_key else secrets,
            max_retries=max_retries,
        )
        self._timeout = timeout
        self._stream_timeout = stream_timeout
        self._idle_timeout = idle_timeout
        self._token_limit_field: TokenLimitField = token_limit_field
        self._codec = MsgspecCodec()

    def __repr__(self) -> str:
        return f"OpenAiProvider({self.name!r}, {self._endpoint.base_url!r})"

    async def close(self) -> None:
        """Close every connection; the next chat opens new ones."""
        await self._endpoint.close()

    async def chat(self, request: ChatRequest, timeout: float | None = None) -> ChatReply:
        """One whole reply; raises `CallFailed`."""
        payload = self._payload(request, stream=False)
        return _or_raise(read_reply(await self._post("/chat/completions", payload, timeout)))

    async def stream(self, request: ChatRequest, timeout: float | None = None) -> AsyncGenerator[Chunk, None]:
        """The chunks of a reply as they come; raises `CallFailed`. Closing the generator closes the connection."""
        payload = self._payload(request, stream=True)
        deadline = _deadline(self._stream_timeout if timeout is None else timeout)
        answer = _or_raise(await self._endpoint.post("/chat/completions", payload, deadline, "text/event-stream"))
        events, reader = EventDecoder(), StreamReader(self._endpoint.secrets)
        async with aclosing(answer.pieces(deadline, self._idle_timeout, MAX_STREAM)) as pieces:
            async for piece in pieces:
                for chunk in _chunks(events.feed(piece), reader):
                    yield chunk
                if reader.done:
                    break
        for chunk in reader.close():
            yield chunk

    async def embeddings(self, texts: Sequence[str], model: str, timeout: float | None = None) -> list[list[float]]:
        """One vector for each text; raises `CallFailed`."""
        if not 0 < len(texts) <= MAX_TEXTS:
            raise CallFailed(Failure(Code.INVALID_INPUT, f"1 to {MAX_TEXTS} texts at once, not {len(texts)}"))
        payload = self._encode({"model": model, "input": list(texts), "encoding_format": "float"})
        return _or_raise(read_embeddings(await self._post("/embeddings", payload, timeout), len(texts)))

    async def _post(self, path: str, payload: bytes, timeout: float | None) -> bytes:
        deadline = _deadline(self._timeout if timeout is None else timeout)
        answer = _or_raise(await self._endpoint.post(path, payload, deadline, "application/json"))
        return await answer.body(deadline)

    def _payload(self, request: ChatRequest, *, stream: bool) -> bytes:
        if self.models and request.model not in self.models:
            known = ", ".join(self.models)
            message = f"{self.name} has no model {request.model!r}; there are: {known}"
            raise CallFailed(Failure(Code.NOT_FOUND, message, detail={"kind": "model_not_found"}))
        return self._encode(_or_raise(chat_body(request, self._token_limit_field, stream=stream)))

    def _encode(self, body: dict[str, Any]) -> bytes:
        try:
            return self._codec.encode(body)
        except Unencodable as error:
            failure = Failure(Code.INVALID_INPUT, f"the request is not JSON: {error}")
        raise CallFailed(failure)


def _deadline(seconds: float) -> float:
    return asyncio.get_running_loop().time() + seconds


def _chunks(events: Iterable[bytes | TooLong], reader: StreamReader) -> Iterator[Chunk]:
    """The chunks of events, up to the first failure or the end mark."""
    for event in events:
        if reader.done:
            return
        if isinstance(event, TooLong):
            message = f"an event of the stream has more than {MAX_EVENT:,} bytes"
            raise CallFailed(Failure(Code.FRAME_TOO_LARGE, message, origin=Origin.SYSTEM))
        yield from _or_raise(reader.read(event))


def _or_raise(value: T | Failure) -> T:
    if isinstance(value, Failure):
        raise CallFailed(value)
    return value


DONE = b"[DONE]"
"""The data of the last event of a stream."""

MAX_TOOL_CALLS = 128
"""Tool calls in one reply: as many as a request may offer tools. A stream could open endlessly many otherwise."""

_ENDINGS = {"stop": "stop", "length": "length", "tool_calls": "tool_use", "function_call": "tool_use"}
_CHOICES = {"auto": "auto", "any": "required", "none": "none"}
_CODEC = MsgspecCodec()


# Requests.


def chat_body(request: ChatRequest, token_limit_field: str, *, stream: bool) -> dict[str, Any] | Failure:
    """The body of `POST /chat/completions`, or why this request has none."""
    messages = _system(request)
    for message in request.messages:
        converted = _message(message)
        if isinstance(converted, Failure):
            return converted
        messages.append(converted)
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
    """One system message of the blocks and then the prompt. The format cannot express how long to cache a block."""
    texts = [str(block.get("text", "")) for block in request.system_blocks]
    text = "\n\n".join(text for text in [*texts, request.system_prompt] if text)
    return [{"role": "system", "content": text}] if text else []


def _message(message: Mapping[str, Any]) -> dict[str, Any] | Failure:
    converted: dict[str, Any] = {"role": message["role"], "content": message.get("content")}
    for name in ("name", "tool_call_id"):
        if message.get(name):
            converted[name] = message[name]
    if message.get("tool_calls"):
        converted["tool_calls"] = [_convert_call(call) for call in message["tool_calls"]]
    parts = [_part(attachment) for attachment in message.get("attachments") or ()]
    failure = next((part for part in parts if isinstance(part, Failure)), None)
    if failure is None and parts:
        converted["content"] = [{"type": "text", "text": message.get("content") or ""}, *parts]
    return failure or converted


def _convert_call(call: Mapping[str, Any]) -> dict[str, Any]:
    """A tool call of an earlier turn; arguments are sent as text."""
    arguments = call.get("arguments", {})
    text = arguments if isinstance(arguments, str) else _CODEC.encode(arguments).decode()
    return {"id": call.get("id"), "type": "function", "function": {"name": call.get("name"), "arguments": text}}


def _part(attachment: Mapping[str, Any]) -> dict[str, Any] | Failure:
    """An image. A path is refused: a caller must not make the host read files."""
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


# Responses.


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
        return _malformed("the answer's message has content or tool calls of an unknown form")
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
    """Some servers report `stop` for a reply with tool calls."""
    known = _ENDINGS.get(reason) if isinstance(reason, str) else None
    if known == "stop" and has_calls:
        return "tool_use"
    return known or f"other:{reason if isinstance(reason, str) and reason else 'unspecified'}"


def _usage(value: Any) -> tuple[Usage, dict[str, int] | None]:
    """The usage, and the part of it that came from a cache, where a server reports it."""
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
        return _malformed(f"the answer does not have {count} vectors of numbers")
    return [[float(number) for number in vector] for vector in vectors if vector]


class StreamReader:
    """Makes chunks of events; `close` returns the chunks that only the end of the stream completes."""

    def __init__(self, secrets: Sequence[str] = ()) -> None:
        self._secrets = secrets
        self.done = False
        """Whether the server has sent the end mark."""
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
            return _malformed("a delta of the stream is not an object with text as content")
        chunks: list[Chunk] = [{"type": "text_delta", "delta": text}] if text else []
        for call in _list(delta.get("tool_calls")):
            pieces = self._call(call)
            if isinstance(pieces, Failure):
                return pieces
            chunks += pieces
        return chunks

    def _call(self, call: Any) -> list[Chunk] | Failure:
        """A piece of a tool call. The first has its name; the others have the same index, or without one, the same id.

        Some servers give every call the index 0, so a new id means a new call.
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
            return _malformed("a tool call of the stream has arguments that are not text")
        if arguments:
            chunks.append({"type": "tool_call_args_delta", "id": self._open[key], "delta": arguments})
        return chunks

    def close(self) -> list[Chunk]:
        """The end of every tool call, the usage and the end, as far as the server has sent them."""
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
    return value if isinstance(value, dict) else _malformed("the answer is not a JSON object")


def _first(choices: Any) -> dict[str, Any]:
    first = choices[0] if isinstance(choices, list) and choices else None
    return first if isinstance(first, dict) else {}


def _list(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list) else ()


def _is_number(value: Any) -> bool:
    return type(value) in (int, float)


def _malformed(message: str) -> Failure:
    return Failure(Code.MALFORMED_RESPONSE, message, origin=Origin.SYSTEM)


MAX_EVENT = 1 << 20
"""Bytes of one event's data. One piece of an answer has a few hundred; a whole tool call some thousands."""


class EventDecoder:
    """Cuts a byte stream into the data of server-sent events. Only `data` fields count.

    An event without its closing blank line is dropped. After a `TooLong` the stream cannot be used.
    """

    __slots__ = ("_after_return", "_data", "_lines", "_max_event", "_size")

    def __init__(self, max_event: int = MAX_EVENT) -> None:
        self._max_event = max_event
        self._lines = LineDecoder(max_event + len(b"data:"))
        self._after_return = False
        self._data: list[bytes] = []
        self._size = 0

    def feed(self, data: bytes) -> list[bytes | TooLong]:
        """The events that `data` completes, in order."""
        events: list[bytes | TooLong] = []
        for line in self._lines.feed(self._newlines(data)):
            event = self._take(line)
            if event is not None:
                events.append(event)
        return events

    def _newlines(self, data: bytes) -> bytes:
        """`data` with every line end, `\\r\\n` and `\\r` too, as `\\n`, wherever the stream was cut."""
        if not data:
            return data
        if self._after_return and data.startswith(b"\n"):
            data = data[1:]
            self._after_return = False
        if data:
            self._after_return = data.endswith(b"\r")
        return data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")

    def _take(self, line: bytes | TooLong) -> bytes | TooLong | None:
        """The event that a line completes, if any."""
        if isinstance(line, TooLong):
            return line
        if not line:
            return self._dispatch()
        name, _, value = line.partition(b":")
        if name != b"data":
            return None
        value = value.removeprefix(b" ")
        self._size += len(value) + 1
        if self._size > self._max_event + 1:
            return TooLong(self._size, value[:200])
        self._data.append(value)
        return None

    def _dispatch(self) -> bytes | None:
        if not self._data:
            return None
        event = b"\n".join(self._data)
        self._data, self._size = [], 0
        return event
