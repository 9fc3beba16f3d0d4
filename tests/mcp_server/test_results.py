"""Tool results and progress as MCP clients read them."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from plugbay.mcp_server.results import LONGEST_MESSAGE, ProgressCounter, has_content, plain_value, tool_result
from plugbay.model.errors import Code, Failure, Origin
from plugbay.model.spec import Export
from tests.support.requirements import requirement


def result(value: Any, **export: Any) -> Any:
    given = tool_result(Export("tool", "t", **export), msgspec.Raw(json.dumps(value).encode()))
    return given if isinstance(given, Failure) else json.loads(msgspec.json.encode(given))


def text(value: str) -> dict[str, str]:
    return {"type": "text", "text": value}


@requirement("mcp:serve-results")
@pytest.mark.parametrize(
    ("value", "served"),
    [
        ({"a": 1}, {"content": [text('{"a": 1}')], "structuredContent": {"a": 1}}),
        ("hello", {"content": [text("hello")]}),
        (None, {"content": []}),
        ([1, 2], {"content": [text("[1, 2]")]}),
        (7, {"content": [text("7")]}),
    ],
)
def test_plain_json_is_text_and_an_object_is_structured_too(value: Any, served: Any) -> None:
    assert result(value) == served


def test_no_output_at_all_is_no_content() -> None:
    assert tool_result(Export("tool", "t"), None) == {"content": []}


@requirement("mcp:serve-results")
def test_a_tool_that_breaks_its_promise_of_an_object_fails() -> None:
    promised = {"output_schema": {"type": "object"}}
    assert "structuredContent" in result({}, **promised)
    failure = result("text", **promised)
    assert (failure.code, failure.origin) == (Code.MALFORMED_RESPONSE, Origin.PLUGIN)


VAI = {"facts": {"execution_class": "rpc"}}


@requirement("mcp:serve-results")
def test_what_vai_says_keeps_content_object_and_error_apart() -> None:
    said = {"content": [text("no")], "structured_output": {"why": 1}, "is_error": True, "retryable": False}
    assert result(said, **VAI) == {"content": [text("no")], "structuredContent": {"why": 1}, "isError": True}
    assert result({"content": [], "structured_output": None, "is_error": False}, **VAI) == {"content": []}
    assert result({"content": [], "structured_output": {"a": 1}}, **VAI) == {
        "content": [text('{"a":1}')],
        "structuredContent": {"a": 1},
    }


def test_content_of_vai_that_mcp_has_no_word_for_is_shown_as_json() -> None:
    picture = {"type": "image", "source": {"type": "base64", "data": "AAAA", "media_type": "image/png"}}
    linked = {"type": "image", "source": {"type": "url", "url": "https://example.com/a.png"}}
    assert result({"content": [picture, linked, {"type": "video"}, "bare", 3]}, **VAI)["content"] == [
        {"type": "image", "data": "AAAA", "mimeType": "image/png"},
        text('{"type":"image","source":{"type":"url","url":"https://example.com/a.png"}}'),
        text('{"type":"video"}'),
        text("bare"),
        text("3"),
    ]


@requirement("mcp:serve-unchanged")
def test_the_result_of_an_mcp_server_is_not_touched() -> None:
    raw = msgspec.Raw(b'{"content":[],  "x":1}')
    assert tool_result(Export("tool", "t", facts={"mcp": {"name": "t"}}), raw) is raw


@requirement("mcp:serve-progress")
def test_an_mcp_servers_progress_passes_as_it_is() -> None:
    steps = ProgressCounter()
    assert steps.next({"progress": 0.5, "total": 2, "message": "half"}) == {
        "progress": 0.5,
        "total": 2,
        "message": "half",
    }
    assert steps.next(msgspec.Raw(b'{"progress": 1}')) == {"progress": 1}


@requirement("mcp:serve-progress")
@pytest.mark.parametrize(
    ("item", "message"),
    [
        ("brewing", "brewing"),
        ({"type": "progress", "message": "brewing"}, "brewing"),
        ({"type": "output_delta", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}, "ab"),
        ({"delta": "word"}, "word"),
        ({"step": 3}, '{"step":3}'),
        ([1], "[1]"),
    ],
)
def test_everything_else_is_counted_and_shown(item: Any, message: str) -> None:
    assert ProgressCounter().next(item) == {"progress": 1, "message": message}


def test_the_count_grows_and_nothing_to_say_is_left_out() -> None:
    steps = ProgressCounter()
    assert [steps.next("")["progress"], steps.next("")["progress"]] == [1, 2]
    assert steps.next("") == {"progress": 3}


def test_a_long_piece_is_cut() -> None:
    assert len(ProgressCounter().next("x" * 10_000)["message"]) == LONGEST_MESSAGE


OF_MCP: dict[str, Any] = {"facts": {"mcp": {}}}
OF_VAI: dict[str, Any] = {"facts": {"execution_class": "worker"}}
IMAGE = {"type": "image", "data": "AA==", "mimeType": "image/png"}


@pytest.mark.parametrize(
    ("value", "export", "plain"),
    [
        ({"a": 1}, {}, {"a": 1}),
        ("hello", {}, "hello"),
        ({"content": [text("said")], "structuredContent": {"a": 1}}, OF_MCP, {"a": 1}),
        ({"content": [text("one"), text("two")]}, OF_MCP, "one\ntwo"),
        ({"content": []}, OF_MCP, ""),
        ({"content": [text("see"), IMAGE]}, OF_MCP, {"content": [text("see"), IMAGE]}),
        ({"content": [text("said")], "structured_output": {"b": 2}}, OF_VAI, {"b": 2}),
        ({"content": [text("said")], "structured_output": None}, OF_VAI, "said"),
    ],
)
def test_a_result_is_one_value_for_contracts_without_content(value: Any, export: dict[str, Any], plain: Any) -> None:
    made = Export("tool", "t", **export)
    given = plain_value(made, msgspec.Raw(json.dumps(value).encode()))
    assert json.loads(msgspec.json.encode(given)) == plain
    assert has_content(made) == bool(export)


def test_the_output_of_a_command_line_is_text() -> None:
    raw = msgspec.Raw(msgspec.json.encode({"stdout": b"out", "stderr": b"\xff", "exit_code": 3}))
    command = Export("cli_namespace", "notes")
    told = {"stdout": "out", "stderr": "\ufffd", "exit_code": 3}
    assert msgspec.json.decode(plain_value(command, raw)) == told
    shaped = tool_result(command, raw)
    assert msgspec.json.decode(shaped["structuredContent"]) == told
    assert plain_value(Export("tool", "t"), None) == msgspec.Raw(b"null")
