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
from hypothesis import given
from hypothesis import strategies as st

from plugbay.host.services.llm.chat import ChatReply, ChatRequest, Chunk, Usage
from plugbay.host.services.llm.openai import (
    MAX_EVENT,
    MAX_TEXTS,
    MAX_TOOL_CALLS,
    EventDecoder,
    OpenAiProvider,
    StreamReader,
    chat_body,
    read_embeddings,
    read_reply,
)
from plugbay.host.services.llm.registry import LlmRegistry
from plugbay.host.services.llm.settings import CHAT_SECONDS, IDLE_SECONDS, STREAM_SECONDS
from plugbay.model.errors import CallFailed, Code, Failure
from plugbay.model.operations import CompleteChat
from plugbay.wire.lines import TooLong
from tests.support.loops import Run
from tests.support.openai_server import OpenAiServer, Reply, as_json, completion, delta, events, streamed
from tests.support.patience import until
from tests.support.requirements import requirement
from tests.wire.chunks import cut, one_by_one, places

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
def test_an_error_of_the_server_is_a_failure(run: Run, reply: Reply, code: str, retryable: bool, stream: bool) -> None:
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
def test_a_broken_stream_fails_after_its_last_valid_chunk(
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


TOOL = {"name": "weather", "description": "Forecast", "parameters": {"type": "object"}}


def body(request: ChatRequest, *, stream: bool = False) -> dict[str, Any]:
    written = chat_body(request, "max_tokens", stream=stream)
    assert isinstance(written, dict)
    return written


# Requests.


def test_a_plain_request() -> None:
    assert body(ChatRequest("m", HI, 10, 0.5)) == {"model": "m", "messages": HI, "max_tokens": 10, "temperature": 0.5}


def test_a_stream_asks_for_its_usage() -> None:
    written = body(ChatRequest("m", HI), stream=True)
    assert (written["stream"], written["stream_options"]) == (True, {"include_usage": True})


def test_newer_models_name_the_limit_of_tokens_otherwise() -> None:
    written = chat_body(ChatRequest("m", HI, 10), "max_completion_tokens", stream=False)
    assert isinstance(written, dict)
    assert written["max_completion_tokens"] == 10
    assert "max_tokens" not in written


def test_the_system_message_is_the_blocks_and_then_the_prompt() -> None:
    blocks = [
        {"text": "One.", "cache": "ephemeral1h"},
        {"text": "", "cache": "none"},
        {"text": "Two.", "cache": "none"},
    ]
    written = body(ChatRequest("m", HI, system_prompt="Three.", system_blocks=blocks))
    assert written["messages"] == [{"role": "system", "content": "One.\n\nTwo.\n\nThree."}, *HI]


@pytest.mark.parametrize(
    ("choice", "written"),
    [
        ({"kind": "auto"}, "auto"),
        ({"kind": "any"}, "required"),
        ({"kind": "none"}, "none"),
        ({"kind": "specific", "name": "weather"}, {"type": "function", "function": {"name": "weather"}}),
    ],
)
def test_tools_become_functions(choice: dict[str, str], written: Any) -> None:
    request = body(ChatRequest("m", HI, tools=[TOOL], tool_choice=choice, stop_sequences=["\n"]))
    assert request["tools"] == [{"type": "function", "function": TOOL}]
    assert request["tool_choice"] == written
    assert request["stop"] == ["\n"]


def test_a_choice_without_tools_is_not_sent() -> None:
    assert "tool_choice" not in body(ChatRequest("m", HI, tool_choice={"kind": "any"}))


def test_earlier_tool_calls_and_their_results_are_told() -> None:
    history: list[dict[str, Any]] = [
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "c1", "name": "weather", "arguments": {"a": "é"}}],
        },
        {"role": "tool", "content": "sunny", "tool_call_id": "c1", "name": "weather"},
        {"role": "assistant", "content": "", "tool_calls": [{"id": "c2", "name": "weather", "arguments": "raw"}]},
    ]
    first, second, third = body(ChatRequest("m", history))["messages"]
    called = {"id": "c1", "type": "function", "function": {"name": "weather", "arguments": '{"a":"é"}'}}
    assert first == {"role": "assistant", "content": None, "tool_calls": [called]}
    assert second == history[1]
    assert third["tool_calls"][0]["function"]["arguments"] == "raw"


