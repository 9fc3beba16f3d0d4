"""The names of models, that every stream ends once, and chats for plugins."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any

import pytest

from plugbay.host.services.llm import chat as chats
from plugbay.host.services.llm.chat import ChatReply, ChatRequest, Chunk, Usage
from plugbay.host.services.llm.registry import LlmRegistry
from plugbay.model.errors import CallFailed, Code, Failure
from plugbay.model.operations import CompleteChat
from tests.support.loops import Run
from tests.support.requirements import requirement

HI = [{"role": "user", "content": "hi"}]
CALL = {"id": "c1", "name": "weather", "arguments": {}}


def text(delta: str) -> Chunk:
    return {"type": "text_delta", "delta": delta}


def end(kind: str = "stop") -> Chunk:
    return {"type": "end", "finish_reason": {"kind": kind}}


USAGE: Chunk = {"type": "usage", "usage": {"prompt_tokens": 12, "completion_tokens": 7}}
TOOL_CALL: list[Chunk] = [
    {"type": "tool_call_start", "id": "c1", "name": "weather"},
    {"type": "tool_call_end", "id": "c1"},
]


class Scripted:
    """A provider that answers as it was told to, and remembers what it was asked."""

    def __init__(self, reply: ChatReply | None = None, chunks: list[Any] | None = None, failure: Failure | None = None):
        self.reply = reply or ChatReply("hello", (), Usage(25, 8))
        self.chunks = chunks or []
        self.failure = failure
        self.asked: list[tuple[ChatRequest, float | None]] = []
        self.left = 0

    async def chat(self, request: ChatRequest, timeout: float | None = None) -> ChatReply:
        self.asked.append((request, timeout))
        if self.failure is not None:
            raise CallFailed(self.failure)
        return self.reply

    async def stream(self, request: ChatRequest, timeout: float | None = None) -> AsyncGenerator[Chunk, None]:
        self.asked.append((request, timeout))
        try:
            for chunk in self.chunks:
                yield chunk
            if self.failure is not None:
                raise CallFailed(self.failure)
        finally:
            self.left += 1


class Holding(Scripted):
    """One that holds something open."""

    closed = 0

    async def close(self) -> None:
        self.closed += 1


def registry_with(provider: Scripted) -> LlmRegistry:
    registry = LlmRegistry()
    assert registry.register("cohere", provider, "example") is None
    return registry


def complete(run: Run, scripted: Scripted, **fields: Any) -> tuple[dict[str, Any] | Failure, list[str]]:
    """How a plugin's wish is answered, and what progress it saw."""
    heard: list[str] = []
    answers: list[dict[str, Any] | Failure] = []

    async def main() -> None:
        op = CompleteChat(**{"provider": "cohere", "model": "command-r", "messages": HI, **fields})
        answers.append(await registry_with(scripted).complete(op, heard.append))

    run(main)
    return answers[0], heard


# Names.


@requirement("nexo:host-llm-first-wins")
def test_the_first_to_take_a_name_keeps_it() -> None:
    registry = registry_with(Scripted())
    reason = registry.register("cohere", Scripted(), "other")
    assert reason == "the llm provider 'cohere' is offered by 'example' already"
    assert registry.register("mistral", Scripted(), "other") is None
    assert registry.names() == ["cohere", "mistral"]


def test_a_chat_goes_to_the_provider_that_was_named(run: Run) -> None:
    async def main() -> None:
        provider, other = Scripted(), Scripted(ChatReply("other"))
        registry = registry_with(provider)
        registry.register("other", other, "example")
        request = ChatRequest("m", HI)
        assert (await registry.chat("other", request, 7)).text == "other"
        assert (await registry.chat("cohere", request)).text == "hello"
        assert (provider.asked, other.asked) == ([(request, None)], [(request, 7)])

    run(main)


def test_closing_closes_every_closable_provider(run: Run) -> None:
    async def main() -> None:
        provider = Holding()
        registry = registry_with(provider)
        registry.register("plain", Scripted(), "example")
        await registry.close()
        assert provider.closed == 1

    run(main)


