"""Objects whose keys are known."""

from __future__ import annotations

from typing import Any

from plugbay.sdk.types.records import Member, Parameters, Record
from plugbay.sdk.types.shapes import ANYTHING, Array, Integer, Names, Number, Problems, Shape, String, whole_schema


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
        assert "default" not in Member("x", ANYTHING, default=default).schema(Names(), "")
    for default in (None, 1, 1.5, "a", True, [1, {"a": None}]):
        assert Member("x", ANYTHING, default=default).schema(Names(), "")["default"] == default


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
