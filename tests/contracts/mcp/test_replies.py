"""Answers: what is looked into, what is taken off, what is added."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plugbay.contracts.mcp import replies
from plugbay.contracts.mcp.messages import READS, READS_RAW
from plugbay.contracts.mcp.replies import InputRequired
from plugbay.model.errors import Code, Failure
from plugbay.model.operations import CheckHealth, CompleteArgument, GetPrompt, InvokeTool, ReadResource, SetLogLevel
from tests.support.codecs import CODECS
from tests.support.requirements import requirement

if TYPE_CHECKING:
    from plugbay.wire.strict_json import Codec

TOOL = InvokeTool("t", {})
SERVER = {"name": "s", "version": "1"}
TEXT = {"content": [{"type": "text", "text": "hi"}]}


def outcome(
    codec: Codec, op: Any, message: Any, separators: tuple[str, str] = (",", ":")
) -> tuple[Any, Failure | None]:
    frame = json.dumps(message, separators=separators).encode()
    value, failure = replies.outcome(op, "m", codec.decoder(READS, READS_RAW)(frame), frame, codec)
    plain = value is None or isinstance(value, InputRequired)
    return value if plain else codec.load(value), failure


@requirement("mcp:wire-result")
@pytest.mark.parametrize("op", [TOOL, ReadResource("a:b"), GetPrompt("p", {}), CompleteArgument({})])
def test_a_result_is_passed_on_whole(op: Any, codec: Codec) -> None:
    result = {**TEXT, "structuredContent": {"isError": True, "x": "é"}, "isError": False, "_meta": {"a/b": 1}}
    assert outcome(codec, op, {"id": 1, "result": result}) == (result, None)


@requirement("mcp:wire-is-error")
@pytest.mark.parametrize("separators", [(",", ":"), (", ", ": "), (" , ", " : ")])
def test_a_tools_error_is_seen_however_it_is_written(separators: tuple[str, str], codec: Codec) -> None:
    result = {**TEXT, "structuredContent": {"isError": False}, "isError": True}
    value, failure = outcome(codec, TOOL, {"id": 1, "result": result}, separators)
    assert value is None and failure is not None
    assert (failure.code, failure.message, failure.detail) == (Code.PLUGIN_ERROR, "hi", {"result": result})
    _, same = outcome(codec, ReadResource("x"), {"id": 1, "result": result}, separators)
    assert same is None  # only tools have such results


def test_a_tools_error_is_seen_behind_escapes(codec: Codec) -> None:
    frame = b'{"id":1,"result":{"content":[],"is\\u0045rror":true}}'
    _, failure = replies.outcome(TOOL, "m", codec.decoder(READS, READS_RAW)(frame), frame, codec)
    assert failure is not None and failure.code == Code.PLUGIN_ERROR


def test_a_plain_result_is_not_read_again() -> None:
    codec = CODECS["msgspec"]()
    frame = json.dumps({"id": 1, "result": {**TEXT, "isError": False}}, separators=(",", ":")).encode()
    message = codec.decoder(READS, READS_RAW)(frame)
    assert replies.outcome(TOOL, "m", message, frame, codec)[0] is message.result


@requirement("mcp:wire-result-type")
def test_above_the_machine_both_eras_look_the_same(codec: Codec) -> None:
    modern = replies.in_modern(TEXT, SERVER, cacheable=True)
    assert modern["resultType"] == "complete"
    assert outcome(codec, TOOL, {"id": 1, "result": modern}) == (TEXT, None)
    with_meta = replies.in_modern({**TEXT, "_meta": {"a/b": 1}}, SERVER)
    assert outcome(codec, TOOL, {"id": 1, "result": with_meta}) == ({**TEXT, "_meta": {"a/b": 1}}, None)


@requirement("mcp:wire-input-required")
def test_a_result_that_wants_input_is_told_apart(codec: Codec) -> None:
    result = {"resultType": "input_required", "inputRequests": {"a": {"method": "roots/list"}}, "requestState": "s"}
    value, failure = outcome(codec, TOOL, {"id": 1, "result": result})
    assert (value, failure) == (InputRequired({"a": {"method": "roots/list"}}, "s"), None)
    odd = {"resultType": "input_required", "inputRequests": [], "requestState": 5}
    assert outcome(codec, TOOL, {"id": 1, "result": odd})[0] == InputRequired({}, None)


@requirement("mcp:wire-result-type")
@pytest.mark.parametrize("kind", ["task", "", 5, [], {}])
def test_a_kind_of_result_that_nobody_asked_for_is_malformed(kind: Any, codec: Codec) -> None:
    _, failure = outcome(codec, TOOL, {"id": 1, "result": {"resultType": kind}})
    assert failure is not None and failure.code == Code.MALFORMED_RESPONSE


@pytest.mark.parametrize("result", [None, [], "x", 5, True])
def test_a_result_that_is_no_object_is_malformed(result: Any, codec: Codec) -> None:
    _, failure = outcome(codec, TOOL, {"id": 1, "result": result})
    assert failure is not None and failure.code == Code.MALFORMED_RESPONSE


def test_an_answer_with_neither_result_nor_error_is_malformed(codec: Codec) -> None:
    _, failure = outcome(codec, TOOL, {"id": 1})
    assert failure is not None and failure.code == Code.MALFORMED_RESPONSE


@pytest.mark.parametrize("op", [CheckHealth(), SetLogLevel("info")])
@pytest.mark.parametrize("result", [{}, None, {"x": 1}])
def test_where_nothing_is_answered_any_answer_will_do(op: Any, result: Any, codec: Codec) -> None:
    assert outcome(codec, op, {"id": 1, "result": result}) == (None, None)


# Answers we give.


@requirement("mcp:wire-tool-result")
@pytest.mark.parametrize(
    ("value", "result"),
    [
        ("hi", TEXT),
        (TEXT, TEXT),
        ({"content": [], "structuredContent": {}}, {"content": [], "structuredContent": {}}),
        ({"a": 1}, {"content": [{"type": "text", "text": '{"a":1}'}], "structuredContent": {"a": 1}}),
        ([1], {"content": [{"type": "text", "text": "[1]"}]}),
        (None, {"content": [{"type": "text", "text": "null"}]}),
        (
            {"content": "x"},
            {"content": [{"type": "text", "text": '{"content":"x"}'}], "structuredContent": {"content": "x"}},
        ),
        (
            {"content": [1]},
            {"content": [{"type": "text", "text": '{"content":[1]}'}], "structuredContent": {"content": [1]}},
        ),
    ],
)
def test_what_a_tool_returns_is_its_result(value: Any, result: Any, codec: Codec) -> None:
    assert replies.result(TOOL, value, codec) == result
    assert replies.result(TOOL, codec.dump(value), codec) == result


def test_what_others_return_is_an_object(codec: Codec) -> None:
    assert replies.result(ReadResource("x"), {"contents": []}, codec) == {"contents": []}
    assert replies.result(ReadResource("x"), None, codec) == {}
    assert replies.result(SetLogLevel("info"), "anything", codec) == {}


@requirement("mcp:wire-caching")
def test_only_what_may_be_kept_says_for_how_long() -> None:
    assert replies.in_modern({}, SERVER, cacheable=True)["ttlMs"] == 0
    assert "ttlMs" not in replies.in_modern({}, SERVER)
    assert [replies.is_cacheable(op) for op in (ReadResource("x"), TOOL, GetPrompt("p", {}))] == [True, False, False]


@requirement("mcp:wire-result-type")
@given(st.dictionaries(st.text(max_size=5), st.integers(), max_size=4))
def test_what_is_added_is_taken_off_again(result: dict[str, Any]) -> None:
    plain = {key: value for key, value in result.items() if key not in (*replies.ERA_FIELDS, "_meta")}
    assert replies.without_era(replies.in_modern(plain, SERVER, cacheable=True)) == plain


def test_progress_without_a_number_is_counted() -> None:
    assert replies.step(3, "half") == {"progress": 3, "message": "half"}
    assert replies.step(4, [1]) == {"progress": 4}
