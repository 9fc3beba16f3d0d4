"""pydantic's errors become problems with lines and plain words."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

from plugbay.contracts.document import Document, parse_json
from plugbay.contracts.validation import suggestion, unknown_keys, validate


class Inner(BaseModel):
    model_config = ConfigDict(extra="forbid")
    size: int = Field(default=1, ge=1)


class Outer(BaseModel):
    model_config = ConfigDict(extra="forbid")
    name: str
    inner: Inner = Inner()


def document(text: str) -> Document:
    parsed = parse_json(text)
    assert isinstance(parsed, Document)
    return parsed


def test_a_valid_document_becomes_its_model() -> None:
    model, problems = validate(Outer, document('{"name": "x"}'))
    assert model == Outer(name="x")
    assert problems == []


def test_every_problem_is_reported_in_the_order_of_the_lines() -> None:
    text = '{\n "inner": {\n  "size": "big",\n  "sizze": 1},\n "nam": 1\n}'
    model, problems = validate(Outer, document(text))
    assert model is None
    assert [(problem.line, problem.code, problem.path) for problem in problems] == [
        (1, "missing_field", "name"),
        (3, "invalid_type", "inner.size"),
        (4, "unknown_field", "inner.sizze"),
        (5, "unknown_field", "nam"),
    ]
    assert problems[1].message == "input should be a valid integer, got 'big'"
    assert problems[2].message == "unknown key; did you mean 'size'?"


def test_a_bool_is_not_an_integer_and_a_small_number_breaks_its_rule() -> None:
    _, problems = validate(Outer, document('{"name": "x", "inner": {"size": true}}'))
    assert [problem.code for problem in problems] == ["invalid_type"]
    _, problems = validate(Outer, document('{"name": "x", "inner": {"size": 0}}'))
    assert [problem.code for problem in problems] == ["invalid_value"]


def test_an_ignored_key_is_a_warning_with_a_suggestion() -> None:
    parsed = document('{"nane": 1, "name": 2}')
    (problem,) = unknown_keys(parsed.value, ["name"], (), parsed)
    assert (problem.severity, problem.path, problem.line) == ("warning", "nane", 1)
    assert problem.message == "not part of the contract, ignored; did you mean 'name'?"
    assert unknown_keys([], ["name"], (), parsed) == []


def test_nothing_is_suggested_when_nothing_is_near() -> None:
    assert suggestion("zzz", ["name"]) == ""
