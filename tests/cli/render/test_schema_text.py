"""A schema fits on one line, and an example of it is likely to be valid."""

from __future__ import annotations

import json
from typing import Any

import jsonschema_rs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from plugbay.cli.render.schema_text import example, summary

OBJECT = {"type": "object"}


@pytest.mark.parametrize(
    ("schema", "text"),
    [
        (None, "anything"),
        (True, "anything"),
        ({}, "anything"),
        (False, "nothing"),
        (7, "…"),
        (OBJECT, "an object with any keys"),
        ({"type": "string"}, "string"),
        ({**OBJECT, "properties": {"city": {"type": "string"}}, "required": ["city"]}, "city: string"),
        ({"properties": {"days": {"type": "integer", "default": 3}}}, "days?: integer = 3"),
        ({"properties": {"n": {"type": "integer", "minimum": 1, "maximum": 9}}}, "n?: integer 1..9"),
        ({"properties": {"n": {"type": "number", "minimum": 0}}}, "n?: number ≥ 0"),
        ({"properties": {"n": {"type": "number", "maximum": 5}}}, "n?: number ≤ 5"),
        ({"properties": {"unit": {"enum": ["C", "F"]}}}, 'unit?: "C" | "F"'),
        ({"properties": {"v": {"const": 2}}}, "v?: 2"),
        ({"properties": {"tags": {"type": "array", "items": {"type": "string"}}}}, "tags?: string[]"),
        ({"properties": {"any": {"type": "array"}}}, "any?: any[]"),
        ({"properties": {"x": {"type": ["string", "null"]}}}, "x?: string | null"),
        (
            {"properties": {"x": {"type": "array", "items": {"type": ["string", "null"]}}}},
            "x?: (string | null)[]",
        ),
        ({"properties": {"x": {"anyOf": [{"type": "string"}, {"type": "integer"}]}}}, "x?: string | integer"),
        ({"properties": {"at": {"properties": {"lat": {"type": "number"}}}}}, "at?: {lat?: number}"),
        ({"properties": {"a": {"properties": {"b": {"properties": {"c": {}}}}}}}, "a?: {b?: {…}}"),
        ({"properties": {"r": {"$ref": "#/x"}}}, "r?: …"),
        ({"properties": {"e": {"enum": list(range(9))}}}, "e?: 0 | 1 | 2 | 3 | 4 | 5 | …"),
    ],
)
def test_a_schema_is_one_line(schema: Any, text: str) -> None:
    assert summary(schema) == text


def test_a_schema_with_many_keys_is_cut() -> None:
    text = summary({"properties": {f"k{number}": {"type": "null"} for number in range(11)}})
    assert text.endswith("k7?: null, … 3 more")


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        (None, {}),
        (OBJECT, {}),
        ({**OBJECT, "properties": {"a": {"type": "string"}, "b": {}}, "required": ["a"]}, {"a": "…"}),
        ({"properties": {"n": {"type": "integer", "minimum": 5}}, "required": ["n"]}, {"n": 5}),
        ({"properties": {"u": {"enum": ["C", "F"]}}, "required": ["u"]}, {"u": "C"}),
        ({"properties": {"d": {"type": "integer", "default": 3}}, "required": ["d"]}, {"d": 3}),
        ({"properties": {"l": {"type": "array"}, "o": OBJECT}, "required": ["l", "o"]}, {"l": [], "o": {}}),
        ({"type": "string", "examples": ["Lima"]}, "Lima"),
    ],
)
def test_an_example_has_every_required_key(schema: Any, value: Any) -> None:
    assert json.loads(example(schema)) == value
    assert schema is None or jsonschema_rs.is_valid(schema, value)


WORDS = st.sampled_from(
    "type properties required items enum const anyOf oneOf default minimum object array string".split()
)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5) | WORDS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(WORDS | st.text(max_size=3), inner, max_size=4),
)


@given(VALUES)
def test_no_schema_is_an_error(schema: Any) -> None:
    assert isinstance(summary(schema), str)
    json.loads(example(schema))
