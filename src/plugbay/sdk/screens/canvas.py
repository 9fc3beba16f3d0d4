"""`Canvas`: a grid of cells to paint on, its JSON, and the width of characters.

    canvas.box(0, 0, canvas.width, canvas.height, title="usage", fg="cyan")
    canvas.text(2, 1, "tokens today", bold=True)
    canvas.bar(2, 2, 30, used / limit, fg="green")

Coordinates count from the upper left; cells outside are ignored. A wide character takes two cells and is never cut in
half. Painted cells are written as JSON directly: building objects for an encoder takes three times as long. Colours are
`"#ff8800"`, `"#f80"`, one of sixteen names, or `(255, 136, 0)`.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from typing import TypedDict, Unpack

    class Style(TypedDict, total=False):
        """The style of cells. Missing values are the terminal's own."""

        fg: Colour
        bg: Colour
        bold: bool
        dim: bool
        italic: bool
        underline: bool
        reverse: bool

    Cell = tuple[str, str]
    """The symbol and the look of a cell, both as JSON writes them."""
    Rgb = tuple[int, int, int]
    Colour = str | Rgb
    Grapheme = tuple[str, int]

MODIFIERS = {"bold": 1, "dim": 2, "italic": 4, "underline": 8, "reverse": 16}

RIGHT_HALF: Cell = ("", "")
"""Where the character of the cell to the left goes on."""

BORDERS = {
    "single": tuple("┌─┐│└┘"),
    "round": tuple("╭─╮│╰╯"),
    "double": tuple("╔═╗║╚╝"),
    "heavy": tuple("┏━┓┃┗┛"),
    "ascii": tuple("+-+|++"),
}
"""Upper left, horizontal, upper right, vertical, lower left, lower right."""

EIGHTHS_ACROSS = " ▏▎▍▌▋▊▉█"

EIGHTHS_UP = " ▁▂▃▄▅▆▇█"

_ESCAPES = str.maketrans({'"': '\\"', "\\": "\\\\"})


class Picture(dict[str, object]):
    """The answer to a host that wants a screen, as the JSON it is sent as."""

    __slots__ = ("json",)

    def __init__(self, json: bytes) -> None:
        self.json = json


