"""What a JSON value must look like, and how it becomes what an author wants. The schema says the same as the check."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jsonschema_rs
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from plugbay.sdk import Field
from plugbay.sdk.types.records import Member, Record
from plugbay.sdk.types.shapes import (
    ANYTHING,
    MAX_OPTIONS,
    MAX_PROBLEMS,
    RULES,
    Array,
    Boolean,
    Choice,
    Constrained,
    Definitions,
    Either,
    Fixed,
    Integer,
    Null,
    Number,
    Problems,
    Shape,
    String,
    Table,
    keywords,
    kinds,
    path,
    whole_schema,
)


def read(shape: Shape, value: Any) -> Any:
    """The value that was made, or what is wrong."""
    problems = Problems()
    made = shape.read(value, (None, "x"), problems)
    return str(problems) if problems.count else made


def literal(*values: Any) -> Choice:
    return Choice([(value, value) for value in values])


@pytest.mark.parametrize(
    ("shape", "value", "made"),
    [
        (ANYTHING, {"a": [1]}, {"a": [1]}),
        (String(), "é", "é"),
        (Boolean(), False, False),
        (Null(), None, None),
        (Integer(), 3.0, 3),
        (Number(), 3, 3),
        (Number(), 3.0, 3.0),
        (Array(Integer()), [1, 2.0], [1, 2]),
        (Array(Integer(), tuple), [1], (1,)),
        (Array(String(), frozenset), ["b", "a"], frozenset("ab")),
        (Fixed([Integer(), String()]), [1, "a"], (1, "a")),
        (Fixed([]), [], ()),
        (Table(Number()), {"a b": 1}, {"a b": 1.0}),
        (literal("a", 1, None), None, None),
        (Choice([("red", 7)]), "red", 7),
        (Either([Integer(), String()]), "3", "3"),
        (Either([Array(Integer()), Array(String())]), ["a"], ["a"]),
    ],
)
def test_a_value_that_fits_becomes_what_it_should_be(shape: Shape, value: Any, made: Any) -> None:
    result = read(shape, value)
    assert (result, type(result)) == (made, type(made))


@pytest.mark.parametrize(
    ("shape", "value", "told"),
    [
        (String(), 1, "x: must be a string, not a number"),
        (Boolean(), 0, "x: must be true or false, not a number"),
        (Null(), False, "x: must be null, not true or false"),
        (Integer(), True, "x: must be a whole number, not true or false"),
        (Integer(), 3.5, "x: must be a whole number, not a number"),
        (Number(), "3", "x: must be a number, not a string"),
        (Number(), object(), "x: must be a number, not object"),
        (Array(Integer()), {}, "x: must be a list, not an object"),
        (
            Array(Integer()),
            [1, None, "a"],
            "x[1]: must be a whole number, not null; x[2]: must be a whole number, not a string",
        ),
        (Array(Integer(), set), [1, 1.0], "x: must not contain an item twice"),
        (Array(ANYTHING, set), [[]], "x: cannot be a set: unhashable type: 'list'"),
        (Fixed([Integer()]), [1, 2], "x: must have 1 items, not 2"),
        (Fixed([Integer()]), ["a"], "x[0]: must be a whole number, not a string"),
        (Table(Integer()), {"a b": "c"}, "x['a b']: must be a whole number, not a string"),
        (literal("a", "b"), "c", 'x: must be "a" or "b", not "c"'),
        (literal(True, 2, None), 1, "x: must be true or 2 or null, not a number"),
        (literal("a"), "b" * 41, 'x: must be "a", not a string'),
        (Either([Integer(), String()]), [], "x: must be a whole number or a string, not a list"),
        (Either([Array(Integer()), Null()]), ["a"], "x[0]: must be a whole number, not a string"),
    ],
)
def test_a_value_that_does_not_fit_is_told_with_its_place_and_its_rule(shape: Shape, value: Any, told: str) -> None:
    assert read(shape, value) == told


def test_of_many_options_the_first_are_listed() -> None:
    assert read(literal(*range(100)), "a").count(" or ") == MAX_OPTIONS


def test_a_place_is_written_as_people_write_it() -> None:
    assert path(None) == "input"
    assert path((((None, "items"), 2), "price")) == "items[2].price"
    assert path(((None, 0), "a.b")) == "[0]['a.b']"


def test_what_is_wrong_is_told_up_to_a_bound() -> None:
    problems = Problems()
    Array(Integer()).read(["a"] * 100, None, problems)
    assert (len(problems.found), problems.count, len(problems.told())) == (MAX_PROBLEMS, 100, MAX_PROBLEMS)
    assert str(problems).endswith(f"[{MAX_PROBLEMS - 1}]: must be a whole number, not a string; and 88 more")


def test_of_shapes_with_a_tag_the_one_that_was_meant_is_told_about() -> None:
    def tagged(kind: str, name: str) -> Record:
        record = Record(kind)
        record.fields = {"kind": Member("kind", literal(kind)), name: Member(name, Number())}
        return record

    shape = Either([tagged("circle", "radius"), tagged("square", "side")])
    assert read(shape, {"kind": "square", "side": 2}) == {"kind": "square", "side": 2.0}
    assert read(shape, {"kind": "square", "side": "2"}) == "x.side: must be a number, not a string"


# Writing.


def test_a_value_is_written_as_json_where_json_has_no_form_for_it() -> None:
    assert Array(ANYTHING, set).write({"b", "a"}) == ["a", "b"]
    assert sorted(map(str, Array(ANYTHING, set).write({1, "a"}))) == ["1", "a"]
    assert Table(Array(ANYTHING, frozenset)).write({"a": frozenset((2, 1))}) == {"a": [1, 2]}
    assert Fixed([Array(ANYTHING, set), ANYTHING]).write(({1}, 2)) == [[1], 2]
    member = object()
    assert Choice([("red", member)], converts=True).write(member) == "red"
    assert Either([Null(), Choice([("red", member)], converts=True)]).write(member) == "red"


@pytest.mark.parametrize(
    "shape", [Array(Array(ANYTHING, set)), Table(Array(ANYTHING, set)), Fixed([ANYTHING]), literal(1)]
)
def test_what_is_of_another_shape_is_left_as_it_is(shape: Shape) -> None:
    value = object()
    assert shape.write(value) is value


def test_nothing_is_copied_that_is_json_already() -> None:
    value = {"a": [1]}
    assert Table(Array(Integer())).write(value) is value


# The schema and the check say the same.

SCALARS: list[Callable[[], Shape]] = [Shape, String, Boolean, Null, Integer, Number]

CHOICES = st.lists(st.sampled_from(["a", "b", 1, 2, True, None]), min_size=1, max_size=3, unique_by=repr)


def record(members: Sequence[tuple[str, Shape, bool]]) -> Record:
    made = Record("R")
    made.fields = {name: Member(name, shape, required=required) for name, shape, required in members}
    return made


def containers(inner: st.SearchStrategy[Shape]) -> st.SearchStrategy[Shape]:
    member = st.tuples(st.sampled_from("abc"), inner, st.booleans())
    return st.one_of(
        inner.map(Array),
        inner.map(Table),
        st.lists(inner, max_size=2).map(Fixed),
        st.lists(inner, min_size=1, max_size=3).map(Either),
        st.lists(member, max_size=3).map(record),
    )


SHAPES = st.recursive(
    st.one_of(st.sampled_from(SCALARS).map(lambda make: make()), CHOICES.map(lambda values: literal(*values))),
    containers,
    max_leaves=6,
)

LEAVES = st.one_of(
    st.none(), st.booleans(), st.integers(-3, 3), st.sampled_from([0.5, 1.0, 2.0]), st.sampled_from("abz")
)

VALUES = st.recursive(
    LEAVES,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.sampled_from("abcz"), inner, max_size=3)),
    max_leaves=6,
)


@given(SHAPES, VALUES)
def test_a_value_is_taken_exactly_when_its_schema_allows_it(shape: Shape, value: Any) -> None:
    problems = Problems()
    shape.read(value, None, problems)
    valid = jsonschema_rs.validator_for(whole_schema(shape)).is_valid(value)
    assert (problems.count == 0) == valid, str(problems)


@given(VALUES)
def test_every_json_value_is_of_a_kind(value: Any) -> None:
    assert kinds(value)
    assert ANYTHING.schema(Definitions()) == {}


def broken(shape: Shape, value: Any) -> str:
    problems = Problems()
    shape.read(value, (None, "x"), problems)
    return str(problems)


ANY_SHAPE = Shape()

RULE_ROWS: list[tuple[Shape, str, Any, Any, Any, str]] = [
    (Number(), "minimum", 1, 1, 0.5, "must be at least 1"),
    (Number(), "maximum", 1, 1, 1.5, "must be at most 1"),
    (Integer(), "exclusiveMinimum", 1, 2, 1, "must be more than 1"),
    (Integer(), "exclusiveMaximum", 1, 0, 1, "must be less than 1"),
    (Number(), "multipleOf", 0.1, 0.3, 0.35, "must be a multiple of 0.1"),
    (String(), "minLength", 2, "ab", "a", "must have at least 2 characters"),
    (String(), "maxLength", 2, "é🍵", "abc", "must have at most 2 characters"),
    (String(), "pattern", "^t.a$", "tea", "teas", "must match ^t.a$"),
    (Array(ANY_SHAPE), "minItems", 1, [0], [], "must have at least 1 items"),
    (Array(ANY_SHAPE), "maxItems", 1, [0], [0, 0], "must have at most 1 items"),
    (Table(ANY_SHAPE), "minProperties", 1, {"a": 0}, {}, "must have at least 1 keys"),
    (Table(ANY_SHAPE), "maxProperties", 1, {"a": 0}, {"a": 0, "b": 0}, "must have at most 1 keys"),
]


@pytest.mark.parametrize(("inner", "word", "limit", "good", "bad", "rule"), RULE_ROWS)
def test_every_rule_is_kept_or_named(inner: Shape, word: str, limit: Any, good: Any, bad: Any, rule: str) -> None:
    shape = Constrained(inner, {word: limit})
    assert (broken(shape, good), broken(shape, bad)) == ("", f"x: {rule}")
    assert shape.schema(Definitions()) == {**inner.schema(Definitions()), word: limit}


def test_every_rule_is_told_about() -> None:
    assert {word for _, word, *_ in RULE_ROWS} == set(RULES)


def test_a_rule_is_about_its_own_kind_of_values_only() -> None:
    shape = Constrained(Either([Integer(), Null()]), {"minimum": 1})
    assert (broken(shape, None), broken(shape, 1), broken(shape, 0)) == ("", "", "x: must be at least 1")
    assert broken(shape, "0") == "x: must be a whole number or null, not a string"


def test_all_rules_that_are_broken_are_named() -> None:
    assert broken(Constrained(Number(), {"minimum": 1, "multipleOf": 2}), -1) == (
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
    assert Constrained(Array(ANY_SHAPE, set), {"maxItems": 2}).write({2, 1}) == [1, 2]
