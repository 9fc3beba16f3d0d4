"""A manifest written in YAML: its value, and the line on which each key stands.

Owns which part of YAML 1.2 a file may use: the core schema, as much as JSON can say, and nothing that acts at a
distance. `on`, `no` and `1_000` are text here; tags, aliases and keys that are not text are refused. The scanner is
ruamel's; this module interprets its events.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError
from ruamel.yaml.events import (
    DocumentStartEvent,
    Event,
    MappingEndEvent,
    MappingStartEvent,
    ScalarEvent,
    SequenceEndEvent,
    SequenceStartEvent,
    StreamEndEvent,
)
from ruamel.yaml.reader import ReaderError

from plugbay.contracts.document import MAX_DEPTH, Document, KeyPath, dotted
from plugbay.model.errors import Problem

MAX_CHARS = 64 * 1024
"""Characters of a manifest: the longest known has 8,000. A hostile text of this length costs a few seconds."""

MAX_DIGITS = 250
"""Characters of an integer. One of this length still has its neighbour among the floats, in base 16 too."""

YAML_VERSION = (1, 2)

_WORDS = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
"""The plain words of the core schema that are not text."""

_INTEGER = re.compile(r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_ENDLESS = re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")

_Node = ScalarEvent | SequenceStartEvent | MappingStartEvent


class _Refused(Exception):
    """Ends the reading; never leaves this module."""

    def __init__(self, message: str, line: int | None, path: KeyPath = ()) -> None:
        self.problem = Problem("parse_error", dotted(path), message, line=line)
        super().__init__(message)


def parse_yaml(text: str) -> Document | Problem:
    """One document of YAML 1.2; a repeated key or anything that JSON cannot say is a problem."""
    try:
        return _Composer(_events(text)).document()
    except _Refused as refused:
        return refused.problem


def _events(text: str) -> Iterator[Event]:
    if len(text) > MAX_CHARS:
        raise _Refused(f"not usable YAML: longer than {MAX_CHARS:,} characters", None)
    try:
        yield from YAML(typ="safe", pure=True).parse(text)
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        words = " ".join(part for part in (error.context, error.problem) if part)
        raise _Refused(f"not YAML: {words}", mark.line + 1 if mark else None) from error
    except ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise _Refused("not YAML: it contains a character that YAML forbids", line) from error
    except Exception as error:  # The scanner trips over some hostile texts, each in another way.
        raise _Refused(f"not YAML: {type(error).__name__}: {error}", None) from error


class _Composer:
    """Turns events into values, level by level, and notes where each key and item begins."""

    def __init__(self, events: Iterator[Event]) -> None:
        self._events = events
        self._lines: dict[KeyPath, int] = {(): 1}

    def document(self) -> Document:
        next(self._events)  # the start of the stream
        start = next(self._events)
        if isinstance(start, StreamEndEvent):
            return Document(None, self._lines)
        if isinstance(start, DocumentStartEvent) and start.version not in (None, YAML_VERSION):
            raise _Refused("not usable YAML: only version 1.2 is read", _line(start))
        value = self._value(next(self._events), ())
        next(self._events)  # the end of the document
        after = next(self._events)
        if not isinstance(after, StreamEndEvent):
            raise _Refused("not usable YAML: a second document begins here", _line(after))
        return Document(value, self._lines)

    def _value(self, event: Event, path: KeyPath) -> Any:
        self._lines.setdefault(path, _line(event))
        if len(path) > MAX_DEPTH:
            raise _Refused(f"not usable YAML: nested deeper than {MAX_DEPTH} levels", _line(event))
        node = _node(event, path)
        if isinstance(node, ScalarEvent):
            return _scalar(node, path)
        return self._mapping(path) if isinstance(node, MappingStartEvent) else self._sequence(path)

    def _mapping(self, path: KeyPath) -> dict[str, Any]:
        value: dict[str, Any] = {}
        while not isinstance(event := next(self._events), MappingEndEvent):
            key = _key(event, path)
            if key in value:
                raise _Refused(f"not usable YAML: the key {key!r} appears twice", _line(event), (*path, key))
            self._lines[(*path, key)] = _line(event)
            value[key] = self._value(next(self._events), (*path, key))
        return value

    def _sequence(self, path: KeyPath) -> list[Any]:
        value: list[Any] = []
        while not isinstance(event := next(self._events), SequenceEndEvent):
            value.append(self._value(event, (*path, len(value))))
        return value


def _node(event: Event, path: KeyPath) -> _Node:
    """The event itself: a value that is written here, and that means what it looks like."""
    if not isinstance(event, _Node):
        raise _Refused("not usable YAML: aliases are not followed; write the value out", _line(event), path)
    if event.tag is not None:
        raise _Refused("not usable YAML: tags are not read; quote a value to make it text", _line(event), path)
    return event


def _key(event: Event, path: KeyPath) -> str:
    node = _node(event, path)
    key = _scalar(node, path) if isinstance(node, ScalarEvent) else None
    if not isinstance(key, str):
        raise _Refused("not usable YAML: a key must be text; put it in quotes", _line(event), path)
    return key


def _scalar(event: ScalarEvent, path: KeyPath) -> Any:
    """The value of a scalar: text when it is quoted, otherwise what the core schema makes of it."""
    try:
        # JSON writes a large character as two escapes; YAML's reader leaves them apart.
        text = event.value.encode("utf-16", "surrogatepass").decode("utf-16")
        return _plain(text) if event.implicit[0] else text
    except UnicodeDecodeError:
        reason = "a string holds half of a surrogate pair"
    except ValueError as error:
        reason = str(error)
    raise _Refused(f"not usable YAML: {reason}", _line(event), path)


def _plain(text: str) -> Any:
    if text in _WORDS:
        return _WORDS[text]
    if _INTEGER.fullmatch(text):
        return _integer(text)
    if _ENDLESS.fullmatch(text):
        raise ValueError(f"JSON has no number {text}")
    if not _FLOAT.fullmatch(text):
        return text
    number = float(text)
    if math.isinf(number):
        raise ValueError("a number is too large")
    return number


def _integer(text: str) -> int:
    if len(text) > MAX_DIGITS:
        raise ValueError("a number is too large")
    # A zero in front means nothing in YAML 1.2: `0777` is 777.
    return int(text, 0) if text[:2] in ("0o", "0x") else int(text)


def _line(event: Event) -> int:
    return int(event.start_mark.line) + 1