class Canvas:
    """Cells to paint on. `redraw` asks the host to draw again soon; `captures_text` tells that keys are typed text."""

    __slots__ = ("_cells", "_left", "_stride", "_top", "captures_text", "height", "redraw", "width")

    def __init__(self, width: int, height: int) -> None:
        self.width = max(width, 0)
        self.height = max(height, 0)
        self.redraw = False
        self.captures_text = False
        self._cells: list[Cell | None] = [None] * (self.width * self.height)
        self._stride = self.width
        self._left = self._top = 0

    def region(self, x: int, y: int, width: int, height: int) -> Canvas:
        """A part of the canvas with coordinates of its own; it paints on this canvas."""
        left, top = max(x, 0), max(y, 0)
        part = Canvas(0, 0)
        part._cells, part._stride = self._cells, self._stride
        part._left, part._top = self._left + left, self._top + top
        part.width = max(min(x + width, self.width) - left, 0)
        part.height = max(min(y + height, self.height) - top, 0)
        return part

    # Painting.

    def text(self, x: int, y: int, text: str, *, width: int | None = None, **style: Unpack[Style]) -> int:
        """Write from left to right, each line of the text one row below the last; the column after the longest.

        With `width`, a line that is longer than that ends in an ellipsis.
        """
        look, end = _look(style), x
        for row, line in enumerate(str(text).split("\n"), y):
            shown = line if width is None else shortened(line, width)
            end = max(end, self._write(x, row, shown, look))
        return end

    def fill(
        self,
        x: int = 0,
        y: int = 0,
        width: int | None = None,
        height: int | None = None,
        char: str = " ",
        **style: Unpack[Style],
    ) -> None:
        """Paint every cell of a rectangle; by default of the whole canvas."""
        area = self.region(x, y, self.width if width is None else width, self.height if height is None else height)
        look, (symbol, columns) = _look(style), next(graphemes(char), (" ", 1))
        row = symbol * (area.width // columns) + " " * (area.width % columns)
        for line in range(area.height):
            area._write(0, line, row, look)

    def line(
        self, x: int, y: int, length: int, *, vertical: bool = False, char: str = "", **style: Unpack[Style]
    ) -> None:
        """A line to the right, or downwards."""
        if vertical:
            self.fill(x, y, 1, length, char or "│", **style)
        else:
            self.fill(x, y, length, 1, char or "─", **style)

    def box(
        self, x: int, y: int, width: int, height: int, *, title: str = "", style: str = "single", **look: Unpack[Style]
    ) -> Canvas:
        """A frame with a title, in one of the styles of `BORDERS`; the region inside of it."""
        upper_left, across, upper_right, down, lower_left, lower_right = BORDERS[style]
        right, bottom = x + width - 1, y + height - 1
        if width >= 1 and height >= 1:
            self.line(x, y, width, char=across, **look)
            self.line(x, bottom, width, char=across, **look)
            self.line(x, y, height, vertical=True, char=down, **look)
            self.line(right, y, height, vertical=True, char=down, **look)
            for row, left_corner, right_corner in ((y, upper_left, upper_right), (bottom, lower_left, lower_right)):
                self.text(x, row, left_corner, **look)
                self.text(right, row, right_corner, **look)
        if title and width > 4:
            self.text(x + 1, y, f" {shortened(title, width - 4)} ", **look)
        return self.region(x + 1, y + 1, width - 2, height - 2)

    def bar(self, x: int, y: int, width: int, fraction: float, **style: Unpack[Style]) -> None:
        """A bar of `width` cells, filled from the left to an eighth of a cell; a fraction is from 0 to 1."""
        eighths = round(_within(fraction) * max(width, 0) * 8)
        full, rest = divmod(eighths, 8)
        drawn = EIGHTHS_ACROSS[8] * full + (EIGHTHS_ACROSS[rest] if rest else "")
        self.text(x, y, drawn.ljust(max(width, 0)), **style)

    def sparkline(
        self, x: int, y: int, width: int, values: Sequence[float], *, top: float | None = None, **style: Unpack[Style]
    ) -> None:
        """The last `width` values as a row of bars, as high as their share of `top`, by default the highest shown."""
        shown = values[-width:] if width > 0 else ()
        highest = max(shown, default=0) if top is None else top
        steps = [round(_within(value / highest) * 8) if highest > 0 else 0 for value in shown]
        self.text(x, y, "".join(EIGHTHS_UP[step] for step in steps), **style)

    def _write(self, x: int, y: int, text: str, look: str) -> int:
        """One line; the column after it, wherever the canvas ends."""
        if not (text.isascii() and text.isprintable()):
            return self._write_wide(x, y, text, look)
        end = x + len(text)
        shown = text[max(-x, 0) : max(self.width - x, 0)]
        if shown and 0 <= y < self.height:
            if '"' in shown or "\\" in shown:
                cells: list[Cell | None] = [(char.translate(_ESCAPES), look) for char in shown]
            else:
                cells = [(char, look) for char in shown]
            self._put(max(x, 0), y, cells)
        return end

    def _write_wide(self, x: int, y: int, text: str, look: str) -> int:
        """The same for any text; of a character that does not fit whole, blanks are shown."""
        cells: list[Cell | None] = []
        begin = max(x, 0)
        for symbol, columns in graphemes(text):
            end = x + columns
            if x >= 0 and end <= self.width:
                cells.append((symbol.translate(_ESCAPES), look))
                cells += [RIGHT_HALF] * (columns - 1)
            else:
                cells += [(" ", look)] * (min(end, self.width) - max(x, 0))
            x = end
        if cells and 0 <= y < self.height:
            self._put(begin, y, cells)
        return x

    def _put(self, x: int, y: int, cells: list[Cell | None]) -> None:
        """Paint cells that are inside; of a wide character that is painted over in part, a blank stays."""
        all_cells, row = self._cells, (self._top + y) * self._stride
        at = row + self._left + x
        end = at + len(cells)
        if all_cells[at] is RIGHT_HALF:
            all_cells[at - 1] = _blank(all_cells[at - 1])
        if end < row + self._stride and all_cells[end] is RIGHT_HALF:
            all_cells[end] = _blank(all_cells[end - 1])
        all_cells[at:end] = cells

    # Reading.

    @staticmethod
    def measure(text: str) -> int:
        """Columns that a text takes."""
        return width(text)

    def lines(self) -> list[str]:
        """The text of the canvas, without styles: for tests and for output without a screen."""
        return [
            "".join(" " if cell is None else _unescaped(cell[0]) for cell in self._row(line))
            for line in range(self.height)
        ]

    def picture(self) -> Picture:
        """The canvas as the answer to a host."""
        painted = [
            f'[{{"x":{x},"y":{y}}},{{"symbol":"{cell[0]}{cell[1]}'
            for y in range(self.height)
            for x, cell in enumerate(self._row(y))
            if cell is not None and cell is not RIGHT_HALF
        ]
        size = f'{{"buffer":{{"width":{self.width},"height":{self.height},"cells":['
        flags = f'"redraw":{_json(self.redraw)},"captures_text":{_json(self.captures_text)}'
        return Picture(f"{size}{','.join(painted)}]}},{flags}}}".encode())

    def _row(self, y: int) -> list[Cell | None]:
        at = (self._top + y) * self._stride + self._left
        return self._cells[at : at + self.width]


def _look(style: Style) -> str:
    """A style as the end of a cell's JSON."""
    colours = _colour("fg", style.get("fg")) + _colour("bg", style.get("bg"))
    return f'",{colours}"modifier":{_modifier(style)}}}]'


def _colour(key: str, colour: Colour | None) -> str:
    if colour is None:
        return ""
    red, green, blue = rgb(colour)
    return f'"{key}":{{"r":{red},"g":{green},"b":{blue}}},'


def _modifier(style: Mapping[str, object]) -> int:
    bits = 0
    for key, value in style.items():
        if key in MODIFIERS:
            bits |= MODIFIERS[key] if value else 0
        elif key not in ("fg", "bg"):
            raise TypeError(f"a cell cannot be {key}; it can be {', '.join(MODIFIERS)}, and have fg and bg")
    return bits


def _blank(cell: Cell | None) -> Cell:
    """The remainder of a wide character that was cut."""
    assert cell is not None, "a right half has a left one"
    return " ", cell[1]


def _unescaped(symbol: str) -> str:
    return symbol[1:] if len(symbol) > 1 and symbol[0] == "\\" else symbol


def _within(fraction: float) -> float:
    return min(max(0.0, fraction), 1.0)  # in this order, NaN becomes 0


def _json(flag: bool) -> str:
    return "true" if flag else "false"


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
    """Raises ValueError for an unknown colour."""
    if not isinstance(colour, str):
        red, green, blue = colour
        if not all(type(part) is int and 0 <= part <= 255 for part in (red, green, blue)):
            raise ValueError(f"a colour has three numbers from 0 to 255, not {colour!r}")
        return red, green, blue
    if colour.startswith("#"):
        return _from_digits(colour)
    known = NAMES.get(colour.lower().replace("grey", "gray").replace("-", "_"))
    if known is None:
        raise ValueError(f"there is no colour {colour!r}; use #rrggbb or one of {', '.join(NAMES)}")
    return known


def _from_digits(colour: str) -> Rgb:
    digits = colour[1:] if len(colour) == 7 else "".join(digit * 2 for digit in colour[1:])
    if len(digits) != 6 or not all(digit in "0123456789abcdefABCDEF" for digit in digits):
        raise ValueError(f"{colour!r} is not a colour; write it as #rrggbb or #rgb")
    value = int(digits, 16)
    return value >> 16, value >> 8 & 0xFF, value & 0xFF


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
    """The text of each cell, and the columns that it takes."""
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
    """The text in at most so many columns; an ellipsis stands for the rest."""
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
            if len(symbol) < MAX_POINTS:
                symbol += char
                columns = 2 if _widens(symbol, char) else columns
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
    """Whether a character is drawn in the cell of the previous one."""
    if kind in _JOINED or (symbol[-1] == JOINER and columns == 2):
        return True
    if "\U0001f3fb" <= char <= "\U0001f3ff":  # tones of skin
        return True
    return len(symbol) == 1 and _is_letter_of_flag(symbol) and _is_letter_of_flag(char)


def _widens(symbol: str, char: str) -> bool:
    """Whether a symbol takes two columns because of its last character; a blank has no picture."""
    return _is_letter_of_flag(char) or (char == AS_PICTURE and symbol[0] != " ")


def _is_letter_of_flag(char: str) -> bool:
    return "\U0001f1e6" <= char <= "\U0001f1ff"


def _shown(char: str, kind: str) -> str:
    """The first character of a cell; a mark with nothing before it stands on a blank."""
    if char == "\t":
        return " "
    if kind in _UNSHOWN:
        return REPLACEMENT
    return f" {char}" if kind in _JOINED else char
