"""`Value`: a plain slotted object that compares and prints by its fields.

Owns equality, hashing and `repr` for the small immutable-by-habit objects that cross layers. It exists because
`dataclasses` costs a plugin tens of milliseconds at start-up (it imports `inspect`); this costs nothing.
"""

from __future__ import annotations


class Value:
    """Base of slotted value classes; the subclass writes its own `__init__`."""

    __slots__: tuple[str, ...] = ()

    def __eq__(self, other: object) -> bool:
        if type(self) is not type(other):
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in self.__slots__)

    def __hash__(self) -> int:
        return hash((type(self), *(repr(getattr(self, name)) for name in self.__slots__)))

    def __repr__(self) -> str:
        fields = ", ".join(f"{name}={getattr(self, name)!r}" for name in self.__slots__)
        return f"{type(self).__name__}({fields})"
