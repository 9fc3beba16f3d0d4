"""A manifest or config file as text: its value, and the line on which each key stands.

Owns the path → line index that lets every problem name its line, for JSON and for TOML.
Paths are tuples of keys and list positions, as pydantic reports them.
"""

from __future__ import annotations

import json
import re
import tomllib
from typing import Any

import msgspec

from plugbay.model.errors import Problem

KeyPath = tuple[str | int, ...]

MAX_DEPTH = 64
"""Levels of nesting in a manifest; a deeper one is an attack, not a manifest."""


class Document(msgspec.Struct, frozen=True):
    """A parsed file."""

    value: Any
    lines: dict[KeyPath, int] = msgspec.field(default_factory=dict)

    def line(self, path: KeyPath) -> int | None:
        """The line of `path`, or of its nearest parent that has one."""
        for length in range(len(path), -1, -1):
            if path[:length] in self.lines:
                return self.lines[path[:length]]
        return None


def dotted(path: KeyPath) -> str:
    """`tools[1].name`, for people."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else str(part)
    return text


def parse_json(text: str) -> Document | Problem:
    """Strict JSON; a repeated key or a number JSON does not have is a problem."""
    try:
        value = json.loads(text, parse_constant=_no_constant)
        json.dumps(value, ensure_ascii=False).encode()
        return Document(value, _JsonLines(text).index())
    except json.JSONDecodeError as error:
        return Problem("parse_error", "", f"not JSON: {error.msg} at column {error.colno}", line=error.lineno)
    except UnicodeEncodeError:
        return Problem("parse_error", "", "not usable JSON: a string holds half of a surrogate pair")
    except (ValueError, RecursionError) as error:
        return Problem("parse_error", "", f"not usable JSON: {error}")


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


class _JsonLines:
    """Walks text that is known to be JSON and notes where each key and item begins."""

    _TOKEN = re.compile(r'[ \t\r\n]*(?:("(?:[^"\\]|\\.)*")|([\[\]{},:])|([^\s\[\]{},:"]+))')

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._line = 1
        self._counted = 0
        self._lines: dict[KeyPath, int] = {}

    def index(self) -> dict[KeyPath, int]:
        self._value((), self._next())
        return self._lines

    def _next(self) -> str:
        match = self._TOKEN.match(self._text, self._at)
        assert match is not None, "the text was parsed before"
        start = match.start(match.lastindex or 0)
        self._line += self._text.count("\n", self._counted, start)
        self._counted = start
        self._at = match.end()
        return match.group(match.lastindex or 0)

    def _value(self, path: KeyPath, token: str) -> None:
        self._lines.setdefault(path, self._line)
        if len(path) > MAX_DEPTH:
            raise ValueError(f"nested deeper than {MAX_DEPTH} levels")
        if token == "{":
            self._members(path)
        elif token == "[":
            self._items(path)

    def _members(self, path: KeyPath) -> None:
        seen: set[str] = set()
        while (token := self._next()) != "}":
            if token == ",":
                continue
            key = json.loads(token)
            if key in seen:
                raise ValueError(f"line {self._line}: the key {key!r} appears twice")
            seen.add(key)
            self._lines[(*path, key)] = self._line
            self._next()
            self._value((*path, key), self._next())

    def _items(self, path: KeyPath) -> None:
        position = 0
        while (token := self._next()) != "]":
            if token != ",":
                self._value((*path, position), token)
                position += 1


def parse_toml(text: str) -> Document | Problem:
    """TOML 1.0."""
    long_key = _TOML_LONG_KEY.search(text)
    if long_key is not None:
        line = text.count("\n", 0, long_key.start()) + 1
        return Problem("parse_error", "", f"not usable TOML: a key of more than {MAX_DEPTH} parts", line=line)
    try:
        value = tomllib.loads(text)
        if _is_deep(value):
            return Problem("parse_error", "", f"not usable TOML: nested deeper than {MAX_DEPTH} levels")
        if _has_wide_integer(value):
            return Problem("parse_error", "", "not usable TOML: an integer needs more than 64 bits")
        return Document(value, _toml_lines(text))
    except tomllib.TOMLDecodeError as error:
        found = re.search(r"at line (\d+)", str(error))
        return Problem("parse_error", "", f"not TOML: {error}", line=int(found[1]) if found else None)
    except (RecursionError, ValueError) as error:
        return Problem("parse_error", "", f"not usable TOML: {error}")


def _is_deep(value: Any) -> bool:
    """Whether tables and lists are nested too deep; level by level, so depth costs no stack."""
    level = [value]
    for _ in range(MAX_DEPTH + 1):
        inner = [item.values() if isinstance(item, dict) else item for item in level if isinstance(item, dict | list)]
        level = [item for items in inner for item in items]
        if not level:
            return False
    return True


def _has_wide_integer(value: Any) -> bool:
    """Whether an integer is beyond TOML's range. Python writes none of more than 4,300 digits, so no problem could show
    one; in hexadecimal it reads any number of them.
    """
    if isinstance(value, dict | list):
        return any(map(_has_wide_integer, value.values() if isinstance(value, dict) else value))
    return isinstance(value, int) and value.bit_length() > 64


_TOML_KEY = r'(?:[A-Za-z0-9_-]+|"(?:[^"\\]|\\.)*"|\'[^\']*\')'
_TOML_PATH = re.compile(rf"{_TOML_KEY}(?:\s*\.\s*{_TOML_KEY})*")
_TOML_LONG_KEY = re.compile(rf"(?<![\w.-]){_TOML_KEY}(?:[ \t]*+\.[ \t]*+{_TOML_KEY}){{{MAX_DEPTH}}}")
"""Input that takes tomllib minutes: its time grows with the square of a key's parts, 10 s for 20,000 of them."""

