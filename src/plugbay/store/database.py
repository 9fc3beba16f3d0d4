"""`Database`: one SQL database, SQLite or PostgreSQL, and how it is written to and read from.

    database = await Database.open("sqlite+aiosqlite:////var/lib/plugbay/plugbay.db")
    async with database.transaction() as tx:
        await orgs.insert(tx, org)

Owns what a transaction is to whoever has one: part of the one around it, if the same task has begun one, so that what a
request does can be made one change; and with something to be done once it is committed. Knows when settled tables were
changed (`edition`). How transactions come to their commit is `together`'s on SQLite, where there is one writer at a
time, and the server's on PostgreSQL. Refuses to know any table.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from contextvars import ContextVar, copy_context
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import msgspec
from sqlalchemy import Connection, event, text
from sqlalchemy.engine import URL, ExceptionContext, make_url
from sqlalchemy.exc import ArgumentError, NoSuchModuleError, SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine
from sqlalchemy.sql.dml import UpdateBase

from plugbay.host.disk.sqlite import IN_MEMORY, make_private
from plugbay.store.connections import Alone, connected
from plugbay.store.failures import StoreRefused, StoreUnavailable, damaged, passing
from plugbay.store.metadata import is_settled
from plugbay.store.migrations import upgrade

if TYPE_CHECKING:
    from plugbay.store.together import Together

Tx = AsyncConnection
"""A transaction, or a view: what every function of the store is given first."""

DRIVERS = {"sqlite": "aiosqlite", "postgresql": "asyncpg"}
"""The one driver for each kind of database."""

EXTRAS = {"sqlite": "serve", "postgresql": "postgres"}
"""Which extra of plugbay brings it."""

PATIENCE = 5.0
"""Seconds that a transaction waits for its turn, for a lock or for a connection; then it is told to come again."""

STATEMENT_TIMEOUT = 30.0
"""Seconds for one statement on PostgreSQL, which ends it then: far more than any of ours needs."""

SILENCE = 60.0
"""Seconds after which a PostgreSQL that says nothing at all is given up."""

CONNECTIONS = 8
"""Connections kept: on SQLite a thread each, and readers do not wait for the writer."""

_PRAGMAS = (
    "PRAGMA journal_mode=WAL",
    "PRAGMA synchronous=FULL",  # what was committed is there after a power cut
    "PRAGMA foreign_keys=ON",
    f"PRAGMA busy_timeout={round(PATIENCE * 1000)}",
)


class _Unit:
    """A transaction that is open, whose it is, and what is to be done once it is committed."""

    connection: AsyncConnection

    def __init__(self) -> None:
        self.task = asyncio.current_task()
        self.afterwards: list[Callable[[], object]] = []
        self.unsettles = False
        """Whether it changes settled tables."""


class Database:
    """One database. Made by `open`."""

    def __init__(self, engine: AsyncEngine) -> None:
        self._engine = engine
        # PostgreSQL would show each statement what was committed just before it; SQLite shows one view by itself.
        view = {"isolation_level": "REPEATABLE READ"} if engine.dialect.name == "postgresql" else {}
        self._viewing = engine.execution_options(**view)
        self._writer = _writer(engine)
        self._unit: ContextVar[_Unit | None] = ContextVar("plugbay_unit", default=None)
        self._edition = 0
        self._unsettling = 0
        event.listen(engine.sync_engine, "before_execute", self._said)

    @classmethod
    async def open(cls, url: str, *, migrate: bool = True) -> Self:
        """Connect, and bring the tables up to date; raises `StoreRefused` or `StoreUnavailable`."""
        database = cls(_engine(_checked(url)))
        try:
            if migrate:
                await database.migrate()
            else:
                await database.ping()
        except BaseException:
            await database.close()
            raise
        return database

    async def migrate(self) -> None:
        """Bring the tables up to date; raises `StoreRefused` or `StoreUnavailable`."""
        async with self.transaction() as tx:
            await tx.run_sync(upgrade)

    @property
    def dialect(self) -> str:
        """`sqlite` or `postgresql`."""
        return self._engine.dialect.name

    @property
    def path(self) -> Path | None:
        """The file of a SQLite, by its one true name; None: this is none."""
        return Path(self._engine.url.database or "").resolve() if self.dialect == "sqlite" else None

    @property
    def file(self) -> Path | None:
        """The same, of one that is not in memory."""
        return self.path if self.path is not None and _is_file(self._engine.url.database or IN_MEMORY) else None

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Tx]:
        """Everything inside is committed together or not at all. Part of the one around it, if there is one."""
        around = self._current()
        if around is not None:
            yield around.connection
            return
        unit = _Unit()
        with _Translated():
            async with self._writer.transaction(partial(self._ended, unit)) as connection:
                unit.connection = connection
                token = self._unit.set(unit)
                try:
                    yield connection
                finally:
                    self._unit.reset(token)

    @asynccontextmanager
    async def reading(self) -> AsyncIterator[Tx]:
        """One view of the data for all statements inside, or what the transaction around it sees."""
        around = self._current()
        if around is not None:
            yield around.connection
            return
        with _Translated():
            async with connected(self._viewing) as connection:
                yield connection

    def after_commit(self, act: Callable[[], object]) -> None:
        """Do something once the transaction of this task is committed; at once if there is none."""
        around = self._current()
        if around is None:
            act()
        else:
            # With the context of whoever wants it: it may be called in the name of another of its group.
            around.afterwards.append(partial(copy_context().run, act))

    @property
    def edition(self) -> int | None:
        """Which state of settled tables is the current one; None: somebody is changing them just now."""
        return None if self._unsettling else self._edition

    def forget(self) -> None:
        """Somebody else may have changed settled tables."""
        self._edition += 1

    async def ping(self) -> None:
        """Raises `StoreUnavailable` when the database does not answer."""
        async with self.reading() as tx:
            await tx.execute(text("SELECT 1"))

    async def dedicated(self) -> AsyncConnection:
        """A connection for as long as somebody wants it, on which each statement stands for itself."""
        connection = self._engine.execution_options(isolation_level="AUTOCOMMIT").connect()
        try:
            await connection.start()
        except (OSError, SQLAlchemyError) as error:
            raise StoreUnavailable("no connection to it") from error
        return connection

    async def close(self) -> None:
        """Give every connection back."""
        await self._writer.close()
        await self._engine.dispose()

    def _current(self) -> _Unit | None:
        """The transaction of this very task: one that was started inside it has a copy of its context, no more."""
        unit = self._unit.get()
        return unit if unit is not None and unit.task is asyncio.current_task() else None

    def _said(self, connection: Connection, statement: object, *_: object) -> None:
        """A statement is about to be carried out."""
        if isinstance(statement, UpdateBase) and is_settled(statement.table):
            unit = self._current()
            if unit is None:
                raise RuntimeError(f"{statement.table} is settled: only whoever has begun a transaction changes it")
            if not unit.unsettles:
                unit.unsettles = True
                self._unsettling += 1

    def _ended(self, unit: _Unit, committed: bool | None) -> None:
        if unit.unsettles and committed is None:
            # The server may still be at it; by then it has done it, or given it up.
            asyncio.get_running_loop().call_later(STATEMENT_TIMEOUT, self._settled)
        elif unit.unsettles:
            self._settled()
        if committed:
            for act in unit.afterwards:
                act()

    def _settled(self) -> None:
        self._unsettling -= 1
        self._edition += 1


def sqlite_file(url: str) -> Path | None:
    """The file that a URL of SQLite names, by its one true name; None: it names none. Raises `StoreRefused`."""
    parsed = _checked(url)
    named = parsed.database if parsed.get_backend_name() == "sqlite" else None
    return Path(named).resolve() if named and _is_file(named) else None


def _is_file(named: str) -> bool:
    """Whether SQLite takes this for the name of a file."""
    return named != IN_MEMORY and not named.startswith("file:")


def _writer(engine: AsyncEngine) -> Alone | Together:
    if engine.dialect.name == "postgresql":
        return Alone(engine)
    from plugbay.store.together import Together  # its driver is an extra

    return Together(engine, PATIENCE)


class _Translated:
    """What passes by itself leaves as `StoreUnavailable`, a damaged file as `StoreRefused`, wherever it happened."""

    def __enter__(self) -> None:
        """Nothing yet."""

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        known = passing(error) or damaged(error) if isinstance(error, SQLAlchemyError) else None
        if known is not None:
            raise known from error


def _checked(url: str) -> URL:
    try:
        parsed = make_url(url)
    except ArgumentError:
        raise StoreRefused(f"{url!r} is no URL of a database; try sqlite+aiosqlite:///plugbay.db") from None
    kind = parsed.get_backend_name()
    if kind not in DRIVERS:
        raise StoreRefused(f"plugbay keeps its records in SQLite or PostgreSQL, not in {kind}")
    return parsed.set(drivername=f"{kind}+{DRIVERS[kind]}")


def _engine(url: URL) -> AsyncEngine:
    kind = url.get_backend_name()
    options: dict[str, Any] = {"pool_size": CONNECTIONS, "max_overflow": CONNECTIONS, "pool_timeout": PATIENCE}
    if kind == "postgresql":
        settings = {
            "application_name": "plugbay",
            "lock_timeout": f"{round(PATIENCE * 1000)}",
            "statement_timeout": f"{round(STATEMENT_TIMEOUT * 1000)}",
        }
        options["connect_args"] = {"timeout": PATIENCE, "command_timeout": SILENCE, "server_settings": settings}
        options["pool_pre_ping"] = True
    elif url.database and _is_file(url.database):
        Path(url.database).parent.mkdir(parents=True, exist_ok=True)
        with suppress(OSError):  # what is wrong with it, SQLite says
            make_private(Path(url.database))
    try:
        if kind == "sqlite":
            from plugbay.store import sqlite  # its driver is an extra

            options["async_creator"] = sqlite.connector(url)
        engine = create_async_engine(url, json_serializer=_dumped, json_deserializer=msgspec.json.decode, **options)
    except (ImportError, NoSuchModuleError):
        hint = f"pip install 'plugbay[{EXTRAS[kind]}]'"
        raise StoreRefused(f"the driver {DRIVERS[kind]} is not installed; {hint}") from None
    event.listen(engine.sync_engine, "handle_error", _silent)
    if kind == "sqlite":
        event.listen(engine.sync_engine, "connect", _prepared)
        event.listen(engine.sync_engine, "begin", _begin)
        event.listen(engine.sync_engine, "handle_error", _given_up)
    return engine


def _dumped(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def _prepared(connection: Any, record: object) -> None:
    """Transactions begin when we say so: the driver itself would begin them late, and take a lock in their middle."""
    connection.isolation_level = None
    cursor = connection.cursor()
    for pragma in _PRAGMAS:
        cursor.execute(pragma)
    cursor.close()


def _silent(context: ExceptionContext) -> None:
    """A server that says nothing, or whose connection breaks: the driver has no error of databases for that."""
    if isinstance(context.original_exception, OSError):  # which a TimeoutError is, too
        context.is_disconnect = True
        raise StoreUnavailable("it does not answer") from context.original_exception


def _given_up(context: ExceptionContext) -> None:
    """Whoever waits for a statement is cancelled: its connection is as good as before, what comes next waits for it."""
    if isinstance(context.original_exception, asyncio.CancelledError):
        context.is_disconnect = False


def _begin(connection: Connection) -> None:
    driver: Any = connection.connection.driver_connection
    if not driver.in_transaction:  # a writer has its lock, and a prepared statement may have been first
        connection.exec_driver_sql("BEGIN")
