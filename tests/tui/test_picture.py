"""A frame as styled text and SVG: cell by cell, never as markup."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest
from rich.cells import cell_len
from rich.console import Console

from plugbay.host.screens.frames import Cell, Frame
from plugbay.tui.picture import BOLD, COLUMN, DIM, ITALIC, REPLACEMENT, REVERSED, UNDERLINE, rich_text, row, shown, svg
from tests.support.requirements import requirement

RED, BLUE = (255, 0, 0), (0, 0, 255)


def frame(*lines: str, width: int = 0) -> Frame:
    cells = {(x, y): Cell(symbol, None, None, 0) for y, line in enumerate(lines) for x, symbol in enumerate(line)}
    return Frame(width or max(map(len, lines)), len(lines), cells, False, False)


def one(
    symbol: str,
    *,
    width: int = 4,
    x: int = 0,
    fg: tuple[int, int, int] | None = None,
    bg: tuple[int, int, int] | None = None,
    modifier: int = 0,
) -> Frame:
    """A frame of one line with one painted cell."""
    return Frame(width, 1, {(x, 0): Cell(symbol, fg, bg, modifier)}, False, False)


def ansi(picture: Frame) -> str:
    console = Console(color_system="truecolor", force_terminal=True, width=200, legacy_windows=False, _environ={})
    with console.capture() as captured:
        console.print(rich_text(picture))
    return captured.get()


# Text.


def test_every_line_is_as_wide_as_the_frame() -> None:
    assert rich_text(frame("ab", "c", width=4)).plain == "ab  \nc   "


def test_a_frame_without_cells_is_blank() -> None:
    assert rich_text(Frame(3, 2, {}, False, False)).plain == "   \n   "
    assert rich_text(Frame(0, 0, {}, False, False)).plain == ""


@requirement("ainb:tui-modifiers")
@pytest.mark.parametrize(
    ("modifier", "name"),
    [(BOLD, "bold"), (DIM, "dim"), (ITALIC, "italic"), (UNDERLINE, "underline"), (REVERSED, "reverse")],
)
def test_each_of_the_five_bits_is_its_own_style(modifier: int, name: str) -> None:
    style = row(one("x", modifier=modifier), 0)[0].style
    assert style is not None
    assert [each for each in ("bold", "dim", "italic", "underline", "reverse") if getattr(style, each)] == [name]


def test_other_bits_mean_nothing() -> None:
    assert row(one("x", modifier=0xFFE0), 0)[0].style == row(one("x"), 0)[0].style


def test_colours_are_exactly_those_of_the_cell() -> None:
    style = row(one("x", fg=RED, bg=BLUE), 0)[0].style
    assert style is not None and style.color is not None and style.bgcolor is not None
    assert (style.color.triplet, style.bgcolor.triplet) == (RED, BLUE)


def test_unset_colours_are_the_terminals_own() -> None:
    style = row(one("x"), 0)[0].style
    assert style is not None
    assert (style.color, style.bgcolor) == (None, None)


def test_neighbours_of_one_look_are_one_run() -> None:
    assert [segment.text for segment in row(frame("abc"), 0)] == ["abc"]
    mixed = Frame(3, 1, {(0, 0): Cell("a", RED, None, 0), (1, 0): Cell("b", None, None, 0)}, False, False)
    assert [segment.text for segment in row(mixed, 0)] == ["a", "b "]


@requirement("ainb:tui-wide-symbols")
@pytest.mark.parametrize("symbol", ["日", "🙂", "👨‍👩‍👧", "🇵🇪", "❤️"])
def test_a_wide_symbol_takes_two_columns_and_hides_the_next_cell(symbol: str) -> None:
    picture = Frame(
        5,
        1,
        {(0, 0): Cell(symbol, None, None, 0), (1, 0): Cell("X", None, None, 0), (2, 0): Cell("a", None, None, 0)},
        False,
        False,
    )
    assert rich_text(picture).plain == symbol + "a  "


def test_half_a_wide_symbol_at_the_edge_is_a_blank() -> None:
    assert rich_text(one("日", x=3)).plain == "    "
    assert rich_text(one("日", x=2)).plain == "  日"


@pytest.mark.parametrize(
    "symbol", ["日", "🙂", "a", "é", "e\u0301", "\u0301", "", "ab", "\u1100\u1161", "☺", "─", "\x07"]
)
def test_what_is_shown_is_as_wide_as_it_says(symbol: str) -> None:
    text, columns = shown(symbol)
    assert cell_len(text) == columns


def test_a_symbol_that_rich_takes_for_wider_does_not_move_the_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("plugbay.tui.picture.cell_len", lambda text: 2)
    assert shown.__wrapped__("~") == (REPLACEMENT, 1)


@requirement("ainb:tui-no-injection")
@pytest.mark.parametrize("symbol", ["\x1b[2J", "\x1b]0;title\x07", "\r", "\n", "\x9b", "\u202e", "\ud800", "\u2028"])
def test_no_control_character_reaches_the_terminal(symbol: str) -> None:
    drawn = ansi(one(symbol))
    assert drawn.endswith("\n")
    assert drawn[:-1].isprintable()
    assert cell_len(drawn[:-1]) == 4


def test_a_style_of_ours_does_reach_the_terminal() -> None:
    assert "\x1b[38;2;255;0;0m" in ansi(one("x", fg=RED))


def test_what_looks_like_markup_is_text() -> None:
    assert rich_text(frame("[red]:smile:[/]")).plain == "[red]:smile:[/]"
    assert "[red]:smile:[/]" in ansi(frame("[red]:smile:[/]"))


# SVG.

SVG = "{http://www.w3.org/2000/svg}"


def texts(picture: str) -> list[ElementTree.Element]:
    """The texts of the frame, without the title."""
    group = ElementTree.fromstring(picture).find(f"{SVG}g")
    assert group is not None
    return group.findall(f"{SVG}text")


def test_the_picture_is_the_same_for_the_same_frame() -> None:
    assert svg(frame("abc"), "title") == svg(frame("abc"), "title")


def test_markup_in_a_frame_and_in_a_title_is_text() -> None:
    picture = svg(frame("<g>&amp;"), "<script>&\x1b\ufffe")
    assert [text.text for text in texts(picture)] == ["<g>&amp;"]
    title = ElementTree.fromstring(picture).find(f"{SVG}text")
    assert title is not None
    assert title.text == f"<script>&{REPLACEMENT}{REPLACEMENT}"


def test_a_picture_loads_nothing() -> None:
    picture = svg(frame("abc"), "title").replace("http://www.w3.org/2000/svg", "")
    assert "http" not in picture
    assert "url(" not in picture


def test_blanks_are_not_written_and_later_text_stays_in_its_column() -> None:
    (text,) = texts(svg(frame("   ab"), ""))
    assert text.text == "ab"
    assert float(text.attrib["x"]) == pytest.approx(3 * COLUMN, abs=0.01)
    assert float(text.attrib["textLength"]) == pytest.approx(2 * COLUMN, abs=0.01)


def test_a_wide_symbol_has_the_room_of_two_columns() -> None:
    cells = {(0, 0): Cell("a", None, None, 0), (1, 0): Cell("日", None, None, 0), (3, 0): Cell("b", None, None, 0)}
    drawn = texts(svg(Frame(4, 1, cells, False, False), ""))
    assert [(text.text, round(float(text.attrib["x"]) / COLUMN)) for text in drawn] == [("a", 0), ("日", 1), ("b", 3)]
    assert float(drawn[1].attrib["textLength"]) == pytest.approx(2 * COLUMN, abs=0.01)


def test_looks_become_attributes() -> None:
    (text,) = texts(svg(one("x", fg=RED, modifier=BOLD | ITALIC | UNDERLINE | DIM), ""))
    assert text.attrib["fill"] == "#ff0000"
    assert (text.attrib["font-weight"], text.attrib["font-style"]) == ("bold", "italic")
    assert (text.attrib["text-decoration"], text.attrib["fill-opacity"]) == ("underline", "0.6")


def test_a_reversed_cell_has_ink_for_paper() -> None:
    picture = svg(one("x", fg=RED, bg=BLUE, modifier=REVERSED), "")
    group = ElementTree.fromstring(picture).find(f"{SVG}g")
    assert group is not None
    paper = group.find(f"{SVG}rect")
    assert paper is not None
    assert paper.attrib["fill"] == "#ff0000"
    assert texts(picture)[0].attrib["fill"] == "#0000ff"


def test_underlined_blanks_are_drawn() -> None:
    assert [text.text for text in texts(svg(one(" ", modifier=UNDERLINE), ""))] == ["\xa0"]
    assert texts(svg(one(" "), "")) == []
