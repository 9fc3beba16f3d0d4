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
import math
import sqlite3
import threading
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from queue import SimpleQueue
from typing import Any, Self

import aiosqlite
from aiosqlite import core
from sqlalchemy.engine import URL, Dialect
from sqlalchemy.exc import DBAPIError, OperationalError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from plugbay.store import connections
from plugbay.store.connections import Ended
from plugbay.store.failures import StoreUnavailable
from plugbay.store.statements import Outcome, Result, Write

BEGIN = "BEGIN"
"""Takes no lock and reads nothing; the first statement does."""

WRITE = "BEGIN IMMEDIATE"
"""Takes the write lock, or fails if another connection has it."""

NO_WAIT = "PRAGMA busy_timeout=0"
"""Do not wait for locks."""

SAVEPOINT, ROLLBACK, RELEASE = "SAVEPOINT one", "ROLLBACK TO one", "RELEASE one"


def _work(queue: SimpleQueue[tuple[asyncio.Future[Any] | None, Callable[[], Any]]]) -> None:
    """The thread of a connection: runs functions until one of them ends it. As that of aiosqlite, except for loops that
    are closed.
    """
    while True:
        future, function = queue.get()
        try:
            result = function()
        except BaseException as error:  # the caller gets it, whatever it is
            _answer(future, core.set_exception, error)
        else:
            _answer(future, core.set_result, result)
            if result is core._STOP_RUNNING_SENTINEL:
                return


def _answer(future: asyncio.Future[Any] | None, settle: Callable[..., None], value: Any) -> None:
    """Without a caller that waits, as after a cancellation, the loop may be closed."""
    if future is not None:
        with suppress(RuntimeError):
            future.get_loop().call_soon_threadsafe(settle, future, value)


class Connection(aiosqlite.Connection):
    """A connection with at most one thread round trip per statement."""

    def __init__(self, connect: Callable[[], sqlite3.Connection]) -> None:
        super().__init__(partial(self._open, connect), iter_chunk_size=64)
        # A connection that was not closed must not keep the process alive.
        self._thread = threading.Thread(target=_work, args=(self._tx,), daemon=True)
        self._begun = self._ended = 0
        """Statements started and finished in the thread. Each counter is written by one thread only."""
        self._opened: sqlite3.Connection | None = None

    def _open(self, connect: Callable[[], sqlite3.Connection]) -> sqlite3.Connection:
        self._opened = connect()
        return self._opened

    def stop(self) -> asyncio.Future[Any] | None:
        """End the thread. When the opening was cancelled, only the thread knows the connection, and closes it."""
        self._tx.put_nowait((None, self._close_opened))
        return super().stop()

    def _close_opened(self) -> None:
        if self._opened is not None:
            self._opened.close()
            self._opened = None

    def cursor(self) -> Cursor:  # type: ignore[override]
        return Cursor(self)

    async def commit(self) -> None:
        await self.run_in_thread(sqlite3.Connection.commit)

    async def rollback(self) -> None:
        await self._small(sqlite3.Connection.rollback)

    async def lock(self, patience: float) -> None:
        """Begin a write transaction: directly if the lock is free, else in the thread, which waits for it.

        The connection must have `NO_WAIT` set, and must not be used again if this fails.
        """
        if self._begun == self._ended:
            try:
                self._conn.execute(WRITE)
            except sqlite3.OperationalError:
                pass
            else:
                return
        await self.run_in_thread(partial(_run_steps, statements=(_busy_timeout(patience), WRITE, NO_WAIT)))

    async def run_in_thread(self, work: Callable[[sqlite3.Connection], Any]) -> Any:
        """Run a function in the thread."""
        connection = self._conn

        def counted() -> Any:
            try:
                return work(connection)
            finally:
                self._ended += 1

        self._begun += 1
        try:
            return await self._execute(counted)  # type: ignore[no-untyped-call]
        except sqlite3.Error as error:
            raise _translated(error) from error

    async def run_small(self, statement: str, parameters: Sequence[Any]) -> Result:
        """Run a statement that reads little, in a transaction; begins one if needed."""
        if not self._conn.in_transaction:
            await self.run_steps(BEGIN)
        answer: Result = await self._small(_execute_statement, statement, parameters)
        return answer

    async def run_steps(self, *statements: str) -> None:
        """Run statements without results, even if the caller is cancelled."""
        await self._small(_run_steps, statements)

    def try_batch(self, writes: Sequence[Write], dialect: Dialect) -> list[Outcome] | None:
        """Run statements, all or none, now; None while an abandoned one runs in the thread."""
        if self._begun != self._ended:
            return None
        try:
            if len(writes) == 1:  # a statement that fails changes nothing
                return _execute_writes(self._conn, writes, dialect)
            return self._execute_with_savepoint(writes, dialect)
        except sqlite3.Error as error:
            raise _translated(error) from error

    def _execute_with_savepoint(self, writes: Sequence[Write], dialect: Dialect) -> list[Outcome]:
        connection = self._conn
        connection.execute(SAVEPOINT)
        try:
            return _execute_writes(connection, writes, dialect)
        except BaseException:
            # Without a transaction, SQLite has rolled back everything, perhaps because the disk is full.
            if connection.in_transaction:
                connection.execute(ROLLBACK)
            raise
        finally:
            if connection.in_transaction:
                connection.execute(RELEASE)

    async def _small(self, work: Callable[..., Any], *arguments: Any) -> Any:
        """Run directly, unless an abandoned statement is still running in the thread; then queue behind it."""
        if self._begun != self._ended:
            return await self.run_in_thread(lambda connection: work(connection, *arguments))
        try:
            return work(self._conn, *arguments)
        except sqlite3.Error as error:
            raise _translated(error) from error


