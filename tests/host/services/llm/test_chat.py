"""Requests, replies, and how the chunks of a stream become one reply."""

from __future__ import annotations

from typing import Any

import pytest

from plugbay.host.services.llm import chat
from plugbay.host.services.llm.chat import (
    Assembly,
    ChatReply,
    ChatRequest,
    Usage,
    chunk_problem,
    chunks_of,
    finish_from_json,
    finish_to_json,
    messages_problem,
    tool_arguments,
)
from plugbay.model.errors import Code
from tests.support.requirements import requirement

HI = [{"role": "user", "content": "hi"}]
CALL = {"id": "c1", "name": "weather", "arguments": {"city": "Lima"}}
STOP = {"kind": "stop"}


# Requests.


@requirement("nexo:host-llm-request")
def test_a_plain_request_has_the_six_keys_that_are_always_there() -> None:
    assert ChatRequest("command-r", HI).to_json() == {
        "model": "command-r",
        "messages": HI,
        "max_tokens": 4096,
        "temperature": 0.7,
        "tool_choice": {"kind": "auto"},
        "cache_tools": False,
    }


@requirement("nexo:host-llm-request")
def test_a_full_request_has_the_other_four_keys_too() -> None:
    tools = [{"name": "weather", "description": "", "parameters": {}}]
    blocks = [{"text": "Be brief.", "cache": "ephemeral5m"}]
    request = ChatRequest(
        "m", HI, 10, 0.0, "Be kind.", tools, {"kind": "specific", "name": "weather"}, ["\n"], blocks, True
    )
    assert request.to_json() == {
        "model": "m",
        "messages": HI,
        "max_tokens": 10,
        "temperature": 0.0,
        "tool_choice": {"kind": "specific", "name": "weather"},
        "cache_tools": True,
        "system_prompt": "Be kind.",
        "tools": tools,
        "stop_sequences": ["\n"],
        "system_blocks": blocks,
    }


@requirement("nexo:host-llm-complete-messages")
@pytest.mark.parametrize(
    ("messages", "words"),
    [
        (None, "not a list"),
        ({}, "not a list"),
        ([], "at least one"),
        (["hi"], "messages[0] has no role"),
        ([{"content": "hi"}], "messages[0] has no role"),
        ([*HI, {"role": "robot", "content": "hi"}], "messages[1] has no role"),
        ([{"role": "user"}], "messages[0] has no text"),
        ([{"role": "user", "content": 1}], "messages[0] has no text"),
        ([{"role": "assistant", "content": None, "tool_calls": []}], "messages[0] has no text"),
    ],
)
def test_messages_that_are_none_are_named(messages: Any, words: str) -> None:
    assert words in (messages_problem(messages) or "")


@requirement("nexo:host-llm-complete-messages")
def test_every_role_may_speak_and_a_tool_call_needs_no_text() -> None:
    said = [{"role": role, "content": ""} for role in ("system", "user", "assistant", "tool")]
    assert messages_problem([*said, {"role": "assistant", "content": None, "tool_calls": [CALL]}]) is None


# Replies.


@requirement("nexo:host-llm-result")
@pytest.mark.parametrize(
    "reply",
    [
        ChatReply("Hello world", (), Usage(12, 4)),
        ChatReply("", (), Usage(), "length"),
        ChatReply("x", (), Usage(), "other:content_filter"),
        ChatReply(None, (CALL,), Usage(3, 2), "tool_use"),
        ChatReply("x", (), Usage(1, 1), "stop", {"cache_read_input_tokens": 1, "input_tokens": 0}),
    ],
    ids=str,
)
def test_a_reply_is_read_back_as_it_was_written(reply: ChatReply) -> None:
    assert ChatReply.from_json(reply.to_json()) == reply


@requirement("nexo:host-llm-result")
def test_a_reply_is_written_as_the_contract_shows_it() -> None:
    assert ChatReply("Hello world", (), Usage(12, 4)).to_json() == {
        "content": {"type": "text", "text": "Hello world"},
        "usage": {"prompt_tokens": 12, "completion_tokens": 4},
        "finish_reason": {"kind": "stop"},
    }


def test_a_reply_with_text_and_tool_calls_is_written_as_its_calls() -> None:
    written = ChatReply("I look it up", (CALL,)).to_json()
    assert written["content"] == {"type": "tool_calls", "tool_calls": [CALL]}


def test_optional_fields_of_a_reply_have_defaults() -> None:
    result = {
        "content": {"type": "tool_calls", "tool_calls": [{"id": "c", "name": "n"}]},
        "finish_reason": STOP,
        "x": 1,
    }
    assert ChatReply.from_json(result) == ChatReply(None, ({"id": "c", "name": "n", "arguments": {}},))


