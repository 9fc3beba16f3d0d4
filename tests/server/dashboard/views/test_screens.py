"""Frames as SVG."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest

from plugbay.host.screens.frames import Cell, Frame
from plugbay.server.dashboard.views.screens import COLUMN, ROW, frame_svg, size_of


def frame(cells: dict[tuple[int, int], Cell], width: int = 4, height: int = 2) -> Frame:
    return Frame(width, height, cells, redraw=False, captures_text=False)


def parts(of: Frame) -> list[tuple[str, dict[str, str], str]]:
    return [(each.tag, dict(each.attrib), each.text or "") for each in ElementTree.fromstring(str(frame_svg(of)))]


def test_cells_of_one_look_are_one_text() -> None:
    red = (255, 0, 16)
    cells = {(0, 0): Cell("a", red, None, 1), (1, 0): Cell("b", red, None, 1), (3, 1): Cell("c", None, None, 0)}
    first, second = parts(frame(cells))
    assert first[0] == "text" and first[2] == "ab"
    assert (first[1]["fill"], first[1]["font-weight"], first[1]["textLength"]) == ("#ff0010", "bold", "19.28")
    assert (second[2].strip(), float(second[1]["y"]) > ROW, "fill" in second[1]) == ("c", True, False)
    assert parts(frame({})) == []


def test_grounds_modifiers_and_reversed_colours_are_drawn() -> None:
    ground, text = parts(frame({(0, 0): Cell("x", (1, 2, 3), (4, 5, 6), 2 | 4 | 8)}))
    assert ground[1]["fill"] == "#040506" and text[1]["fill"] == "#010203"
    assert {"opacity", "font-style", "text-decoration"} <= set(text[1])
    ground, text = parts(frame({(0, 0): Cell("x", (1, 2, 3), (4, 5, 6), 16)}))
    assert (ground[1]["fill"], text[1]["fill"]) == ("#010203", "#040506")
    ground, text = parts(frame({(0, 0): Cell("x", None, None, 16)}))
    assert (ground[1]["class"], text[1]["class"]) == ("ink", "paper")


def test_wide_symbols_keep_their_columns() -> None:
    wide, after = parts(frame({(0, 0): Cell("日", None, None, 0), (2, 0): Cell("x", None, None, 0)}))
    assert (wide[1]["textLength"], after[1]["x"]) == ("19.28", "19.28") and float("19.28") == 2 * COLUMN


def test_symbols_are_text_and_nothing_is_styled_in_place() -> None:
    drawn = str(frame_svg(frame({(0, 0): Cell("<", None, None, 0), (1, 0): Cell("&", None, None, 0)})))
    assert "&lt;&amp;" in drawn and "style=" not in drawn


@pytest.mark.parametrize(
    ("text", "size"), [("100x30", (100, 30)), ("", (80, 24)), ("9999x9999", (80, 24)), ("axb", (80, 24))]
)
def test_only_known_sizes_are_drawn(text: str, size: tuple[int, int]) -> None:
    assert size_of(text) == size
