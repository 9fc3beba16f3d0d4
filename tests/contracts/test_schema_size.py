"""How large a schema really is, references followed; counted without walking it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plugbay.contracts.schema_size import MAX_WAYS, size_problem


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
