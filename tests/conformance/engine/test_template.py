"""Holes in what a scenario sends, filled and refused."""

from __future__ import annotations

from typing import Any

import pytest

from plugbay.conformance.engine.template import PURE, at, fill, template_problems, text

NAMED = {"tool": "example.echo", "input": {"text": "$tool"}}
GENERATORS = {**PURE, "twice": lambda value: [value, value]}


@pytest.mark.parametrize(
    ("template", "filled"),
    [
        ("plain", "plain"),
        ("$tool", "example.echo"),
        ("$$tool", "$tool"),
        (7, 7),
        (None, None),
        (["$tool", 1], ["example.echo", 1]),
        (
            {"name": "$tool", "deep": [{"x": "$tool"}]},
            {"name": "example.echo", "deep": [{"x": "example.echo"}]},
        ),
        ({"$text": 5}, "The q"),
        ({"$twice": {"$text": 3}}, ["The", "The"]),
        ({"$twice": "$tool"}, ["example.echo", "example.echo"]),
        ("$input", {"text": "$tool"}),
        ({"$joined": ["say.", "$tool"]}, "say.example.echo"),
        ({"$joined": []}, ""),
        ({"$merged": ["$input", {"more": "$tool"}]}, {"text": "$tool", "more": "example.echo"}),
        ({"$merged": [{"a": 1, "b": 1}, {"b": {"$text": 3}}]}, {"a": 1, "b": "The"}),
        ({"$merged": [7, {"a": 1}, None]}, {"a": 1}),
        ({"$listed": ["$tool", [1, 2], []]}, ["example.echo", 1, 2]),
        ({"$sized": [{"id": 1}, 35]}, {"id": 1, "params": {"pad": "The qui"}}),
    ],
)
def test_each_hole_is_filled_once(template: Any, filled: Any) -> None:
    assert template_problems(template, NAMED, GENERATORS) == []
    assert fill(template, NAMED, GENERATORS) == filled


@pytest.mark.parametrize(
    ("template", "problem"),
    [
        ("$tol", "'$tol' is not a named value"),
        ([{"a": "$tol"}], "'$tol' is not a named value"),
        ({"$txt": 5}, "'$txt' is not a generator that stands alone in its object"),
        ({"$text": 5, "more": 1}, "'$text' is not a generator that stands alone in its object"),
        ({"$text": "$tol"}, "'$tol' is not a named value"),
    ],
)
def test_a_hole_that_nothing_can_fill_is_refused(template: Any, problem: str) -> None:
    assert template_problems(template, NAMED, GENERATORS) == [problem]


@pytest.mark.parametrize("length", [0, 1, 44, 45, 46, 100_000])
def test_a_text_has_exactly_the_length_that_was_asked_for(length: int) -> None:
    assert len(text(length).encode()) == length


def test_a_path_leads_into_a_value_or_to_nothing() -> None:
    value = {"result": {"tools": [1], "none": None}}
    assert at(value, "result.tools") == [1]
    assert at(value, "result") == value["result"]
    assert at(value, "result.tools.x") is None
    assert at(value, "nowhere.at.all") is None
    assert at(7, "x") is None