def test_images_are_attached() -> None:
    attachments = [
        {"kind": "image", "mime_type": "image/png", "data_kind": "base64", "base64": "AAAA"},
        {"kind": "image", "mime_type": "image/png", "data_kind": "url", "url": "https://example.com/a.png"},
    ]
    (message,) = body(ChatRequest("m", [{**HI[0], "attachments": attachments}]))["messages"]
    assert message["content"] == [
        {"type": "text", "text": "hi"},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}},
        {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}},
    ]


@pytest.mark.parametrize(
    "attachment",
    [
        {"kind": "image", "mime_type": "image/png", "data_kind": "path", "path": "/etc/passwd"},
        {"kind": "audio", "mime_type": "audio/ogg", "data_kind": "base64", "base64": "AAAA"},
    ],
)
def test_no_file_is_read_and_only_images_are_accepted(attachment: dict[str, str]) -> None:
    failure = chat_body(ChatRequest("m", [{**HI[0], "attachments": [attachment]}]), "max_tokens", stream=False)
    assert isinstance(failure, Failure)
    assert failure.code == Code.INVALID_INPUT


# Replies.


def reply(message: Any, finish: Any = "stop", usage: Any = None) -> ChatReply | Failure:
    choice = {"message": message, "finish_reason": finish}
    return read_reply(json.dumps({"choices": [choice], "usage": usage}).encode())


def called(name: Any = "weather", arguments: Any = '{"a":1}', **more: Any) -> dict[str, Any]:
    return {"id": "c1", "type": "function", "function": {"name": name, "arguments": arguments}, **more}


CALL = {"id": "c1", "name": "weather", "arguments": {"a": 1}}


def test_an_ordinary_reply() -> None:
    usage = {"prompt_tokens": 12, "completion_tokens": 4, "total_tokens": 16}
    assert reply({"content": "hello"}, usage=usage) == ChatReply("hello", (), Usage(12, 4))


def test_cached_tokens_are_reported() -> None:
    usage = {"prompt_tokens": 12, "completion_tokens": 4, "prompt_tokens_details": {"cached_tokens": 10}}
    got = reply({"content": "hello"}, usage=usage)
    assert isinstance(got, ChatReply)
    assert got.cache_usage == {
        "cache_read_input_tokens": 10,
        "cache_creation_input_tokens": 0,
        "input_tokens": 2,
        "output_tokens": 4,
    }


@pytest.mark.parametrize(
    ("message", "finish", "expected"),
    [
        ({"content": "x"}, "length", ChatReply("x", (), Usage(), "length")),
        ({"content": "x"}, "content_filter", ChatReply("x", (), Usage(), "other:content_filter")),
        ({"content": "x"}, None, ChatReply("x", (), Usage(), "other:unspecified")),
        ({"content": None, "refusal": "No."}, "stop", ChatReply("No.")),
        ({"content": None}, "stop", ChatReply("")),
        ({"content": None, "tool_calls": [called()]}, "tool_calls", ChatReply(None, (CALL,), Usage(), "tool_use")),
        ({"content": "x", "tool_calls": [called()]}, "stop", ChatReply("x", (CALL,), Usage(), "tool_use")),
        (
            {"tool_calls": [called(arguments="oops"), called(id=None, arguments={"b": 2})]},
            "tool_calls",
            ChatReply(
                None,
                (
                    {"id": "c1", "name": "weather", "arguments": "oops"},
                    {"id": "weather", "name": "weather", "arguments": {"b": 2}},
                ),
                Usage(),
                "tool_use",
            ),
        ),
    ],
)
def test_replies_of_every_kind(message: dict[str, Any], finish: str | None, expected: ChatReply) -> None:
    assert reply(message, finish) == expected


@pytest.mark.parametrize(
    "message",
    [None, "x", {"content": 7}, {"tool_calls": [{}]}, {"tool_calls": [called(7)]}, {"tool_calls": [called()] * 129}],
)
def test_a_message_of_no_known_form_is_malformed(message: Any) -> None:
    got = reply(message)
    assert isinstance(got, Failure)
    assert got.code == Code.MALFORMED_RESPONSE


@pytest.mark.parametrize(
    "data", [b"", b"{", b"[]", b"{}", b'{"choices":[]}', b'{"choices":[7]}', b"\xff", b"[" * 99_999]
)
def test_a_body_that_is_no_reply_is_malformed(data: bytes) -> None:
    got = read_reply(data)
    assert isinstance(got, Failure)
    assert got.code == Code.MALFORMED_RESPONSE


# Vectors.


