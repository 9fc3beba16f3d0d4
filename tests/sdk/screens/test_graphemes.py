"""What stands in one cell, and what takes two."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plugbay.sdk.screens.graphemes import ELLIPSIS, MAX_POINTS, REPLACEMENT, graphemes, shortened, width
from tests.support.requirements import requirement

FAMILY = "\U0001f469\u200d\U0001f469\u200d\U0001f467"
WAVE = "\U0001f44b\U0001f3fd"
SCOTLAND = "\U0001f3f4\U000e0067\U000e0062\U000e0073\U000e0063\U000e0074\U000e007f"
PERU = "\U0001f1f5\U0001f1ea"
HEART = "❤\ufe0f"


@requirement("ainb:sdk-wide-characters")
@pytest.mark.parametrize(
    ("text", "cells"),
    [
        ("ab", [("a", 1), ("b", 1)]),
        ("", []),
        ("你a", [("你", 2), ("a", 1)]),
        ("e\u0301x", [("e\u0301", 1), ("x", 1)]),
        ("\u0301x", [(" \u0301", 1), ("x", 1)]),
        (f"{FAMILY}!", [(FAMILY, 2), ("!", 1)]),
        (WAVE, [(WAVE, 2)]),
        (SCOTLAND, [(SCOTLAND, 2)]),
        (f"{PERU}{PERU}", [(PERU, 2), (PERU, 2)]),
        (HEART, [(HEART, 2)]),
        ("a\u200db", [("a\u200d", 1), ("b", 1)]),
        ("a\tb", [("a", 1), (" ", 1), ("b", 1)]),
        ("\x1b[2J", [(REPLACEMENT, 1), ("[", 1), ("2", 1), ("J", 1)]),
        ("\ud800", [(REPLACEMENT, 1)]),
        ("\u202ea", [("a", 1)]),
        ("\u2028", [(REPLACEMENT, 1)]),
    ],
)
def test_what_a_cell_shows(text: str, cells: list[tuple[str, int]]) -> None:
    assert list(graphemes(text)) == cells
    assert width(text) == sum(columns for _, columns in cells)


def test_a_tower_of_marks_is_cut() -> None:
    (symbol, columns), *rest = graphemes("a" + "\u0301" * 1000)
    assert (len(symbol), columns, rest) == (MAX_POINTS, 1, [])


@pytest.mark.parametrize(
    ("text", "most", "shown"),
    [
        ("hello", 5, "hello"),
        ("hello", 4, f"hel{ELLIPSIS}"),
        ("hello", 1, ELLIPSIS),
        ("hello", 0, ""),
        ("hello", -3, ""),
        ("你好", 4, "你好"),
        ("你好", 3, f"你{ELLIPSIS}"),
        ("你好", 2, ELLIPSIS),
        ("", 0, ""),
    ],
)
def test_a_text_that_is_too_long_ends_in_an_ellipsis(text: str, most: int, shown: str) -> None:
    assert shortened(text, most) == shown


@given(st.text(), st.integers(0, 20))
def test_a_shortened_text_fits(text: str, most: int) -> None:
    assert width(shortened(text, most)) <= most


@requirement("ainb:sdk-wide-characters")
@given(st.text())
def test_whatever_the_text_nothing_in_a_cell_can_be_obeyed_by_a_terminal(text: str) -> None:
    shown = "".join(symbol for symbol, _ in graphemes(text))
    assert not any(ord(char) < 0x20 or 0x7F <= ord(char) < 0xA0 for char in shown)
    shown.encode()
