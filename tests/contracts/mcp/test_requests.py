"""What a client asks: operations into parameters and back."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plugbay.contracts.mcp import requests
from plugbay.contracts.mcp.messages import READS, READS_RAW
from plugbay.contracts.mcp.requests import InputRequired
from plugbay.model.errors import Code, Failure
from plugbay.model.operations import (
    CheckHealth,
    CompleteArgument,
    GetPrompt,
    InvokeTool,
    ReadResource,
    SetLogLevel,
    WatchResource,
)
from tests.support.codecs import CODECS
from tests.support.requirements import requirement

if TYPE_CHECKING:
    from plugbay.wire.strict_json import Codec

COMPLETION = {"ref": {"type": "ref/prompt", "name": "p"}, "argument": {"name": "a", "value": "v"}}


@requirement("mcp:wire-methods")
@pytest.mark.parametrize(
    ("op", "method", "params"),
    [
        (InvokeTool("t", {"a": [1]}), "tools/call", {"name": "t", "arguments": {"a": [1]}}),
        (InvokeTool("t", None), "tools/call", {"name": "t", "arguments": {}}),
        (ReadResource("note:a"), "resources/read", {"uri": "note:a"}),
        (GetPrompt("p", {"a": "x"}), "prompts/get", {"name": "p", "arguments": {"a": "x"}}),
        (CompleteArgument(COMPLETION), "completion/complete", COMPLETION),
        (WatchResource("note:a"), "resources/subscribe", {"uri": "note:a"}),
        (WatchResource("note:a", False), "resources/unsubscribe", {"uri": "note:a"}),
        (SetLogLevel("error"), "logging/setLevel", {"level": "error"}),
    ],
)
def test_an_operation_is_one_method_and_is_read_again(op: Any, method: str, params: Any, codec: Codec) -> None:
    written = requests.write_request(op, codec)
    assert not isinstance(written, Failure)
    assert (written[0], json.loads(b"{%b}" % written[1])) == (method, params)
    again = requests.read_request(method, params)
    assert again == (InvokeTool("t", {}, {}) if op == InvokeTool("t", None) else op)


def test_health_is_a_ping(codec: Codec) -> None:
    assert requests.write_request(CheckHealth(), codec) == ("ping", b"")


def test_arguments_go_out_as_they_were_encoded(codec: Codec) -> None:
    written = requests.write_request(InvokeTool("t", codec.dump({"a": 1})), codec)
    assert written == ("tools/call", b'"name":"t","arguments":{"a":1}')


def test_raw_arguments_with_line_breaks_are_put_on_one_line() -> None:
    codec = CODECS["msgspec"]()
    raw = type(codec.dump({}))(b'{\n "a": 1\n}')
    assert requests.write_request(InvokeTool("t", raw), codec) == ("tools/call", b'"name":"t","arguments":{"a":1}')


@pytest.mark.parametrize("given", [[], "x", 5, True, {"a": float("nan")}, {1: 2}, {"a": object()}])
def test_arguments_that_are_no_object_of_json_are_refused(given: Any, codec: Codec) -> None:
    failure = requests.write_request(InvokeTool("t", given), codec)
    assert isinstance(failure, Failure) and failure.code == Code.INVALID_INPUT


@requirement("mcp:wire-prompts")
def test_the_arguments_of_a_prompt_are_texts(codec: Codec) -> None:
    given = {"text": "x", "number": 5, "flag": True, "list": [1, "a"], "nothing": None}
    for op in (GetPrompt("p", given), GetPrompt("p", codec.dump(given))):
        written = requests.write_request(op, codec)
        assert not isinstance(written, Failure)
        arguments = json.loads(b"{%b}" % written[1])["arguments"]
        assert arguments == {"text": "x", "number": "5", "flag": "true", "list": '[1,"a"]'}


@requirement("mcp:wire-meta")
def test_what_a_client_says_beside_the_arguments_is_in_the_context() -> None:
    meta = {"progressToken": 1, "io.modelcontextprotocol/protocolVersion": "x", "com.example/a": 1}
    op = requests.read_request("tools/call", {"name": "t", "_meta": meta})
    assert isinstance(op, InvokeTool) and op.context == {"_meta": {"com.example/a": 1}}


@requirement("mcp:wire-invalid-params")
@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("tools/call", {}),
        ("tools/call", {"name": ""}),
        ("tools/call", {"name": 5}),
        ("tools/call", {"name": "t", "arguments": []}),
        ("resources/read", {"uri": None}),
        ("resources/read", {"uri": ""}),
        ("prompts/get", {"name": None}),
        ("prompts/get", {"name": "p", "arguments": "x"}),
        ("completion/complete", {"ref": {}}),
        ("completion/complete", {"ref": "x", "argument": {}}),
        ("resources/subscribe", {}),
        ("resources/unsubscribe", {"uri": 5}),
        ("logging/setLevel", {"level": "loud"}),
        ("logging/setLevel", {"level": []}),
    ],
)
def test_parameters_that_cannot_be_used_are_named(method: str, params: dict[str, Any]) -> None:
    assert isinstance(requests.read_request(method, params), str)


def test_a_method_that_nobody_knows_is_none() -> None:
    assert requests.read_request("tasks/list", {}) is None


def test_every_method_with_a_capability_can_be_read() -> None:
    assert all(isinstance(requests.read_request(method, {}), str) for method in requests.METHOD_CAPABILITIES)
    assert {requests.CAPABILITIES.get(op, "") for op in requests.SUPPORTS} <= {
        "",
        *requests.METHOD_CAPABILITIES.values(),
    }


TOOL = InvokeTool("t", {})
SERVER = {"name": "s", "version": "1"}
TEXT = {"content": [{"type": "text", "text": "hi"}]}


def outcome(
    codec: Codec, op: Any, message: Any, separators: tuple[str, str] = (",", ":")
) -> tuple[Any, Failure | None]:
    frame = json.dumps(message, separators=separators).encode()
    value, failure = requests.read_answer(op, "m", codec.decoder(READS, READS_RAW)(frame), frame, codec)
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
    _, failure = requests.read_answer(TOOL, "m", codec.decoder(READS, READS_RAW)(frame), frame, codec)
    assert failure is not None and failure.code == Code.PLUGIN_ERROR


def test_a_plain_result_is_not_read_again() -> None:
    codec = CODECS["msgspec"]()
    frame = json.dumps({"id": 1, "result": {**TEXT, "isError": False}}, separators=(",", ":")).encode()
    message = codec.decoder(READS, READS_RAW)(frame)
    assert requests.read_answer(TOOL, "m", message, frame, codec)[0] is message.result


@requirement("mcp:wire-result-type")
def test_above_the_machine_both_eras_look_the_same(codec: Codec) -> None:
    modern = requests.add_modern_fields(TEXT, SERVER, cacheable=True)
    assert modern["resultType"] == "complete"
    assert outcome(codec, TOOL, {"id": 1, "result": modern}) == (TEXT, None)
    with_meta = requests.add_modern_fields({**TEXT, "_meta": {"a/b": 1}}, SERVER)
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
    assert requests.build_result(TOOL, value, codec) == result
    assert requests.build_result(TOOL, codec.dump(value), codec) == result


def test_what_others_return_is_an_object(codec: Codec) -> None:
    assert requests.build_result(ReadResource("x"), {"contents": []}, codec) == {"contents": []}
    assert requests.build_result(ReadResource("x"), None, codec) == {}
    assert requests.build_result(SetLogLevel("info"), "anything", codec) == {}


@requirement("mcp:wire-caching")
def test_only_what_may_be_kept_says_for_how_long() -> None:
    assert requests.add_modern_fields({}, SERVER, cacheable=True)["ttlMs"] == 0
    assert "ttlMs" not in requests.add_modern_fields({}, SERVER)
    assert [requests.is_cacheable(op) for op in (ReadResource("x"), TOOL, GetPrompt("p", {}))] == [True, False, False]


@requirement("mcp:wire-result-type")
@given(st.dictionaries(st.text(max_size=5), st.integers(), max_size=4))
def test_what_is_added_is_taken_off_again(result: dict[str, Any]) -> None:
    plain = {key: value for key, value in result.items() if key not in (*requests.MODERN_FIELDS, "_meta")}
    assert requests.strip_modern_fields(requests.add_modern_fields(plain, SERVER, cacheable=True)) == plain


def test_progress_without_a_number_is_counted() -> None:
    assert requests.build_progress(3, "half") == {"progress": 3, "message": "half"}
    assert requests.build_progress(4, [1]) == {"progress": 4}
