"""SQLite: a driver with at most one thread round trip per statement, and `GroupCommit`.

aiosqlite goes to its thread for the cursor, the statement, the rows and closing, and twice more for the transaction. A
round trip costs about 250 us, finding a row by key 15. So small statements run directly on the event loop; statements
that may read much, or wait for a lock or the disk, run in the thread.

`GroupCommit` shares commits, because a commit waits for the disk and SQLite has one writer. Transactions that arrive
during a commit queue up and run one after the other in one SQLite transaction, each behind a savepoint, and are
committed together. No caller gets a result before that commit, neither success nor data, which another member of the
group may have written. A failing member is rolled back to its savepoint without affecting the others. If the commit
fails, or SQLite rolls everything back, all members fail.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, NamedTuple, Self

import aiosqlite
from sqlalchemy.engine import URL
from sqlalchemy.exc import DBAPIError, OperationalError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from plugbay.store import connections
from plugbay.store.connections import Ended
from plugbay.store.failures import StoreUnavailable

BEGIN = "BEGIN"
"""Takes no lock and reads nothing; the first statement does."""

WRITE = "BEGIN IMMEDIATE"
"""Takes the write lock, or fails if another connection has it."""

NO_WAIT = "PRAGMA busy_timeout=0"
"""Do not wait for locks."""

SAVEPOINT, ROLLBACK, RELEASE = "SAVEPOINT one", "ROLLBACK TO one", "RELEASE one"


class Result(NamedTuple):
    """The result of a statement with all rows; no caller reads more than a page."""

    rows: list[Any]
    description: Any = None
    rowcount: int = -1
    lastrowid: int | None = None


class Connection(aiosqlite.Connection):
    """A connection with at most one thread round trip per statement."""

    def __init__(self, connect: Callable[[], sqlite3.Connection]) -> None:
        super().__init__(connect, iter_chunk_size=64)
        self._thread.daemon = True  # a connection that was not closed must not keep the process alive
        self._begun = self._ended = 0
        """Statements started and finished in the thread. Each counter is written by one thread only."""

    def cursor(self) -> Cursor:  # type: ignore[override]
        return Cursor(self)

    async def commit(self) -> None:
        with _TranslateErrors():
            await self.run_in_thread(sqlite3.Connection.commit)

    async def rollback(self) -> None:
        await self._small(sqlite3.Connection.rollback)

    async def lock(self, patience: float) -> None:
        """Begin a write transaction: directly if the lock is free, else in the thread, which waits for it.

        The connection must have `NO_WAIT` set, and must not be used again if this fails.
        """
        try:
            await self.run_steps(WRITE)
        except OperationalError:
            with _TranslateErrors():
                await self.run_in_thread(partial(_run_steps, (_busy_timeout(patience), WRITE, NO_WAIT)))

    async def run_in_thread(self, work: Callable[[sqlite3.Connection], Any]) -> Any:
        """Run a function in the thread."""
        connection = self._conn

        def counted() -> Any:
            try:
                return work(connection)
            finally:
                self._ended += 1

        self._begun += 1
        return await self._execute(counted)  # type: ignore[no-untyped-call]

    async def run_small(self, statement: str, parameters: Sequence[Any]) -> Result:
        """Run a statement that reads little, in a transaction; begins one if needed."""
        if not self.in_transaction:
            await self.run_steps(BEGIN)
        answer: Result = await self._small(partial(_execute_statement, statement=statement, parameters=parameters))
        return answer

    async def run_steps(self, *statements: str) -> None:
        """Run statements without results, even if the caller is cancelled."""
        await self._small(partial(_run_steps, statements))

    async def _small(self, work: Callable[[sqlite3.Connection], Any]) -> Any:
        """Run directly, unless an abandoned statement is still running in the thread; then queue behind it."""
        with _TranslateErrors():
            return work(self._conn) if self._begun == self._ended else await self.run_in_thread(work)


class _TranslateErrors:
    """Converts SQLite errors to SQLAlchemy errors, without parameter values, which may be secrets."""

    def __enter__(self) -> None:
        """Nothing to do."""

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if isinstance(error, sqlite3.Error):
            raise DBAPIError.instance(None, None, error, sqlite3.Error, hide_parameters=True) from error


class Cursor:
    """A DBAPI cursor for one statement."""

    arraysize = 1

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._result = Result([])

    @property
    def description(self) -> Any:
        return self._result.description

    @property
    def rowcount(self) -> int:
        return self._result.rowcount

    @property
    def lastrowid(self) -> int | None:
        return self._result.lastrowid

    async def __aenter__(self) -> Self:
        return self

    async def execute(self, statement: str, parameters: Sequence[Any] = ()) -> Self:
        if statement == BEGIN:
            await self._connection.run_steps(statement)
        else:
            work = partial(_execute_statement, statement=statement, parameters=parameters)
            self._result = await self._connection.run_in_thread(work)
        return self

    async def executemany(self, statement: str, parameters: Iterable[Sequence[Any]]) -> Self:
        work = partial(_execute_statement, statement=statement, parameters=parameters, many=True)
        self._result = await self._connection.run_in_thread(work)
        return self

    async def fetchall(self) -> list[Any]:
        return self._result.rows

    async def close(self) -> None:
        """Closed by the thread already."""


def _busy_timeout(seconds: float) -> str:
    return f"PRAGMA busy_timeout={round(seconds * 1000)}"


def _run_steps(statements: Sequence[str], connection: sqlite3.Connection) -> None:
    for statement in statements:
        connection.execute(statement)


def _execute_statement(connection: sqlite3.Connection, statement: str, parameters: Any, many: bool = False) -> Result:
    cursor = connection.cursor()
    try:
        (cursor.executemany if many else cursor.execute)(statement, parameters)
        rows = cursor.fetchall() if cursor.description else []
        return Result(rows, cursor.description, cursor.rowcount, cursor.lastrowid)
    finally:
        cursor.close()


def connector(url: URL) -> Callable[[], Connection]:
    """A function that creates connections; await the result."""
    arguments, options = url.get_dialect()().create_connect_args(url)
    return lambda: Connection(partial(sqlite3.connect, *arguments, **options))


def driver_of(tx: AsyncConnection) -> Connection:
    """The driver connection of a SQLAlchemy connection."""
    driver = tx.sync_connection.connection.driver_connection  # type: ignore[union-attr]
    assert isinstance(driver, Connection)
    return driver


class _Member:
    """One transaction of a group."""

    def __init__(self, ended: Ended) -> None:
        self._ended = ended
        self._over: asyncio.Future[Exception | None] | None = None

    def join(self) -> None:
        """Join the group: from now on the transaction ends with it."""
        self._over = asyncio.get_running_loop().create_future()

    def end(self, error: Exception | None) -> None:
        """The group was committed, or failed with `error`."""
        assert self._over is not None
        try:
            self._ended(True if error is None else None)
        except Exception as failed:  # an error of a callback concerns only its own transaction
            error = error or failed
        if not self._over.done():
            self._over.set_result(error)

    async def wait(self) -> None:
        """Wait for the end of the group; raises the reason if it failed."""
        error = None if self._over is None else await self._over
        if error is not None:
            raise error

    def withdraw(self) -> None:
        """Exclude this transaction from the commit."""
        self._ended(False)
        self._ended = lambda _: None


class _Group:
    """Transactions that are committed together."""

    def __init__(self) -> None:
        self.members: list[_Member] = []
        self.committing: asyncio.Task[None] | None = None

    def end(self, error: Exception | None) -> None:
        for member in self.members:
            member.end(error)


class _TimedLock:
    """A lock with a timeout."""

    def __init__(self, lock: asyncio.Lock, patience: float) -> None:
        self._lock = lock
        self._patience = patience

    async def __aenter__(self) -> None:
        try:
            # Not `wait_for`: before Python 3.12 it can swallow a cancellation when the lock becomes free at that
            # moment.
            async with asyncio.timeout(self._patience):
                await self._lock.acquire()
        except TimeoutError:
            raise StoreUnavailable("too many wait to write to it") from None

    async def __aexit__(self, *_: object) -> None:
        self._lock.release()


class GroupCommit:
    """The single writer of a SQLite database."""

    def __init__(self, engine: AsyncEngine, patience: float) -> None:
        self._engine = engine
        self._patience = patience
        self._turn = asyncio.Lock()
        self._connection: AsyncConnection | None = None
        self._group: _Group | None = None
        """The open group."""

    @asynccontextmanager
    async def transaction(self, ended: Ended) -> AsyncIterator[AsyncConnection]:
        """Commit everything inside, or nothing."""
        member = _Member(ended)
        try:
            async with _TimedLock(self._turn, self._patience), self._in_savepoint(member) as connection:
                yield connection
        except Exception:
            await member.wait()
            raise
        await member.wait()

    async def close(self) -> None:
        """Close after the queued transactions."""
        async with self._turn:
            await self._discard_connection()

    @asynccontextmanager
    async def _in_savepoint(self, member: _Member) -> AsyncIterator[AsyncConnection]:
        connection = await self._join(member)
        driver = driver_of(connection)
        try:
            await driver.run_steps(SAVEPOINT)
            yield connection
            await driver.run_steps(RELEASE)
        except BaseException:
            member.withdraw()
            try:
                await driver.run_steps(ROLLBACK, RELEASE)
            except OperationalError:  # the rollback failed, perhaps because the disk is full: the whole group is lost
                await self._fail_group()
            raise

    async def _join(self, member: _Member) -> AsyncConnection:
        if self._connection is None:
            self._connection = await connections.open_connection(self._engine)
            await driver_of(self._connection).run_steps(NO_WAIT)
        if self._group is None:
            self._group = await self._begin_group(self._connection)
        self._group.members.append(member)
        member.join()
        return self._connection

    async def _begin_group(self, connection: AsyncConnection) -> _Group:
        try:
            await driver_of(connection).lock(self._patience)
        except BaseException:  # after a cancellation it is unknown whether we have the lock
            await self._discard_connection()
            raise
        group = _Group()
        # The commit queues behind the waiting transactions, which thereby join the group.
        group.committing = asyncio.get_running_loop().create_task(self._commit(group))
        return group

    async def _commit(self, group: _Group) -> None:
        async with self._turn:
            if self._group is not group:
                return  # it was lost before
            self._group = None
            try:
                await self._commit_connection()
            except Exception as error:
                await self._discard_connection()
                group.end(error)
            else:
                group.end(None)

    async def _commit_connection(self) -> None:
        assert self._connection is not None
        if self._connection.in_transaction():  # from SQLAlchemy's view, which does not see prepared statements
            await self._connection.commit()
        else:
            await driver_of(self._connection).commit()

    async def _fail_group(self) -> None:
        """SQLite rolled back the transaction: all members fail."""
        group, self._group = self._group, None
        await self._discard_connection()
        if group is not None:
            group.end(StoreUnavailable("it has given up what it had begun"))

    async def _discard_connection(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            await connections.discard(connection)