def test_vectors_come_in_the_order_of_the_texts() -> None:
    data = b'{"data":[{"index":1,"embedding":[3,4.5]},{"index":0,"embedding":[1,2]}]}'
    assert read_embeddings(data, 2) == [[1.0, 2.0], [3.0, 4.5]]


@pytest.mark.parametrize(
    "data",
    [
        b"{}",
        b'{"data":[{"index":0,"embedding":[1]}]}',
        b'{"data":[{"index":0,"embedding":[1]},{"index":1,"embedding":["x"]}]}',
        b'{"data":[{"index":0,"embedding":[1]},{"index":1,"embedding":[]}]}',
        b'{"data":[{"index":0,"embedding":[1]},{"index":1,"embedding":[true]}]}',
        b"nonsense",
    ],
)
def test_vectors_that_are_missing_or_none_are_malformed(data: bytes) -> None:
    got = read_embeddings(data, 2)
    assert isinstance(got, Failure)
    assert got.code == Code.MALFORMED_RESPONSE


# Streams.


def read(*values: Any) -> list[Chunk]:
    """Every chunk of a stream with these events."""
    reader = StreamReader()
    chunks: list[Chunk] = []
    for value in values:
        got = reader.read(json.dumps(value).encode())
        assert isinstance(got, list)
        chunks += got
    assert reader.read(b"[DONE]") == []
    assert reader.done
    return chunks + reader.close()


def failed(*values: Any) -> Failure:
    """How the last of these events fails."""
    reader = StreamReader(["sk-secret"])
    got = [reader.read(json.dumps(value).encode()) for value in values][-1]
    assert isinstance(got, Failure)
    return got


def piece(index: int | None = 0, arguments: Any = "", **more: Any) -> dict[str, Any]:
    function = {"arguments": arguments, **({"name": more.pop("name")} if "name" in more else {})}
    return {**({} if index is None else {"index": index}), "function": function, **more}


END = {"type": "end", "finish_reason": {"kind": "stop"}}


def test_text_comes_as_it_is_written_and_usage_before_the_end() -> None:
    usage = {"prompt_tokens": 12, "completion_tokens": 4}
    chunks = read(
        delta(role="assistant", content=""),
        delta(content="Hel"),
        delta(content="lo"),
        delta("stop"),
        {"choices": [], "usage": usage},
    )
    assert chunks == [
        {"type": "text_delta", "delta": "Hel"},
        {"type": "text_delta", "delta": "lo"},
        {"type": "usage", "usage": usage},
        END,
    ]


def test_tool_calls_are_told_apart_by_their_index() -> None:
    chunks = read(
        delta(tool_calls=[piece(0, id="a", name="one"), piece(1, '{"x"', id="b", name="two")]),
        delta(tool_calls=[piece(1, ":1}"), piece(0, "{}")]),
        delta("tool_calls"),
    )
    assert chunks == [
        {"type": "tool_call_start", "id": "a", "name": "one"},
        {"type": "tool_call_start", "id": "b", "name": "two"},
        {"type": "tool_call_args_delta", "id": "b", "delta": '{"x"'},
        {"type": "tool_call_args_delta", "id": "b", "delta": ":1}"},
        {"type": "tool_call_args_delta", "id": "a", "delta": "{}"},
        {"type": "tool_call_end", "id": "a"},
        {"type": "tool_call_end", "id": "b"},
        {"type": "end", "finish_reason": {"kind": "tool_use"}},
    ]


def test_tool_calls_without_index_are_told_apart_by_id_and_without_id_get_one() -> None:
    chunks = read(delta(tool_calls=[piece(None, id="a", name="one"), piece(None, id="b", name="two")]), delta("stop"))
    assert [chunk["id"] for chunk in chunks if chunk["type"] == "tool_call_start"] == ["a", "b"]
    (start, *_) = read(delta(tool_calls=[piece(0, name="one")]))
    assert start == {"type": "tool_call_start", "id": "call_0", "name": "one"}


def test_a_new_id_is_a_new_call_even_at_an_old_index() -> None:
    chunks = read(delta(tool_calls=[piece(0, "{}", id="a", name="one"), piece(0, "{}", id="b", name="two")]))
    assert [(chunk["type"], chunk["id"]) for chunk in chunks] == [
        ("tool_call_start", "a"),
        ("tool_call_args_delta", "a"),
        ("tool_call_start", "b"),
        ("tool_call_args_delta", "b"),
        ("tool_call_end", "a"),
        ("tool_call_end", "b"),
    ]


