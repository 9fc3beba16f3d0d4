"""Sets one member of a JSON text in place; comments, order and layout stay.

Accepts JSON with comments and trailing commas, as editors write it.
"""

from __future__ import annotations

import json
import re
from typing import Any

import msgspec

MAX_DEPTH = 200
"""Nesting limit of the recursive reader."""

_SPACE = re.compile(r"(?:[ \t\r\n]|//[^\n]*|/\*.*?\*/)*", re.DOTALL)
_SCALAR = re.compile(r'"(?:[^"\\\x00-\x1f]|\\.)*"|-?[0-9][0-9.eE+-]*|true|false|null')


class Unreadable(ValueError):
    """The text is not JSON with comments; names the line."""


class _Member(msgspec.Struct):
    key: str
    start: int
    value: _Node


class _Node(msgspec.Struct):
    """A value and its position: `text[start:end]`."""

    start: int
    end: int = 0
    value: Any = None
    members: list[_Member] = msgspec.field(default_factory=list)
    """Members of an object, in order."""
    last: int = 0
    """Objects only: end of the last token before the closing brace, including a trailing comma."""
    comma: bool = False
    """Whether that token is a comma."""


def read(text: str) -> Any:
    """Parse JSON with comments; raises `Unreadable`."""
    return _Reader(text).parse().value


def set_member(text: str, path: tuple[str, ...], value: Any) -> str:
    """The text with `value` at `path`; missing objects on the path are created.

    Raises `Unreadable` when the text, or something on the path, is not an object.
    """
    newline = "\r\n" if "\r\n" in text else "\n"
    if not text.strip("\ufeff \t\r\n"):
        return json.dumps(_nested(path, value), indent=2, ensure_ascii=False).replace("\n", newline) + newline
    root = node = _Reader(text).parse()
    for depth, key in enumerate(path):
        if not isinstance(node.value, dict):
            where = ".".join(path[:depth]) or "the whole"
            raise Unreadable(f"line {_line(text, node.start)}: {where} is not an object")
        found = [member for member in node.members if member.key == key]
        if not found:
            return _insert(text, node, key, _nested(path[depth + 1 :], value), newline)
        if len(found) > 1:
            raise Unreadable(f"line {_line(text, found[1].start)}: {key!r} appears twice")
        node = found[0].value
    if json.dumps(node.value) == json.dumps(value):
        return text
    indent = _indent_of(text, found[0].start)
    return text[: node.start] + _dump(value, indent, _step(text, root), newline) + text[node.end :]


def _nested(path: tuple[str, ...], value: Any) -> Any:
    for key in reversed(path):
        value = {key: value}
    return value


def _insert(text: str, node: _Node, key: str, value: Any, newline: str) -> str:
    """Append a member. Comments before the closing brace stay before it."""
    step = _step(text, node)
    outer = _indent_of(text, node.start)
    inner = _indent_of(text, node.members[0].start) if node.members else outer + step
    one_line = node.members and newline not in text[node.start : node.end]
    written = f"{json.dumps(key, ensure_ascii=False)}: {_dump(value, inner, step, newline)}"
    tail_end = node.end - 1
    before, between = text[: node.last], text[node.last : tail_end].rstrip()
    comma = "," if node.members and not node.comma else ""
    if one_line:
        written = f"{json.dumps(key, ensure_ascii=False)}: {json.dumps(value, ensure_ascii=False)}"
        return f"{before}{comma}{between} {written}{text[tail_end:]}"
    return f"{before}{comma}{between}{newline}{inner}{written}{newline}{outer}{text[tail_end:]}"


def _dump(value: Any, indent: str, step: str, newline: str) -> str:
    return json.dumps(value, indent=step, ensure_ascii=False).replace("\n", newline + indent)


def _indent_of(text: str, place: int) -> str:
    """Leading white space of the line at `place`."""
    line = text[text.rfind("\n", 0, place) + 1 : place].lstrip("\ufeff")
    return line[: len(line) - len(line.lstrip(" \t"))]


def _step(text: str, node: _Node) -> str:
    """Indentation of one level, taken from the first member on a line of its own."""
    if node.members:
        first = node.members[0].start
        inner, outer = _indent_of(text, first), _indent_of(text, node.start)
        if "\n" in text[node.start : first] and len(inner) > len(outer):
            return inner[len(outer) :]
    return "\t" if re.search(r"^\t", text, re.MULTILINE) else "  "


def _line(text: str, place: int) -> int:
    return text.count("\n", 0, place) + 1


class _Reader:
    """A parser that records positions."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 1 if text.startswith("\ufeff") else 0

    def parse(self) -> _Node:
        node = self._node(0)
        self._skip()
        if self._at < len(self._text):
            raise self._error("there is data after the end")
        return node

    def _node(self, depth: int) -> _Node:
        self._skip()
        if depth > MAX_DEPTH:
            raise self._error("it is nested too deeply")
        start = self._text[self._at : self._at + 1]
        if start == "{":
            return self._object(depth)
        if start == "[":
            return self._array(depth)
        return self._scalar()

    def _scalar(self) -> _Node:
        match = _SCALAR.match(self._text, self._at)
        if match is None:
            raise self._error("a value was expected")
        try:
            value = json.loads(match.group())
        except ValueError:
            raise self._error("this is not a value") from None
        node = _Node(self._at, match.end(), value)
        self._at = match.end()
        return node

    def _object(self, depth: int) -> _Node:
        node = _Node(self._at)
        self._at += 1
        node.last = self._at
        while not self._closes("}", node, bool(node.members)):
            start = self._at
            key = self._scalar()
            if not isinstance(key.value, str):
                raise self._error("a name was expected")
            self._expect(":")
            node.members.append(_Member(key.value, start, self._node(depth + 1)))
            node.last, node.comma = self._at, False
        node.value = {member.key: member.value.value for member in node.members}
        return node

    def _array(self, depth: int) -> _Node:
        node = _Node(self._at)
        self._at += 1
        items: list[Any] = []
        while not self._closes("]", node, bool(items)):
            items.append(self._node(depth + 1).value)
            node.comma = False
        node.value = items
        return node

    def _closes(self, sign: str, node: _Node, has_items: bool) -> bool:
        """Skip the comma, if one is due; True at the end of the object or array."""
        self._skip()
        if has_items and self._text.startswith(",", self._at):
            self._at += 1
            node.last, node.comma = self._at, True
            self._skip()
        elif has_items and not self._text.startswith(sign, self._at):
            raise self._error(f"a comma or {sign} was expected")
        if not self._text.startswith(sign, self._at):
            return False
        self._at += 1
        node.end = self._at
        return True

    def _expect(self, sign: str) -> None:
        self._skip()
        if not self._text.startswith(sign, self._at):
            raise self._error(f"{sign} was expected")
        self._at += 1

    def _skip(self) -> None:
        match = _SPACE.match(self._text, self._at)
        assert match is not None
        self._at = match.end()

    def _error(self, why: str) -> Unreadable:
        return Unreadable(f"line {_line(self._text, self._at)}: {why}")
