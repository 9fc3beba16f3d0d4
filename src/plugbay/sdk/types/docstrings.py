"""What a docstring says: its first paragraph, and a line about each parameter or attribute.

    Args:                     :param city: where           Parameters
        city: where                                        ----------
                                                           city : str
                                                               where

Owns these three ways to write it. Loaded when a schema is published, never by a call.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

SECTIONS = frozenset(("args", "arguments", "parameters", "params", "attributes", "keyword args", "keyword arguments"))
"""Headings of what is about parameters and attributes."""

FIELD_WORDS = ("param", "parameter", "arg", "argument", "key", "keyword", "ivar", "cvar", "var")
"""How a field of reStructuredText begins."""

TAB = 8


class Doc:
    """What was read."""

    __slots__ = ("fields", "summary")

    def __init__(self, summary: str, fields: dict[str, str]) -> None:
        self.summary = summary
        self.fields = fields


def parse(text: str | None) -> Doc:
    """Never fails: what is written in another way says nothing about parameters."""
    lines = [line.expandtabs(TAB).rstrip() for line in (text or "").strip().splitlines()]
    return Doc(summary(text), {**_indented(lines), **_fields(lines)})


def summary(text: str | None) -> str:
    """The first paragraph, on one line."""
    words: list[str] = []
    for line in (text or "").strip().splitlines():
        if not line.strip():
            break
        words += line.split()
    return " ".join(words)


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


# Sections, as Google and NumPy have them.


def _indented(lines: list[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for place, line in enumerate(lines):
        underlined = place + 1 < len(lines) and bool(lines[place + 1]) and not lines[place + 1].strip(" -")
        if line.strip().rstrip(":").lower() in SECTIONS and (underlined or line.endswith(":")):
            rest = lines[place + 2 :] if underlined else lines[place + 1 :]
            found |= _entries(rest, 0 if not underlined else -1, _indent(line))
    return found


def _entries(lines: list[str], deeper: int, margin: int) -> dict[str, str]:
    """Names at one depth, and what is said about each below or beside it; up to the next heading."""
    found: dict[str, str] = {}
    depth: int | None = None
    name = ""
    for line in _block(lines, margin + deeper):
        if depth is None:
            depth = _indent(line)
        if _indent(line) <= depth:
            name, said = _entry(line.strip())
            found[name] = said
        elif name:
            found[name] = f"{found[name]} {line.strip()}".strip()
    return {name: said for name, said in found.items() if name and said}


def _block(lines: list[str], margin: int) -> Iterator[str]:
    """The lines that are deeper than the margin; a heading that is underlined ends them, too."""
    for place, line in enumerate(lines):
        if not line:
            continue
        after = lines[place + 1] if place + 1 < len(lines) else ""
        if _indent(line) <= margin or (after and not after.strip(" -")):
            return
        yield line


def _entry(line: str) -> tuple[str, str]:
    """`name: text`, `name (type): text` or `name : type`, after which the text is below."""
    head, colon, said = line.partition(":")
    if head.endswith(" "):
        said = ""
    name = head.split("(")[0].strip().lstrip("*")
    return (name, said.strip()) if name.isidentifier() and (colon or "(" not in head) else ("", "")


# Fields, as Sphinx has them.


def _fields(lines: list[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    name = ""
    for line in lines:
        if line.lstrip().startswith(":"):
            head, _, said = line.strip()[1:].partition(":")
            words = head.split()
            name = words[-1].lstrip("*") if len(words) > 1 and words[0] in FIELD_WORDS else ""
            found |= {name: said.strip()} if name else {}
        elif name and line:
            found[name] = f"{found[name]} {line.strip()}".strip()
        else:
            name = ""
    return {name: said for name, said in found.items() if said}
