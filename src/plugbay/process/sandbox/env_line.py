"""Which program `env` runs, from the argument that a script's first line gives it.

Reads the argument as `env` does: all of it is one word, unless `-S` splits it; options and their own arguments come
first, then variables, then the command. What it cannot read for certain runs nothing, and so shows nothing: an argument
of an option must never be taken for a program.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

BARE = frozenset("i0v")
"""Options of one letter without an argument."""

WITH_ARGUMENT = frozenset("uCa")

LONG = frozenset("--ignore-environment --null --debug --block-signal --default-signal --ignore-signal".split())
"""Of the last three an argument, if there is one, follows `=`."""

LONG_WITH_ARGUMENT = {"--unset": "u", "--chdir": "C", "--argv0": "a", "--split-string": "S"}

UNCERTAIN = frozenset("\"'\\$#")
"""What `-S` gives a meaning of its own: quotes, escapes, variables, comments."""

_BLANKS = re.compile(r"[ \t\n\v\f\r]+")
"""Where `-S` splits. Not every blank of Unicode: what is one word to `env` must be one here."""


def env_command(argument: str) -> str:
    """The name or path of the program; empty where there is none, or where it is not looked for in the usual PATH."""
    return _command([argument]) if argument and "\0" not in argument else ""


def _command(words: Sequence[str]) -> str:
    rest = list(words)
    while rest and rest[0].startswith("-"):
        word = rest.pop(0)
        if word == "--":
            break
        following = _after_long(word, rest) if word.startswith("--") else _after_short(word[1:] or "i", rest)
        if following is None:
            return ""
        rest = following
    while rest and "=" in rest[0]:
        if rest.pop(0).startswith("PATH="):
            return ""
    return rest[0] if rest else ""


def _after_long(word: str, rest: list[str]) -> list[str] | None:
    """What is left to read after a long option; None: nobody can say."""
    name, given, value = word.partition("=")
    letter = LONG_WITH_ARGUMENT.get(name)
    if letter is None:
        return rest if name in LONG and name != "--ignore-environment" else None
    if not given:
        if not rest:
            return None
        value, rest = rest[0], rest[1:]
    return _after_argument(letter, value, rest)


def _after_short(letters: str, rest: list[str]) -> list[str] | None:
    """The same after a word of options of one letter each, the last of which may have the rest as its argument."""
    for at, letter in enumerate(letters):
        if letter in BARE and letter != "i":
            continue
        if letter not in WITH_ARGUMENT and letter != "S":
            return None  # also -i: without PATH only the system's own folders are searched, which everybody sees
        value = letters[at + 1 :]
        if not value:
            if not rest:
                return None
            value, rest = rest[0], rest[1:]
        return _after_argument(letter, value, rest)
    return rest


def _after_argument(letter: str, value: str, rest: list[str]) -> list[str] | None:
    if letter == "S":
        return None if UNCERTAIN & set(value) else [*filter(None, _BLANKS.split(value)), *rest]
    return None if letter == "u" and value == "PATH" else rest
