"""A frame of a plugin's screen as SVG: cells of text on a grid. Pure.

Colours are attributes of the drawing, because the pages allow no styles of their own. Symbols are checked by
`host.screens.frames`; they are escaped here.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

import msgspec
from markupsafe import Markup

from plugbay.host.screens.frames import BLANK, Cell, Frame, cell_width

COLUMN, ROW = 9.64, 18.6
"""Size of a cell, in units of the drawing: that of common fonts at a size of 16, so that boxes meet."""

BASELINE = 14.8
"""Of the text in a row."""

SIZES = ("80x24", "100x30", "120x40", "40x24")
"""Sizes of screens on a page; the first is the default, the last fits a phone."""

BOLD, DIM, ITALIC, UNDERLINE, REVERSED = 1, 2, 4, 8, 16

_PLAIN = Cell(BLANK, None, None, 0)


class ScreenView(msgspec.Struct, frozen=True):
    """A screen on a page: its last frame, or why there is none."""

    name: str
    frame: Frame | None
    problem: str = ""


def size_of(text: str) -> tuple[int, int]:
    """Columns and rows of one of `SIZES`."""
    columns, _, rows = (text if text in SIZES else SIZES[0]).partition("x")
    return int(columns), int(rows)


def frame_svg(frame: Frame) -> Markup:
    """The drawing of a frame."""
    parts = Markup("").join(part for y in range(frame.height) for part in _row(frame, y))
    return Markup('<svg class="cells" viewBox="0 0 {:g} {:g}" aria-hidden="true">{}</svg>').format(
        frame.width * COLUMN, frame.height * ROW, parts
    )


def _row(frame: Frame, y: int) -> Iterator[Markup]:
    """The runs of a row: cells of one look beside each other."""
    x = 0
    for (look, _), group in groupby(_cells(frame, y), key=lambda cell: (cell[1:], cell_width(cell.symbol) > 1)):
        cells = list(group)
        text = "".join(cell.symbol for cell in cells)
        columns = sum(cell_width(cell.symbol) for cell in cells)
        yield from _run(x, y, columns, text, Cell(text, *look))
        x += columns


def _cells(frame: Frame, y: int) -> Iterator[Cell]:
    x = 0
    while x < frame.width:
        cell = frame.cells.get((x, y), _PLAIN)
        yield cell
        x += max(1, cell_width(cell.symbol))


def _run(x: int, y: int, columns: int, text: str, look: Cell) -> Iterator[Markup]:
    swapped = bool(look.modifier & REVERSED)
    ink, ground = (look.bg, look.fg) if swapped else (look.fg, look.bg)
    if ground is not None or swapped:
        colour = Markup("") if ground is None else Markup(' fill="{}"').format(_hex(ground))
        shape = Markup('<rect class="{}" x="{:g}" y="{:g}" width="{:g}" height="{:g}"{}/>')
        kind = "ink" if ground is None else "ground"
        yield shape.format(kind, x * COLUMN, y * ROW, columns * COLUMN, ROW, colour)
    if not text.strip(BLANK):
        return
    more = Markup("").join(
        Markup(words)
        for bit, words in (
            (BOLD, ' font-weight="bold"'),
            (DIM, ' opacity="0.6"'),
            (ITALIC, ' font-style="italic"'),
            (UNDERLINE, ' text-decoration="underline"'),
        )
        if look.modifier & bit
    )
    colour = Markup("") if ink is None else Markup(' fill="{}"').format(_hex(ink))
    kind = "paper" if ink is None and swapped else "ink"
    yield Markup('<text class="{}" x="{:g}" y="{:g}" textLength="{:g}"{}{}>{}</text>').format(
        kind, x * COLUMN, y * ROW + BASELINE, columns * COLUMN, colour, more, text.replace(BLANK, "\N{NO-BREAK SPACE}")
    )


def _hex(colour: tuple[int, int, int]) -> str:
    return "#{:02x}{:02x}{:02x}".format(*colour)
