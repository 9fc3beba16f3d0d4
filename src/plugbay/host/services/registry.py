"""`Registry`: backends of one kind by name, each with its owner. The first to register a name keeps it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Generic, TypeVar

T = TypeVar("T")


class Registry(Generic[T]):
    """Subclasses set `KIND`, for messages."""

    KIND = "backend"

    def __init__(self) -> None:
        self._entries: dict[str, tuple[T, str]] = {}

    def register(self, name: str, backend: T, owner: str) -> str | None:
        """Register `backend` under `name`; returns the reason when the name is taken.

        The owner is the id of a plugin, or says who configured the backend.
        """
        taken = self._entries.get(name)
        if taken is not None:
            return f"the {self.KIND} {name!r} is offered by {taken[1]!r} already"
        self._entries[name] = (backend, owner)
        return None

    def withdraw(self, name: str) -> None:
        """Remove a backend; its name is free."""
        del self._entries[name]

    def find(self, name: str) -> T | None:
        """The backend of this name; None when there is none."""
        entry = self._entries.get(name)
        return None if entry is None else entry[0]

    def owner(self, name: str) -> str | None:
        """The owner of this name; None when it is free."""
        entry = self._entries.get(name)
        return None if entry is None else entry[1]

    def __iter__(self) -> Iterator[str]:
        """The names, sorted."""
        return iter(sorted(self._entries))