def _translated(error: sqlite3.Error) -> BaseException:
    """The SQLAlchemy error for a SQLite error, without parameter values, which may be secrets."""
    return DBAPIError.instance(None, None, error, sqlite3.Error, hide_parameters=True)


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


def _run_steps(connection: sqlite3.Connection, statements: Sequence[str]) -> None:
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


def _execute_writes(connection: sqlite3.Connection, writes: Sequence[Write], dialect: Dialect) -> list[Outcome]:
    bound = (statement.bind(values, dialect) for statement, values in writes)
    return [each.outcome(_execute_statement(connection, each.text, each.parameters)) for each in bound]


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

    __slots__ = ("ended", "over")

    def __init__(self, ended: Ended | None) -> None:
        self.ended = ended
        """Called at the end; None once the transaction is withdrawn from the commit."""
        self.over: asyncio.Future[Exception | None] | None = None
        """Set when it joins a group: from then on it ends with it."""

    def end(self, error: Exception | None) -> None:
        """The group was committed, or failed with `error`."""
        try:
            if self.ended is not None:
                self.ended(True if error is None else None)
        except Exception as failed:  # an error of a callback concerns only its own transaction
            error = error or failed
        if self.over is not None and not self.over.done():
            self.over.set_result(error)

    def withdraw(self) -> None:
        """Exclude this transaction from the commit."""
        if self.ended is not None:
            self.ended(False)
        self.ended = None


class _Batch(_Member):
    """A transaction of prepared statements only."""

    __slots__ = ("outcomes", "refusal", "writes")

    over: asyncio.Future[Exception | None]

    def __init__(self, writes: Sequence[Write], over: asyncio.Future[Exception | None]) -> None:
        super().__init__(None)
        self.over = over
        self.writes = writes
        self.outcomes: list[Outcome] = []
        self.refusal: Exception | None = None
        """Why SQLite did not run it."""


