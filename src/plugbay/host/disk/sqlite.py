"""`Database`: one SQLite file with a thread of its own, so that the loop never waits for the disk.

Opens, checks, migrates and closes the file, and maps errors to failures. Its user brings a `Schema` and functions that
take a connection.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sqlite3
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

import msgspec

from plugbay.host.disk.sqlite_files import IN_MEMORY, JOURNALS
from plugbay.model.errors import CallFailed, Code, Failure, Origin, PlugbayError

PRIVATE = 0o600

BUSY_SECONDS = 5.0
"""How long a write waits for the lock of another process."""

_TRANSIENT_CODES = frozenset(
    {
        sqlite3.SQLITE_BUSY,
        sqlite3.SQLITE_LOCKED,
        sqlite3.SQLITE_FULL,
        sqlite3.SQLITE_IOERR,
        sqlite3.SQLITE_CANTOPEN,
        sqlite3.SQLITE_READONLY,
    }
)
"""Primary codes of errors of the disk or of a lock: nothing was written, and the same work may succeed later."""

T = TypeVar("T")
Work = Callable[[sqlite3.Connection], T]


class Schema(msgspec.Struct, frozen=True):
    """The schema of one kind of file. Migration n leads from version n to n + 1; a released migration never changes."""

    kind: str
    """Its name in messages."""
    application_id: int
    """Stored in the file's header, so that a file of another kind is refused."""
    migrations: tuple[tuple[str, ...], ...]


class Database:
    """A SQLite file with one schema. `run` and `write` work between `open` and `close`."""

    def __init__(self, path: Path | str, schema: Schema) -> None:
        self.path = path
        self._schema = schema
        self._thread: ThreadPoolExecutor | None = None
        self._connection: sqlite3.Connection | None = None

    async def open(self) -> None:
        """Open, create or migrate the file; raises `PlugbayError` if it cannot be used."""
        if self._thread is not None:
            raise PlugbayError(f"{self._name()} is already open")
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=f"plugbay-{self._schema.kind}")
        try:
            await asyncio.get_running_loop().run_in_executor(self._thread, self._connect)
        except (sqlite3.Error, OSError) as error:
            await self.close()
            raise PlugbayError(f"{self._name()} cannot be used: {error}") from error
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        """Finish pending work, then close the file. May be called twice."""
        thread, self._thread = self._thread, None
        if thread is not None:
            closed = asyncio.get_running_loop().run_in_executor(thread, self._disconnect)
            thread.shutdown(wait=False)
            await asyncio.shield(closed)

    async def run(self, work: Work[T]) -> T:
        """Run `work` with the connection on the thread; raises `CallFailed`."""
        if self._thread is None:
            raise CallFailed(Failure(Code.UNAVAILABLE, f"{self._name()} is not open"))
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._perform, work)

    async def write(self, work: Work[T]) -> T:
        """As `run`, in a transaction."""

        def together(connection: sqlite3.Connection) -> T:
            with _transaction(connection):
                return work(connection)

        return await self.run(together)

    # The rest runs on the thread.

    def _perform(self, work: Work[T]) -> T:
        if self._connection is None:
            raise CallFailed(Failure(Code.UNAVAILABLE, f"{self._name()} is not open"))
        try:
            return work(self._connection)
        except sqlite3.Error as error:
            raise CallFailed(self._failure(error)) from error
        except UnicodeEncodeError as error:
            raise CallFailed(Failure(Code.INVALID_INPUT, f"no Unicode text: {error.reason}")) from None

    def _failure(self, error: sqlite3.Error) -> Failure:
        # The low byte is the primary error code.
        transient = getattr(error, "sqlite_errorcode", 0) & 0xFF in _TRANSIENT_CODES
        code = Code.UNAVAILABLE if transient else Code.INTERNAL
        return Failure(code, f"{self._name()}: {error}", origin=Origin.SYSTEM, retryable=transient)

    def _connect(self) -> None:
        if self.path != IN_MEMORY:
            make_private(Path(self.path))
        # Autocommit: only `_transaction` begins transactions.
        connection = sqlite3.connect(self.path, timeout=BUSY_SECONDS, isolation_level=None)
        try:
            self._prepare(connection)
        except BaseException:
            connection.close()
            raise
        self._connection = connection

    def _prepare(self, connection: sqlite3.Connection) -> None:
        connection.execute("PRAGMA journal_mode = WAL")
        # In WAL mode this cannot corrupt the file; a power cut may cost the last commits, a crash costs nothing.
        connection.execute("PRAGMA synchronous = NORMAL")
        connection.execute("PRAGMA foreign_keys = ON")
        (verdict,) = connection.execute("PRAGMA quick_check(1)").fetchone()
        if verdict != "ok":
            raise sqlite3.DatabaseError(f"the file is damaged: {verdict}")
        self._migrate(connection)

    def _migrate(self, connection: sqlite3.Connection) -> None:
        """Migrate the file to the newest version; the lock serializes hosts that open it at once."""
        with _transaction(connection):
            (version,) = connection.execute("PRAGMA user_version").fetchone()
            self._refuse_foreign(connection, version)
            for statement in (line for migration in self._schema.migrations[version:] for line in migration):
                connection.execute(statement)
            connection.execute(f"PRAGMA application_id = {self._schema.application_id:d}")
            connection.execute(f"PRAGMA user_version = {len(self._schema.migrations):d}")

    def _refuse_foreign(self, connection: sqlite3.Connection, version: int) -> None:
        (application_id,) = connection.execute("PRAGMA application_id").fetchone()
        (tables,) = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
        if tables and application_id != self._schema.application_id:
            raise PlugbayError(f"{self._name()} cannot be used: the file is not a database of this kind")
        known = len(self._schema.migrations)
        if version > known:
            raise PlugbayError(f"{self._name()} cannot be used: it has version {version}, this plugbay knows {known}")

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _name(self) -> str:
        return f"the {self._schema.kind} database {self.path}"


@contextlib.contextmanager
def _transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """Commit on success, else roll back. Takes the write lock at once, so that no statement fails on it half-way."""
    if connection.in_transaction:  # the disk failed, and so did the rollback of the transaction before
        connection.execute("ROLLBACK")
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:  # on a full disk SQLite has rolled back already
            connection.execute("ROLLBACK")
        raise


def make_private(path: Path) -> None:
    """Create the file, or close it to other users; SQLite gives its journal files the same mode. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, PRIVATE))
    for suffix in ("", *JOURNALS):
        beside = path.with_name(path.name + suffix)
        with contextlib.suppress(FileNotFoundError, PermissionError):  # removed meanwhile, or owned by another user
            if beside.stat().st_mode & 0o077:
                beside.chmod(PRIVATE)
