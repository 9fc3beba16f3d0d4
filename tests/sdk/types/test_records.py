"""Objects whose keys are known."""

from __future__ import annotations

from typing import Any

import pytest

from plugbay.sdk.types.records import Member, Parameters, Record, parse, summary
from plugbay.sdk.types.shapes import (
    ANYTHING,
    Array,
    Definitions,
    Integer,
    Number,
    Problems,
    Shape,
    String,
    whole_schema,
)


class Point:
    def __init__(self, x: int, y: int = 0) -> None:
        if x == y:
            raise ValueError("no point on the diagonal" if x else "")
        self.x, self.y = x, y


def point() -> Record:
    record = Record("Point", Point, Point, "A place.\n\nAttributes:\n    x: To the right.\n")
    record.fields = {"x": Member("x", Integer()), "y": Member("y", Integer(), required=False, default=0)}
    return record


def read(shape: Shape, value: Any) -> tuple[Any, str]:
    problems = Problems()
    return shape.read(value, None, problems), str(problems)


def test_an_object_is_made_of_its_fields_and_written_again() -> None:
    made, problems = read(point(), {"x": 1})
    assert (made.x, made.y, problems) == (1, 0, "")
    assert point().write(made) == {"x": 1, "y": 0}
    assert point().write({"x": 1, "more": 2}) == {"x": 1, "more": 2}
    assert point().write("neither") == "neither"


def test_everything_wrong_with_an_object_is_told() -> None:
    assert read(point(), {"y": "1", "z": 2, "a b": 3}) == (
        None,
        "y: must be a whole number, not a string; x: is required; "
        "z: is unknown; there is x, y; ['a b']: is unknown; there is x, y",
    )
    assert read(point(), []) == (None, "input: must be an object, not a list")


def test_a_class_may_have_rules_of_its_own() -> None:
    assert read(point(), {"x": 1, "y": 1}) == (None, "input: no point on the diagonal")
    assert read(point(), {"x": 0}) == (None, "input: cannot be used")


def test_its_schema_says_what_is_needed_and_what_it_is_for() -> None:
    assert whole_schema(point()) == {
        "type": "object",
        "description": "A place.",
        "properties": {
            "x": {"type": "integer", "description": "To the right."},
            "y": {"type": "integer", "default": 0},
        },
        "required": ["x"],
        "additionalProperties": False,
    }


def test_a_type_that_contains_itself_is_a_definition() -> None:
    tree = Record("Tree")
    tree.fields = {"leaves": Member("leaves", Array(tree), required=False)}
    forest = Record("Forest")
    forest.fields = {"trees": Member("trees", Array(tree)), "best": Member("best", tree)}
    schema = whole_schema(forest)
    ref = {"$ref": "#/$defs/Tree"}
    assert schema["properties"] == {"trees": {"type": "array", "items": ref}, "best": ref}
    assert schema["$defs"]["Tree"]["properties"] == {"leaves": {"type": "array", "items": ref}}
    assert whole_schema(tree)["type"] == "object"  # at the top, it is said in full
    assert read(tree, {"leaves": [{"leaves": [{"x": 1}]}]})[1] == "leaves[0].leaves[0].x: is unknown; there is leaves"


def test_two_types_of_one_name_are_two_definitions() -> None:
    one, other = Record("Tree"), Record("Tree")
    one.fields = {"a": Member("a", one)}
    other.fields = {"b": Member("b", other)}
    both = Record("Both")
    both.fields = {"one": Member("one", one), "other": Member("other", other)}
    assert list(whole_schema(both)["$defs"]) == ["Tree", "Tree_"]


def test_only_defaults_that_are_json_are_published() -> None:
    for default in (object(), float("nan"), {1: 2}, [object()], {"a": {2}}):
        assert "default" not in Member("x", ANYTHING, default=default).schema(Definitions(), "")
    for default in (None, 1, 1.5, "a", True, [1, {"a": None}]):
        assert Member("x", ANYTHING, default=default).schema(Definitions(), "")["default"] == default


def test_a_function_may_take_any_other_keyword_but_those_that_are_ours() -> None:
    def takes(rest: Shape | None) -> Parameters:
        parameters = Parameters("f", "Does it.\n\nArgs:\n    a: first\n", rest)
        parameters.fields = {"a": Member("a", String())}
        return parameters

    assert read(takes(Number()), {"a": "x", "b": 1}) == ({"a": "x", "b": 1.0}, "")
    assert read(takes(Number()), {"a": "x", "b": "y"})[1] == "b: must be a number, not a string"
    assert read(takes(ANYTHING), {"a": "x", "ctx": 1, "context": 2})[1] == (
        "ctx: is unknown; there is a; context: is unknown; there is a"
    )
    assert read(takes(None), {"a": "x", "b": 1})[1] == "b: is unknown; there is a"
    assert whole_schema(takes(Number()))["additionalProperties"] == {"type": "number"}
    assert whole_schema(takes(ANYTHING))["additionalProperties"] is True
    assert whole_schema(takes(None)) == {
        "type": "object",
        "properties": {"a": {"type": "string", "description": "first"}},
        "required": ["a"],
        "additionalProperties": False,
    }


GOOGLE = """Order tea,
    and more.

    With a second paragraph: it says nothing: about parameters.

    Args:
        city: Where it goes,
            even far.
        days (int, optional): How long.
        *names: All of them.

        late: After an empty line.

    Returns:
        total: no parameter
    """

SPHINX = """Order tea,
    and more.

    :param city: Where it goes,
        even far.
    :param int days: How long.
    :param names: All of them.
    :type names: list
    :arg late: After an empty line.
    :returns: total
    """

NUMPY = """Order tea,
    and more.

    Parameters
    ----------
    city : str
        Where it goes,
        even far.
    days : int, optional
        How long.
    *names
        All of them.
    late
        After an empty line.

    Returns
    -------
    total : int
        No parameter.
    """


@pytest.mark.parametrize("text", [GOOGLE, SPHINX, NUMPY], ids=["google", "sphinx", "numpy"])
def test_parameters_are_described_in_three_ways(text: str) -> None:
    doc = parse(text)
    assert doc.summary == "Order tea, and more."
    assert doc.fields == {
        "city": "Where it goes, even far.",
        "days": "How long.",
        "names": "All of them.",
        "late": "After an empty line.",
    }


def test_attributes_of_a_class_are_described_as_parameters_are() -> None:
    assert parse("A thing.\n\nAttributes:\n\tprice: In euros.\n").fields == {"price": "In euros."}


@pytest.mark.parametrize("text", [None, "", "  \n ", "One line.", "Args:", ":param", "Args:\n\nArgs\n----\n", "a\n---"])
def test_what_is_written_in_another_way_says_nothing(text: str | None) -> None:
    assert parse(text).fields == {}


def test_the_first_paragraph_is_one_line() -> None:
    assert summary("\n  One\n  two.  \n   \n  Three.") == "One two."
    assert summary(None) == ""