# Streams.


def chunks_of(run: Run, provider: Scripted) -> list[Chunk]:
    """Every chunk that leaves the registry; whatever is raised on the way is raised here."""
    got: list[Chunk] = []

    async def main() -> None:
        async for chunk in registry_with(provider).stream("cohere", ChatRequest("m", HI)):
            got.append(chunk)

    run(main)
    return got


@requirement("nexo:host-llm-one-end")
@pytest.mark.parametrize(
    ("said", "passed"),
    [
        ([text("a"), USAGE, end()], [text("a"), USAGE, end()]),
        ([text("a"), end(), USAGE], [text("a"), USAGE, end()]),
        ([text("a"), end("length"), text("b"), end()], [text("a"), end("length")]),
        ([text("a")], [text("a"), {"type": "end", "finish_reason": {"kind": "other", "reason": "stream-no-end"}}]),
        ([], [{"type": "end", "finish_reason": {"kind": "other", "reason": "stream-no-end"}}]),
    ],
)
def test_a_stream_has_one_end_and_it_comes_last(run: Run, said: list[Chunk], passed: list[Chunk]) -> None:
    assert chunks_of(run, Scripted(chunks=said)) == passed


@pytest.mark.parametrize("chunk", [{"type": "nonsense"}, "text", {"type": "tool_call_end", "id": "never started"}])
def test_a_provider_that_sends_nonsense_is_left_at_once(run: Run, chunk: Any) -> None:
    provider = Scripted(chunks=[text("a"), chunk, text("never read")])
    with pytest.raises(CallFailed) as caught:
        chunks_of(run, provider)
    assert caught.value.code == Code.MALFORMED_RESPONSE
    assert caught.value.failure.detail["provider"] == "cohere"
    assert provider.left == 1


def test_a_stream_that_is_given_up_is_given_up_at_its_provider(run: Run) -> None:
    async def main() -> None:
        provider = Scripted(chunks=[text("a"), text("b")])
        stream = registry_with(provider).stream("cohere", ChatRequest("m", HI), 7)
        assert await anext(stream) == text("a")
        assert provider.left == 0
        await stream.aclose()
        assert provider.left == 1
        assert provider.asked == [(ChatRequest("m", HI), 7)]

    run(main)


# A plugin asks.


@requirement("nexo:host-llm-complete")
def test_a_plugin_gets_text_finish_reason_and_usage(run: Run) -> None:
    provider = Scripted()
    answer, heard = complete(run, provider, max_tokens=10, temperature=0.1, system_prompt="Be brief.")
    usage = {"prompt_tokens": 25, "completion_tokens": 8}
    assert answer == {"content": "hello", "finish_reason": "stop", "usage": usage, "tool_calls": []}
    assert heard == []
    assert provider.asked == [(ChatRequest("command-r", HI, 10, 0.1, "Be brief."), None)]


@requirement("nexo:host-llm-complete-stream")
def test_a_plugin_that_streams_gets_each_piece_of_text_once_and_no_content_after(run: Run) -> None:
    answer, heard = complete(run, Scripted(chunks=[text("hel"), text(""), text("lo"), USAGE, end()]), stream=True)
    assert heard == ["hel", "lo"]
    usage = {"prompt_tokens": 12, "completion_tokens": 7}
    assert answer == {"content": None, "finish_reason": "stop", "usage": usage, "tool_calls": []}


@requirement("nexo:host-llm-complete-tool-calls")
def test_tool_calls_reach_the_answer_and_never_the_progress(run: Run) -> None:
    whole, _ = complete(run, Scripted(ChatReply(None, (CALL,), Usage(), "tool_use")))
    assert isinstance(whole, dict)
    assert (whole["content"], whole["tool_calls"]) == (None, [CALL])
    streamed, heard = complete(run, Scripted(chunks=[text("a"), *TOOL_CALL, end("tool_use")]), stream=True)
    assert isinstance(streamed, dict)
    assert (streamed["tool_calls"], streamed["finish_reason"], heard) == ([CALL], "tool_use", ["a"])


