"""Our values in OpenAI's words, and its words as our values."""

from __future__ import annotations

import json
from typing import Any

import pytest

from plugbay.host.services.llm.chat import ChatReply, ChatRequest, Chunk, Usage
from plugbay.host.services.llm.openai_format import MAX_TOOL_CALLS, StreamReader, chat_body, read_embeddings, read_reply
from plugbay.model.errors import Code, Failure
from tests.support.openai_server import delta

HI = [{"role": "user", "content": "hi"}]
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
def test_no_file_is_read_for_anybody_and_only_images_are_taken(attachment: dict[str, str]) -> None:
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


def test_what_came_from_a_cache_is_told() -> None:
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
