"""The input a tool is called with when nobody gave one."""

from __future__ import annotations

from typing import Any

import jsonschema_rs
import pytest

from plugbay.conformance.engine.inputs import FORMATS, free_string, has_example, input_for, may_be_called
from plugbay.model.spec import Export


def tool(schema: Any = None, **facts: Any) -> Export:
    return Export("tool", "example.tool", input_schema=schema, facts=facts)


def required(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(properties)}


LEAST: list[tuple[Any, Any]] = [
    (None, {}),
    (True, {}),
    ({}, {}),
    ({"type": "object"}, {}),
    ({"examples": [{"a": 1}, {"a": 2}], "type": "object"}, {"a": 1}),
    ({"examples": [], "type": "string"}, "text"),
    ({"type": "object", "properties": {"a": {"type": "string"}}}, {}),
    (required(a={"type": "string"}), {"a": "text"}),
    (required(a={"type": "string", "minLength": 6}), {"a": "textxx"}),
    (required(a={"enum": ["x", "y"]}), {"a": "x"}),
    (required(a={"const": 7}), {"a": 7}),
    (required(a={"default": 3, "type": "integer"}), {"a": 3}),
    (required(a={"type": "integer"}, b={"type": "number"}), {"a": 1, "b": 1}),
    (required(a={"type": "integer", "minimum": 5}), {"a": 5}),
    (required(a={"type": "integer", "exclusiveMinimum": 5}), {"a": 6}),
    (required(a={"type": "number", "maximum": -2}), {"a": -2}),
    (required(a={"type": "number", "exclusiveMaximum": 0}), {"a": -0.5}),
    (required(a={"type": "boolean"}, b={"type": "null"}), {"a": False, "b": None}),
    (required(a={"type": ["string", "null"]}), {"a": "text"}),
    (required(a={"type": "array", "items": {"type": "integer"}}), {"a": []}),
    (required(a={"type": "array", "items": {"type": "integer"}, "minItems": 2}), {"a": [1, 1]}),
    (required(a=required(b={"type": "string"})), {"a": {"b": "text"}}),
    (required(a={"anyOf": [{"type": "string"}, {"type": "integer"}]}), {"a": "text"}),
    (required(a={"oneOf": [{"type": "integer"}]}), {"a": 1}),
    ({"allOf": [required(a={"type": "string"}), required(b={"type": "integer"})]}, {"a": "text", "b": 1}),
    ({"$defs": {"x": {"type": "integer"}}, **required(a={"$ref": "#/$defs/x"})}, {"a": 1}),
    ({"$defs": {"a/b": {"const": 1}}, **required(a={"$ref": "#/$defs/a~1b"})}, {"a": 1}),
    (required(a={"$ref": "https://example.org/x.json"}), {"a": {}}),
]


@pytest.mark.parametrize(("schema", "expected"), LEAST, ids=map(str, range(len(LEAST))))
def test_the_input_is_an_example_or_the_least_the_schema_asks_for(schema: Any, expected: Any) -> None:
    assert input_for(tool(schema)) == expected


@pytest.mark.parametrize(
    "schema", [schema for schema, _ in LEAST if isinstance(schema, dict) and "https" not in str(schema)]
)
def test_what_is_guessed_fits_its_schema(schema: Any) -> None:
    if schema.get("examples") != [{"a": 1}, {"a": 2}]:
        assert jsonschema_rs.is_valid(schema, input_for(tool(schema)))


@pytest.mark.parametrize("name", sorted(FORMATS))
def test_a_format_has_a_value_of_that_format(name: str) -> None:
    schema = required(a={"type": "string", "format": name})
    assert jsonschema_rs.is_valid(schema, input_for(tool(schema)), validate_formats=True)


def test_a_schema_that_contains_itself_ends() -> None:
    schema = {"$defs": {"x": required(a={"$ref": "#/$defs/x"})}, "$ref": "#/$defs/x"}
    assert str(input_for(tool(schema))).count("{") < 20
    assert input_for(tool({"$ref": "#"})) == {}


@pytest.mark.parametrize(
    ("schema", "name"),
    [
        (None, "text"),
        ({"type": "object"}, "text"),
        ({"type": "object", "additionalProperties": False}, None),
        ({"type": "array"}, None),
        ({"oneOf": [{"type": "object"}]}, None),
        ({"properties": {"a": {"type": "integer"}}}, None),
        ({"properties": {"a": {"type": "string"}, "b": {"type": "string"}}, "required": ["b"]}, "b"),
        ({"properties": {"a": {"type": "string", "enum": ["x"]}, "b": {"type": "string"}}}, "b"),
        ({"properties": {"a": {"type": "string", "maxLength": 9}}}, None),
    ],
)
def test_a_property_for_any_text_is_found_where_there_is_one(schema: Any, name: str | None) -> None:
    assert free_string(tool(schema)) == name


@pytest.mark.parametrize(
    ("facts", "called"),
    [
        ({}, True),
        ({"mutating": False, "approval_tier": "moderate"}, True),
        ({"mutating": True}, False),
        ({"approval_tier": "dangerous"}, False),
        ({"approval_tier": "destructive"}, False),
        ({"effect_class": "read_only"}, True),
        ({"effect_class": "idempotent_write"}, False),
        ({"effect_class": "unknown"}, False),
    ],
)
def test_a_tool_that_changes_things_needs_an_example(facts: dict[str, Any], called: bool) -> None:
    assert may_be_called(tool({}, **facts)) is called
    assert may_be_called(tool({"examples": [{}]}, **facts))
    assert not has_example(tool({}, **facts))