@requirement("nexo:host-llm-max-tokens")
@pytest.mark.parametrize(("asked", "passed"), [(2**32 - 1, 2**32 - 1), (2**32, 2**32 - 1), (1, 1)])
def test_max_tokens_are_capped_at_32_bits(run: Run, asked: int, passed: int) -> None:
    provider = Scripted()
    complete(run, provider, max_tokens=asked)
    assert provider.asked[0][0].max_tokens == passed


@requirement("nexo:host-llm-complete-messages")
@pytest.mark.parametrize("messages", [[], None, [{"role": "robot", "content": "x"}]])
def test_messages_that_are_none_never_reach_a_provider(run: Run, messages: Any) -> None:
    provider = Scripted()
    answer, _ = complete(run, provider, messages=messages)
    assert isinstance(answer, Failure)
    assert (answer.code, provider.asked) == (Code.INVALID_INPUT, [])


@requirement("nexo:host-llm-complete-errors")
@pytest.mark.parametrize("stream", [False, True])
def test_an_unknown_provider_is_not_found_and_the_known_ones_are_named(run: Run, stream: bool) -> None:
    answer, _ = complete(run, Scripted(), provider="coher", stream=stream)
    assert isinstance(answer, Failure)
    assert answer.code == Code.NOT_FOUND
    assert answer.message == "there is no LLM provider 'coher'; known providers: cohere"
    assert answer.detail["known"] == ["cohere"]


@requirement("nexo:host-llm-complete-errors")
def test_without_any_provider_llm_is_not_configured(run: Run) -> None:
    async def main() -> None:
        answer = await LlmRegistry().complete(CompleteChat("cohere", "m", HI), print)
        assert isinstance(answer, Failure)
        assert (answer.code, answer.retryable) == (Code.UNAVAILABLE, False)
        assert "llm not configured" in answer.message

    run(main)


@requirement("nexo:host-llm-complete-errors")
@pytest.mark.parametrize("stream", [False, True])
def test_a_failing_provider_is_a_failure_even_in_the_middle_of_a_stream(run: Run, stream: bool) -> None:
    failure = Failure(Code.OVERLOADED, "later", retryable=True, retry_after_ms=5)
    answer, heard = complete(run, Scripted(chunks=[text("a")], failure=failure), stream=stream)
    assert isinstance(answer, Failure)
    assert (answer.code, answer.retry_after_ms, answer.detail) == (Code.OVERLOADED, 5, {"provider": "cohere"})
    assert heard == (["a"] if stream else [])


def test_a_stream_without_bound_is_cut_off(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chats, "MAX_STREAM_CHARS", 3)
    provider = Scripted(chunks=[text("ab"), text("cd"), text("ef")])
    answer, heard = complete(run, provider, stream=True)
    assert isinstance(answer, Failure)
    assert (answer.code, heard, provider.left) == (Code.FRAME_TOO_LARGE, ["ab"], 1)


@requirement("mcp:host-sampling")
def test_a_request_without_a_provider_uses_the_default_and_the_result_names_the_model(run: Run) -> None:
    registry, provider = LlmRegistry(), Scripted()
    registry.register("local", provider, "test")

    async def main() -> None:
        unchosen = await registry.complete(CompleteChat("", "", HI), lambda piece: None)
        assert isinstance(unchosen, Failure) and unchosen.code == Code.UNAVAILABLE
        wished = await registry.complete(CompleteChat("", "large", HI), lambda piece: None)
        assert isinstance(wished, dict) and wished["model"] == "large"
        registry.usual = ("local", "small")
        chosen = await registry.complete(CompleteChat("", "large", HI), lambda piece: None)
        assert isinstance(chosen, dict) and chosen["model"] == "small"
        named = await registry.complete(CompleteChat("local", "m", HI), lambda piece: None)
        assert isinstance(named, dict) and "model" not in named

    run(main)
