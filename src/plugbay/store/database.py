"""`Database`: one SQLite or PostgreSQL database, its transactions and read views; and `RowCache`.

    database = await Database.open("sqlite+aiosqlite:////var/lib/plugbay/plugbay.db")
    async with database.transaction() as tx:
        await orgs.insert(tx, org)

A transaction inside another one of the same task is part of it. `before_commit` collects the last writes of a
transaction; `after_commit` callbacks run once it is committed. On SQLite, concurrent transactions share commits
(`sqlite.GroupCommit`).

    cache = RowCache[str, Card](database, 1_000)
    card = await cache.get("c1", read)       calls read, unless the value is cached

`RowCache` holds rows of settled tables (keys, bindings, packages, org policies), which every request needs and which
rarely change. It must never return a value older than a confirmed change: while a settled table is being changed,
nothing is read from or written to the cache, and afterwards it is empty (`Database.edition`). This is safe because a
server owns its database exclusively (`ownership`), or because each request reads the edition of a shared database
(`share`, `editions`).
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager, suppress
from contextvars import ContextVar, copy_context
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

import msgspec
from sqlalchemy import Connection, event, text
from sqlalchemy.engine import URL, ExceptionContext, make_url
from sqlalchemy.exc import ArgumentError, NoSuchModuleError, SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine
from sqlalchemy.sql.dml import UpdateBase

from plugbay.host.disk.sqlite import make_private
from plugbay.host.disk.sqlite_files import IN_MEMORY
from plugbay.store.connections import EVERY_ORG, ORG, SingleCommit, connect, enter_org
from plugbay.store.editions import SharedEdition, count_change
from plugbay.store.failures import StoreRefused, StoreUnavailable, damage_error, transient_error
from plugbay.store.leases import Fence, check
from plugbay.store.metadata import is_settled
from plugbay.store.migrations import require_current, upgrade
from plugbay.store.postgresql import SILENT_SECONDS, connection_class, move_hosts, with_ports
from plugbay.store.statements import Outcome, Write

if TYPE_CHECKING:
    from plugbay.store.sqlite import GroupCommit

Tx = AsyncConnection
"""A transaction or read view: the first argument of every function in the store."""

DRIVERS = {"sqlite": "aiosqlite", "postgresql": "asyncpg"}
"""The driver of each kind of database."""

EXTRAS = {"sqlite": "serve", "postgresql": "postgres"}
"""The extra that installs it."""

PATIENCE = 5.0
"""Seconds that a transaction waits for its turn, a lock or a connection, before `StoreUnavailable`."""

STATEMENT_TIMEOUT = 30.0
"""Seconds for one statement on PostgreSQL, enforced by the server."""

IDLE_TRANSACTION, IDLE_SHARE = 20.0, 2 / 3
"""Seconds without a statement after which PostgreSQL ends a transaction; at most this share of a lease. The locks of a
process that was suspended, or whose machine is gone, are free then: before its lease is over, which another gateway
takes."""

_END_STALLED = text(
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database()"
    " AND usename = current_user AND state = 'active' AND wait_event = 'ClientRead'"
    " AND query_start < clock_timestamp() - make_interval(secs => :seconds)"
)

SILENCE = STATEMENT_TIMEOUT + SILENT_SECONDS
"""Seconds without a response to a statement before the connection is dropped. The kernel drops it earlier if the
machine of PostgreSQL is gone (`postgresql`)."""

CHECKED_SECONDS = 1.0
"""Seconds for which the work of one request relies on the edition that it has read. Long work reads it again."""

MAX_CHECKED = 256 << 20
"""Bytes of a SQLite file that is checked for damage at every start; `plugbay doctor` checks larger ones."""

CONNECTIONS = 8
"""Pool size. On SQLite each connection has a thread, and readers do not wait for the writer."""

_PRAGMAS = (
    "PRAGMA journal_mode=WAL",
    "PRAGMA synchronous=FULL",  # committed data survives a power failure
    "PRAGMA foreign_keys=ON",
    f"PRAGMA busy_timeout={round(PATIENCE * 1000)}",
)

K = TypeVar("K")
V = TypeVar("V")

_CHECKED: ContextVar[tuple[int, float]] = ContextVar("plugbay_checked", default=(-1, 0.0))
"""When this task, or the one that started it, last read the edition of a shared database; and the generation then."""


class _Transaction:
    """An open transaction, its task, and its callbacks."""

    connection: AsyncConnection

    def __init__(self) -> None:
        self.task = asyncio.current_task()
        self.last: dict[Callable[[Tx, list[Any]], Awaitable[None]], list[Any]] = {}
        """Writes before the commit, with their items."""
        self.afterwards: list[Callable[[], object]] = []
        self.in_doubt: list[Callable[[], object]] = []
        """Those of `afterwards` that also run when the outcome of the commit is unknown."""
        self.unsettles = False
        """Whether it changes settled tables."""


class Database:
    """One database. Created by `open`."""

    def __init__(self, engine: AsyncEngine, idle: float = IDLE_TRANSACTION) -> None:
        self._engine = engine
        self._idle = idle
        """Seconds that a transaction may be idle."""
        # PostgreSQL needs this for one consistent view; SQLite has it by default.
        view = {"isolation_level": "REPEATABLE READ"} if engine.dialect.name == "postgresql" else {}
        self._viewing = engine.execution_options(**view)
        self._writer = _writer(engine)
        self._unit: ContextVar[_Transaction | None] = ContextVar("plugbay_unit", default=None)
        self.edition: int | None = 0
        """Number of the current state of settled tables; None while they are being changed."""
        self._editions = 0
        self._unsettling = 0
        self.fence: Fence | None = None
        """The lease of this gateway, if several gateways share the database."""
        self._shared: SharedEdition | None = None
        self._generation = 0
        """Changes of settled tables by this process."""
        event.listen(engine.sync_engine, "before_execute", self._before_execute)

    @classmethod
    async def open(cls, url: str, *, migrate: bool = True, check: bool = True, lease: float | None = None) -> Self:
        """Connect, check for damage and migrate; raises `StoreRefused` or `StoreUnavailable`.

        `lease`: the seconds after which another gateway takes over the work of this one.
        """
        idle = IDLE_TRANSACTION if lease is None else min(IDLE_TRANSACTION, IDLE_SHARE * lease)
        database = cls(_engine(_parse_url(url), idle), idle)
        try:
            if check:
                await database._refuse_damaged()
            if migrate:
                await database.migrate()
            else:
                await database.ping()
        except BaseException:
            await database.close()
            raise
        return database

    async def _refuse_damaged(self) -> None:
        """Raises `StoreRefused` for a damaged file that is small enough to be read at every start."""
        if self.file is None or not self.file.exists() or self.file.stat().st_size > MAX_CHECKED:
            return
        damage = await self.find_damage(quick=True)
        if damage is not None:
            hint = "restore a backup, or save the readable records with `sqlite3 FILE .recover`"
            raise StoreRefused(f"{self.file} is damaged ({damage}); {hint}")

    async def migrate(self) -> None:
        """Migrate the tables; raises `StoreRefused` or `StoreUnavailable`."""
        async with self.transaction() as tx:
            await tx.run_sync(upgrade)

    async def require_current(self) -> None:
        """Raises `StoreRefused` unless the tables are of this version; changes nothing."""
        async with self.reading() as tx:
            await tx.run_sync(require_current)

    def share(self, fence: Fence) -> None:
        """From now on, other gateways use this database too; this lease says that we are one of them."""
        self.fence = fence
        if self._shared is None:
            self._shared = SharedEdition(self.dedicated)

    @property
    def owner(self) -> str | None:
        """The owner of work that is begun here; None if this server owns the whole database."""
        return None if self.fence is None else self.fence.holder

    @property
    def dialect(self) -> str:
        """`sqlite` or `postgresql`."""
        return self._engine.dialect.name

    @property
    def path(self) -> Path | None:
        """Real path of a SQLite file; None for other databases."""
        return Path(self._engine.url.database or "").resolve() if self.dialect == "sqlite" else None

    @property
    def file(self) -> Path | None:
        """The same, if the database is not in memory."""
        return self.path if self.path is not None and _is_file(self._engine.url.database or IN_MEMORY) else None

    @asynccontextmanager
    async def transaction(self, *, fenced: bool = False) -> AsyncIterator[Tx]:
        """Commit everything inside, or nothing. Joins an open transaction of the same task.

        `fenced`: raises `LeaseLost` if this gateway is no longer one of those that share the database. Nothing inside
        can happen after another gateway has taken over the work of this one.
        """
        around = self._current()
        if around is not None:
            await self._check_fence(around.connection, fenced)
            yield around.connection
            return
        unit = _Transaction()
        with _TranslateErrors():
            async with self._writer.transaction(partial(self._ended, unit)) as connection:
                unit.connection = connection
                token = self._unit.set(unit)
                try:
                    await self._check_fence(connection, fenced)
                    yield connection
                    await self._write_last(unit)
                finally:
                    self._unit.reset(token)

    async def write(self, *writes: Write) -> list[Outcome]:
        """Commit these prepared statements, or none of them; as part of an open transaction of the same task."""
        around = self._current()
        if around is not None:
            return [await statement.run(around.connection, values) for statement, values in writes]
        try:
            return await self._writer.write(writes)
        except SQLAlchemyError as error:
            raise transient_error(error) or damage_error(error) or error from error

    @asynccontextmanager
    async def reading(self) -> AsyncIterator[Tx]:
        """A consistent read view, or the open transaction of the same task."""
        around = self._current()
        if around is not None:
            yield around.connection
            return
        with _TranslateErrors():
            async with connect(self._viewing) as connection:
                if self.dialect == "postgresql" and ORG.get() != EVERY_ORG:
                    await enter_org(connection)
                yield connection

    async def end_stalled(self) -> None:
        """End the transactions of processes that are cut off in the middle of a statement.

        PostgreSQL waits for ever for the rest of one, whatever its time limits are, and keeps the locks.
        """
        if self.dialect == "postgresql":
            async with self.reading() as tx:
                await tx.execute(_END_STALLED, {"seconds": self._idle})

    @asynccontextmanager
    async def every_org(self) -> AsyncIterator[None]:
        """Show the rows of all orgs in this block, also in an open transaction, though a request of one org runs it."""
        if ORG.get() == EVERY_ORG:
            yield
            return
        around = self._current() if self.dialect == "postgresql" else None
        token = ORG.set(EVERY_ORG)
        try:
            if around is not None:
                await enter_org(around.connection)
            yield
        except SQLAlchemyError:
            around = None  # the transaction has failed: it takes no further statement
            raise
        finally:
            ORG.reset(token)
            if around is not None:
                await enter_org(around.connection)

    def before_commit(self, write: Callable[[Tx, list[V]], Awaitable[None]], item: V) -> None:
        """Call `write` with all its items of the current transaction, after everything else in it."""
        around = self._current()
        if around is None:
            raise RuntimeError("there is no transaction: call it inside Database.transaction()")
        around.last.setdefault(write, []).append(item)

    async def _write_last(self, unit: _Transaction) -> None:
        if unit.last:
            async with self.every_org():  # a request of an org may also change records that all orgs share
                for write, items in unit.last.items():
                    await write(unit.connection, items)
        if unit.unsettles and self._shared is not None:
            await count_change(unit.connection)

    async def _check_fence(self, connection: Tx, fenced: bool) -> None:
        if fenced and self.fence is not None:
            await check(connection, self.fence)

    def after_commit(self, act: Callable[[], object], *, in_doubt: bool = False) -> None:
        """Run a callback after the commit of the current transaction; at once if there is none.

        `in_doubt`: also when the connection was lost during the commit, once the server must have finished it. Then the
        callback has to look whether the transaction took place.
        """
        around = self._current()
        if around is None:
            act()
            return
        # In the context of the caller: it may run in the task of another member of the group commit.
        later = partial(copy_context().run, act)
        around.afterwards.append(later)
        if in_doubt:
            around.in_doubt.append(later)

    def forget(self) -> None:
        """Invalidate caches: another process may have changed settled tables."""
        self._count_edition(0)

    async def ping(self) -> None:
        """Raises `StoreUnavailable` when the database does not respond."""
        async with self.reading() as tx:
            await tx.execute(text("SELECT 1"))

    async def check_writable(self, seconds: float) -> None:
        """Raises `StoreUnavailable` when the database cannot be written to within this time. Writes nothing."""
        try:
            async with asyncio.timeout(seconds), self.transaction() as tx:
                if self.dialect == "postgresql" and await tx.scalar(text("SHOW transaction_read_only")) == "on":
                    raise StoreUnavailable("it is read-only")
        except TimeoutError:
            raise StoreUnavailable(f"it was locked for writing for {seconds:g} s") from None

    async def find_damage(self, *, quick: bool) -> str | None:
        """The first damage of a SQLite file; None when there is none. A quick check does not compare indexes."""
        if self.dialect != "sqlite":
            return None
        pragma = "quick_check" if quick else "integrity_check"
        try:
            async with self.reading() as tx:
                found = await tx.scalar(text(f"PRAGMA {pragma}(1)"))
        except StoreRefused as error:
            return str(error)
        return None if found == "ok" else " ".join(str(found).replace("*** in database main ***", "").split())

    async def ignores_policies(self) -> bool:
        """Whether PostgreSQL applies no row-level security to this user: a superuser, or a role with BYPASSRLS."""
        if self.dialect != "postgresql":
            return False
        async with self.reading() as tx:
            query = "SELECT rolsuper OR rolbypassrls FROM pg_roles WHERE rolname = current_user"
            return bool(await tx.scalar(text(query)))

    async def dedicated(self) -> AsyncConnection:
        """A connection in autocommit mode that the caller closes."""
        connection = self._engine.execution_options(isolation_level="AUTOCOMMIT").connect()
        try:
            await connection.start()
        except (OSError, SQLAlchemyError) as error:
            raise StoreUnavailable("no connection to it") from error
        return connection

    async def close(self) -> None:
        """Close all connections."""
        if self._shared is not None:
            await self._shared.close()
        await self._writer.close()
        await self._engine.dispose()

    async def current_edition(self) -> int | None:
        """The edition for a cache: of a shared database, one that was read after the work of this task began.

        None inside a transaction that changes settled tables, and while this server changes those that it owns.
        """
        if self._shared is None:
            return self.edition
        around = self._current()
        if around is not None and around.unsettles:
            return None
        generation, at = _CHECKED.get()
        now = asyncio.get_running_loop().time()
        if generation != self._generation or now - at > CHECKED_SECONDS:
            checked = self._generation, now
            await self.read_edition()
            _CHECKED.set(checked)
        return self.edition

    async def read_edition(self) -> int | None:
        """Read the edition of a shared database now. It is never set back: reads may end in another order."""
        if self._shared is not None:
            self.edition = max(self.edition or 0, await self._shared.get())
        return self.edition

    def _current(self) -> _Transaction | None:
        """The transaction of this task. A child task has a copy of the context, but no share in the transaction."""
        unit = self._unit.get()
        return unit if unit is not None and unit.task is asyncio.current_task() else None

    def _before_execute(self, connection: Connection, statement: object, *_: object) -> None:
        """Hook before each statement."""
        if isinstance(statement, UpdateBase) and is_settled(statement.table):
            unit = self._current()
            if unit is None:
                raise RuntimeError(f"{statement.table} is a settled table: change it inside Database.transaction()")
            if not unit.unsettles:
                unit.unsettles = True
                self._count_edition(1)

    def _ended(self, unit: _Transaction, committed: bool | None) -> None:
        acts = unit.afterwards if committed else unit.in_doubt if committed is None else []
        if unit.unsettles:
            acts = [self._end_change, *acts]
        if committed is None:
            # The server may still be executing it; by then it has finished or given up.
            asyncio.get_running_loop().call_later(STATEMENT_TIMEOUT, _run_all, acts)
        else:
            _run_all(acts)

    def _end_change(self) -> None:
        self._count_edition(-1)

    def _count_edition(self, unsettling: int) -> None:
        """Settled tables are in another state now, or `unsettling` more transactions are changing them."""
        if self._shared is not None:
            self._generation += 1
            return
        self._unsettling += unsettling
        self._editions += unsettling <= 0
        self.edition = None if self._unsettling else self._editions


def _run_all(acts: Iterable[Callable[[], object]]) -> None:
    for act in acts:
        act()


def sqlite_file(url: str) -> Path | None:
    """Real path of the file in a SQLite URL; None when there is none. Raises `StoreRefused`."""
    parsed = _parse_url(url)
    named = parsed.database if parsed.get_backend_name() == "sqlite" else None
    return Path(named).resolve() if named and _is_file(named) else None


def _is_file(named: str) -> bool:
    """Whether SQLite treats this as a file name."""
    return named != IN_MEMORY and not named.startswith("file:")


def _writer(engine: AsyncEngine) -> SingleCommit | GroupCommit:
    if engine.dialect.name == "postgresql":
        return SingleCommit(engine)
    from plugbay.store.sqlite import GroupCommit  # its driver is an extra

    return GroupCommit(engine, PATIENCE)


class _TranslateErrors:
    """Convert transient errors to `StoreUnavailable` and damaged files to `StoreRefused`, wherever they occur."""

    def __enter__(self) -> None:
        """Nothing to do."""

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        known = transient_error(error) or damage_error(error) if isinstance(error, SQLAlchemyError) else None
        if known is not None:
            raise known from error


def _parse_url(url: str) -> URL:
    try:
        parsed = make_url(move_hosts(url))
    except (ArgumentError, ValueError):
        raise StoreRefused(f"{url!r} is not the URL of a database; try sqlite+aiosqlite:///plugbay.db") from None
    kind = parsed.get_backend_name()
    if kind not in DRIVERS:
        raise StoreRefused(f"plugbay keeps its records in SQLite or PostgreSQL, not in {kind}")
    parsed = parsed.set(drivername=f"{kind}+{DRIVERS[kind]}")
    return with_ports(parsed) if kind == "postgresql" else parsed


def _engine(url: URL, idle: float = IDLE_TRANSACTION) -> AsyncEngine:
    kind = url.get_backend_name()
    options: dict[str, Any] = {"pool_size": CONNECTIONS, "max_overflow": CONNECTIONS, "pool_timeout": PATIENCE}
    if kind == "postgresql":
        settings = {
            "application_name": "plugbay",
            "plugbay.org": EVERY_ORG,
            "idle_in_transaction_session_timeout": f"{round(idle * 1000)}",
            "lock_timeout": f"{round(PATIENCE * 1000)}",
            "statement_timeout": f"{round(STATEMENT_TIMEOUT * 1000)}",
        }
        arguments = {"timeout": PATIENCE, "command_timeout": SILENCE, "server_settings": settings}
        with suppress(ImportError):  # reported below
            arguments["connection_class"] = connection_class()
        options["connect_args"] = arguments
        options["pool_pre_ping"] = True
    elif url.database and _is_file(url.database):
        Path(url.database).parent.mkdir(parents=True, exist_ok=True)
        with suppress(OSError):  # SQLite reports what is wrong with it
            make_private(Path(url.database))
    try:
        if kind == "sqlite":
            from plugbay.store import sqlite  # its driver is an extra

            options["async_creator"] = sqlite.connector(url)
        engine = create_async_engine(url, json_serializer=_dump_json, json_deserializer=msgspec.json.decode, **options)
    except (ImportError, NoSuchModuleError):
        hint = f"pip install 'plugbay[{EXTRAS[kind]}]'"
        raise StoreRefused(f"the driver {DRIVERS[kind]} is not installed; {hint}") from None
    event.listen(engine.sync_engine, "handle_error", _on_error)
    if kind == "sqlite":
        event.listen(engine.sync_engine, "connect", _on_connect)
        event.listen(engine.sync_engine, "begin", _begin)
        event.listen(engine.sync_engine, "handle_error", _on_cancel)
    return engine


def _dump_json(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def _on_connect(connection: Any, record: object) -> None:
    """Begin transactions explicitly: the driver would begin them late, and lock in the middle."""
    connection.isolation_level = None
    cursor = connection.cursor()
    for pragma in _PRAGMAS:
        cursor.execute(pragma)
    cursor.close()


def _on_error(context: ExceptionContext) -> None:
    """Timeouts and broken connections, for which the driver has no database error."""
    if isinstance(context.original_exception, OSError):  # includes TimeoutError
        context.is_disconnect = True
        raise StoreUnavailable("it does not answer") from context.original_exception


def _on_cancel(context: ExceptionContext) -> None:
    """A cancelled statement does not invalidate its connection: the next statement waits for it."""
    if isinstance(context.original_exception, asyncio.CancelledError):
        context.is_disconnect = False


def _begin(connection: Connection) -> None:
    driver: Any = connection.connection.driver_connection
    if not driver.in_transaction:  # a writer has its lock, and a prepared statement may have begun the transaction
        connection.exec_driver_sql("BEGIN")


class RowCache(Generic[K, V]):
    """Values by key, up to a total size, least recently used dropped first. Missing values (None) are not cached."""

    def __init__(self, database: Database, room: int, size: Callable[[V], int] = lambda _: 1) -> None:
        """`size` is the size of a value in units of `room`."""
        self._database = database
        self._room = self._left = room
        self._size = size
        self._edition: int | None = None
        self._values: OrderedDict[K, tuple[V, int]] = OrderedDict()

    async def get(self, key: K, read: Callable[[], Awaitable[V | None]]) -> V | None:
        """The value of a key; calls `read` when it is not cached."""
        edition = await self._database.current_edition()
        if edition is None:
            return await read()
        if edition != self._edition:
            self._edition, self._left = edition, self._room
            self._values.clear()
        known = self._values.get(key)
        if known is not None:
            self._values.move_to_end(key)
            return known[0]
        found = await read()
        if found is not None and key not in self._values and edition == self._database.edition == self._edition:
            self._keep(key, found)
        return found

    def _keep(self, key: K, value: V) -> None:
        """Cache a value; drops the least recently used ones. A value larger than the whole room is not kept."""
        size = self._size(value)
        self._values[key] = value, size
        self._left -= size
        while self._left < 0:
            _, (_, freed) = self._values.popitem(last=False)
            self._left += freed
