"""A grid of cells: what is painted where, what is left out, and the JSON a host shows it from."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from plugbay.sdk.screens.canvas import (
    BORDERS,
    ELLIPSIS,
    MAX_POINTS,
    NAMES,
    REPLACEMENT,
    Canvas,
    graphemes,
    rgb,
    shortened,
    width,
)
from tests.support.requirements import requirement


def answer(canvas: Canvas) -> Any:
    return json.loads(canvas.picture().json)


def cells(canvas: Canvas) -> dict[tuple[int, int], Any]:
    """The painted cells, each listed once."""
    listed = answer(canvas)["buffer"]["cells"]
    painted = {(place["x"], place["y"]): cell for place, cell in listed}
    assert len(painted) == len(listed)
    return painted


def shown(canvas: Canvas) -> list[str]:
    return [line.rstrip() for line in canvas.lines()]


@requirement("ainb:sdk-picture")
def test_only_painted_cells_are_written_and_what_is_not_set_is_left_out() -> None:
    canvas = Canvas(10, 3)
    canvas.text(0, 0, "T", fg=(255, 215, 0), bold=True)
    canvas.text(1, 0, "E")
    canvas.text(9, 2, "x", bg="#010203", dim=True, italic=True, underline=True, reverse=True)
    assert answer(canvas) == {
        "buffer": {
            "width": 10,
            "height": 3,
            "cells": [
                [{"x": 0, "y": 0}, {"symbol": "T", "fg": {"r": 255, "g": 215, "b": 0}, "modifier": 1}],
                [{"x": 1, "y": 0}, {"symbol": "E", "modifier": 0}],
                [{"x": 9, "y": 2}, {"symbol": "x", "bg": {"r": 1, "g": 2, "b": 3}, "modifier": 30}],
            ],
        },
        "redraw": False,
        "captures_text": False,
    }


@requirement("ainb:sdk-picture")
def test_a_canvas_can_ask_to_be_drawn_again_and_for_all_keys() -> None:
    canvas = Canvas(1, 1)
    canvas.redraw = canvas.captures_text = True
    assert {**answer(canvas), "buffer": None} == {"buffer": None, "redraw": True, "captures_text": True}


def test_an_empty_canvas_shows_nothing() -> None:
    assert answer(Canvas(0, 0))["buffer"] == {"width": 0, "height": 0, "cells": []}
    assert answer(Canvas(-3, 5))["buffer"] == {"width": 0, "height": 5, "cells": []}


@pytest.mark.parametrize("text", ['say "\\"', 'é"\\', "\\", '"'])
def test_quotes_and_backslashes_arrive_as_they_are(text: str) -> None:
    canvas = Canvas(10, 1)
    assert canvas.text(0, 0, text) == len(text)
    assert "".join(cell["symbol"] for cell in cells(canvas).values()) == text
    assert shown(canvas) == [text]


@pytest.mark.parametrize(
    ("x", "y", "line"),
    [
        (0, 0, "hello"),
        (-2, 0, "llo"),
        (3, 0, "   he"),
        (5, 0, ""),
        (-5, 0, ""),
        (-(10**9), 0, ""),
        (0, 1, ""),
        (0, -1, ""),
    ],
)
@pytest.mark.parametrize("text", ["hello", "héllo"])
def test_what_is_outside_is_left_out(x: int, y: int, line: str, text: str) -> None:
    canvas = Canvas(5, 1)
    assert canvas.text(x, y, text) == x + 5
    assert shown(canvas) == [line if text.isascii() else line.replace("e", "é")]


def test_a_line_end_begins_the_next_row_and_the_longest_line_says_where_to_go_on() -> None:
    canvas = Canvas(6, 3)
    assert canvas.text(1, 0, "ab\ncdef\n") == 5
    assert shown(canvas) == [" ab", " cdef", ""]


def test_a_text_can_be_cut_to_a_width() -> None:
    canvas = Canvas(10, 3)
    assert canvas.text(0, 0, "hello world\nhi", width=6) == 6
    assert shown(canvas) == ["hello…", "hi", ""]
    canvas.text(0, 2, "hello", width=0)
    assert shown(canvas)[2] == ""


@requirement("ainb:sdk-wide-characters")
def test_a_wide_character_takes_two_cells_and_is_listed_once() -> None:
    canvas = Canvas(5, 1)
    assert canvas.text(0, 0, "a你b") == 4
    assert {place: cell["symbol"] for place, cell in cells(canvas).items()} == {(0, 0): "a", (1, 0): "你", (3, 0): "b"}
    assert Canvas.measure("a你b") == 4


@requirement("ainb:sdk-wide-characters")
@pytest.mark.parametrize(("x", "line"), [(-1, " 好"), (1, " 你"), (2, "  你"), (3, "")])
def test_half_a_wide_character_is_a_blank(x: int, line: str) -> None:
    canvas = Canvas(4, 1)
    canvas.text(x, 0, "你好")
    assert shown(canvas) == [line]
    assert all(width(cell["symbol"]) + place[0] <= 4 for place, cell in cells(canvas).items())


@requirement("ainb:sdk-wide-characters")
@pytest.mark.parametrize(("x", "symbols"), [(0, ["x", " "]), (1, [" ", "x"])])
def test_painting_over_half_a_wide_character_leaves_a_blank_of_its_look(x: int, symbols: list[str]) -> None:
    canvas = Canvas(2, 1)
    canvas.text(0, 0, "你", bg="red")
    canvas.text(x, 0, "x")
    painted = cells(canvas)
    assert [painted[column, 0]["symbol"] for column in (0, 1)] == symbols
    assert ("bg" in painted[1 - x, 0], "bg" in painted[x, 0]) == (True, False)


def test_the_last_word_counts() -> None:
    canvas = Canvas(3, 1)
    canvas.text(0, 0, "aaa", fg="red")
    canvas.text(1, 0, "b")
    assert cells(canvas)[1, 0] == {"symbol": "b", "modifier": 0}


def test_a_rectangle_is_filled() -> None:
    canvas = Canvas(5, 3)
    canvas.fill(char=".")
    canvas.fill(1, 1, 2, 9, char="#", fg="green")
    canvas.fill(4, 2, char="!")
    assert shown(canvas) == [".....", ".##..", ".##.!"]
    green = dict(zip("rgb", NAMES["green"], strict=True))
    assert cells(canvas)[1, 1] == {"symbol": "#", "fg": green, "modifier": 0}


def test_a_wide_filling_leaves_no_half() -> None:
    canvas = Canvas(5, 1)
    canvas.fill(char="你", bg="red")
    assert canvas.lines() == ["你你 "]
    assert [place[0] for place in cells(canvas)] == [0, 2, 4]


def test_lines_go_both_ways() -> None:
    canvas = Canvas(3, 3)
    canvas.line(0, 0, 3)
    canvas.line(1, 1, 99, vertical=True)
    canvas.line(0, 2, 1, char="*")
    assert shown(canvas) == ["───", " │", "*│"]


@pytest.mark.parametrize("style", BORDERS)
def test_a_box_has_corners_sides_and_an_inside(style: str) -> None:
    canvas = Canvas(6, 4)
    inside = canvas.box(0, 0, 6, 4, style=style, fg="cyan")
    inside.fill(char="x")
    upper_left, across, upper_right, down, lower_left, lower_right = BORDERS[style]
    assert shown(canvas) == [
        f"{upper_left}{across * 4}{upper_right}",
        f"{down}xxxx{down}",
        f"{down}xxxx{down}",
        f"{lower_left}{across * 4}{lower_right}",
    ]
    assert "fg" in cells(canvas)[0, 0]


@pytest.mark.parametrize(
    ("wide", "line"), [(12, "┌ a title ─┐"), (9, "┌ a ti… ┐"), (5, "┌ … ┐"), (4, "┌──┐"), (2, "┌┐"), (1, "┐"), (0, "")]
)
def test_the_title_of_a_box_is_cut_to_its_width(wide: int, line: str) -> None:
    canvas = Canvas(12, 3)
    canvas.box(0, 0, wide, 3, title="a title")
    assert shown(canvas)[0] == line


def test_a_box_without_height_is_nothing_and_no_box_reaches_outside() -> None:
    canvas = Canvas(4, 2)
    canvas.box(0, 0, 4, 0).fill(char="x")
    assert shown(canvas) == ["", ""]
    canvas.box(-1, -1, 6, 4).fill(char="x")
    assert shown(canvas) == ["xxxx", "xxxx"]


@pytest.mark.parametrize(
    ("fraction", "line"),
    [
        (0, "    "),
        (0.5, "██  "),
        (1, "████"),
        (7, "████"),
        (-1, "    "),
        (1 / 32, "▏   "),
        (0.4, "█▋  "),
        (float("nan"), "    "),
    ],
)
def test_a_bar_shows_a_fraction(fraction: float, line: str) -> None:
    canvas = Canvas(4, 1)
    canvas.bar(0, 0, 4, fraction)
    assert canvas.lines() == [line]
    Canvas(4, 1).bar(0, 0, -4, fraction)


@pytest.mark.parametrize(
    ("values", "top", "line"),
    [
        ([0, 4, 8], None, " ▄█"),
        ([0, 4, 8], 16, " ▂▄"),
        ([9, 9, 1, 2, 4], None, "▂▄█"),
        ([], None, ""),
        ([0, 0], None, ""),
    ],
)
def test_a_sparkline_shows_the_last_values(values: list[float], top: float | None, line: str) -> None:
    canvas = Canvas(3, 1)
    canvas.sparkline(0, 0, 3, values, top=top)
    assert shown(canvas) == [line]


def test_a_region_has_its_own_coordinates_and_its_own_edges() -> None:
    canvas = Canvas(6, 3)
    part = canvas.region(1, 1, 3, 9)
    assert (part.width, part.height) == (3, 2)
    part.text(-1, 0, "abcdef")
    part.region(1, 1, 99, 99).text(0, 0, "xyz")
    assert shown(canvas) == ["", " bcd", "  xy"]
    assert part.lines() == ["bcd", " xy"]


@pytest.mark.parametrize("place", [(9, 9, 2, 2), (-5, -5, 2, 2), (0, 0, 0, 5), (0, 0, -3, -3)])
def test_a_region_outside_is_empty(place: tuple[int, int, int, int]) -> None:
    canvas = Canvas(3, 3)
    part = canvas.region(*place)
    part.fill(char="x")
    part.text(0, 0, "你好")
    assert cells(canvas) == {}


@requirement("ainb:sdk-wide-characters")
def test_a_region_cuts_no_wide_character_of_the_canvas_around_it() -> None:
    canvas = Canvas(6, 1)
    canvas.text(0, 0, "你你你")
    canvas.region(1, 0, 2, 1).text(0, 0, "ab")
    assert canvas.lines() == [" ab 你"]


def test_what_no_cell_can_be_is_refused() -> None:
    canvas: Any = Canvas(3, 1)
    with pytest.raises(TypeError, match="a cell cannot be blink; it can be bold"):
        canvas.text(0, 0, "x", blink=True)
    with pytest.raises(ValueError, match="there is no colour"):
        canvas.text(0, 0, "x", fg="mauve")


anywhere = st.integers(-7, 12)

style = st.fixed_dictionaries({}, optional={"fg": st.sampled_from(sorted(NAMES)), "bold": st.booleans()})

strokes = st.one_of(
    st.tuples(
        st.just("text"), anywhere, anywhere, st.text(st.sampled_from('ab"\\\n\t你好\u0301\u200d👋🏽🇵🇪❤\ufe0f\x1b'))
    ),
    st.tuples(st.just("fill"), anywhere, anywhere, anywhere, anywhere, st.sampled_from(["x", "你", "", "\u0301"])),
    st.tuples(st.just("box"), anywhere, anywhere, anywhere, anywhere),
    st.tuples(st.just("line"), anywhere, anywhere, anywhere),
    st.tuples(st.just("bar"), anywhere, anywhere, anywhere, st.floats()),
    st.tuples(st.just("sparkline"), anywhere, anywhere, anywhere, st.lists(st.floats(-9, 9))),
)


@requirement("ainb:sdk-picture", "ainb:sdk-wide-characters")
@example(2, 1, [(("text", 0, 0, "\ufe0fa"), {}, None)])  # a picture of nothing
@example(3, 1, [(("text", 0, 0, "❤" + "\u0301" * 15 + "\ufe0fa"), {}, None)])  # more than a cell takes
@example(2, 1, [(("bar", -1, 0, 2, 0.0), {}, (2, 0, 3, 1))])  # on a region without a cell
@given(
    st.integers(0, 9), st.integers(0, 4), st.lists(st.tuples(strokes, style, st.none() | st.tuples(*[anywhere] * 4)))
)
def test_nothing_is_painted_outside_and_no_wide_character_is_split(
    columns: int, rows: int, painting: list[tuple[Any, dict[str, Any], tuple[int, int, int, int] | None]]
) -> None:
    canvas = Canvas(columns, rows)
    for (what, *arguments), look, place in painting:
        getattr(canvas if place is None else canvas.region(*place), what)(*arguments, **look)
    painted = cells(canvas)
    for (x, y), cell in painted.items():
        taken = width(cell["symbol"])
        assert (x >= 0, y >= 0, x + taken <= columns, y < rows) == (True, True, True, True)
        assert taken == 1 or (x + 1, y) not in painted
    assert all(width(line) == columns for line in canvas.lines())


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
def test_no_text_in_a_cell_is_a_command_to_a_terminal(text: str) -> None:
    shown = "".join(symbol for symbol, _ in graphemes(text))
    assert not any(ord(char) < 0x20 or 0x7F <= ord(char) < 0xA0 for char in shown)
    shown.encode()
