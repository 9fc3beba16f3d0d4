"""Two values are compared place by place, and what is new every time is passed over."""

from __future__ import annotations

from typing import Any

import pytest

from plugbay.conformance.replay.differences import MAX_SHOWN, IgnoredPaths, differences, shown

NOTHING = IgnoredPaths()


def words(recorded: Any, came: Any, passed: IgnoredPaths = NOTHING) -> list[str]:
    return [str(each) for each in differences(recorded, came, passed)]


@pytest.mark.parametrize("value", [None, True, 1, 1.5, "a", [], {}, {"a": [1, {"b": None}]}])
def test_the_same_is_the_same(value: Any) -> None:
    assert differences(value, value, NOTHING) == []


@pytest.mark.parametrize(
    ("recorded", "came", "said"),
    [
        ({"a": 1}, {"a": 2}, ["/a: 2, not 1"]),
        ({"a": 1, "b": 2}, {"b": 2}, ["/a: missing; it was 1"]),
        ({}, {"a": [1]}, ["/a: [1], which was not recorded"]),
        ([1, 2], [1], ["/1: missing; it was 2"]),
        ([1], [1, 2], ["/1: 2, which was not recorded"]),
        (1, "1", ['the whole of it: "1", not 1']),
        (True, 1, ["the whole of it: 1, not true"]),
        ({"a/b": {"~": 1}}, {"a/b": {"~": 2}}, ["/a~1b/~0: 2, not 1"]),
        ({"a": {"b": 1}}, {"a": [1]}, ['/a: [1], not {"b": 1}']),
    ],
)
def test_every_difference_is_told_with_its_place(recorded: Any, came: Any, said: list[str]) -> None:
    assert words(recorded, came) == said


def test_numbers_are_compared_by_their_value_and_keys_in_any_order() -> None:
    assert differences({"a": 1, "b": 2.0}, {"b": 2, "a": 1.0}, NOTHING) == []


@pytest.mark.parametrize("pointer", ["/a", "/a/b", "/*/b", "/a/*", "/*"])
def test_a_place_can_be_passed_over(pointer: str) -> None:
    assert differences({"a": {"b": 1}}, {"a": {"b": 2}}, IgnoredPaths([pointer])) == []
    assert differences({"a": {"b": 1}}, {"a": {"b": 2}}, IgnoredPaths(["/b", "/aa", "/a/bb"])) != []


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("2026-11-15T10:00:00Z", "2027-01-01T00:00:00.123+02:00", True),
        ("2026-11-15T10:00:00Z", "tomorrow", False),
        ("01234567-89ab-cdef-0123-456789abcdef", "fedcba98-7654-3210-fedc-ba9876543210", True),
        ("at 2026-11-15T10:00:00Z", "at 2027-11-15T10:00:00Z", False),
        ("12", "13", False),
    ],
)
def test_times_and_ids_are_the_same_where_shapes_count(one: str, other: str, same: bool) -> None:
    assert (differences(one, other, IgnoredPaths(shapes=True)) == []) is same
    assert differences(one, other, NOTHING) != []


def test_what_is_named_like_a_time_is_passed_over_when_it_is_of_the_same_kind() -> None:
    passed = IgnoredPaths(shapes=True)
    assert differences({"pid": 1, "ts": 1.5}, {"pid": 2, "ts": 2.5}, passed) == []
    assert words({"pid": 1}, {"pid": "x"}, passed) == ['/pid: "x", not 1']


def test_a_long_value_is_shown_by_its_beginning() -> None:
    assert len(shown("x" * 1000)) == MAX_SHOWN


def test_either_side_can_be_shown_alone() -> None:
    (gone,), (new,) = differences({"a": 1}, {}, NOTHING), differences({}, {"a": 1}, NOTHING)
    assert (gone.gone, gone.new, new.gone, new.new) == ("1", None, None, "1")
