"""The shapes of answers: held to when they come, given to when they go."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest

from plugbay.contracts.nexo import messages, replies
from plugbay.model.errors import Code, Failure
from plugbay.model.operations import (
    Chat,
    CompleteChat,
    DeleteVectors,
    InvokeTool,
    Publish,
    RecallMemory,
    RunHook,
    SearchVectors,
    SendOutbound,
    Shutdown,
    StartChannel,
    StopChannel,
    UpsertVectors,
)
from plugbay.wire.fast_json import MsgspecCodec
from tests.contracts.nexo.talk import line
from tests.support.requirements import requirement

METHODS = {method.op: method for method in (*messages.TO_CHILD, *messages.TO_HOST)}
CODEC = MsgspecCodec()
DECODE = CODEC.decoder(messages.READS, messages.READS_RAW)


def outcome(op: type, message: Any) -> tuple[Any, Failure | None]:
    data = line({"id": 1, **message})
    return replies.outcome(METHODS[op], DECODE(data), data, CODEC.load)


USAGE = {"prompt_tokens": 12, "completion_tokens": 4}
TEXT = {"type": "text", "text": "Hello world"}
CHAT = {"content": TEXT, "usage": USAGE, "finish_reason": {"kind": "stop"}}
CALLS = {"type": "tool_calls", "tool_calls": [{"id": "1", "name": "f", "arguments": {}}]}

GOOD: list[tuple[type, Any]] = [
    (InvokeTool, None),
    (InvokeTool, 5),
    (InvokeTool, {"content": [{"type": "text", "text": "x"}], "is_error": False}),
    (StartChannel, {"ok": True}),
    (StartChannel, None),
    (StopChannel, "whatever"),
    (SendOutbound, {"message_id": "1234.5678", "sent_at_unix": 1741032000}),
    (UpsertVectors, {"count": 1}),
    (DeleteVectors, {"count": 0, "extra": 1}),
    (SearchVectors, {"matches": []}),
    (SearchVectors, {"matches": [{"id": "r1", "content": "hello", "score": 0.97, "metadata": {}}]}),
    (RunHook, {}),
    (RunHook, {"abort": True, "reason": "PII detected", "decision": "block"}),
    (Chat, CHAT),
    (Chat, {**CHAT, "content": CALLS}),
    (Chat, {**CHAT, "content": {"type": "text", "text": ""}}),
    (Chat, {**CHAT, "finish_reason": {"kind": "other", "reason": "filtered"}}),
    (Chat, {**CHAT, "cache_usage": {"input_tokens": 1}}),
    (Chat, {**CHAT, "cache_usage": None}),
]
BAD: list[tuple[type, Any]] = [
    *product((SendOutbound, UpsertVectors, SearchVectors, RunHook, Chat), (None, 1, "x")),
    (SendOutbound, []),
    (RunHook, []),
    (SendOutbound, {"message_id": "1"}),
    (SendOutbound, {"message_id": 1, "sent_at_unix": 1}),
    (SendOutbound, {"message_id": "1", "sent_at_unix": "now"}),
    (SendOutbound, {"message_id": "1", "sent_at_unix": True}),
    (UpsertVectors, {"count": 1.0}),
    (DeleteVectors, {"count": None}),
    (SearchVectors, {"matches": None}),
    (SearchVectors, {"matches": ["r1"]}),
    (Chat, {**CHAT, "content": "Hello"}),
    (Chat, {**CHAT, "content": {"type": "text"}}),
    (Chat, {**CHAT, "content": {"type": "image"}}),
    (Chat, {**CHAT, "content": {"type": "tool_calls", "tool_calls": [{"id": "1", "name": "f"}]}}),
    (Chat, {**CHAT, "content": {"type": "tool_calls", "tool_calls": None}}),
    (Chat, {**CHAT, "usage": None}),
    (Chat, {**CHAT, "usage": {"prompt_tokens": 1}}),
    (Chat, {**CHAT, "finish_reason": "stop"}),
    (Chat, {**CHAT, "finish_reason": {"kind": "other"}}),
    (Chat, {**CHAT, "finish_reason": {"kind": "tired"}}),
    (Chat, {**CHAT, "cache_usage": 1}),
]


def named(rows: list[tuple[type, Any]]) -> list[str]:
    return [f"{op.__name__}-{result}" for op, result in rows]


@requirement("nexo:wire-results")
@pytest.mark.parametrize(("op", "result"), GOOD, ids=named(GOOD))
def test_a_good_answer_reaches_the_host_unread(op: type, result: Any) -> None:
    value, failure = outcome(op, {"result": result})
    assert failure is None
    assert CODEC.load(value) == result


@requirement("nexo:wire-results")
@pytest.mark.parametrize(("op", "result"), BAD, ids=named(BAD))
def test_an_answer_of_the_wrong_shape_is_malformed_and_quoted(op: type, result: Any) -> None:
    value, failure = outcome(op, {"result": result})
    assert value is None
    assert failure is not None
    assert failure.code == Code.MALFORMED_RESPONSE
    assert '"result"' in failure.detail["line"]


@pytest.mark.parametrize("error", [None, {}, "no", {"code": -33405, "message": "no"}], ids=str)
def test_an_answer_with_both_a_result_and_an_error_failed(error: Any) -> None:
    _, failure = outcome(InvokeTool, {"result": 1, "error": error})
    assert failure is not None
    assert failure.code == Code.MALFORMED_RESPONSE
    assert "both" in failure.message
    if error and "code" in error:
        assert failure.detail["plugin_code"] == -33405


def test_an_answer_with_neither_a_result_nor_an_error_failed() -> None:
    _, failure = outcome(InvokeTool, {})
    assert failure is not None
    assert (failure.code, "neither" in failure.message) == (Code.MALFORMED_RESPONSE, True)


# What a plugin gets.

SPARSE = {"id": "1", "agent_id": "a", "content": "c"}
FULL = {**SPARSE, "tags": ["x"], "concept_tags": ["y"], "created_at": "2026-04-30T18:22:31Z", "memory_type": "fact"}


@requirement("nexo:wire-recall-entries")
def test_a_plugin_gets_whole_memory_entries_even_from_a_host_that_leaves_some_out() -> None:
    missing: dict[str, Any] = {"tags": [], "concept_tags": [], "created_at": None, "memory_type": None}
    value, failure = outcome(RecallMemory, {"result": {"entries": [SPARSE, FULL]}})
    assert (value, failure) == ([{**SPARSE, **missing}, FULL], None)


def test_a_plugin_gets_a_completion_whose_text_was_streamed_with_no_content() -> None:
    streamed = {"finish_reason": "stop", "usage": USAGE}
    assert outcome(CompleteChat, {"result": streamed}) == ({"content": None, **streamed}, None)
    assert outcome(CompleteChat, {"result": {"content": "x", **streamed}}) == ({"content": "x", **streamed}, None)
    assert outcome(Publish, {"result": {"ok": True}}) == ({"ok": True}, None)


@pytest.mark.parametrize(
    ("op", "result"),
    [(RecallMemory, None), (RecallMemory, {}), (RecallMemory, {"entries": [1]}), (CompleteChat, "text")],
)
def test_an_answer_a_plugin_cannot_use_is_malformed(op: type, result: Any) -> None:
    _, failure = outcome(op, {"result": result})
    assert failure is not None
    assert failure.code == Code.MALFORMED_RESPONSE


# What is given.


def shaped(op: type, value: Any, *, stream: bool = False, said: bool = False) -> Any:
    return replies.shaped(op, value, stream, said)


@pytest.mark.parametrize("op", [StartChannel, StopChannel, Shutdown, Publish])
def test_what_only_needs_to_be_acknowledged_is(op: type) -> None:
    assert shaped(op, "anything") == {"ok": True}


@pytest.mark.parametrize("op", [InvokeTool, SendOutbound, Chat, RunHook, UpsertVectors, SearchVectors, DeleteVectors])
def test_the_other_results_of_a_plugin_go_out_as_they_are(op: type) -> None:
    value = {"count": 1}
    assert shaped(op, value) is value


ANSWER = {"content": "Hi.", "finish_reason": "length", "usage": USAGE, "tool_calls": []}


@requirement("nexo:wire-complete-result")
def test_a_completion_has_its_text_unless_it_was_streamed() -> None:
    assert shaped(CompleteChat, ANSWER) == {"content": "Hi.", "finish_reason": "length", "usage": USAGE}
    assert shaped(CompleteChat, ANSWER, stream=True) == {"finish_reason": "length", "usage": USAGE}
    none = {"prompt_tokens": 0, "completion_tokens": 0}
    assert shaped(CompleteChat, {}) == {"content": "", "finish_reason": "stop", "usage": none}
    assert shaped(CompleteChat, {}, stream=True) == {"finish_reason": "other:stream-no-end", "usage": none}


@requirement("nexo:wire-complete-tool-calls")
@pytest.mark.parametrize("stream", [False, True])
def test_a_completion_of_tool_calls_alone_is_not_implemented(stream: bool) -> None:
    only = {**ANSWER, "content": None, "tool_calls": [{"id": "1"}]}
    failure = shaped(CompleteChat, only, stream=stream)
    assert isinstance(failure, Failure)
    assert failure.code == Code.NOT_FOUND
    assert not isinstance(shaped(CompleteChat, {**only, "content": "text"}, stream=stream), Failure)


def test_a_stream_that_said_some_text_may_end_with_tool_calls() -> None:
    ending = shaped(CompleteChat, {**ANSWER, "content": None, "tool_calls": [{}]}, stream=True, said=True)
    assert ending == {"finish_reason": "length", "usage": USAGE}


def test_recalled_entries_are_wrapped_and_a_completion_must_be_an_object() -> None:
    assert shaped(RecallMemory, [SPARSE]) == {"entries": [SPARSE]}
    assert isinstance(shaped(CompleteChat, "text"), Failure)
