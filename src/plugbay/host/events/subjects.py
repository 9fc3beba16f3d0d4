"""`SubjectIndex`: values by pattern of subjects. The rules of patterns are those of `model.topics.matches`."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic, TypeVar

from plugbay.model.topics import ANY, REST, split_segments

T = TypeVar("T", bound=Hashable)


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
        for segment in split_segments(pattern):
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
        for segment in split_segments(pattern):
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
        for segment in split_segments(subject):
            keys = {segment, ANY}
            for node in nodes:
                found |= node.rests
            nodes = [node.below[key] for node in nodes for key in keys if key in node.below]
        for node in nodes:
            found |= node.ends
        return found

    def is_empty(self) -> bool:
        return self._root.is_empty()
