"""Matching of subjects: dotted names, `*` for one segment, `>` for all that follow.

Pure. The same rules twice: for one pattern (`matches`) and for many (`SubjectIndex`).

    pattern `a.*.c`    covers `a.b.c`; `*` stands for exactly one whole segment, `a.b*` is plain text
    pattern `a.>`      covers `a.b` and `a.b.c`, not `a`; what follows a `>` is ignored
    `a..b`, `.a`, ``   cover nothing and are covered by nothing
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic, TypeVar

ANY = "*"
REST = ">"

MAX_SUBJECT = 1_024
"""Characters of a subject. The bus caches subjects that plugins choose, so they must be bounded."""

T = TypeVar("T", bound=Hashable)


def subject_problem(subject: str) -> str | None:
    """Why a subject is invalid; None when it is valid."""
    if len(subject) > MAX_SUBJECT:
        return f"a subject has at most {MAX_SUBJECT} characters, not {len(subject)}"
    segments = subject.split(".")
    if not all(segments):
        return f"{subject!r} has an empty segment"
    if ANY in segments or REST in segments:
        return f"{subject!r} has a wildcard; only patterns have those"
    if not subject.isprintable():
        return f"{subject!r} has a character that cannot be printed"
    return None


def matches(pattern: str, subject: str) -> bool:
    """Whether `pattern` covers `subject`. In a subject, `*` and `>` are plain text."""
    wanted, given = _segments(pattern), _segments(subject)
    if not wanted or not given:
        return False
    for position, segment in enumerate(wanted):
        if position == len(given):
            return False
        if segment == REST:
            return True
        if segment not in (ANY, given[position]):
            return False
    return len(wanted) == len(given)


def _segments(text: str) -> list[str]:
    """The segments of a pattern or subject; none when one of them is empty."""
    segments = text.split(".")
    return segments if all(segments) else []


class _Node(Generic[T]):
    """A node in the tree of patterns, one segment per level."""

    __slots__ = ("below", "ends", "rests")

    def __init__(self) -> None:
        self.below: dict[str, _Node[T]] = {}
        self.ends: set[T] = set()
        self.rests: set[T] = set()

    def is_empty(self) -> bool:
        return not (self.below or self.ends or self.rests)


class SubjectIndex(Generic[T]):
    """Values by pattern. A lookup takes time by the length of the subject, not by the number of patterns."""

    __slots__ = ("_root",)

    def __init__(self) -> None:
        self._root: _Node[T] = _Node()

    def add(self, pattern: str, value: T) -> None:
        """Add `value` under `pattern`. Adding it twice has no effect."""
        node = self._root
        for segment in _segments(pattern):
            if segment == REST:
                node.rests.add(value)
                return
            node = node.below.setdefault(segment, _Node())
        if node is not self._root:
            node.ends.add(value)

    def remove(self, pattern: str, value: T) -> None:
        """Remove `value` from `pattern`, if it is there."""
        path: list[tuple[_Node[T], str]] = []
        node = self._root
        for segment in _segments(pattern):
            if segment == REST:
                node.rests.discard(value)
                break
            below = node.below.get(segment)
            if below is None:
                return
            path.append((node, segment))
            node = below
        else:
            node.ends.discard(value)
        for above, segment in reversed(path):
            if above.below[segment].is_empty():
                del above.below[segment]

    def find(self, subject: str) -> set[T]:
        """Every value with a pattern that matches `subject`."""
        found: set[T] = set()
        nodes = [self._root]
        for segment in _segments(subject):
            keys = {segment, ANY}
            for node in nodes:
                found |= node.rests
            nodes = [node.below[key] for node in nodes for key in keys if key in node.below]
        for node in nodes:
            found |= node.ends
        return found

    def is_empty(self) -> bool:
        return self._root.is_empty()