TEXT = {"type": "text", "text": "x"}


@requirement("nexo:host-llm-result")
@pytest.mark.parametrize(
    ("result", "words"),
    [
        ([], "not an object"),
        ({"finish_reason": STOP}, "content is not an object"),
        ({"content": "x", "finish_reason": STOP}, "content is not an object"),
        ({"content": {"type": "text"}, "finish_reason": STOP}, "no text"),
        ({"content": {"type": "image"}, "finish_reason": STOP}, "of type text or tool_calls"),
        ({"content": {"type": "tool_calls", "tool_calls": []}, "finish_reason": STOP}, "tool_calls is not a list"),
        ({"content": {"type": "tool_calls", "tool_calls": [{"id": 1}]}, "finish_reason": STOP}, "an id, a name"),
        ({"content": TEXT}, "finish_reason"),
        ({"content": TEXT, "finish_reason": "stop"}, "finish_reason"),
        ({"content": TEXT, "finish_reason": STOP, "usage": {"prompt_tokens": 1}}, "usage"),
        ({"content": TEXT, "finish_reason": STOP, "usage": {"prompt_tokens": 1, "completion_tokens": -1}}, "usage"),
        ({"content": TEXT, "finish_reason": STOP, "usage": {"prompt_tokens": True, "completion_tokens": 1}}, "usage"),
        ({"content": TEXT, "finish_reason": STOP, "usage": []}, "usage"),
        ({"content": TEXT, "finish_reason": STOP, "cache_usage": {"input_tokens": "1"}}, "cache_usage"),
    ],
)
def test_an_invalid_reply_is_refused_with_the_reason(result: Any, words: str) -> None:
    reason = ChatReply.from_json(result)
    assert isinstance(reason, str)
    assert words in reason


@requirement("nexo:host-llm-finish-reason")
@pytest.mark.parametrize(
    ("written", "reason"),
    [
        ({"kind": "stop"}, "stop"),
        ({"kind": "length"}, "length"),
        ({"kind": "tool_use"}, "tool_use"),
        ({"kind": "other", "reason": "safety"}, "other:safety"),
    ],
)
def test_a_finish_reason_has_two_forms(written: dict[str, str], reason: str) -> None:
    assert finish_from_json(written) == reason
    assert finish_to_json(reason) == written


@pytest.mark.parametrize(
    ("written", "reason"),
    [
        ({"kind": "other"}, "other:unspecified"),
        ({"kind": "paused"}, "other:paused"),
        ({"kind": 1}, None),
        ({}, None),
        ("stop", None),
        (None, None),
    ],
)
def test_an_odd_finish_reason_is_some_other_reason_or_none(written: Any, reason: str | None) -> None:
    assert finish_from_json(written) == reason


@pytest.mark.parametrize(
    ("text", "value"), [('{"a": 1}', {"a": 1}), ("", {}), (" ", {}), ("[1]", [1]), ('{"a"', '{"a"'), ("NaN", "NaN")]
)
def test_arguments_are_the_text_of_the_model(text: str, value: Any) -> None:
    assert tool_arguments(text) == value


# Chunks.

GOOD_CHUNKS: list[dict[str, Any]] = [
    {"type": "text_delta", "delta": "Hello"},
    {"type": "tool_call_start", "id": "c1", "name": "weather"},
    {"type": "tool_call_args_delta", "id": "c1", "delta": "{}"},
    {"type": "tool_call_end", "id": "c1"},
    {"type": "usage", "usage": {"prompt_tokens": 12, "completion_tokens": 4}},
    {"type": "end", "finish_reason": {"kind": "stop"}},
]


@requirement("nexo:host-llm-chunks")
@pytest.mark.parametrize("chunk", GOOD_CHUNKS, ids=lambda chunk: str(chunk["type"]))
def test_there_are_six_kinds_of_chunks_and_none_may_lack_a_field(chunk: dict[str, Any]) -> None:
    assert chunk_problem(chunk) is None
    for name in chunk:
        assert chunk_problem({key: value for key, value in chunk.items() if key != name}) is not None
        assert chunk_problem({**chunk, name: 7}) is not None


@pytest.mark.parametrize("chunk", [None, "text", [], {}, {"type": "thought", "delta": "x"}, {"type": ["end"]}])
def test_an_invalid_chunk_is_refused(chunk: Any) -> None:
    assert "not an object with a type of" in (chunk_problem(chunk) or "")


# Streams.


