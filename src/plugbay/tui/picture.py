"""Renders a frame as styled text for a terminal, or as SVG.

Nothing that a plugin draws is interpreted as markup or reaches the terminal as a control character. Imports rich and
nothing heavier.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from html import escape
from itertools import groupby
from typing import NamedTuple

from rich.cells import cell_len
from rich.color import Color
from rich.segment import Segment
from rich.style import Style
from rich.text import Text

from plugbay.host.screens.frames import BLANK, Cell, Frame, cell_width, clean

Rgb = tuple[int, int, int]

BOLD, DIM, ITALIC, UNDERLINE, REVERSED = 1, 2, 4, 8, 16
"""The bits of a cell's modifier; others are ignored."""

REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
"""Replaces a symbol that rich measures wider than the frame allows, so that the rest of the line does not move."""

CACHE_SIZE = 4096
"""Cache size for styles and symbols. A frame of 200 by 60 has 12,000 cells and rarely more than a hundred of either."""

NOTHING = Cell(BLANK, None, None, 0)
"""Shown where a plugin drew nothing."""


def rich_text(frame: Frame) -> Text:
    """The whole frame, including blanks, at full width."""
    text = Text(no_wrap=True, end="")
    for y in range(frame.height):
        if y:
            text.append("\n")
        for segment in row(frame, y):
            text.append(segment.text, segment.style)
    return text


def row(frame: Frame, y: int) -> list[Segment]:
    """One line of the frame as runs of equal style, at full width."""
    looks = groupby(_glyphs(frame, y), lambda glyph: (glyph.cell.fg, glyph.cell.bg, glyph.cell.modifier))
    return [Segment("".join(glyph.text for glyph in glyphs), style_of(*look)) for look, glyphs in looks]


class _Glyph(NamedTuple):
    """A symbol and its column."""

    x: int
    columns: int
    text: str
    cell: Cell


def _glyphs(frame: Frame, y: int) -> Iterator[_Glyph]:
    """The visible symbols from left to right. A wide symbol hides the next cell, as in a terminal."""
    x = 0
    while x < frame.width:
        cell = frame.cells.get((x, y), NOTHING)
        text, columns = shown(cell.symbol)
        if x + columns > frame.width:
            text, columns = BLANK, 1  # half of a wide symbol cannot be shown
        yield _Glyph(x, columns, text, cell)
        x += columns


@lru_cache(CACHE_SIZE)
def shown(symbol: str) -> tuple[str, int]:
    """The symbol to show and its width: 1 or 2 columns."""
    text = clean(symbol)
    columns, width = cell_width(text), cell_len(text)
    return (REPLACEMENT * columns if width > columns else text + BLANK * (columns - width)), columns


@lru_cache(CACHE_SIZE)
def style_of(fg: Rgb | None, bg: Rgb | None, modifier: int) -> Style:
    """The style of a cell; unset colours are the terminal's."""
    return Style(
        color=None if fg is None else Color.from_rgb(*fg),
        bgcolor=None if bg is None else Color.from_rgb(*bg),
        bold=bool(modifier & BOLD) or None,
        dim=bool(modifier & DIM) or None,
        italic=bool(modifier & ITALIC) or None,
        underline=bool(modifier & UNDERLINE) or None,
        reverse=bool(modifier & REVERSED) or None,
    )


# SVG. Our own, because rich measures runs in code points, which squeezes wide symbols.

FONT = "DejaVu Sans Mono, Menlo, Consolas, monospace"
FONT_SIZE = 16
COLUMN = 9.64
"""Pixels per column: the width of the first font at this size. Other fonts are stretched to it."""
LINE = 18.6
"""Pixels per line: the height of the first font, so that box-drawing lines meet."""
BASELINE = 14.8
"""Pixels from the top of a line to its baseline."""
EDGE = 12
"""Pixels of margin."""
TITLE = 36
"""Pixels of the title bar."""

FOREGROUND, BACKGROUND, BAR = "#d7dce5", "#141821", "#1b202c"

LIGHTS = ("#ff5f57", "#febc2e", "#28c840")


def svg(frame: Frame, title: str) -> str:
    """A window with a title around the frame. Deterministic, and loads nothing."""
    width = frame.width * COLUMN + 2 * EDGE
    height = frame.height * LINE + TITLE + EDGE
    label = "".join(character if character.isprintable() else REPLACEMENT for character in title)
    lights = [f'<circle cx="{20 + 20 * index}" cy="18" r="6" fill="{fill}"/>' for index, fill in enumerate(LIGHTS)]
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.2f} {height:.2f}" '
        f'font-family="{FONT}" font-size="{FONT_SIZE}" fill="{FOREGROUND}">',
        f'<rect width="100%" height="100%" rx="8" fill="{BAR}"/>',
        *lights,
        f'<text x="50%" y="23" text-anchor="middle" font-size="14">{escape(label)}</text>',
        f'<rect y="{TITLE}" width="100%" height="{height - TITLE:.2f}" rx="8" fill="{BACKGROUND}"/>',
        f'<g transform="translate({EDGE} {TITLE + EDGE / 2:g})">',
        *(part for y in range(frame.height) for part in _svg_line(frame, y)),
        "</g>",
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _svg_line(frame: Frame, y: int) -> Iterator[str]:
    for _, run in groupby(_glyphs(frame, y), _same_run):
        glyphs = list(run)
        first, text = glyphs[0], "".join(glyph.text for glyph in glyphs)
        place, columns = (first.x * COLUMN, y * LINE), sum(glyph.columns for glyph in glyphs)
        yield from _svg_run(place, columns * COLUMN, text, first.cell)


def _same_run(glyph: _Glyph) -> tuple[object, ...]:
    """Runs of equal style; a wide symbol is a run of its own, because its width differs."""
    cell = glyph.cell
    return cell.fg, cell.bg, cell.modifier, glyph.x if glyph.columns > 1 else None


def _svg_run(place: tuple[float, float], width: float, text: str, cell: Cell) -> Iterator[str]:
    (x, y), modifier = place, cell.modifier
    ink, paper = _hex(cell.fg), _hex(cell.bg)
    if modifier & REVERSED:
        ink, paper = paper or BACKGROUND, ink or FOREGROUND
    if paper:
        yield (
            f'<rect x="{x:.2f}" y="{y:.2f}" width="{width:.2f}" height="{LINE}" '
            f'fill="{paper}" shape-rendering="crispEdges"/>'
        )
    if not modifier & UNDERLINE:
        # Blanks at the ends show nothing, and some viewers misplace the text after them.
        text, before = text.rstrip(BLANK), len(text)
        width -= (before - len(text)) * COLUMN
        text, before = text.lstrip(BLANK), len(text)
        x, width = x + (before - len(text)) * COLUMN, width - (before - len(text)) * COLUMN
    if not text:
        return
    looks = [
        f' fill="{ink}"' if ink else "",
        ' font-weight="bold"' if modifier & BOLD else "",
        ' fill-opacity="0.6"' if modifier & DIM else "",
        ' font-style="italic"' if modifier & ITALIC else "",
        ' text-decoration="underline"' if modifier & UNDERLINE else "",
    ]
    written = escape(text).replace(BLANK, "&#160;")
    yield (
        f'<text x="{x:.2f}" y="{y + BASELINE:.2f}" textLength="{width:.2f}" '
        f'lengthAdjust="spacingAndGlyphs"{"".join(looks)}>{written}</text>'
    )


def _hex(colour: Rgb | None) -> str | None:
    return None if colour is None else "#{:02x}{:02x}{:02x}".format(*colour)
