"""`Part`: one table of a manifest as it was written, right or wrong, which knows its place in the file.

Owns the lenient way into tables within lists of tables; `Draft` has the one for the rest. A value of the wrong type is
passed over, because the shapes report it already.
"""

from __future__ import annotations

from typing import Any

from plugbay.contracts.document import Path
from plugbay.contracts.draft import Draft


class Part:
    """One table under inspection; what is no table is an empty one."""

    def __init__(self, draft: Draft, path: Path = (), table: Any = None) -> None:
        self._draft = draft
        self._path = path
        self._table: dict[str, Any] = table if isinstance(table, dict) else {}

    def __contains__(self, key: str) -> bool:
        return key in self._table

    def value(self, key: str) -> Any:
        """What stands there; None when nothing does."""
        return self._table.get(key)

    def text(self, key: str) -> str | None:
        found = self.value(key)
        return found if isinstance(found, str) else None

    def texts(self, key: str) -> list[tuple[int, str]]:
        """The strings in a list, each with its place in it."""
        found = self.value(key)
        items = enumerate(found) if isinstance(found, list) else ()
        return [(at, item) for at, item in items if isinstance(item, str)]

    def part(self, key: str) -> Part:
        return Part(self._draft, (*self._path, key), self.value(key))

    def parts(self, key: str) -> list[Part]:
        """The tables in a list."""
        found = self.value(key)
        items = enumerate(found) if isinstance(found, list) else ()
        return [Part(self._draft, (*self._path, key, at), item) for at, item in items if isinstance(item, dict)]

    def error(self, code: str, message: str, *where: str | int) -> None:
        """Report something at `where` in this table that keeps the plugin from being used."""
        self._draft.error(code, (*self._path, *where), message)

    def warn(self, code: str, message: str, *where: str | int) -> None:
        """Report something that the plugin can live with."""
        self._draft.warn(code, (*self._path, *where), message)

    def one_of(self, key: str, allowed: tuple[str, ...]) -> None:
        """Report a string that is none of these."""
        found = self.text(key)
        if found is not None and found not in allowed:
            self.error("invalid_enum", f"must be one of {', '.join(allowed)}, got {found!r:.60}", key)
