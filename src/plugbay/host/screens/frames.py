"""Decodes and sanitizes frames: the raw result of a render becomes a `Frame`, or a `Failure` with the bad path.

Owns the wire format, the clipping, and which symbols are allowed and how many columns they take. Symbols end up in a
terminal, so none of them can move the cursor, change the direction of text or be more than one grapheme.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping
from functools import lru_cache
from typing import Annotated, Any, NamedTuple

import msgspec

from plugbay.model.errors import Code, Failure, Origin

MAX_CELLS = 140_000
"""Cells of one frame, overwritten ones included: with both its colours, a cell takes about 115 bytes of the 16 MiB
of a message. No terminal has half as many, and they keep the host busy for a tenth of a second."""

MAX_SYMBOL = 16
"""Code points of one symbol. The emoji of a family of four has eleven."""

MODIFIERS = 0b11111
"""The known bits of a modifier: bold 1, dim 2, italic 4, underline 8, reversed 16."""

CACHED_SYMBOLS = 4096
"""Symbols whose form and width are cached: more than any screen shows at once."""

BLANK = " "

_PLAIN = frozenset(map(chr, range(0x20, 0x7F)))
"""Symbols that need no cleaning: nearly all."""

_JOINER = "\N{ZERO WIDTH JOINER}"
_EMOJI_STYLE = "\N{VARIATION SELECTOR-16}"
_KEYCAP = "\N{COMBINING ENCLOSING KEYCAP}"
_MARKS = frozenset({"Mn", "Me", "Mc"})
_HARMFUL = frozenset({"Cc", "Cf", "Cs", "Cn", "Zl", "Zp"})
"""Unicode categories that are removed: controls, formats such as bidi marks, surrogates, unassigned, line breaks."""


class Cell(NamedTuple):
    """One painted cell. A colour is (red, green, blue), None for the terminal's own."""

    symbol: str
    fg: tuple[int, int, int] | None
    bg: tuple[int, int, int] | None
    modifier: int


class Frame(msgspec.Struct, frozen=True):
    """One frame of a screen. Cells that are not listed are blank; the second cell of a wide symbol is not listed."""

    width: int
    height: int
    cells: dict[tuple[int, int], Cell]
    """By (x, y)."""
    redraw: bool
    """The plugin requests another render soon."""
    captures_text: bool
    """The plugin takes every typed character, even the key bindings of the host."""

    def lines(self) -> list[str]:
        """The text of each row, without the blanks at its end."""
        return [self._line(y) for y in range(self.height)]

    def to_json(self) -> dict[str, Any]:
        """The public JSON shape; cells that are not listed are blank."""
        places = sorted(self.cells, key=lambda place: place[::-1])
        return {
            "width": self.width,
            "height": self.height,
            "lines": self.lines(),
            "cells": [{"x": x, "y": y, **self.cells[x, y]._asdict()} for x, y in places],
            "redraw": self.redraw,
            "captures_text": self.captures_text,
        }

    @classmethod
    def from_json(cls, shape: Mapping[str, Any]) -> Frame:
        """The frame of `to_json`, as another plugbay sent it."""
        cells = {(cell["x"], cell["y"]): _from_json(cell) for cell in shape["cells"]}
        return cls(shape["width"], shape["height"], cells, shape["redraw"], shape["captures_text"])

    def _line(self, y: int) -> str:
        symbols, x = [], 0
        while x < self.width:
            cell = self.cells.get((x, y))
            symbols.append(cell.symbol if cell else BLANK)
            x += cell_width(symbols[-1])
        return "".join(symbols).rstrip(BLANK)


def _from_json(cell: Mapping[str, Any]) -> Cell:
    fg, bg = (None if colour is None else tuple(colour) for colour in (cell["fg"], cell["bg"]))
    return Cell(clean(cell["symbol"]), fg, bg, cell["modifier"])


_U8 = Annotated[int, msgspec.Meta(ge=0, le=0xFF)]
_U16 = Annotated[int, msgspec.Meta(ge=0, le=0xFFFF)]


class _Colour(msgspec.Struct, gc=False):
    r: _U8
    g: _U8
    b: _U8


class _Position(msgspec.Struct, gc=False):
    x: _U16
    y: _U16


class _Cell(msgspec.Struct, gc=False):
    symbol: str
    fg: _Colour | None = None
    bg: _Colour | None = None
    modifier: _U16 = 0


class _Buffer(msgspec.Struct, gc=False):
    width: _U16
    height: _U16
    cells: Annotated[list[tuple[_Position, _Cell]], msgspec.Meta(max_length=MAX_CELLS)]


class _Render(msgspec.Struct, gc=False):
    buffer: _Buffer
    redraw: bool = False
    captures_text: bool = False


_decode = msgspec.json.Decoder(_Render).decode


