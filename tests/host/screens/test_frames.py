"""What plugins draw, well and badly: whatever they send, what is shown is inside, safe and one grapheme a cell."""

from __future__ import annotations

import json
import tracemalloc
import unicodedata
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plugbay.host.screens.frames import BLANK, MAX_CELLS, MAX_SYMBOL, Cell, Frame, cell_width, clean, decode
from plugbay.model.errors import Code, Failure, Origin
from tests.support.requirements import requirement


def at(x: int, y: int, symbol: str = "x", **more: Any) -> list[dict[str, Any]]:
    return [{"x": x, "y": y}, {"symbol": symbol, "modifier": 0, **more}]


def result(*cells: Any, width: int = 10, height: int = 3, **more: Any) -> bytes:
    return json.dumps({"buffer": {"width": width, "height": height, "cells": cells}, **more}).encode()


def drawn(*cells: Any, width: int = 10, height: int = 3, **more: Any) -> Frame:
    frame = decode(result(*cells, **more), width, height)
    assert isinstance(frame, Frame)
    return frame


def refusal(data: bytes) -> str:
    failure = decode(data, 10, 3)
    assert isinstance(failure, Failure)
    assert (failure.code, failure.origin) == (Code.MALFORMED_RESPONSE, Origin.PLUGIN)
    return failure.message


GOLD = {"r": 255, "g": 215, "b": 0}


@requirement("ainb:host-render-buffer")
def test_a_picture_is_its_painted_cells() -> None:
    frame = drawn(at(0, 0, "T", fg=GOLD, modifier=1), at(1, 0, "E"), at(9, 2, "!", bg=GOLD), redraw=True)
    assert frame == Frame(
        10,
        3,
        {
            (0, 0): Cell("T", (255, 215, 0), None, 1),
            (1, 0): Cell("E", None, None, 0),
            (9, 2): Cell("!", None, (255, 215, 0), 0),
        },
        redraw=True,
        captures_text=False,
    )
    assert frame.lines() == ["TE", "", "         !"]


@requirement("ainb:host-render-buffer")
def test_what_is_left_out_is_the_terminals_own() -> None:
    frame = decode(b'{"buffer":{"width":2,"height":1,"cells":[[{"x":0,"y":0},{"symbol":"a","fg":null}]]}}', 2, 1)
    assert isinstance(frame, Frame)
    assert frame.cells == {(0, 0): Cell("a", None, None, 0)}
    assert (frame.redraw, frame.captures_text) == (False, False)


@requirement("ainb:host-render-clip")
def test_cells_outside_the_buffer_or_outside_the_viewport_are_left_out() -> None:
    cells = [at(0, 0), at(4, 0), at(5, 0), at(9, 0), at(0, 2), at(0, 3), at(65535, 65535)]
    assert set(drawn(*cells).cells) == {(0, 0), (4, 0), (5, 0), (9, 0), (0, 2)}
    assert set(drawn(*cells, width=5).cells) == {(0, 0), (4, 0), (0, 2)}, "a smaller viewport"
    smaller = decode(result(*cells, width=5, height=2), 10, 3)
    assert isinstance(smaller, Frame)
    assert set(smaller.cells) == {(0, 0), (4, 0)}, "a smaller buffer"
    assert (smaller.width, smaller.height) == (10, 3), "the picture is as large as it was asked for"


@requirement("ainb:host-render-clip")
def test_a_headless_plugin_draws_nothing() -> None:
    empty = decode(result(width=0, height=0), 4, 2)
    assert isinstance(empty, Frame)
    assert empty.lines() == ["", ""]


@requirement("ainb:host-render-duplicates")
def test_the_last_of_several_cells_at_one_place_counts() -> None:
    assert drawn(at(1, 1, "a"), at(1, 1, "b", modifier=2)).cells == {(1, 1): Cell("b", None, None, 2)}


