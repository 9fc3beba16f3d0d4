"""Chats, streams and vectors against a real server of OpenAI's format."""

from __future__ import annotations

import asyncio
import json
import logging
import traceback
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import aclosing, asynccontextmanager
from typing import Any

import pytest

from plugbay.host.services.llm.chat import ChatReply, ChatRequest, Chunk, Usage
from plugbay.host.services.llm.openai import CHAT_SECONDS, IDLE_SECONDS, MAX_TEXTS, STREAM_SECONDS, OpenAiProvider
from plugbay.host.services.llm.registry import LlmRegistry
from plugbay.host.services.llm.sse import MAX_EVENT
from plugbay.model.errors import CallFailed, Code
from plugbay.model.operations import CompleteChat
from tests.support.loops import Run
from tests.support.openai_server import OpenAiServer, Reply, as_json, completion, delta, events, streamed
from tests.support.patience import until
from tests.support.requirements import requirement
from tests.wire.chunks import one_by_one

KEY = "sk-0123456789abcdef"
HEADER = "organisation-secret"
HI = [{"role": "user", "content": "hi"}]
REQUEST = ChatRequest("m", HI)

HELLO = events(
    delta(role="assistant", content=""),
    delta(content="Hel"),
    delta(content="lo é"),
    delta("stop"),
    {"choices": [], "usage": {"prompt_tokens": 12, "completion_tokens": 4}},
)
HELLO_CHUNKS: list[Chunk] = [
    {"type": "text_delta", "delta": "Hel"},
    {"type": "text_delta", "delta": "lo é"},
    {"type": "usage", "usage": {"prompt_tokens": 12, "completion_tokens": 4}},
    {"type": "end", "finish_reason": {"kind": "stop"}},
]

Scenario = Callable[[OpenAiProvider, OpenAiServer], Coroutine[Any, Any, None]]


@asynccontextmanager
async def provider_at(url: str, **options: Any) -> AsyncGenerator[OpenAiProvider, None]:
    provider = OpenAiProvider("example", url, KEY, **{"headers": {"X-Org": HEADER}, "max_retries": 0, **options})
    try:
        yield provider
    finally:
        await provider.close()


def against(run: Run, *replies: Reply, scenario: Scenario, **options: Any) -> None:
    """Run a scenario with a provider whose server gives these replies."""

    async def main() -> None:
        async with OpenAiServer(*replies) as server, provider_at(server.url, **options) as provider:
            await scenario(provider, server)

    run(main)


async def collected(provider: OpenAiProvider, got: list[Chunk], timeout: float | None = None) -> None:
    async with aclosing(provider.stream(REQUEST, timeout)) as chunks:
        async for chunk in chunks:
            got.append(chunk)


# Chats.


def test_a_chat(run: Run) -> None:
    async def scenario(provider: OpenAiProvider, server: OpenAiServer) -> None:
        assert await provider.chat(REQUEST) == ChatReply("hello", (), Usage(12, 4))
        (seen,) = server.seen
        assert seen.path == "/v1/chat/completions"
        assert seen.headers["authorization"] == f"Bearer {KEY}"
        assert seen.headers["x-org"] == HEADER
        assert seen.body == {"model": "m", "messages": HI, "max_tokens": 4096, "temperature": 0.7}

    against(run, completion(), scenario=scenario)


def test_a_server_without_key_gets_none(run: Run) -> None:
    async def main() -> None:
        async with OpenAiServer(completion()) as server:
            provider = OpenAiProvider("local", server.url)
            await provider.chat(REQUEST)
            assert "authorization" not in server.seen[0].headers
            await provider.close()

    run(main)


def test_a_chat_in_pieces_of_one_byte(run: Run) -> None:
    async def scenario(provider: OpenAiProvider, server: OpenAiServer) -> None:
        assert (await provider.chat(REQUEST)).text == "hello"

    against(run, Reply(one_by_one(completion().pieces[0])), scenario=scenario)


