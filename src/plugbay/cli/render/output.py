"""Printers for stdout and stderr, JSON output, prompts, and formats of durations, counts and versions.

Data goes to stdout, everything else to stderr; colour appears on a terminal only. Text of plugins is escaped so that it
cannot move the cursor. This module must stay cheap to import: rich, msgspec and logging load inside functions.
"""

from __future__ import annotations

import functools
import os
import sys
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING, Any, Literal

from plugbay.model.errors import PlugbayError

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Iterator, Sequence

    from rich.console import Console
    from rich.text import Text

    Pair = tuple[str, str]
    """A text and its style."""
    Part = str | Pair
    """A piece of a line, with or without a style."""

OK, BAD, WARN, SKIP = "✓", "✗", "!", "\N{EN DASH}"
DOT = " · "

GOOD_STYLE, BAD_STYLE, WARN_STYLE, DIM, NAME, CODE = "green", "bold red", "yellow", "dim", "bold", "cyan"

_PLAIN_SYMBOLS = str.maketrans(
    {"✓": "ok", "✗": "x", "\N{EN DASH}": "-", "·": "-", "…": "...", "→": "->", "←": "<-", "│": "|", "●": "*"}
)
"""Replacements for terminals without UTF-8."""

GAP = "  "
"""Between two columns of a table."""

HELP_GAP = 3
"""Between a name and its text on a help page."""

LABEL_WIDTH = 10
"""Columns for the label of a field and a gap."""

MARGIN = 7
"""Columns for `error:`, `hint:` and `note:`."""

NARROWEST = 20
"""Columns; with fewer left, the terminal wraps the lines itself."""

FAILED_STARTS = frozenset({"start_failed", "gave_up"})
"""Kinds of host log records that a command about one plugin leaves out: the failure of its call has more details."""

COLOURED_BYTES = 100_000
"""A longer document is printed plain: colouring it takes longer than reading it."""


