"""`Database`: one SQL database, SQLite or PostgreSQL, and how it is written to and read from.

    database = await Database.open("sqlite+aiosqlite:////var/lib/plugbay/plugbay.db")
    async with database.transaction() as tx:
        await orgs.insert(tx, org)

Owns connections, transactions and what they cost each other: on SQLite one writer at a time, in line, so nobody is told
that the database is locked by ourselves. A transaction that is begun inside another one of the same task is part of it,
so what a request does can be made one change. Refuses to know any table.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import msgspec
from sqlalchemy import Connection, event, text
from sqlalchemy.engine import URL, ExceptionContext, make_url
from sqlalchemy.exc import ArgumentError, NoSuchModuleError, SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine

from plugbay.store.failures import StoreRefused, StoreUnavailable, damaged, passing
from plugbay.store.migrations import upgrade

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

_WRITES = "plugbay_writes"


@dataclass(slots=True)
class _Unit:
    """A transaction that is open, whose it is, and what is to be done once it is committed."""

    connection: AsyncConnection
    task: asyncio.Task[Any] | None
    afterwards: list[Callable[[], object]] = field(default_factory=list)


class Database:
    """One database. Made by `open`."""

    def __init__(self, engine: AsyncEngine) -> None:
        self._engine = engine
        self._writing = engine.execution_options(**{_WRITES: True})
        # PostgreSQL would show each statement what was committed just before it; SQLite shows one view by itself.
        view = {"isolation_level": "REPEATABLE READ"} if engine.dialect.name == "postgresql" else {}
        self._viewing = engine.execution_options(**view)
        self._turn = asyncio.Lock() if engine.dialect.name == "sqlite" else None
        self._unit: ContextVar[_Unit | None] = ContextVar("plugbay_unit", default=None)

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

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Tx]:
        """Everything inside is committed together or not at all. Part of the one around it, if there is one."""
        around = self._current()
        if around is not None:
            yield around.connection
            return
        async with _translated(), self._in_turn(), _connected(self._writing) as connection, connection.begin():
            unit = _Unit(connection, asyncio.current_task())
            token = self._unit.set(unit)
            try:
                yield connection
            finally:
                self._unit.reset(token)
        for act in unit.afterwards:
            act()

    @asynccontextmanager
    async def reading(self) -> AsyncIterator[Tx]:
        """One view of the data for all statements inside, or what the transaction around it sees."""
        around = self._current()
        if around is not None:
            yield around.connection
            return
        async with _translated(), _connected(self._viewing) as connection:
            yield connection

    def after_commit(self, act: Callable[[], object]) -> None:
        """Do something once the transaction of this task is committed; at once if there is none."""
        around = self._current()
        if around is None:
            act()
        else:
            around.afterwards.append(act)

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
        await self._engine.dispose()

    def _current(self) -> _Unit | None:
        """The transaction of this very task: one that was started inside it has a copy of its context, no more."""
        unit = self._unit.get()
        return unit if unit is not None and unit.task is asyncio.current_task() else None

    @asynccontextmanager
    async def _in_turn(self) -> AsyncIterator[None]:
        if self._turn is None:
            yield
            return
        try:
            # Not `wait_for`: before Python 3.12 that forgets that it was cancelled when its turn comes just then.
            async with asyncio.timeout(PATIENCE):
                await self._turn.acquire()
        except TimeoutError:
            raise StoreUnavailable("too many wait to write to it") from None
        try:
            yield
        finally:
            self._turn.release()


@asynccontextmanager
async def _translated() -> AsyncIterator[None]:
    """What passes by itself leaves as `StoreUnavailable`, a damaged file as `StoreRefused`, wherever it happened."""
    try:
        yield
    except SQLAlchemyError as error:
        known = passing(error) or damaged(error)
        if known is None:
            raise
        raise known from error


@asynccontextmanager
async def _connected(engine: AsyncEngine) -> AsyncIterator[AsyncConnection]:
    connection = engine.connect()
    try:
        await connection.start()
    except OSError as error:
        raise StoreUnavailable("no connection to it") from error
    try:
        yield connection
    finally:
        await connection.close()


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
    elif url.database:
        Path(url.database).parent.mkdir(parents=True, exist_ok=True)
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


def _begin(connection: Connection) -> None:
    writes = connection.get_execution_options().get(_WRITES, False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")
