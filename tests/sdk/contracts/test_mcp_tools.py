"""An author's tools as MCP has them: definitions, and what comes of a call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from plugbay.sdk.contracts.mcp_tools import Called, definition, promised
from plugbay.sdk.errors import Cancelled, ToolError
from plugbay.sdk.results import ToolResult
from plugbay.sdk.types.handlers import Tool
from tests.support.requirements import requirement

TEXT = {"type": "string"}
POINT = {"type": "object", "properties": {"x": {"type": "integer"}}}


def called(schema: dict[str, Any] | None = None, check: Callable[[], None] = lambda: None) -> Called:
    return Called(Tool("t", "", lambda: None, output_schema=schema), check)


def text(words: str) -> list[dict[str, str]]:
    return [{"type": "text", "text": words}]


@requirement("mcp:sdk-definitions")
def test_a_definition_has_schemas_and_hints_and_nothing_that_was_not_said() -> None:
    def look(city: str, days: int = 1) -> list[str]:
        return []

    assert definition("look", Tool("look", "Looks.", look, effect="read_only", output_schema=TEXT)) == {
        "name": "look",
        "description": "Looks.",
        "inputSchema": {
            "type": "object",
            "properties": {"city": TEXT, "days": {"type": "integer", "default": 1}},
            "required": ["city"],
            "additionalProperties": False,
        },
        "outputSchema": {"type": "object", "properties": {"result": TEXT}, "required": ["result"]},
        "annotations": {"readOnlyHint": True},
    }
    bare = definition("t", Tool("t", "", lambda: None, {"properties": {}}))
    assert bare == {"name": "t", "inputSchema": {"properties": {}, "type": "object"}}


@pytest.mark.parametrize(
    ("effect", "hints"),
    [
        ("read_only", {"readOnlyHint": True}),
        ("idempotent_write", {"readOnlyHint": False, "destructiveHint": False, "idempotentHint": True}),
        ("non_idempotent_write", {"readOnlyHint": False, "destructiveHint": True, "idempotentHint": False}),
        ("unknown", None),
    ],
)
@requirement("mcp:sdk-annotations")
def test_what_a_tool_does_to_the_world_becomes_hints(effect: str, hints: Any) -> None:
    assert definition("t", Tool("t", "", lambda: None, effect=effect)).get("annotations") == hints


def test_a_schema_of_something_else_than_an_object_is_one_of_an_object_around_it() -> None:
    assert promised(None) is None
    assert promised(POINT) is POINT
    shared = {"type": "array", "items": {"$ref": "#/$defs/P"}, "$defs": {"P": POINT}}
    assert promised(shared) == {
        "type": "object",
        "properties": {"result": {"type": "array", "items": {"$ref": "#/$defs/P"}}},
        "required": ["result"],
        "$defs": {"P": POINT},
    }


@pytest.mark.parametrize(
    ("value", "schema", "result"),
    [
        ("hi", None, {"content": text("hi")}),
        ("hi", TEXT, {"content": text("hi"), "structuredContent": {"result": "hi"}}),
        (None, None, {"content": []}),
        ({"x": 1}, None, {"content": text('{"x":1}'), "structuredContent": {"x": 1}}),
        ({"x": 1}, POINT, {"content": text('{"x":1}'), "structuredContent": {"x": 1}}),
        (
            {"x": 1},
            {"type": ["object", "null"]},
            {"content": text('{"result":{"x":1}}'), "structuredContent": {"result": {"x": 1}}},
        ),
        ([1, 2], None, {"content": text('{"result":[1,2]}'), "structuredContent": {"result": [1, 2]}}),
        (
            ToolResult(["a", {"type": "image"}], {"x": 1}, is_error=True),
            None,
            {
                "content": [{"type": "text", "text": "a"}, {"type": "image"}],
                "structuredContent": {"x": 1},
                "isError": True,
            },
        ),
        (ToolResult(structured_output={"x": 1}), None, {"content": text('{"x":1}'), "structuredContent": {"x": 1}}),
    ],
)
@requirement("mcp:sdk-results")
def test_what_a_tool_returns_becomes_content_and_structured_content(value: Any, schema: Any, result: Any) -> None:
    assert called(schema).whole(value) == result


@pytest.mark.parametrize(
    ("pieces", "result"),
    [
        (["a", "b"], {"content": text("ab")}),
        ([], {"content": []}),
        (["a", "b", {"type": "image"}], {"content": [*text("ab"), {"type": "image"}]}),
        ([1, {"x": 2}], {"content": text('{"result":[1,{"x":2}]}'), "structuredContent": {"result": [1, {"x": 2}]}}),
        (["a", ToolResult("all")], {"content": text("all")}),
    ],
)
@requirement("mcp:sdk-results")
def test_what_a_tool_yields_is_put_together(pieces: list[Any], result: Any) -> None:
    collector = called()
    for piece in pieces:
        collector.add(piece)
    assert collector.end() == result


def test_what_has_no_json_form_is_an_error_of_the_tool() -> None:
    with pytest.raises(ToolError, match="the result cannot be sent: at /x: nan has no JSON form"):
        called().whole({"x": float("nan")})


@pytest.mark.parametrize("value", ["\udc80", ToolResult([{"type": "image", "data": b"x"}])])
def test_content_that_has_no_json_form_is_one_too(value: Any) -> None:
    with pytest.raises(ToolError, match="the result cannot be sent"):
        called().whole(value)


def test_a_tool_that_yields_stops_when_it_is_cancelled() -> None:
    def check() -> None:
        raise Cancelled("enough")

    with pytest.raises(Cancelled, match="enough"):
        called(check=check).add("a")