@requirement("ainb:host-render-modifiers")
@pytest.mark.parametrize(("sent", "shown"), [(1, 1), (16, 16), (31, 31), (32, 0), (65535, 31)])
def test_five_bits_of_a_modifier_count(sent: int, shown: int) -> None:
    assert drawn(at(0, 0, modifier=sent)).cells[0, 0].modifier == shown


@requirement("ainb:host-render-types")
@pytest.mark.parametrize(
    ("cell", "path"),
    [
        (at(-1, 0), "$.buffer.cells[0][0].x"),
        (at(0, 65536), "$.buffer.cells[0][0].y"),
        ([{"x": 1.0, "y": 0}, {"symbol": "a"}], "$.buffer.cells[0][0].x"),
        ([{"x": True, "y": 0}, {"symbol": "a"}], "$.buffer.cells[0][0].x"),
        ([{"x": 0}, {"symbol": "a"}], "`y` - at `$.buffer.cells[0][0]`"),
        ([{"x": 0, "y": 0}, {"modifier": 0}], "`symbol` - at `$.buffer.cells[0][1]`"),
        (at(0, 0, 7), "$.buffer.cells[0][1].symbol"),  # type: ignore[arg-type]
        (at(0, 0, fg={"r": 256, "g": 0, "b": 0}), "$.buffer.cells[0][1].fg.r"),
        (at(0, 0, bg={"r": 0, "g": -1, "b": 0}), "$.buffer.cells[0][1].bg.g"),
        (at(0, 0, bg="red"), "$.buffer.cells[0][1].bg"),
        (at(0, 0, modifier=65536), "$.buffer.cells[0][1].modifier"),
        (at(0, 0, modifier="bold"), "$.buffer.cells[0][1].modifier"),
        ({"x": 0, "y": 0, "symbol": "a"}, "$.buffer.cells[0]"),
        ([{"x": 0, "y": 0}], "$.buffer.cells[0]"),
    ],
)
def test_one_wrong_number_or_type_spoils_the_picture_and_is_named(cell: Any, path: str) -> None:
    assert path in refusal(result(cell))


@requirement("ainb:host-render-types")
@pytest.mark.parametrize(
    ("data", "path"),
    [
        (b"null", "Expected `object`"),
        (b"{}", "buffer"),
        (b'{"buffer":{"width":1,"height":1}}', "cells"),
        (b'{"buffer":{"width":70000,"height":1,"cells":[]}}', "$.buffer.width"),
        (b'{"buffer":{"width":1,"height":1,"cells":{}}}', "$.buffer.cells"),
        (b'{"buffer":{"width":1,"height":1,"cells":[]},"redraw":1}', "$.redraw"),
        (b'{"buffer":{"width":1,"height":1,"cells":[]},"captures_text":null}', "$.captures_text"),
        (b"[" * 5000, "the frame cannot be decoded"),
    ],
)
def test_a_result_of_another_shape_is_no_picture(data: bytes, path: str) -> None:
    assert path in refusal(data)


@requirement("ainb:host-render-cells")
def test_there_is_an_end_to_the_cells_of_one_picture() -> None:
    cell = b'[{"x":0,"y":0},{"symbol":""}]'

    def many(count: int) -> bytes:
        return b'{"buffer":{"width":1,"height":1,"cells":[%b]}}' % b",".join([cell] * count)

    assert isinstance(decode(many(MAX_CELLS), 1, 1), Frame)
    assert "$.buffer.cells" in refusal(many(MAX_CELLS + 1))
    assert "$.buffer.cells" in refusal(many(1_000_000))


# Symbols.


