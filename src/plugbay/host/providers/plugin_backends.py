"""Exports of plugins as backends of services: language models, vector stores, channels.

Each holds a name, never a process: every use is a call of its own, so it reaches the current process after a restart.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

from plugbay.host.calls.calls import Calls
from plugbay.host.calls.streaming import CallStream
from plugbay.host.request import CallRequest, CallResult
from plugbay.host.services.llm.chat import ChatReply, ChatRequest, Chunk, Usage, chunks_of, finish_to_json
from plugbay.host.services.registry import Registry
from plugbay.host.services.vectors import VectorMatch, VectorQuery, VectorRecord
from plugbay.model.errors import CallFailed, Code, Failure
from plugbay.model.ids import full_name
from plugbay.model.operations import (
    Chat,
    DeleteVectors,
    SearchVectors,
    UpsertVectors,
)

if TYPE_CHECKING:
    from plugbay.model.operations import PluginOp


class _Backend:
    """One export of one plugin."""

    def __init__(self, calls: Calls, plugin_id: str, name: str) -> None:
        self._calls = calls
        self._name = name
        self._full_name = full_name(plugin_id, name)

    async def _call(self, op: PluginOp, timeout: float | None = None) -> Any:
        return (await self._run(op, timeout)).value_or_raise()

    async def _run(
        self, op: PluginOp, timeout: float | None, on_progress: Callable[[Any], None] | None = None
    ) -> CallResult:
        request = CallRequest(self._full_name, None, "", timeout, on_progress, make_operation=lambda _: op)
        return await self._calls.run(request)


class PluginModel(_Backend):
    """A language model that a plugin provides."""

    async def chat(self, request: ChatRequest, timeout: float | None = None) -> ChatReply:
        op = Chat(self._name, request.model, request.to_json())
        return _reply(await self._call(op, timeout), self._name)

    async def stream(self, request: ChatRequest, timeout: float | None = None) -> AsyncGenerator[Chunk, None]:
        """The chunks as they come, then those that only the final result has, and one end last."""
        op = Chat(self._name, request.model, request.to_json(), stream=True)
        seen: set[str | None] = set()
        end: Chunk | None = None
        stream = CallStream(lambda each: self._run(op, timeout, each))
        async with aclosing(stream):
            async for chunk in stream:
                kind = chunk.get("type") if isinstance(chunk, dict) else None
                seen.add(kind)
                if kind == "end":
                    end = end or chunk
                else:
                    yield chunk
            reply = _reply(stream.result, self._name)
        for chunk in _missing_chunks(reply, seen):
            yield chunk
        yield end or {"type": "end", "finish_reason": finish_to_json(reply.finish_reason)}


class PluginVectors(_Backend):
    """A vector backend that a plugin provides."""

    async def upsert(self, collection: str, records: Sequence[VectorRecord]) -> int:
        op = UpsertVectors(self._name, collection, [record.to_json() for record in records])
        return int((await self._call(op))["count"])

    async def search(self, collection: str, query: VectorQuery) -> list[VectorMatch]:
        answer = await self._call(SearchVectors(self._name, collection, query.to_json()))
        return [VectorMatch.from_json(match) for match in answer["matches"]]

    async def delete(self, collection: str, ids: Sequence[str]) -> int:
        return int((await self._call(DeleteVectors(self._name, collection, list(ids))))["count"])


class PluginChannel(_Backend):
    """A message channel of a plugin."""

    async def start(self, instance: str | None = None) -> None:
        await self._use("start", instance=instance)

    async def stop(self) -> None:
        await self._use("stop")

    async def send(self, message: Mapping[str, Any]) -> dict[str, Any]:
        """`{"message_id", "sent_at_unix"}` for a message of kind text, media or custom; else `TypeError`."""
        if not isinstance(message, Mapping):
            shape = '{"kind": "text", "to": "ada", "body": "tea?"}'
            raise TypeError(f"a message for the channel {self._name} is an object such as {shape}, not {message!r:.60}")
        return dict(await self._use("send", message=dict(message)))

    async def _use(self, action: str, **fields: Any) -> Any:
        """The same call as `host.call(kind, {"action": …})`, so its input is held to the same schema."""
        request = CallRequest(self._full_name, {"action": action, **fields}, "channel")
        return (await self._calls.run(request)).value_or_raise()


class Channels(Registry[PluginChannel]):
    """The channels of plugins by kind."""

    KIND = "channel kind"

    def kinds(self) -> list[str]:
        return list(self)

    def __getitem__(self, kind: str) -> PluginChannel:
        """The channel of this kind; raises `CallFailed` when there is none."""
        channel = self.find(kind)
        if channel is None:
            known = ", ".join(self) or "none"
            raise CallFailed(Failure(Code.NOT_FOUND, f"no plugin has the channel {kind!r}; known channels: {known}"))
        return channel


def _missing_chunks(reply: ChatReply, seen: set[str | None]) -> list[Chunk]:
    """Chunks for the parts that only the final result has. A zero usage does not replace one from a chunk."""
    chunks = [] if seen & {"text_delta", "tool_call_start"} else chunks_of(reply)
    if "usage" not in seen or reply.usage != Usage():
        chunks.append({"type": "usage", "usage": reply.usage.to_json()})
    return chunks


def _reply(answer: Any, provider: str) -> ChatReply:
    reply = ChatReply.from_json(answer)
    if isinstance(reply, str):
        raise CallFailed(Failure(Code.MALFORMED_RESPONSE, f"the answer of {provider} is not a chat reply: {reply}"))
    return reply
