"""Schemas of strangers: compiled offline, linear patterns, clear refusals."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plugbay.contracts.schemas import MAX_WAYS, Preview, compile_schema, schema_problem, size_problem


def test_a_schema_becomes_a_validator_that_names_path_and_rule() -> None:
    validator = compile_schema({"type": "object", "properties": {"n": {"type": "integer"}}})
    assert validator.is_valid({"n": 1})
    (error,) = validator.iter_errors({"n": "x"})
    assert list(error.instance_path) == ["n"]
    assert "integer" in error.message


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ({"type": "objet"}, "objet"),
        (5, "5"),
        ({"$ref": "http://localhost:9/never-fetched"}, "never-fetched"),
        ({"pattern": "(a"}, "(a"),
        ({"pattern": "(?=a)b"}, "(?=a)b"),
    ],
    ids=["not a type", "not a schema", "remote reference", "broken pattern", "look-around"],
)
def test_what_cannot_be_enforced_says_why(schema: Any, words: str) -> None:
    problem = schema_problem(schema)
    assert problem is not None
    assert words in problem


def test_a_pattern_made_to_backtrack_is_judged_at_once() -> None:
    validator = compile_schema({"type": "string", "pattern": "^(a+)+$"})
    assert not validator.is_valid("a" * 100_000 + "!")


def test_a_usable_schema_has_no_problem() -> None:
    assert schema_problem({"$defs": {"a": {"type": "string"}}, "$ref": "#/$defs/a"}) is None
    assert schema_problem(True) is None


def test_a_schema_with_more_ways_than_anybody_can_walk_is_not_compiled() -> None:
    names = {f"d{n}": {"allOf": [{"$ref": f"#/$defs/d{n + 1}"}] * 2} for n in range(30)}
    problem = schema_problem({"$ref": "#/$defs/d0", "$defs": {**names, "d30": {"type": "string"}}})
    assert problem is not None and "paths when references are followed" in problem


def test_a_pattern_that_takes_long_to_compile_is_not_and_neither_are_many() -> None:
    assert schema_problem({"pattern": "^[A-Za-z0-9_-]{1,4096}$"}) is None
    assert schema_problem({"pattern": "\\p{L}{1,300}"}) is not None
    fields = {f"f{n}": {"pattern": "^[a-z]+$"} for n in range(101)}
    assert schema_problem({"properties": dict(list(fields.items())[:100])}) is None
    problem = schema_problem({"properties": fields})
    assert problem is not None and "paths when references are followed" in problem
    problem = schema_problem({"patternProperties": {f"^{n}": {} for n in range(101)}})
    assert problem is not None and "paths when references are followed" in problem


def test_a_schema_of_very_many_values_is_not_counted_to_the_end() -> None:
    assert schema_problem({"$defs": {"unused": {"enum": list(range(49_000))}}}) is None
    assert schema_problem({"enum": [[0]] * 25_001}) == "it has more than 50,000 values"
    deep: dict[str, Any] = {}
    for _ in range(50_001):
        deep = {"not": deep}
    assert schema_problem(deep) == "it has more than 50,000 values"


def test_few_schemas_are_looked_at_ahead_and_of_many_only_the_first() -> None:
    bad, preview = {"type": "nonsense"}, Preview(10)
    assert preview.problem({"type": "object"}) is None
    assert preview.problem(bad) is not None
    assert preview.problem({"enum": list(range(10))}) is None, "too large for what is left"
    assert preview.problem(bad) is None, "and no more after that"
    assert preview.passed_over == 2


def doubling(levels: int) -> dict[str, Any]:
    """Each definition names the next one twice: 2**levels ways in a few hundred bytes."""
    definitions: dict[str, Any] = {
        f"d{number}": {"allOf": [{"$ref": f"#/$defs/d{number + 1}"}, {"$ref": f"#/$defs/d{number + 1}"}]}
        for number in range(levels)
    }
    return {"$ref": "#/$defs/d0", "$defs": {**definitions, f"d{levels}": {"type": "string"}}}


@pytest.mark.parametrize(
    "schema",
    [
        True,
        {},
        {"type": "object", "properties": {"a": {"type": "string"}}},
        doubling(5),
        {"$ref": "#/$defs/tree", "$defs": {"tree": {"properties": {"left": {"$ref": "#/$defs/tree"}}}}},
        {"$ref": "#name", "$defs": {"x": {"$anchor": "name", "type": "string"}}},
        {"properties": {"$ref": {"type": "string"}}},
    ],
    ids=["true", "empty", "plain", "small", "recursive", "anchor", "a property called $ref"],
)
def test_schemas_that_people_write_are_fine(schema: Any) -> None:
    assert size_problem(schema) is None


def test_a_few_bytes_that_mean_a_million_ways_are_refused_at_once() -> None:
    assert f"more than {MAX_WAYS:,}" in (size_problem(doubling(40)) or "")


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ({"$ref": "https://example.org/schema.json"}, "outside itself"),
        ({"properties": {"a": {"$id": "x", "type": "string"}}}, "$id of its own"),
    ],
)
def test_references_that_cannot_be_followed_are_refused(schema: Any, words: str) -> None:
    assert words in (size_problem(schema) or "")


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.sampled_from(["#", "#/$defs/a", "#x", "y"]),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(st.sampled_from(["$ref", "$defs", "a", "allOf", "$anchor", "$id"]), inner, max_size=4)
        ),
        max_leaves=20,
    )
)
def test_nothing_that_json_can_say_breaks_the_count(schema: Any) -> None:
    size_problem(schema)