@pytest.mark.parametrize(
    "symbol",
    [
        "",
        "\x1b[2J",
        "\x1b]0;owned\x07",
        "\x00",
        "\r",
        "\n",
        "\t",
        "\x7f",
        "\x9b31m",
        "a\x1b[31m",
        "\u202e",
        "\u2066\u2069",
        "\u200b",
        "\u200d",
        "\ufeff",
        "\u2028",
        "\ufffe",
        "\u0301",
        "\U000e0041",
    ],
)
def test_what_could_control_a_terminal_is_a_blank(symbol: str) -> None:
    assert clean(symbol) == BLANK
    assert drawn(at(0, 0, symbol)).lines()[0] == ""


@pytest.mark.parametrize(
    ("symbol", "shown", "width"),
    [
        ("x", "x", 1),
        ("é", "é", 1),
        ("e\u0301", "e\u0301", 1),
        ("│", "│", 1),
        ("\ue0b0", "\ue0b0", 1),
        ("漢", "漢", 2),
        ("한", "한", 2),
        ("\u1112\u1161\u11ab", "\u1112\u1161\u11ab", 2),
        ("\uff21", "\uff21", 2),
        ("👍🏽", "👍🏽", 2),
        ("👨‍👩‍👧‍👦", "👨‍👩‍👧‍👦", 2),
        ("🇨🇭", "🇨🇭", 2),
        ("🇨", "🇨", 1),
        ("☀", "☀", 1),
        ("☀\ufe0f", "☀\ufe0f", 2),
        ("1\ufe0f\u20e3", "1\ufe0f\u20e3", 2),
        ("a\ufe0f", "a\ufe0f", 1),
        ("🏴\U000e0067\U000e0062\U000e007f", "🏴\U000e0067\U000e0062\U000e007f", 2),
        ("\U0001fadf", "\U0001fadf", 2),
    ],
)
def test_a_grapheme_stays_whole_and_knows_its_width(symbol: str, shown: str, width: int) -> None:
    assert clean(symbol) == shown
    assert cell_width(shown) == width


@pytest.mark.parametrize(
    ("symbol", "shown"),
    [
        ("ab", "a"),
        ("漢字", "漢"),
        ("🇨🇭🇩🇪", "🇨🇭"),
        ("a\u200db", "a"),
        ("👍\u200d", "👍"),
        ("\u202eabc", "a"),
        ("x" * 1_000_000, "x"),
        ("a" + "\u0301" * 1000, "a" + "\u0301" * (MAX_SYMBOL - 1)),
    ],
)
def test_more_than_one_grapheme_or_an_absurd_one_is_cut(symbol: str, shown: str) -> None:
    assert clean(symbol) == shown


def test_symbols_as_long_as_messages_are_not_remembered() -> None:
    tracemalloc.start()
    try:
        for number in range(64):
            assert clean(f"é{number}" + "x" * 1_000_000) == "é"
        assert tracemalloc.get_traced_memory()[0] < 1_000_000
    finally:
        tracemalloc.stop()


@requirement("ainb:host-render-wide")
def test_a_wide_symbol_covers_the_cell_beside_it() -> None:
    frame = drawn(at(0, 0, "漢"), at(1, 0, " "), at(2, 0, "字"), at(3, 0, "x"), at(4, 0, "y"))
    assert sorted(frame.cells) == [(0, 0), (2, 0), (4, 0)]
    assert frame.lines()[0] == "漢字y"


@requirement("ainb:host-render-wide")
def test_a_covered_symbol_covers_nothing_itself() -> None:
    frame = drawn(at(1, 0, "字"), at(0, 0, "漢"), at(2, 0, "x"))
    assert frame.lines()[0] == "漢x"
    painted_over = drawn(at(0, 0, "漢"), at(0, 0, "a"), at(1, 0, "b"))
    assert painted_over.lines()[0] == "ab"


@requirement("ainb:host-render-wide")
def test_half_of_a_wide_symbol_is_not_shown_at_the_edge() -> None:
    frame = drawn(at(8, 0, "漢"), at(9, 1, "漢", bg=GOLD))
    assert frame.lines()[0] == "        漢"
    assert frame.cells[9, 1] == Cell(BLANK, None, (255, 215, 0), 0)


