"""How SQLite is spoken to: a thread for each connection, and one way there and back for each statement.

The usual driver goes to its thread for a cursor, for the statement, for the rows and to give the cursor back, and twice
more for the transaction around it. Each time costs more than a small statement does: some 250 us of two threads that
take the interpreter from each other, where finding a row by its key takes 15. So what is known to be small is done at
once, by whoever asks; what may read much, or wait for a lock or for the disk, is done in the thread.

Owns what is done in the thread and what is done at once. Refuses to know tables and transactions.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, NamedTuple, Self

import aiosqlite
from sqlalchemy.engine import URL
from sqlalchemy.exc import DBAPIError, OperationalError
from sqlalchemy.ext.asyncio import AsyncConnection

BEGIN = "BEGIN"
"""Takes no lock and reads nothing: that comes with the first statement."""

WRITE = "BEGIN IMMEDIATE"
"""Takes the lock that one alone has, or fails where somebody else has it."""

AT_ONCE = "PRAGMA busy_timeout=0"
"""Whoever has the lock is not waited for."""


class Answer(NamedTuple):
    """What came of a statement: all rows, since nobody here reads more than a page at a time."""

    rows: list[Any]
    description: Any = None
    rowcount: int = -1
    lastrowid: int | None = None


class Connection(aiosqlite.Connection):
    """A connection whose statements take one way, or none."""

    def __init__(self, connect: Callable[[], sqlite3.Connection]) -> None:
        super().__init__(connect, iter_chunk_size=64)
        self._thread.daemon = True  # whoever forgets to close it can still leave
        self._begun = self._ended = 0
        """Statements in the thread. Each is counted by one thread alone."""

    def cursor(self) -> Cursor:  # type: ignore[override]
        return Cursor(self)

    async def commit(self) -> None:
        with _Told():
            await self.there_and_back(sqlite3.Connection.commit)

    async def rollback(self) -> None:
        await self._small(sqlite3.Connection.rollback)

    async def lock(self, patience: float) -> None:
        """Begin to write: at once if nobody else does, else as soon as they have done, which is waited for elsewhere.

        The connection must not wait by itself (`AT_ONCE`), nor be used again if this fails.
        """
        try:
            await self.steps(WRITE)
        except OperationalError:
            with _Told():
                await self.there_and_back(partial(_stepped, (_waiting(patience), WRITE, AT_ONCE)))

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

    async def small(self, statement: str, parameters: Sequence[Any]) -> Answer:
        """A statement that reads little, as part of a transaction, which is begun for it where nobody has."""
        if not self.in_transaction:
            await self.steps(BEGIN)
        answer: Answer = await self._small(partial(_answered, statement=statement, parameters=parameters))
        return answer

    async def steps(self, *statements: str) -> None:
        """Statements that read nothing, one after the other, whatever becomes of whoever wants them."""
        await self._small(partial(_stepped, statements))

    async def _small(self, work: Callable[[sqlite3.Connection], Any]) -> Any:
        """Here and now, unless a statement is under way in the thread of which nobody hears any more: then after it."""
        with _Told():
            return work(self._conn) if self._begun == self._ended else await self.there_and_back(work)


class _Told:
    """Errors of SQLite in the words that SQLAlchemy has for them; without values, which may be secrets."""

    def __enter__(self) -> None:
        """Nothing yet."""

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if isinstance(error, sqlite3.Error):
            raise DBAPIError.instance(None, None, error, sqlite3.Error, hide_parameters=True) from error


class Cursor:
    """One statement and what came of it, as SQLAlchemy wants to see it."""

    arraysize = 1

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._answer = Answer([])

    @property
    def description(self) -> Any:
        return self._answer.description

    @property
    def rowcount(self) -> int:
        return self._answer.rowcount

    @property
    def lastrowid(self) -> int | None:
        return self._answer.lastrowid

    async def __aenter__(self) -> Self:
        return self

    async def execute(self, statement: str, parameters: Sequence[Any] = ()) -> Self:
        if statement == BEGIN:
            await self._connection.steps(statement)
        else:
            work = partial(_answered, statement=statement, parameters=parameters)
            self._answer = await self._connection.there_and_back(work)
        return self

    async def executemany(self, statement: str, parameters: Iterable[Sequence[Any]]) -> Self:
        work = partial(_answered, statement=statement, parameters=parameters, many=True)
        self._answer = await self._connection.there_and_back(work)
        return self

    async def fetchall(self) -> list[Any]:
        return self._answer.rows

    async def close(self) -> None:
        """It was closed where it was used."""


def _waiting(seconds: float) -> str:
    return f"PRAGMA busy_timeout={round(seconds * 1000)}"


def _stepped(statements: Sequence[str], connection: sqlite3.Connection) -> None:
    for statement in statements:
        connection.execute(statement)


def _answered(connection: sqlite3.Connection, statement: str, parameters: Any, many: bool = False) -> Answer:
    cursor = connection.cursor()
    try:
        (cursor.executemany if many else cursor.execute)(statement, parameters)
        rows = cursor.fetchall() if cursor.description else []
        return Answer(rows, cursor.description, cursor.rowcount, cursor.lastrowid)
    finally:
        cursor.close()


def connector(url: URL) -> Callable[[], Connection]:
    """What makes connections to a database; each is to be awaited."""
    arguments, options = url.get_dialect()().create_connect_args(url)
    return lambda: Connection(partial(sqlite3.connect, *arguments, **options))


def driver_of(tx: AsyncConnection) -> Connection:
    """The connection below one of SQLAlchemy's."""
    driver = tx.sync_connection.connection.driver_connection  # type: ignore[union-attr]
    assert isinstance(driver, Connection)
    return driver
