"""`LlmRegistry`: the language models of a host by provider, from the operator or from plugins.

Owns the port `LlmProvider`, the names, and the chats that plugins request. Every stream is checked, bounded and ends
exactly once. Permissions are checked elsewhere.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from typing import Any, Protocol, runtime_checkable

from plugbay.host.services.llm.chat import (
    Assembly,
    ChatReply,
    ChatRequest,
    Chunk,
    finish_to_json,
    messages_problem,
)
from plugbay.host.services.registry import Registry
from plugbay.model.errors import CallFailed, Code, Failure
from plugbay.model.operations import CompleteChat

MAX_TOKENS = 2**32 - 1
"""No plugin may ask for more: nexo counts tokens in 32 bits."""


class LlmProvider(Protocol):
    """A chat provider. Failures are raised as `CallFailed`; without a timeout the provider's own applies."""

    async def chat(self, request: ChatRequest, timeout: float | None = None) -> ChatReply: ...

    def stream(self, request: ChatRequest, timeout: float | None = None) -> AsyncGenerator[Chunk, None]:
        """An async generator of chunks. Closing it cancels the stream; its last chunk may be an `end`."""
        ...


@runtime_checkable
class Closable(Protocol):
    """A provider with connections between chats."""

    async def close(self) -> None: ...


class LlmRegistry(Registry[LlmProvider]):
    """Providers by name."""

    KIND = "llm provider"

    def __init__(self) -> None:
        super().__init__()
        self.usual: tuple[str, str] | None = None
        """The default provider and model for requests without a provider; None when not configured."""

    def names(self) -> list[str]:
        """Every provider there is, sorted."""
        return list(self)

    async def close(self) -> None:
        """Close every connection; the next chat of a provider connects again."""
        for name in self.names():
            provider = self.find(name)
            if isinstance(provider, Closable):
                await provider.close()

    async def chat(
        self, provider: str, request: ChatRequest | Mapping[str, Any], timeout: float | None = None
    ) -> ChatReply:
        """One whole reply to a `ChatRequest`, or to a dict with its fields; raises `CallFailed`."""
        return await self._get(provider).chat(_read_request(request), timeout)

    def stream(
        self, provider: str, request: ChatRequest | Mapping[str, Any], timeout: float | None = None
    ) -> AsyncGenerator[Chunk, None]:
        """The chunks of a reply as they come, the one `end` last; raises `CallFailed`, at the first chunk or later."""
        return self._chunks(provider, _read_request(request), timeout, Assembly())

    async def complete(self, op: CompleteChat, progress: Callable[[str], None]) -> dict[str, Any] | Failure:
        """Chat for a plugin: `{content, finish_reason, usage, tool_calls}`.

        The text of a streamed reply is sent as progress, so its content is None. A request without a provider uses the
        default, and its result has the `model` that answered.
        """
        problem = messages_problem(op.messages)
        if problem is not None:
            return Failure(Code.INVALID_INPUT, problem)
        chosen = (op.provider, op.model) if op.provider else self._choose(op.model)
        if isinstance(chosen, Failure):
            return chosen
        provider, model = chosen
        request = ChatRequest(model, op.messages, min(op.max_tokens, MAX_TOKENS), op.temperature, op.system_prompt)
        answered_by = {} if op.provider else {"model": model}
        try:
            if op.stream:
                return {**_result(await self._stream_reply(provider, request, progress), None), **answered_by}
            reply = await self.chat(provider, request)
            return {**_result(reply, reply.text), **answered_by}
        except CallFailed as error:
            return error.failure.with_detail(provider=provider)

    def _choose(self, wish: str) -> tuple[str, str] | Failure:
        """The configured default; without one, the requested model of the only provider."""
        if self.usual is not None:
            return self.usual
        names = self.names()
        if wish and len(names) == 1:
            return names[0], wish
        hint = "set a provider and a model under [llm.sampling] in plugbay.toml"
        return Failure(Code.UNAVAILABLE, "no default language model is configured", detail={"hint": hint})

    async def _stream_reply(self, provider: str, request: ChatRequest, progress: Callable[[str], None]) -> ChatReply:
        assembly = Assembly()
        async with aclosing(self._chunks(provider, request, None, assembly)) as chunks:
            async for chunk in chunks:
                if chunk["type"] == "text_delta" and chunk["delta"]:
                    progress(chunk["delta"])
        return assembly.finish()

    async def _chunks(
        self, provider: str, request: ChatRequest, timeout: float | None, assembly: Assembly
    ) -> AsyncGenerator[Chunk, None]:
        """The chunks that `assembly` accepts; the end is held back until the stream is over."""
        async with aclosing(self._get(provider).stream(request, timeout)) as chunks:
            async for chunk in chunks:
                failure = assembly.add(chunk)
                if failure is not None:
                    raise CallFailed(failure.with_detail(provider=provider))
                if not assembly.ended or chunk["type"] == "usage":
                    yield chunk
        yield {"type": "end", "finish_reason": finish_to_json(assembly.finish_reason)}

    def _get(self, name: str) -> LlmProvider:
        provider = self.find(name)
        if provider is not None:
            return provider
        if not self.names():
            hint = "add a provider to plugbay.toml, or a plugin that has one"
            raise CallFailed(Failure(Code.UNAVAILABLE, "llm not configured", detail={"hint": hint}))
        known = ", ".join(self.names())
        raise CallFailed(
            Failure(
                Code.NOT_FOUND,
                f"there is no LLM provider {name!r}; known providers: {known}",
                detail={"known": self.names()},
            )
        )


def _read_request(request: object) -> ChatRequest:
    """The request of an application; raises `CallFailed` for an invalid dict and `TypeError` for another type."""
    if isinstance(request, ChatRequest):
        return request
    if not isinstance(request, Mapping):
        shape = '{"model": "m", "messages": [{"role": "user", "content": "hi"}]}'
        raise TypeError(f"a chat takes a plugbay.ChatRequest, or a dict such as {shape}, not {request!r:.60}")
    read = ChatRequest.from_json(request)
    if isinstance(read, str):
        raise CallFailed(Failure(Code.INVALID_INPUT, f"the request of a chat is invalid: {read}"))
    return read


def _result(reply: ChatReply, content: str | None) -> dict[str, Any]:
    return {
        "content": content,
        "finish_reason": reply.finish_reason,
        "usage": reply.usage.to_json(),
        "tool_calls": list(reply.tool_calls),
    }