def test_only_the_models_that_were_listed_may_be_asked(run: Run) -> None:
    async def scenario(provider: OpenAiProvider, server: OpenAiServer) -> None:
        assert (await provider.chat(REQUEST)).text == "hello"
        with pytest.raises(CallFailed) as caught:
            await provider.chat(ChatRequest("other", HI))
        assert caught.value.code == Code.NOT_FOUND
        assert "there are: m, n" in caught.value.failure.message
        assert len(server.seen) == 1

    against(run, completion(), scenario=scenario, models=["m", "n"])


@pytest.mark.parametrize(
    ("reply", "code", "retryable"),
    [
        (as_json({"error": {"message": "no"}}, 401), Code.UNAVAILABLE, False),
        (as_json({"error": {"message": "no such model"}}, 404), Code.NOT_FOUND, False),
        (as_json({"error": {"code": "context_length_exceeded"}}, 400), Code.INVALID_INPUT, False),
        (as_json({}, 429, Retry_After="7"), Code.OVERLOADED, True),
        (as_json({}, 500), Code.UNAVAILABLE, True),
        (Reply([b"{"], ending="cut"), Code.UNAVAILABLE, True),
        (Reply([b"garbage"]), Code.MALFORMED_RESPONSE, False),
        (as_json({"choices": []}), Code.MALFORMED_RESPONSE, False),
        (Reply([b"<html>"], content_type="text/html"), Code.MALFORMED_RESPONSE, False),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_what_a_server_does_wrong_is_a_failure(
    run: Run, reply: Reply, code: str, retryable: bool, stream: bool
) -> None:
    async def scenario(provider: OpenAiProvider, server: OpenAiServer) -> None:
        with pytest.raises(CallFailed) as caught:
            await (collected(provider, []) if stream else provider.chat(REQUEST))
        if not stream or reply.status != 200:
            assert (caught.value.code, caught.value.failure.retryable) == (code, retryable)
        else:
            assert caught.value.code == Code.MALFORMED_RESPONSE, "no answer of another type is read as a stream"

    against(run, reply, scenario=scenario)


@pytest.mark.parametrize(
    "request_",
    [ChatRequest("m", HI, temperature=float("nan")), ChatRequest("m", [{"role": "user", "content": {1, object()}}])],
)
def test_a_request_that_is_no_json_is_never_sent(run: Run, request_: ChatRequest) -> None:
    async def scenario(provider: OpenAiProvider, server: OpenAiServer) -> None:
        with pytest.raises(CallFailed) as caught:
            await provider.chat(request_)
        assert (caught.value.code, server.seen) == (Code.INVALID_INPUT, [])

    against(run, completion(), scenario=scenario)


def test_a_request_is_tried_again_when_the_server_is_busy(run: Run) -> None:
    async def scenario(provider: OpenAiProvider, server: OpenAiServer) -> None:
        assert (await provider.chat(REQUEST)).text == "hello"
        assert len(server.seen) == 2

    against(run, as_json({}, 429, Retry_After="0"), completion(), scenario=scenario, max_retries=1)


# Time.


@requirement("nexo:host-llm-deadlines")
def test_a_chat_has_60_seconds_and_a_stream_300_with_pauses_of_60() -> None:
    assert (CHAT_SECONDS, STREAM_SECONDS, IDLE_SECONDS) == (60, 300, 60)


@requirement("nexo:host-llm-deadlines")
@pytest.mark.parametrize("stream", [False, True])
def test_a_deadline_counts_from_the_sending_whatever_keeps_coming(run: Run, stream: bool) -> None:
    async def scenario(provider: OpenAiProvider, server: OpenAiServer) -> None:
        got: list[Chunk] = []
        with pytest.raises(CallFailed) as caught:
            await (collected(provider, got, 0.1) if stream else provider.chat(REQUEST, 0.1))
        assert (caught.value.code, caught.value.failure.detail) == (Code.TIMEOUT, {"kind": "deadline"})

    dripping = streamed([], ending="dripping") if stream else Reply(ending="dripping")
    against(run, dripping, scenario=scenario)


@requirement("nexo:host-llm-deadlines")
def test_a_stream_that_pauses_too_long_is_given_up(run: Run) -> None:
    async def scenario(provider: OpenAiProvider, server: OpenAiServer) -> None:
        got: list[Chunk] = []
        with pytest.raises(CallFailed) as caught:
            await collected(provider, got)
        assert caught.value.failure.detail == {"kind": "idle"}
        assert got == [{"type": "text_delta", "delta": "a"}]
        await until(lambda: server.left == 1)

    started = streamed([events(delta(content="a")).removesuffix(b"data: [DONE]\n\n")], ending="held")
    against(run, started, scenario=scenario, idle_timeout=0.05)


def test_a_chat_that_is_cancelled_closes_its_connection(run: Run) -> None:
    async def scenario(provider: OpenAiProvider, server: OpenAiServer) -> None:
        task = asyncio.ensure_future(provider.chat(REQUEST))
        await until(lambda: len(server.seen) == 1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await until(lambda: server.left == 1)

    against(run, Reply([b"{"], ending="held"), scenario=scenario)


def test_a_stream_that_is_given_up_closes_its_connection(run: Run) -> None:
    async def scenario(provider: OpenAiProvider, server: OpenAiServer) -> None:
        stream = provider.stream(REQUEST)
        assert await anext(stream) == HELLO_CHUNKS[0]
        assert server.left == 0
        await stream.aclose()
        await until(lambda: server.left == 1)

    unfinished = HELLO.removesuffix(b"data: [DONE]\n\n")
    against(run, streamed([unfinished], ending="held"), scenario=scenario)


# Streams.


@pytest.mark.parametrize(
    "pieces",
    [[HELLO], one_by_one(HELLO), one_by_one(HELLO.replace(b"\n", b"\r\n")), [b": thinking\n\n", HELLO]],
    ids=["at once", "byte by byte", "with carriage returns", "after a comment"],
)
def test_a_stream_is_the_same_however_it_is_cut(run: Run, pieces: list[bytes]) -> None:
    async def scenario(provider: OpenAiProvider, server: OpenAiServer) -> None:
        got: list[Chunk] = []
        await collected(provider, got)
        assert got == HELLO_CHUNKS
        assert server.seen[0].headers["accept"] == "text/event-stream"
        assert server.seen[0].body["stream"] is True

    against(run, streamed(pieces), scenario=scenario)


def test_a_stream_ends_with_its_mark_though_the_server_stays(run: Run) -> None:
    async def scenario(provider: OpenAiProvider, server: OpenAiServer) -> None:
        got: list[Chunk] = []
        await collected(provider, got)
        assert got == HELLO_CHUNKS
        await until(lambda: server.left == 1)

    against(run, streamed([HELLO + events(delta(content="more"))], ending="held"), scenario=scenario)


@pytest.mark.parametrize(
    ("pieces", "ending", "code"),
    [
        ([events(delta(content="a"))[:-14], b"data: {"], "cut", Code.UNAVAILABLE),
        ([events(delta(content="a"), {"error": {"message": "on fire"}})], "whole", Code.UNAVAILABLE),
        ([events(delta(content="a"), 7)], "whole", Code.MALFORMED_RESPONSE),
        ([events(delta(content="a"))[:-14], b"data: {\n\n"], "whole", Code.MALFORMED_RESPONSE),
        ([events(delta(content="a"))[:-14], b"data: ", b"x" * (MAX_EVENT + 5000)], "held", Code.FRAME_TOO_LARGE),
    ],
    ids=["breaks off", "error inside", "no object", "no json", "endless line"],
)
def test_a_stream_that_goes_wrong_fails_after_what_it_said(
    run: Run, pieces: list[bytes], ending: str, code: str
) -> None:
    async def scenario(provider: OpenAiProvider, server: OpenAiServer) -> None:
        got: list[Chunk] = []
        with pytest.raises(CallFailed) as caught:
            await collected(provider, got)
        assert caught.value.code == code
        assert got == [{"type": "text_delta", "delta": "a"}]

    against(run, streamed(pieces, ending), scenario=scenario)


def test_a_plugin_hears_a_real_stream(run: Run) -> None:
    async def scenario(provider: OpenAiProvider, server: OpenAiServer) -> None:
        registry, heard = LlmRegistry(), list[str]()
        assert registry.register("example", provider, "operator") is None
        answer = await registry.complete(CompleteChat("example", "m", HI, stream=True), heard.append)
        usage = {"prompt_tokens": 12, "completion_tokens": 4}
        assert answer == {"content": None, "finish_reason": "stop", "usage": usage, "tool_calls": []}
        assert heard == ["Hel", "lo é"]

    against(run, streamed([HELLO]), scenario=scenario)


# Vectors.


def test_each_text_gets_its_vector(run: Run) -> None:
    async def scenario(provider: OpenAiProvider, server: OpenAiServer) -> None:
        assert await provider.embeddings(["a", "b"], "small") == [[1.0, 0.5], [0.0, 2.0]]
        (seen,) = server.seen
        assert seen.path == "/v1/embeddings"
        assert seen.body == {"model": "small", "input": ["a", "b"], "encoding_format": "float"}

    data = [{"index": 1, "embedding": [0, 2]}, {"index": 0, "embedding": [1, 0.5]}]
    against(run, as_json({"data": data}), scenario=scenario)


def test_the_largest_batch_of_long_vectors_can_be_read(run: Run) -> None:
    async def scenario(provider: OpenAiProvider, server: OpenAiServer) -> None:
        assert len(await provider.embeddings(["x"] * MAX_TEXTS, "large")) == MAX_TEXTS

    vector = b"[" + b",".join([b"-0.012345678901234567"] * 3072) + b"]"
    items = b",".join(b'{"index":%d,"embedding":%b}' % (index, vector) for index in range(MAX_TEXTS))
    against(run, Reply([b'{"data":[' + items + b"]}"]), scenario=scenario)


@pytest.mark.parametrize("count", [0, MAX_TEXTS + 1])
def test_no_text_and_too_many_are_refused(run: Run, count: int) -> None:
    async def scenario(provider: OpenAiProvider, server: OpenAiServer) -> None:
        with pytest.raises(CallFailed) as caught:
            await provider.embeddings(["x"] * count, "small")
        assert (caught.value.code, server.seen) == (Code.INVALID_INPUT, [])

    against(run, as_json({}), scenario=scenario)


# Secrets.


@pytest.mark.parametrize(
    "reply",
    [
        as_json({"error": {"message": f"Incorrect API key provided: {KEY} for {HEADER}"}}, 401),
        as_json({"error": f"{'x' * 490}{KEY}"}, 500),
        Reply([b"{"], ending="cut"),
        Reply([KEY.encode()]),
        streamed([b": thinking\n\n"], ending="held"),
        streamed([events({"error": {"message": f"{KEY} {HEADER}"}})]),
        streamed([b"data: " + KEY.encode() + b"\n\n"]),
    ],
)
def test_the_key_is_in_no_failure_no_text_no_log_and_no_exception(
    run: Run, reply: Reply, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)

    async def scenario(provider: OpenAiProvider, server: OpenAiServer) -> None:
        with pytest.raises(CallFailed) as caught:
            is_stream = reply.content_type == "text/event-stream"
            await (collected(provider, []) if is_stream else provider.chat(REQUEST))
        error = caught.value
        assert KEY in server.seen[0].headers["authorization"], "the key was really used"
        shown = [
            json.dumps(error.failure.to_json()),
            repr(error.failure),
            str(error),
            repr(provider),
            str(vars(provider)["_endpoint"]),
            "".join(traceback.format_exception(error)),
            caplog.text,
        ]
        assert [text for text in shown if KEY[:8] in text or HEADER in text] == []
        assert (error.__cause__, error.__context__) == (None, None), "an error of the network holds its request"

    against(run, reply, scenario=scenario, idle_timeout=0.05)