class Printer:
    """Prints lines and fields for people, on stdout or stderr. In a pipe nothing is wrapped or coloured, and rich is
    not loaded: that takes as long as everything else of a short command.
    """

    def __init__(self, *, stderr: bool = False, console: Console | None = None) -> None:
        self._stderr = stderr
        self._console = console
        self._captured: list[str] | None = None

    @functools.cached_property
    def is_terminal(self) -> bool:
        """Whether lines are wrapped and coloured."""
        forced = any(name in os.environ for name in ("FORCE_COLOR", "TTY_COMPATIBLE"))
        if self._console is not None or forced:
            return self.console.is_terminal
        return self.file is not None and self.file.isatty()

    @functools.cached_property
    def console(self) -> Console:
        """For what needs rich itself."""
        if self._console is not None:
            return self._console
        from rich.console import Console

        # Under NO_COLOR rich would keep bold and dim; print no escape codes at all.
        colours: Literal["auto"] | None = None if os.environ.get("NO_COLOR") else "auto"
        width = 80 if os.environ.get("COLUMNS") == "0" else None  # some shells export 0; rich would print nothing
        return Console(
            stderr=self._stderr, color_system=colours, highlight=False, markup=False, emoji=False, width=width
        )

    @property
    def file(self) -> IO[str] | None:
        if self._console is not None:
            return self._console.file
        return sys.stderr if self._stderr else sys.stdout

    @functools.cached_property
    def _is_unicode(self) -> bool:
        return (getattr(self.file, "encoding", None) or "utf-8").lower().startswith("utf")

    @contextmanager
    def capturing(self) -> Iterator[list[str]]:
        """Collect the lines of the block instead of printing them."""
        lines = self._captured = []
        try:
            yield lines
        finally:
            self._captured = None

    def line(self, *parts: Part, indent: int = 0) -> None:
        """Print lines with the same indentation; a narrow terminal wraps them."""
        for line in _lines(parts):
            self._print([(" " * indent, "")], line)

    def field(
        self, label: str, *parts: Part, indent: int = 2, width: int = LABEL_WIDTH, label_style: str = DIM
    ) -> None:
        """Print a label and its text; wrapped text stays in its column."""
        lead = [(" " * indent, ""), (label, label_style), (" " * max(1, width - len(label)), "")]
        for line in _lines(parts):
            self._print(lead, line)
            lead = [(" " * _columns(lead), "")]

    def table(self, head: Sequence[str], rows: Sequence[tuple[Sequence[str], Sequence[Part]]]) -> None:
        """Print aligned columns. The last column takes the remaining width, and its text wraps inside it."""
        cells = [head[:-1], *(row for row, _ in rows)]
        widths = [max(len(row[at]) for row in cells) + len(GAP) for at in range(len(head) - 1)]
        for number, (row, last) in enumerate([(head[:-1], [(head[-1], DIM)]), *rows]):
            first, *others = [text.ljust(width) for text, width in zip(row, widths, strict=True)]
            lead = [(first, NAME if number else DIM), *((text, "" if number else DIM) for text in others)]
            self._print(lead, _styled(last))

    def rows(self, title: str, rows: Iterable[tuple[str, str]], width: int = 0) -> None:
        """Print a section of a help page: names and their texts; nothing without rows."""
        rows = list(rows)
        if rows:
            self.blank()
            self.line((title, NAME))
        width = width or max((len(name) for name, _ in rows), default=0) + HELP_GAP
        for name, text in rows:
            self.field(name, text, width=width, label_style=CODE)

    def blocks(self, text: str) -> None:
        """Print the end of a help page: blocks of a title and lines, with a blank line between two blocks."""
        for block in text.split("\n\n") if text else ():
            title, *lines = block.split("\n")
            self.blank()
            self.line((title, NAME))
            for line in lines:
                self.line(line.strip(), indent=2)

    def diff(self, lines: Iterable[str], *, indent: int = 0) -> None:
        """Print the lines of a unified diff, coloured."""
        for line in lines:
            self.line((line, {"+": GOOD_STYLE, "-": BAD_STYLE}.get(line[:1], DIM)), indent=indent)

    def verbatim(self, text: str, *, indent: int = 0) -> None:
        """Print one line for copying: not wrapped here, so the terminal copies it as one line."""
        self._put([(" " * indent + text, "")])

    def single(self, *parts: Part, most: int) -> None:
        """Print exactly one line, cut at the width of the terminal or at `most` columns in a pipe."""
        line = self._text([(text.replace("\n", " "), style) for text, style in _styled(parts)])
        line.truncate(self.console.width if self.is_terminal else most, overflow="ellipsis")
        self.console.print(line, soft_wrap=True)

    def blank(self) -> None:
        self._put([])

    def _text(self, pairs: Iterable[Pair]) -> Text:
        from rich.text import Text

        return Text.assemble(*((self._safe(text), style) for text, style in pairs))

    def _safe(self, text: str) -> str:
        text = "\n".join(map(safe, text.split("\n")))
        return text if self._is_unicode else text.translate(_PLAIN_SYMBOLS)

    def _print(self, lead: list[Pair], body: list[Pair]) -> None:
        """Wrap with hanging indentation, which rich's console lacks. Nothing is wrapped in a pipe."""
        if not self.is_terminal:
            self._write(self._plain([*lead, *body]).rstrip())
            return
        first, rest = self._text(lead), self._text(body)
        room = self.console.width - first.cell_len
        for piece in rest.wrap(self.console, room, overflow="fold") if room >= NARROWEST else [rest]:
            line = first + piece
            line.rstrip()
            self._show(line)
            first = self._text([(" " * first.cell_len, "")])

    def _put(self, pairs: list[Pair]) -> None:
        """Print one line as it is."""
        if self.is_terminal:
            self._show(self._text(pairs))
        else:
            self._write(self._plain(pairs))

    def _plain(self, pairs: Iterable[Pair]) -> str:
        return "".join(self._safe(text) for text, _ in pairs)

    def _show(self, line: Text) -> None:
        if self._captured is None:
            self.console.print(line, soft_wrap=True)
        else:
            with self.console.capture() as captured:
                self.console.print(line, soft_wrap=True)
            self._captured.append(captured.get())

    def _write(self, line: str) -> None:
        if self._captured is not None:
            self._captured.append(line + "\n")
        elif self.file is not None:
            self.file.write(line + "\n")


def _styled(parts: Iterable[Part]) -> list[Pair]:
    return [(part, "") if isinstance(part, str) else part for part in parts]


def _lines(parts: Iterable[Part]) -> list[list[Pair]]:
    """Styled text by lines; one that ends with a line break has an empty last line."""
    lines: list[list[Pair]] = [[]]
    for text, style in _styled(parts):
        first, *others = text.split("\n")
        lines[-1].append((first, style))
        lines += [[(other, style)] for other in others]
    return lines


def _columns(pairs: list[Pair]) -> int:
    """The width of a line on the screen."""
    text = "".join(text for text, _ in pairs)
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


@functools.cache
def out() -> Printer:
    """The printer for results."""
    return Printer(stderr=False)


@functools.cache
def err() -> Printer:
    """The printer for everything else."""
    return Printer(stderr=True)