def assembled(*chunks: dict[str, Any]) -> ChatReply:
    assembly = Assembly()
    assert [assembly.add(chunk) for chunk in chunks] == [None] * len(chunks)
    return assembly.finish()


def text(delta: str) -> dict[str, Any]:
    return {"type": "text_delta", "delta": delta}


def end(kind: str = "stop") -> dict[str, Any]:
    return {"type": "end", "finish_reason": {"kind": kind}}


def usage(prompt: int, completion: int) -> dict[str, Any]:
    return {"type": "usage", "usage": {"prompt_tokens": prompt, "completion_tokens": completion}}


@requirement("nexo:host-llm-chunks")
def test_the_text_of_a_stream_is_joined() -> None:
    assert assembled(text("Hello"), text(""), text(" world"), usage(12, 4), end()) == ChatReply(
        "Hello world", (), Usage(12, 4)
    )


@requirement("nexo:host-llm-chunks")
def test_the_arguments_of_each_tool_call_are_joined_though_they_come_mixed() -> None:
    reply = assembled(
        {"type": "tool_call_start", "id": "a", "name": "one"},
        {"type": "tool_call_start", "id": "b", "name": "two"},
        {"type": "tool_call_args_delta", "id": "a", "delta": '{"x"'},
        {"type": "tool_call_args_delta", "id": "b", "delta": "not json"},
        {"type": "tool_call_args_delta", "id": "a", "delta": ":1}"},
        {"type": "tool_call_end", "id": "a"},
        end("tool_use"),
    )
    assert reply.tool_calls == (
        {"id": "a", "name": "one", "arguments": {"x": 1}},
        {"id": "b", "name": "two", "arguments": "not json"},
    )
    assert (reply.text, reply.finish_reason) == (None, "tool_use")


@requirement("nexo:host-llm-one-end")
def test_a_stream_ends_once_whatever_follows() -> None:
    reply = assembled(text("a"), end("length"), text("b"), end("stop"), usage(1, 2))
    assert reply == ChatReply("a", (), Usage(1, 2), "length")


@pytest.mark.parametrize(
    "reply",
    [
        ChatReply("all of it"),
        ChatReply(None, (CALL, {"id": "2", "name": "two", "arguments": "no object"})),
        ChatReply("both", (CALL,)),
        ChatReply(""),
    ],
)
def test_a_whole_reply_in_chunks_says_the_same(reply: ChatReply) -> None:
    assert assembled(*chunks_of(reply), end()) == reply


@requirement("nexo:host-llm-usage")
def test_the_last_usage_counts_and_none_is_zero() -> None:
    assert assembled().usage == Usage(0, 0)
    assert assembled(usage(1, 2), usage(3, 4)).usage == Usage(3, 4)


def test_a_stream_that_never_said_that_it_ended_is_told_apart() -> None:
    assert assembled(text("half")) == ChatReply("half", (), Usage(), "other:stream-no-end")
    assert assembled() == ChatReply("", (), Usage(), "other:stream-no-end")


@pytest.mark.parametrize(
    ("chunks", "words"),
    [
        ([{"type": "nonsense"}], "type of"),
        ([{"type": "tool_call_args_delta", "id": "a", "delta": ""}], "tool_call_args_delta before its tool_call_start"),
        ([{"type": "tool_call_end", "id": "a"}], "tool_call_end before its tool_call_start"),
        ([{"type": "tool_call_start", "id": "a", "name": "n"}] * 2, "started twice"),
    ],
)
def test_a_stream_that_makes_no_sense_is_malformed(chunks: list[dict[str, Any]], words: str) -> None:
    assembly = Assembly()
    failure = [assembly.add(chunk) for chunk in chunks][-1]
    assert failure is not None
    assert failure.code == Code.MALFORMED_RESPONSE
    assert words in failure.message


def test_a_stream_has_a_bound_in_characters_of_text_and_arguments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chat, "MAX_STREAM_CHARS", 10)
    assembly = Assembly()
    assert assembly.add(text("12345")) is None
    assert assembly.add({"type": "tool_call_start", "id": "a" * 20, "name": "b" * 20}) is None
    assert assembly.add({"type": "tool_call_args_delta", "id": "a" * 20, "delta": "67890"}) is None
    failure = assembly.add(text("1"))
    assert failure is not None
    assert failure.code == Code.FRAME_TOO_LARGE


def test_a_stream_has_a_bound_in_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chat, "MAX_STREAM_CHUNKS", 2)
    assembly = Assembly()
    assert [assembly.add(text("")) for _ in range(2)] == [None, None]
    failure = assembly.add(text(""))
    assert failure is not None
    assert failure.code == Code.FRAME_TOO_LARGE