_TOML_HEADER = re.compile(rf"\s*(\[\[?)\s*({_TOML_PATH.pattern})\s*\]\]?")
_TOML_ASSIGN = re.compile(rf"\s*({_TOML_PATH.pattern})\s*=")


def _toml_lines(text: str) -> dict[KeyPath, int]:
    """Where each table header and each `key =` stands. Values over several lines are skipped by their brackets."""
    lines: dict[KeyPath, int] = {(): 1}
    tables: dict[KeyPath, int] = {}
    table: KeyPath = ()
    inside = _Multiline()
    for number, line in enumerate(text.split("\n"), 1):
        if inside.skip(line):
            continue
        header, assign = _TOML_HEADER.match(line), _TOML_ASSIGN.match(line)
        if header and not assign:
            table = _table_path(_keys(header[2]), tables, appended=header[1] == "[[")
            for length in range(1, len(table) + 1):
                lines.setdefault(table[:length], number)
        elif assign:
            lines.setdefault((*table, *_keys(assign[1])), number)
            inside.start(line[assign.end() :])
    return lines


def _table_path(keys: list[str], tables: dict[KeyPath, int], *, appended: bool) -> KeyPath:
    """The value path of a header: array-of-tables on the way are replaced by their last element."""
    path: KeyPath = ()
    for depth, key in enumerate(keys):
        path = (*path, key)
        if appended and depth == len(keys) - 1:
            tables[path] = tables.get(path, -1) + 1
        if path in tables:
            path = (*path, tables[path])
    return path


def _keys(text: str) -> list[str]:
    return [part.strip("\"'") for part in re.findall(_TOML_KEY, text)]


class _Multiline:
    """Remembers that a value goes on over the next lines."""

    def __init__(self) -> None:
        self._quotes = ""
        self._depth = 0

    def start(self, value: str) -> None:
        stripped = value.strip()
        for quotes in ('"""', "'''"):
            if stripped.startswith(quotes) and stripped.count(quotes) == 1:
                self._quotes = quotes
                return
        self._depth = self._balance(value)

    def skip(self, line: str) -> bool:
        """True when `line` belongs to a value that began earlier."""
        if self._quotes:
            if self._quotes in line:
                self._quotes = ""
            return True
        if self._depth > 0:
            self._depth += self._balance(line)
            return True
        return False

    @staticmethod
    def _balance(text: str) -> int:
        bare = re.sub(r'"(?:[^"\\]|\\.)*"|\'[^\']*\'|#.*', "", text)
        return bare.count("[") + bare.count("{") - bare.count("]") - bare.count("}")
