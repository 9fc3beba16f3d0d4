"""`OpenAiProvider`: a language model behind any server that speaks OpenAI's chat format.

Owns how long a chat may take and in which order its parts happen: write the request, send it, read what comes. The
format is in `openai_format`, the network in `endpoint`. Refuses to know plugins.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing
from typing import Any, Literal, TypeVar

from plugbay.host.services.llm.chat import ChatReply, ChatRequest, Chunk
from plugbay.host.services.llm.endpoint import MAX_STREAM, Endpoint
from plugbay.host.services.llm.openai_format import StreamReader, chat_body, read_embeddings, read_reply
from plugbay.host.services.llm.sse import MAX_EVENT, EventDecoder
from plugbay.model.errors import CallFailed, Code, Failure, Origin
from plugbay.wire.fast_json import MsgspecCodec
from plugbay.wire.lines import TooLong
from plugbay.wire.strict_json import Unencodable

T = TypeVar("T")

CHAT_SECONDS = 60.0
STREAM_SECONDS = 300.0
"""From sending to the last byte, as nexo has it. A stream may take longer because somebody sees it move."""

IDLE_SECONDS = 60.0
"""The longest pause inside a stream. Any byte ends it: servers send comments while a model is thinking."""

MAX_TEXTS = 128
"""Texts in one request for vectors: the answer for more would pass the limits of a JSON body."""

SHORTEST_SECRET = 6
"""Header values below this length are switches, not secrets, and blotting them out would spoil messages."""

TokenLimitField = Literal["max_tokens", "max_completion_tokens"]
"""Newer models of OpenAI itself insist on the second; hardly any other server knows it."""


class OpenAiProvider:
    """Chats with the models of one server. An empty `models` leaves it to the server which there are."""

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
        return _sure(read_reply(await self._ask("/chat/completions", payload, timeout)))

    async def stream(self, request: ChatRequest, timeout: float | None = None) -> AsyncGenerator[Chunk, None]:
        """The chunks of a reply as they come; raises `CallFailed`. Closing the generator closes the connection."""
        payload = self._payload(request, stream=True)
        deadline = _deadline(self._stream_timeout if timeout is None else timeout)
        answer = _sure(await self._endpoint.post("/chat/completions", payload, deadline, "text/event-stream"))
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
        payload = self._encoded({"model": model, "input": list(texts), "encoding_format": "float"})
        return _sure(read_embeddings(await self._ask("/embeddings", payload, timeout), len(texts)))

    async def _ask(self, path: str, payload: bytes, timeout: float | None) -> bytes:
        deadline = _deadline(self._timeout if timeout is None else timeout)
        answer = _sure(await self._endpoint.post(path, payload, deadline, "application/json"))
        return await answer.body(deadline)

    def _payload(self, request: ChatRequest, *, stream: bool) -> bytes:
        if self.models and request.model not in self.models:
            known = ", ".join(self.models)
            message = f"{self.name} has no model {request.model!r}; there are: {known}"
            raise CallFailed(Failure(Code.NOT_FOUND, message, detail={"kind": "model_not_found"}))
        return self._encoded(_sure(chat_body(request, self._token_limit_field, stream=stream)))

    def _encoded(self, body: dict[str, Any]) -> bytes:
        try:
            return self._codec.encode(body)
        except Unencodable as error:
            failure = Failure(Code.INVALID_INPUT, f"the request is not JSON: {error}")
        raise CallFailed(failure)


def _deadline(seconds: float) -> float:
    return asyncio.get_running_loop().time() + seconds


def _chunks(events: Iterable[bytes | TooLong], reader: StreamReader) -> Iterator[Chunk]:
    """The chunks in some events, all of those before the first failure; nothing counts after the mark of the end."""
    for event in events:
        if reader.done:
            return
        if isinstance(event, TooLong):
            message = f"an event of the stream has more than {MAX_EVENT:,} bytes"
            raise CallFailed(Failure(Code.FRAME_TOO_LARGE, message, origin=Origin.SYSTEM))
        yield from _sure(reader.read(event))


def _sure(value: T | Failure) -> T:
    if isinstance(value, Failure):
        raise CallFailed(value)
    return value
