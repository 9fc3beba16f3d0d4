"""Text as a terminal shows it: what stands in one cell, and what takes two.

A wide character takes two columns; a mark, a joiner or a variation stands in the cell of what it belongs to. What a
terminal would obey instead of showing it, such as an escape, is shown as a replacement. Owns that and nothing else.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    Grapheme = tuple[str, int]

MAX_POINTS = 16
"""Code points of one cell. A family with skin tones takes 11; a tower of marks takes any number."""

REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
JOINER = "\N{ZERO WIDTH JOINER}"
AS_PICTURE = "\N{VARIATION SELECTOR-16}"
ELLIPSIS = "\N{HORIZONTAL ELLIPSIS}"

_JOINED = ("Mn", "Me", "Mc", "Cf")
"""Categories that have no cell of their own: marks, and format characters."""
_UNSHOWN = ("Cc", "Cs", "Zl", "Zp")
"""Controls, halves of surrogate pairs, and ends of lines and paragraphs."""


def graphemes(text: str) -> Iterator[Grapheme]:
    """What each cell shows, and how many columns it takes."""
    if text.isascii() and text.isprintable():
        for char in text:
            yield char, 1
        return
    yield from _clusters(text)


def width(text: str) -> int:
    """Columns that a text takes."""
    if text.isascii() and text.isprintable():
        return len(text)
    return sum(columns for _, columns in _clusters(text))


def shortened(text: str, most: int) -> str:
    """The text in at most so many columns; an ellipsis stands for what is left out."""
    if width(text) <= most:
        return text
    kept, used = [], 1
    for symbol, columns in graphemes(text):
        used += columns
        if used > most:
            break
        kept.append(symbol)
    return "".join(kept) + ELLIPSIS if most > 0 else ""


def _clusters(text: str) -> Iterator[Grapheme]:
    symbol, columns = "", 0
    for char in text:
        kind, own = _measure(char)
        if kind == "Cf" and not _joins(char):
            continue  # it would change how the rest of the line is read
        if symbol and _belongs(symbol, columns, char, kind):
            symbol += char if len(symbol) < MAX_POINTS else ""
            columns = 2 if char == AS_PICTURE or _is_letter_of_flag(char) else columns
            continue
        if symbol:
            yield symbol, columns
        symbol, columns = _shown(char, kind), own
    if symbol:
        yield symbol, columns


def _measure(char: str) -> tuple[str, int]:
    from unicodedata import category, east_asian_width

    return category(char), 2 if east_asian_width(char) in "WF" else 1


def _joins(char: str) -> bool:
    """Whether a format character makes one picture of several."""
    return char == JOINER or "\U000e0020" <= char <= "\U000e007f"


def _belongs(symbol: str, columns: int, char: str, kind: str) -> bool:
    """Whether a character stands in the cell of what is before it."""
    if kind in _JOINED or (symbol[-1] == JOINER and columns == 2):
        return True
    if "\U0001f3fb" <= char <= "\U0001f3ff":  # tones of skin
        return True
    return len(symbol) == 1 and _is_letter_of_flag(symbol) and _is_letter_of_flag(char)


def _is_letter_of_flag(char: str) -> bool:
    return "\U0001f1e6" <= char <= "\U0001f1ff"


def _shown(char: str, kind: str) -> str:
    """The first character of a cell; a mark with nothing before it stands on a blank."""
    if char == "\t":
        return " "
    if kind in _UNSHOWN:
        return REPLACEMENT
    return f" {char}" if kind in _JOINED else char
