"""Colours by number, by digits and by name."""

from __future__ import annotations

from typing import Any

import pytest

from plugbay.sdk.screens.colours import NAMES, rgb


@pytest.mark.parametrize(
    ("colour", "numbers"),
    [
        ("#ff8800", (255, 136, 0)),
        ("#F80", (255, 136, 0)),
        ((1, 2, 3), (1, 2, 3)),
        ([0, 0, 255], (0, 0, 255)),
        ("Red", NAMES["red"]),
        ("grey", NAMES["gray"]),
        ("bright-blue", NAMES["bright_blue"]),
    ],
)
def test_a_colour_is_three_numbers(colour: Any, numbers: tuple[int, int, int]) -> None:
    assert rgb(colour) == numbers


def test_there_are_sixteen_names() -> None:
    assert len(NAMES) == len(set(NAMES.values())) == 16


@pytest.mark.parametrize(
    "colour", ["#ff88", "#ggg", "#", "#1234567", "mauve", "", (256, 0, 0), (0, -1, 0), (1.0, 0, 0)]
)
def test_what_is_no_colour_is_refused(colour: Any) -> None:
    with pytest.raises(ValueError, match="colour"):
        rgb(colour)