def test_a_stream_that_never_says_why_it_ends_has_no_end() -> None:
    assert read(delta(content="half")) == [{"type": "text_delta", "delta": "half"}]


def test_an_error_inside_the_stream_is_a_failure_without_secrets() -> None:
    failure = failed(delta(content="a"), {"error": {"code": 429, "message": "slow down, sk-secret"}})
    assert (failure.code, failure.retryable) == (Code.OVERLOADED, True)
    assert failure.message == "rate limited (HTTP 429): slow down, ***"


@pytest.mark.parametrize(
    "value",
    [
        [],
        "text",
        {"choices": [{"delta": "text"}]},
        delta(content=["parts"]),
        delta(tool_calls=["x"]),
        delta(tool_calls=[piece(0, id="a")]),
        delta(tool_calls=[piece(0, {"x": 1}, name="one")]),
        delta(tool_calls=[piece(index, name="one") for index in range(MAX_TOOL_CALLS + 1)]),
    ],
)
def test_an_event_of_no_known_form_is_malformed(value: Any) -> None:
    assert failed(value).code == Code.MALFORMED_RESPONSE


def test_as_many_tool_calls_as_allowed_are_read() -> None:
    chunks = read(delta(tool_calls=[piece(index, name="one") for index in range(MAX_TOOL_CALLS)]))
    assert len(chunks) == 2 * MAX_TOOL_CALLS


def decode(chunks: list[bytes], max_event: int = 100) -> list[bytes | TooLong]:
    decoder = EventDecoder(max_event)
    return [event for chunk in chunks for event in decoder.feed(chunk)]


@pytest.mark.parametrize(
    ("stream", "events"),
    [
        (b"", []),
        (b"data: a\n\n", [b"a"]),
        (b"data:a\n\n", [b"a"]),
        (b"data: a\r\n\r\n", [b"a"]),
        (b"data: a\r\r", [b"a"]),
        (b"data: a\r\n\n", [b"a"]),
        (b"data: a\ndata: b\n\n", [b"a\nb"]),
        (b"data: a\r\ndata: b\r\n\r\n", [b"a\nb"]),
        (b"data: a\rdata: b\r\r", [b"a\nb"]),
        (b"data: a\n\n\n\ndata: b\n\n", [b"a", b"b"]),
        (b": thinking\n\ndata: a\n\n", [b"a"]),
        (b"event: error\nid: 7\nretry: 5\ndata: a\n\n", [b"a"]),
        (b"dataset: x\n\n", []),
        (b"data\n\n", [b""]),
        (b"data: {: }\n\n", [b"{: }"]),
        (b"\xef\xbb\xbf: start\ndata: \xc3\xa9\n\n", [b"\xc3\xa9"]),
        (b"data: whole\n\ndata: cut off\n", [b"whole"]),
        (b"data: whole\n\ndata: cut of", [b"whole"]),
    ],
)
def test_an_event_is_its_data_up_to_a_blank_line_wherever_the_stream_is_cut(stream: bytes, events: list[bytes]) -> None:
    assert decode([stream]) == events
    assert decode(one_by_one(stream)) == events


LINES = st.sampled_from([b"data: a", b"data: bc", b": note", b"event: x", b""])
ENDS = st.sampled_from([b"\n", b"\r\n", b"\r"])


@given(st.lists(st.tuples(LINES, ENDS), max_size=12), places)
def test_the_result_does_not_depend_on_how_the_bytes_are_cut(
    lines: list[tuple[bytes, bytes]], where: list[int]
) -> None:
    stream = b"".join(line + end for line, end in lines)
    assert decode(cut(stream, where)) == decode([stream])


def test_an_event_of_exactly_the_cap_is_taken_and_one_byte_more_is_not() -> None:
    assert decode([b"data:" + b"x" * 100 + b"\n\n"]) == [b"x" * 100]
    assert isinstance(decode([b"data:" + b"x" * 101 + b"\n\n"])[0], TooLong)


def test_many_short_lines_do_not_make_a_longer_event() -> None:
    assert isinstance(decode([b"data: 12345678\n" * 12])[0], TooLong)
    assert decode([b"data: 12345678\n" * 11 + b"\n"]) == [b"\n".join([b"12345678"] * 11)]


def test_a_line_without_end_is_reported_before_its_end() -> None:
    decoder = EventDecoder(100)
    fed = 0
    while not decoder.feed(b"x" * 100):
        fed += 100
        assert fed < 10_000, "an endless line was never reported"
