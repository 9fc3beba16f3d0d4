"""Colours as an author names them, as the three numbers of a terminal.

`"#ff8800"`, `"#f80"`, one of sixteen names, or `(255, 136, 0)`. Owns the names; knows nothing of cells.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    Rgb = tuple[int, int, int]
    Colour = str | Rgb

NAMES: dict[str, Rgb] = {
    "black": (0, 0, 0),
    "red": (205, 49, 49),
    "green": (13, 188, 121),
    "yellow": (229, 229, 16),
    "blue": (36, 114, 200),
    "magenta": (188, 63, 188),
    "cyan": (17, 168, 205),
    "white": (229, 229, 229),
    "gray": (102, 102, 102),
    "bright_red": (241, 76, 76),
    "bright_green": (35, 209, 139),
    "bright_yellow": (245, 245, 67),
    "bright_blue": (59, 142, 234),
    "bright_magenta": (214, 112, 214),
    "bright_cyan": (41, 184, 219),
    "bright_white": (255, 255, 255),
}
"""The sixteen of a terminal, readable on a dark ground; a wire has no other way to name them than these numbers."""


def rgb(colour: Colour) -> Rgb:
    """Raises ValueError for what is no colour."""
    if not isinstance(colour, str):
        red, green, blue = colour
        if not all(type(part) is int and 0 <= part <= 255 for part in (red, green, blue)):
            raise ValueError(f"a colour has three numbers from 0 to 255, not {colour!r}")
        return red, green, blue
    if colour.startswith("#"):
        return _from_digits(colour)
    known = NAMES.get(colour.lower().replace("grey", "gray").replace("-", "_"))
    if known is None:
        raise ValueError(f"there is no colour {colour!r}; there is #rrggbb, and {', '.join(NAMES)}")
    return known


def _from_digits(colour: str) -> Rgb:
    digits = colour[1:] if len(colour) == 7 else "".join(digit * 2 for digit in colour[1:])
    if len(digits) != 6 or not all(digit in "0123456789abcdefABCDEF" for digit in digits):
        raise ValueError(f"{colour!r} is no colour; write it as #rrggbb or #rgb")
    value = int(digits, 16)
    return value >> 16, value >> 8 & 0xFF, value & 0xFF