# Whatever a plugin sends.

SIDES = st.integers(-1, 70_000) | st.integers(0, 12)
SYMBOLS = st.text(max_size=4) | st.sampled_from(["漢", "👍🏽", "\x1b[31m", "", "\u202e", "🇨🇭", "e\u0301"])
COLOURS = st.none() | st.fixed_dictionaries({"r": st.integers(-1, 300), "g": st.just(1), "b": st.just(2)})
CELLS = st.tuples(
    st.fixed_dictionaries({"x": SIDES, "y": SIDES}),
    st.fixed_dictionaries({"symbol": SYMBOLS}, optional={"fg": COLOURS, "modifier": st.integers(0, 70_000)}),
)
PICTURES = st.fixed_dictionaries(
    {"buffer": st.fixed_dictionaries({"width": SIDES, "height": SIDES, "cells": st.lists(CELLS, max_size=30)})}
)
SANE = st.fixed_dictionaries(
    {
        "buffer": st.fixed_dictionaries(
            {
                "width": st.integers(0, 12),
                "height": st.integers(0, 5),
                "cells": st.lists(
                    st.tuples(
                        st.fixed_dictionaries({"x": st.integers(0, 14), "y": st.integers(0, 6)}),
                        st.fixed_dictionaries({"symbol": SYMBOLS}),
                    ),
                    max_size=40,
                ),
            }
        )
    }
)
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
)


@given(ANYTHING | PICTURES)
def test_any_json_is_a_picture_or_a_failure(value: Any) -> None:
    frame = decode(json.dumps(value).encode(), 8, 4)
    assert isinstance(frame, Frame) or frame.code == Code.MALFORMED_RESPONSE


@given(st.binary(max_size=80))
def test_any_bytes_are_a_picture_or_a_failure(data: bytes) -> None:
    frame = decode(data, 8, 4)
    assert isinstance(frame, Frame) or frame.code == Code.MALFORMED_RESPONSE


@given(SANE, st.integers(1, 10), st.integers(1, 6))
def test_what_is_painted_stays_inside_and_fills_no_line_beyond_its_end(value: Any, width: int, height: int) -> None:
    frame = decode(json.dumps(value).encode(), width, height)
    assert isinstance(frame, Frame)
    right, bottom = min(width, value["buffer"]["width"]), min(height, value["buffer"]["height"])
    for (x, y), cell in frame.cells.items():
        assert x >= 0 and x + cell_width(cell.symbol) <= right and 0 <= y < bottom
        assert cell_width(cell.symbol) == 1 or (x + 1, y) not in frame.cells
    lines = frame.lines()
    assert len(lines) == height
    for y, line in enumerate(lines):
        taken = sum(cell_width(cell.symbol) - 1 for (_, row), cell in frame.cells.items() if row == y)
        symbols = [frame.cells[x, y].symbol if (x, y) in frame.cells else BLANK for x in range(width)]
        assert line == "".join(_uncovered(frame, y, symbols)).rstrip(BLANK)
        assert len(_uncovered(frame, y, symbols)) + taken == width


def _uncovered(frame: Frame, y: int, symbols: list[str]) -> list[str]:
    covered = {x + 1 for (x, row), cell in frame.cells.items() if row == y and cell_width(cell.symbol) > 1}
    return [symbol for x, symbol in enumerate(symbols) if x not in covered]


@given(st.text(max_size=40))
def test_no_symbol_can_harm_a_terminal_and_cleaning_it_twice_changes_nothing(symbol: str) -> None:
    shown = clean(symbol)
    assert 1 <= len(shown) <= MAX_SYMBOL
    assert clean(shown) == shown
    assert cell_width(shown) in (1, 2)
    for char in shown:
        assert unicodedata.category(char) not in ("Cc", "Cs", "Zl", "Zp")
        assert unicodedata.bidirectional(char) not in ("LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI")
    shown.encode()
