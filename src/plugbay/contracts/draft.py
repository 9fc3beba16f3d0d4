"""A manifest as it was written, valid or not: the rules read it and report problems here.

Access is lenient: a value of the wrong type is skipped, because a contract's shapes report it already. So every rule
can run, and all problems are reported at once.
"""

from __future__ import annotations

from typing import Any

from plugbay.contracts.document import Document, KeyPath, dotted
from plugbay.contracts.validation import unknown_keys
from plugbay.model.errors import Problem


class Draft:
    """One document under inspection. Paths start inside `base`, where a contract has one table around everything."""

    def __init__(self, document: Document, *base: str) -> None:
        self._document = document
        self._base = base
        self.problems: list[Problem] = []

    def value(self, *path: str) -> Any:
        """The value at `path`; None when there is none."""
        here = self._document.value
        for part in (*self._base, *path):
            here = here.get(part) if isinstance(here, dict) else None
        return here

    def text(self, *path: str) -> str | None:
        """The string at `path`."""
        found = self.value(*path)
        return found if isinstance(found, str) else None

    def table(self, *path: str) -> dict[str, Any]:
        """The mapping at `path`."""
        found = self.value(*path)
        return found if isinstance(found, dict) else {}

    def number(self, *path: str, default: int) -> int:
        """The integer at `path`, or its default."""
        found = self.value(*path)
        return found if type(found) is int else default

    def texts(self, *path: str) -> list[tuple[KeyPath, str]]:
        """The strings in the list at `path`, each with its own path."""
        return [(where, item) for where, item in self._items(path) if isinstance(item, str)]

    def tables(self, *path: str) -> list[tuple[KeyPath, dict[str, Any]]]:
        """The mappings in the list at `path`, each with its own path."""
        return [(where, item) for where, item in self._items(path) if isinstance(item, dict)]

    def _items(self, path: tuple[str, ...]) -> list[tuple[KeyPath, Any]]:
        found = self.value(*path)
        return [((*path, at), item) for at, item in enumerate(found)] if isinstance(found, list) else []

    def error(self, code: str, path: KeyPath, message: str) -> None:
        """Report something that keeps the plugin from being used."""
        self._report(code, path, message, "error")

    def warn(self, code: str, path: KeyPath, message: str) -> None:
        """Report something the plugin can live with."""
        self._report(code, path, message, "warning")

    def warn_of_unknown(self, path: KeyPath, table: dict[str, Any], known: tuple[str, ...]) -> None:
        """Report every key of `table` that means nothing there."""
        self.problems += unknown_keys(table, known, (*self._base, *path), self._document)

    def _report(self, code: str, path: KeyPath, message: str, severity: str) -> None:
        where = (*self._base, *path)
        self.problems.append(Problem(code, dotted(where), message, line=self._document.line(where), severity=severity))
