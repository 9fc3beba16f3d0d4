"""A part reads what is there, passes over what is not, and reports with its place."""

from __future__ import annotations

from plugbay.contracts.document import Document
from plugbay.contracts.draft import Draft
from plugbay.contracts.vai.parts import Part

TABLE = {"a": "x", "b": ["y", 1, "z"], "c": {"d": "e"}, "f": [{"g": "h"}, 2, {"g": "i"}], "n": 3}


def part() -> tuple[Part, Draft]:
    draft = Draft(Document(TABLE, {("f",): 7, ("f", 2): 9}))
    return Part(draft, (), TABLE), draft


def test_values_of_the_wanted_type_are_found_and_others_passed_over() -> None:
    whole, _ = part()
    assert (whole.text("a"), whole.text("n"), whole.text("gone")) == ("x", None, None)
    assert (whole.value("n"), whole.value("gone")) == (3, None)
    assert whole.texts("b") == [(0, "y"), (2, "z")]
    assert (whole.texts("a"), whole.parts("a"), whole.parts("c")) == ([], [], [])
    assert "a" in whole
    assert "gone" not in whole


def test_tables_within_tables_and_lists_are_parts() -> None:
    whole, _ = part()
    assert whole.part("c").text("d") == "e"
    assert whole.part("a").value("d") is None
    assert [each.text("g") for each in whole.parts("f")] == ["h", "i"]


def test_a_problem_has_the_place_of_its_part() -> None:
    whole, draft = part()
    whole.parts("f")[1].error("broken", "no", "g")
    whole.part("c").warn("odd", "hm")
    assert [(item.severity, item.code, item.path, item.line) for item in draft.problems] == [
        ("error", "broken", "f[2].g", 9),
        ("warning", "odd", "c", None),
    ]


def test_a_word_that_is_not_in_the_list_is_reported_with_the_list() -> None:
    whole, draft = part()
    whole.one_of("a", ("x", "y"))
    whole.one_of("n", ("x", "y"))
    assert draft.problems == []
    whole.one_of("a", ("y", "z"))
    (found,) = draft.problems
    assert (found.code, found.path, found.message) == ("invalid_enum", "a", "must be one of y, z, got 'x'")