class _Turns:
    """A fair lock. One timer ends all waits that are too long: a timer for each costs as much as finding a row."""

    def __init__(self, patience: float) -> None:
        self._patience = patience
        self._taken = False
        self._waiting: deque[tuple[asyncio.Future[None], float]] = deque()
        """The waits and their ends; both in the order of arrival."""
        self._expiry: asyncio.TimerHandle | None = None

    def try_take(self) -> bool:
        """Take the turn if it is free."""
        taken, self._taken = self._taken, True
        return not taken

    async def take(self, *, bounded: bool = True) -> None:
        """Wait for a turn; raises `StoreUnavailable` when the wait is bounded and takes too long."""
        if self.try_take():
            return
        loop = asyncio.get_running_loop()
        turn: asyncio.Future[None] = loop.create_future()
        self._waiting.append((turn, loop.time() + self._patience if bounded else math.inf))
        if self._expiry is None:
            self._expiry = loop.call_later(self._patience, self._expire)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled() and turn.exception() is None:
                self.release()  # it came together with the cancellation
            raise

    def release(self) -> None:
        """Give the turn to the next that waits."""
        while self._waiting:
            turn, _ = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                return
        self._taken = False

    def _expire(self) -> None:
        loop = asyncio.get_running_loop()
        now = loop.time()
        for turn, end in self._waiting:
            if end <= now and not turn.done():
                turn.set_exception(StoreUnavailable("too many writes are waiting for it"))
        ends = [end for turn, end in self._waiting if not turn.done() and end < math.inf]
        self._expiry = loop.call_at(min(ends), self._expire) if ends else None

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Have a turn, however long it takes to get it."""
        await self.take(bounded=False)
        try:
            yield
        finally:
            self.release()

    def close(self) -> None:
        """End the timer; no call may wait any more."""
        if self._expiry is not None:
            self._expiry.cancel()


class _Savepoint:
    """Rolls back the statements of one member when it fails. A class: every transaction pays for a generator."""

    __slots__ = ("_driver", "_lose_group", "_member")

    def __init__(self, driver: Connection, member: _Member, lose_group: Callable[[], Awaitable[None]]) -> None:
        self._driver = driver
        self._member = member
        self._lose_group = lose_group

    async def __aenter__(self) -> None:
        try:
            await self._driver.run_steps(SAVEPOINT)
        except BaseException:
            await self._roll_back()
            raise

    async def __aexit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if error is not None:
            return await self._roll_back()
        try:
            await self._driver.run_steps(RELEASE)
        except BaseException:
            await self._roll_back()
            raise

    async def _roll_back(self) -> None:
        self._member.withdraw()
        try:
            await self._driver.run_steps(ROLLBACK, RELEASE)
        except OperationalError:  # the rollback failed, perhaps because the disk is full: the whole group is lost
            await self._lose_group()


class GroupCommit:
    """The single writer of a SQLite database.

    Transactions have their turns one after the other. Batches need no turn of their own: all that wait are run at once.
    """

    def __init__(self, engine: AsyncEngine, patience: float) -> None:
        self._engine = engine
        self._patience = patience
        self._turns = _Turns(patience)
        self._connection: AsyncConnection | None = None
        self._driver: Connection
        """Of the connection."""
        self._group: list[_Member] | None = None
        """The transactions that are committed together; None: no group is open."""
        self._committing: asyncio.Task[None] | None = None
        self._batches: deque[_Batch] = deque()
        """Batches that wait for the turn of `_writing`."""
        self._writing: asyncio.Task[None] | None = None

    @asynccontextmanager
    async def transaction(self, ended: Ended) -> AsyncIterator[AsyncConnection]:
        """Commit everything inside, or nothing."""
        member = _Member(ended)
        try:
            await self._turns.take()
            try:
                connection = await self._join(member)
                async with self._savepoint(member):
                    yield connection
            finally:
                self._turns.release()
        except Exception:
            await _wait(member)
            raise
        await _wait(member)

    async def write(self, writes: Sequence[Write]) -> list[Outcome]:
        """Commit these statements, or none of them."""
        loop = asyncio.get_running_loop()
        batch = _Batch(writes, loop.create_future())
        if self._turns.try_take():  # the task below would take two more rounds of the loop
            try:
                await self._run_in_group(batch)
            finally:
                self._turns.release()
        else:
            self._batches.append(batch)
            if self._writing is None:
                self._writing = loop.create_task(self._write_batches())
        error = await batch.over or batch.refusal
        if error is not None:
            raise error
        return batch.outcomes

    async def _write_batches(self) -> None:
        """Run batches until none waits."""
        try:
            while self._batches:
                await self._write_waiting()
        finally:
            self._writing = None

    async def _write_waiting(self) -> None:
        """Run all batches that wait, in one turn."""
        try:
            await self._turns.take()
        except StoreUnavailable as error:
            return self._refuse_batches(error)
        try:
            await self._run_batches()
        finally:
            self._turns.release()

    async def _run_batches(self) -> None:
        while self._batches:
            batch = self._batches.popleft()
            try:
                await self._run_in_group(batch)
            except Exception as error:
                batch.end(error)
                return self._refuse_batches(error)

    async def _run_in_group(self, batch: _Batch) -> None:
        """Make a batch a member of the group and run it; raises if there is no group."""
        connection = await self._join()
        if batch.over.done():
            return  # its caller was cancelled
        assert self._group is not None
        self._group.append(batch)
        try:
            await self._run_batch(batch, connection)
        except Exception as failed:
            batch.refusal = failed
            if not self._driver.in_transaction:
                await self._fail_group()

    async def _run_batch(self, batch: _Batch, connection: AsyncConnection) -> None:
        outcomes = self._driver.try_batch(batch.writes, connection.dialect)
        if outcomes is None:
            async with self._savepoint(batch):
                outcomes = [await statement.run(connection, values) for statement, values in batch.writes]
        batch.outcomes = outcomes

    def _refuse_batches(self, error: Exception) -> None:
        while self._batches:
            self._batches.popleft().end(error)

    async def close(self) -> None:
        """Close after the queued transactions."""
        async with self._turns.turn():
            await self._discard_connection()
        self._turns.close()

    def _savepoint(self, member: _Member) -> _Savepoint:
        return _Savepoint(self._driver, member, self._fail_group)

    async def _join(self, member: _Member | None = None) -> AsyncConnection:
        """Make a transaction a member of the open group, or of a new one; without a transaction, open a group."""
        if self._connection is None:
            self._connection = await connections.open_connection(self._engine)
            self._driver = driver_of(self._connection)
            await self._driver.run_steps(NO_WAIT)
        loop = asyncio.get_running_loop()
        if self._group is None:
            try:
                await self._driver.lock(self._patience)
            except BaseException:  # after a cancellation it is unknown whether we have the lock
                await self._discard_connection()
                raise
            self._group = []
            # The commit queues behind the waiting transactions, which thereby join the group.
            self._committing = loop.create_task(self._commit(self._group))
        if member is not None:
            member.over = loop.create_future()
            self._group.append(member)
        return self._connection

    async def _commit(self, group: list[_Member]) -> None:
        async with self._turns.turn():
            if self._group is group:
                await self._run_batches()  # those that wait join the group
            if self._group is not group:
                return  # it was lost before
            self._group = None
            assert self._connection is not None
            error: Exception | None = None
            try:
                if self._connection.in_transaction():  # from SQLAlchemy's view, which does not see prepared statements
                    await self._connection.commit()
                else:
                    await self._driver.commit()
            except Exception as failed:
                error = failed
                await self._discard_connection()
            for member in group:
                member.end(error)

    async def _fail_group(self) -> None:
        """SQLite rolled back the transaction: all members fail."""
        group, self._group = self._group, None
        await self._discard_connection()
        for member in group or ():
            member.end(StoreUnavailable("it was rolled back"))

    async def _discard_connection(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            await connections.discard(connection)


async def _wait(member: _Member) -> None:
    """Wait for the end of the group; raises the reason if it failed."""
    error = None if member.over is None else await member.over
    if error is not None:
        raise error