def safe(text: str) -> str:
    """Escape control characters, so that the text cannot move the cursor, forge a line or hide itself."""
    if text.isprintable():
        return text
    from plugbay.model.text import printable

    return printable(text.encode("utf-8", "surrogatepass"))


def problem(message: str, *, hint: str = "") -> None:
    """Print an error and a hint on stderr."""
    err().field("error:", message, indent=0, width=MARGIN, label_style=BAD_STYLE)
    if hint:
        err().field("hint:", hint, indent=0, width=MARGIN, label_style=CODE)


def note(message: str) -> None:
    """Print a note on stderr."""
    err().field("note:", message, indent=0, width=MARGIN, label_style=WARN_STYLE)


def using(host: str) -> None:
    """Print on stderr which server or which folder this command uses. Commands that print JSON leave it out."""
    err().line((f"using {host}", DIM))


def confirm(question: str) -> bool:
    """Ask a yes-or-no question on the terminal; False without a terminal."""
    if sys.stdin is None or not sys.stdin.isatty():
        return False
    console = err().console
    console.print(f"{question} [y/N] ", end="")
    answer = sys.stdin.readline()
    if not answer:  # Ctrl-D leaves the cursor on the line of the question
        console.print()
    return answer.strip().lower() in {"y", "yes"}


def show_host_log(*, without: Container[str] = ()) -> None:
    """Print warnings that the host logs as notes on stderr, except kinds that the command reports itself."""
    import logging

    class Notes(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if getattr(record, "kind", "") not in without:
                note(record.getMessage())

    logger = logging.getLogger("plugbay")
    if not logger.handlers:
        logger.addHandler(Notes(logging.WARNING))


def print_json(value: Any) -> None:
    """Print one JSON document on stdout: one line in a pipe, indented on a terminal."""
    document = json_bytes(value)
    if _stdout_is_terminal():
        print_document(document)
    else:
        _write(document + b"\n")


def print_line(value: Any) -> None:
    """Print one JSON value as one line on stdout and flush."""
    _write(json_bytes(value) + b"\n")


def print_document(document: bytes) -> None:
    """Print JSON bytes indented; numbers keep every digit that the plugin sent."""
    import msgspec

    text = msgspec.json.format(document, indent=2).decode().translate(_JSON_ESCAPES)
    if _stdout_is_terminal() and len(text) <= COLOURED_BYTES:
        from rich.highlighter import JSONHighlighter
        from rich.text import Text

        out().console.print(JSONHighlighter()(Text(text)), soft_wrap=True)
    else:
        _write(text.encode() + b"\n")


_JSON_ESCAPES = {
    code: f"\\u{code:04x}" for code in (*range(0x7F, 0xA0), *range(0x202A, 0x202F), *range(0x2066, 0x206A))
}
"""Control characters that JSON allows unescaped. They occur only inside strings, where the escape means the same."""


def json_bytes(value: Any) -> bytes:
    """Encode `value` as JSON; text that is not valid Unicode, such as an odd file name, is escaped."""
    import msgspec

    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError:
        return msgspec.json.encode(_encodable(value))


def _encodable(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, dict):
        return {_encodable(key): _encodable(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_encodable(item) for item in value]
    return value


def _stdout_is_terminal() -> bool:
    return sys.stdout is not None and sys.stdout.isatty()


def _write(data: bytes) -> None:
    """Write bytes to stdout, past its text layer: JSON is UTF-8 in every locale.

    Flushed here, so that a full disk or a closed pipe fails the command and not the interpreter's shutdown.
    """
    if sys.stdout is None:
        raise PlugbayError("standard output is closed; the result cannot be written")
    sys.stdout.flush()
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()


def duration(milliseconds: float) -> str:
    """`0.4 ms`, `38 ms`, `1.24 s`."""
    if milliseconds < 10:
        return f"{milliseconds:.1f} ms"
    if milliseconds < 1000:
        return f"{milliseconds:.0f} ms"
    return f"{milliseconds / 1000:.2f} s"


def count(number: int, singular: str, plural: str = "") -> str:
    """`1 error`, `2 errors`."""
    return f"{number} {singular if number == 1 else plural or singular + 's'}"


def known_version(version: str) -> str:
    """The version, or an empty string while it is unknown: an MCP server states its own in its greeting."""
    from plugbay.contracts.mcp.spec import UNKNOWN_VERSION

    return "" if version == UNKNOWN_VERSION else version


def name_with_version(name: str, version: str) -> str:
    """`weather 1.0.0`, or `weather`."""
    return f"{name} {known_version(version)}".rstrip()
