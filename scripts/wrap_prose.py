"""Wrap the prose of the pages at 118 columns: `python scripts/wrap_prose.py [FILE…]`, by default every page.

Pages of `docs/reference` are generated and stay as they are.

Code blocks, comments, tables, headings and pictures stay as they are; code spans and links are not broken.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
WIDTH = 118
WORD = re.compile(r"(?:``[^`].*?``|`[^`]*`|!?\[(?:[^\[\]]|`[^`]*`)*\]\([^()\s]*\)|[^\s`\[]|\[|`)+")
FENCE = re.compile(r"\s*(```|~~~)")
FIXED = re.compile(r"\s*(\||#|<|---|!\[)|    |\s*$")
ITEM = re.compile(r"\s*(?:[-*]|\d+\.)\s+")
STARTS_BLOCK = re.compile(r"([-+*>]|\d+[.)]|[|#].*|```.*|~~~.*)$")
"""Words that would begin a list, a table or a heading at the start of a line."""


def pages() -> list[Path]:
    written = [page for page in ROOT.glob("docs/**/*.md") if page.parent.name != "reference"]
    return [*written, *(ROOT / f"{name}.md" for name in ("README", "ARCHITECTURE", "CONTRIBUTING"))]


def wrap(text: str) -> str:
    return "\n".join(_lines(text.split("\n")))


def _lines(lines: list[str]) -> Iterator[str]:
    at = 0
    while at < len(lines):
        end = _block_end(lines, at)
        if end > at + 1 or (FIXED.match(lines[at]) and not ITEM.match(lines[at])):
            yield from lines[at : max(end, at + 1)]
            at = max(end, at + 1)
            continue
        marker = ITEM.match(lines[at])
        first = marker[0] if marker else re.match(r"\s*(?:> )?", lines[at])[0]  # type: ignore[index]
        rest = " " * len(first) if marker else first
        stop = at + 1
        while stop < len(lines) and _continues(lines[stop - 1], lines[stop]):
            stop += 1
        text = " ".join(
            line.removeprefix(first if number == 0 else rest).strip() for number, line in enumerate(lines[at:stop])
        )
        yield from _wrapped(text, first, rest, "  " if lines[stop - 1].endswith("  ") else "")
        at = stop


def _block_end(lines: list[str], at: int) -> int:
    """The line after a code block or a comment that begins at `at`; `at` when none does."""
    fence = FENCE.match(lines[at])
    if fence:
        ends = (number for number in range(at + 1, len(lines)) if lines[number].lstrip().startswith(fence[1]))
    elif lines[at].lstrip().startswith("<!--"):
        ends = (number for number in range(at, len(lines)) if "-->" in lines[number])
    else:
        return at
    return next(ends, len(lines) - 1) + 1


def _continues(before: str, line: str) -> bool:
    if before.endswith("  ") or not line.strip() or FENCE.match(line) or ITEM.match(line):
        return False
    return not re.match(r"\s*(\||#{1,6} |<|---|!\[)", line)


def _wrapped(text: str, first: str, rest: str, end: str) -> Iterator[str]:
    line, empty = first, True
    for word in WORD.findall(text):
        if empty or len(line) + 1 + len(word) <= WIDTH or STARTS_BLOCK.match(word):
            line += word if empty else f" {word}"
        else:
            yield line
            line = rest + word
        empty = False
    yield line + end


if __name__ == "__main__":
    for page in [Path(name) for name in sys.argv[1:]] or pages():
        old = page.read_text("utf-8")
        new = wrap(old)
        if new != old:
            page.write_text(new, "utf-8")
            print(f"wrapped {page}")
