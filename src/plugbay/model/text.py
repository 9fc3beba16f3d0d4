"""Bytes from a plugin as text that is safe to show: in a terminal, in a log, in an error."""

from __future__ import annotations


def printable(data: bytes) -> str:
    """UTF-8 where it is, `\\xNN` where it is not, every control character escaped: ANSI sequences lose their power."""
    text = data.decode("utf-8", "backslashreplace")
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() or char == "\t" else _escaped(char) for char in text)


def _escaped(char: str) -> str:
    return char.encode("unicode_escape").decode("ascii")