def decode(result: bytes | msgspec.Raw, width: int, height: int) -> Frame | Failure:
    """The frame in the raw JSON of a render's result, clipped to its own size and to the requested one.

    Of several cells at one position the last counts.
    """
    try:
        rendered = _decode(result)
    except (ValueError, RecursionError) as error:
        text = f"the frame cannot be decoded: {error}"
        return Failure(Code.MALFORMED_RESPONSE, text, origin=Origin.PLUGIN)
    cells = _visible_cells(rendered.buffer, min(width, rendered.buffer.width), min(height, rendered.buffer.height))
    return Frame(width, height, cells, rendered.redraw, rendered.captures_text)


def _visible_cells(buffer: _Buffer, right: int, bottom: int) -> dict[tuple[int, int], Cell]:
    """The cells inside the clip. Written for speed: a full screen of 200 by 60 is decoded at every key press."""
    cells: dict[tuple[int, int], Cell] = {}
    wide: set[tuple[int, int]] = set()
    for at, cell in buffer.cells:
        x, y, symbol, fg, bg = at.x, at.y, cell.symbol, cell.fg, cell.bg
        if x >= right or y >= bottom:
            continue
        if symbol not in _PLAIN:
            symbol = clean(symbol)
            if cell_width(symbol) > 1:
                # The second half of a wide symbol would be outside.
                symbol = symbol if x + 1 < right else BLANK
                wide.add((x, y))
        cells[x, y] = Cell(
            symbol,
            None if fg is None else (fg.r, fg.g, fg.b),
            None if bg is None else (bg.r, bg.g, bg.b),
            cell.modifier & MODIFIERS,
        )
    for x, y in sorted(wide):
        if (x, y) in cells and cell_width(cells[x, y].symbol) > 1:
            cells.pop((x + 1, y), None)
    return cells


# Symbols.


def clean(symbol: str) -> str:
    """The first grapheme of a cell's text; a blank when there is none, or when the text has a control character."""
    return _cleaned(symbol[: 2 * MAX_SYMBOL])


@lru_cache(CACHED_SYMBOLS)
def _cleaned(head: str) -> str:
    """Cached by a short prefix: a symbol may be as long as a message, and thousands are cached."""
    text = "" if any(unicodedata.category(char) == "Cc" for char in head) else "".join(filter(_harmless, head))
    return text[: _grapheme(text)] if text and not _is_combining(text[0]) else BLANK


@lru_cache(CACHED_SYMBOLS)
def cell_width(symbol: str) -> int:
    """How many columns one symbol takes: 1 or 2."""
    first = symbol[:1] or BLANK
    if _is_flag_half(first):
        return 2 if len(symbol) > 1 else 1
    if _EMOJI_STYLE in symbol:
        return 1 if first.isascii() and _KEYCAP not in symbol else 2
    return 2 if unicodedata.east_asian_width(first) in "WF" or _is_newer_emoji(first) else 1


def _harmless(char: str) -> bool:
    if unicodedata.category(char) not in _HARMFUL:
        return True
    return char == _JOINER or _is_tag(char) or _is_newer_emoji(char)


def _grapheme(text: str) -> int:
    """The end of the first grapheme of `text`: Unicode's rules, without those for scripts that join letters."""
    end = 2 if len(text) > 1 and _is_flag_half(text[0]) and _is_flag_half(text[1]) else 1
    while end < len(text) and end < MAX_SYMBOL:
        if text[end] == _JOINER:
            if end + 1 == len(text) or text[0].isascii() or _is_combining(text[end + 1]):
                break
            end += 2
        elif _is_combining(text[end]) or _is_syllable(text[end - 1], text[end]):
            end += 1
        else:
            break
    return min(end, MAX_SYMBOL)


def _is_combining(char: str) -> bool:
    """Whether a character modifies the one before it."""
    is_skin_tone = "\U0001f3fb" <= char <= "\U0001f3ff"
    return unicodedata.category(char) in _MARKS or char == _JOINER or _is_tag(char) or is_skin_tone


def _is_flag_half(char: str) -> bool:
    return "\U0001f1e6" <= char <= "\U0001f1ff"


def _is_tag(char: str) -> bool:
    """Tag characters, which spell the flags of regions."""
    return "\U000e0020" <= char <= "\U000e007f"


def _is_syllable(before: str, after: str) -> bool:
    """Whether two Hangul jamo form one syllable."""
    return "\u1100" <= before <= "\u11ff" and "\u1160" <= after <= "\u11ff"


def _is_newer_emoji(char: str) -> bool:
    """Whether it is an unassigned code point of the emoji blocks: newer than the tables of this Python."""
    return "\U0001f300" <= char <= "\U0001faff" and unicodedata.category(char) == "Cn"
