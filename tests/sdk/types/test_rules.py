"""What is said about a value beyond its type."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from plugbay.sdk import Field
from plugbay.sdk.types.rules import RULES, Ruled, keywords
from plugbay.sdk.types.shapes import Array, Either, Integer, Names, Null, Number, Problems, Shape, String, Table


def broken(shape: Shape, value: Any) -> str:
    problems = Problems()
    shape.read(value, (None, "x"), problems)
    return str(problems)


ANYTHING = Shape()
ROWS: list[tuple[Shape, str, Any, Any, Any, str]] = [
    (Number(), "minimum", 1, 1, 0.5, "must be at least 1"),
    (Number(), "maximum", 1, 1, 1.5, "must be at most 1"),
    (Integer(), "exclusiveMinimum", 1, 2, 1, "must be more than 1"),
    (Integer(), "exclusiveMaximum", 1, 0, 1, "must be less than 1"),
    (Number(), "multipleOf", 0.1, 0.3, 0.35, "must be a multiple of 0.1"),
    (String(), "minLength", 2, "ab", "a", "must have at least 2 characters"),
    (String(), "maxLength", 2, "é🍵", "abc", "must have at most 2 characters"),
    (String(), "pattern", "^t.a$", "tea", "teas", "must match ^t.a$"),
    (Array(ANYTHING), "minItems", 1, [0], [], "must have at least 1 items"),
    (Array(ANYTHING), "maxItems", 1, [0], [0, 0], "must have at most 1 items"),
    (Table(ANYTHING), "minProperties", 1, {"a": 0}, {}, "must have at least 1 keys"),
    (Table(ANYTHING), "maxProperties", 1, {"a": 0}, {"a": 0, "b": 0}, "must have at most 1 keys"),
]


@pytest.mark.parametrize(("inner", "word", "limit", "good", "bad", "rule"), ROWS)
def test_every_rule_is_kept_or_named(inner: Shape, word: str, limit: Any, good: Any, bad: Any, rule: str) -> None:
    shape = Ruled(inner, {word: limit})
    assert (broken(shape, good), broken(shape, bad)) == ("", f"x: {rule}")
    assert shape.schema(Names()) == {**inner.schema(Names()), word: limit}


def test_every_rule_is_told_about() -> None:
    assert {word for _, word, *_ in ROWS} == set(RULES)


def test_a_rule_is_about_its_own_kind_of_values_only() -> None:
    shape = Ruled(Either([Integer(), Null()]), {"minimum": 1})
    assert (broken(shape, None), broken(shape, 1), broken(shape, 0)) == ("", "", "x: must be at least 1")
    assert broken(shape, "0") == "x: must be a whole number or null, not a string"


def test_all_rules_that_are_broken_are_named() -> None:
    assert broken(Ruled(Number(), {"minimum": 1, "multipleOf": 2}), -1) == (
        "x: must be at least 1; x: must be a multiple of 2"
    )


@pytest.mark.parametrize(
    ("marker", "kind", "said"),
    [
        ("what it is", "string", {"description": "what it is"}),
        ({"minimum": 1, "x-unit": "kg", 3: 4}, "number", {"minimum": 1, "x-unit": "kg"}),
        (Field("Days.", ge=1, le=7), "integer", {"description": "Days.", "minimum": 1, "maximum": 7}),
        (
            Field(gt=0, lt=1, multiple_of=0.5),
            "number",
            {"exclusiveMinimum": 0, "exclusiveMaximum": 1, "multipleOf": 0.5},
        ),
        (Field(min_length=1, max_length=2), "string", {"minLength": 1, "maxLength": 2}),
        (Field(min_length=1, max_length=2), "array", {"minItems": 1, "maxItems": 2}),
        (Field(min_length=1, max_length=2), "object", {"minProperties": 1, "maxProperties": 2}),
        (Field(min_length=1), "integer", {}),
        (Field(pattern="a", examples=["a"]), "string", {"pattern": "a", "examples": ["a"]}),
        (msgspec.Meta(ge=1, description="d", title="t"), "number", {"minimum": 1, "description": "d", "title": "t"}),
        (object(), "string", {}),
        (len, "string", {}),
    ],
)
def test_markers_say_it_in_many_ways(marker: Any, kind: str, said: dict[Any, Any]) -> None:
    assert keywords(marker, kind) == said


def test_what_is_written_is_what_the_inner_shape_writes() -> None:
    assert Ruled(Array(ANYTHING, set), {"maxItems": 2}).write({2, 1}) == [1, 2]
