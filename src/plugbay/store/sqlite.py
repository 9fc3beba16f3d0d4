"""How SQLite is spoken to: a thread for each connection, and one way there and back for each statement.

The usual driver goes to its thread for a cursor, for the statement, for the rows and to give the cursor back, and twice
more for the transaction around it. Each time costs more than a small statement does.

Owns what is done in the thread and what is done at once. Refuses to know tables and transactions.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, Self

import aiosqlite
from sqlalchemy.engine import URL

BEGIN = "BEGIN"
"""Takes no lock and reads nothing: that comes with the first statement."""


class Connection(aiosqlite.Connection):
    """A connection whose statements take one way."""

    def __init__(self, connect: Callable[[], sqlite3.Connection]) -> None:
        super().__init__(connect, iter_chunk_size=64)
        self._thread.daemon = True  # whoever forgets to close it can still leave
        self._begun = self._ended = 0
        """Statements. Each is counted by one thread alone."""

    def cursor(self) -> Cursor:  # type: ignore[override]
        return Cursor(self)

    async def rollback(self) -> None:
        """At once, unless a statement is under way of which nobody hears any more."""
        if self._begun != self._ended:
            await super().rollback()
        else:
            self._conn.rollback()

    async def there_and_back(self, work: Callable[[sqlite3.Connection], Any]) -> Any:
        """Do something in the thread."""
        connection = self._conn

        def counted() -> Any:
            try:
                return work(connection)
            finally:
                self._ended += 1

        self._begun += 1
        return await self._execute(counted)  # type: ignore[no-untyped-call]

    def at_once(self, statement: str) -> None:
        """Do something that neither waits nor reads."""
        self._conn.execute(statement)


class Cursor:
    """One statement and what came of it: all rows, since nobody here reads more than a page at a time."""

    arraysize = 1

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._rows: list[Any] = []
        self.description: Any = None
        self.rowcount = -1
        self.lastrowid: int | None = None

    async def __aenter__(self) -> Self:
        return self

    async def execute(self, statement: str, parameters: Sequence[Any] = ()) -> Self:
        if statement == BEGIN:
            self._connection.at_once(statement)
        else:
            await self._run(lambda cursor: cursor.execute(statement, parameters))
        return self

    async def executemany(self, statement: str, parameters: Iterable[Sequence[Any]]) -> Self:
        await self._run(lambda cursor: cursor.executemany(statement, parameters))
        return self

    async def fetchall(self) -> list[Any]:
        rows, self._rows = self._rows, []
        return rows

    async def close(self) -> None:
        """It was closed in the thread."""

    async def _run(self, work: Callable[[sqlite3.Cursor], object]) -> None:
        def run(connection: sqlite3.Connection) -> sqlite3.Cursor:
            cursor = connection.cursor()
            try:
                work(cursor)
                self._rows = cursor.fetchall() if cursor.description else []
                return cursor
            finally:
                cursor.close()

        done = await self._connection.there_and_back(run)
        self.description, self.rowcount, self.lastrowid = done.description, done.rowcount, done.lastrowid


def connector(url: URL) -> Callable[[], Connection]:
    """What makes connections to a database; each is to be awaited."""
    arguments, options = url.get_dialect()().create_connect_args(url)
    return lambda: Connection(partial(sqlite3.connect, *arguments, **options))
