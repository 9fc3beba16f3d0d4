"""Exclusive ownership of a database by one server; a second server is refused and told who the owner is.

SQLite uses a lock file beside the database (`locks`), PostgreSQL an advisory lock on a dedicated connection; both end
with the server. If that connection breaks, the lock is taken again; only if another server has it by then, this one
must stop. In between, writes are safe because every update names the state that its row must have.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from sqlalchemy import text
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncConnection

from plugbay.store.connections import discard
from plugbay.store.database import PATIENCE, Database
from plugbay.store.failures import StoreUnavailable
from plugbay.store.locks import InUse, locked

LOG = logging.getLogger("plugbay.store")

LOCK = 0x706C75676F776E
"""Key of the advisory lock."""

CHECK_SECONDS = 5.0
"""Seconds between checks of the lock; caches may be stale for that long after another server took over."""

RETRY_SECONDS = 0.2
"""Seconds between attempts: the database notices the end of a killed server a little late."""

MAX_NAME = 63
"""Bytes that PostgreSQL keeps of an application name."""

_GATEWAYS = text(
    "SELECT count(*) FROM leases WHERE name LIKE 'gateway/%' "
    "AND until > CAST(extract(epoch FROM clock_timestamp()) * 1000000 AS bigint)"
)
"""Gateways that share the database (`leases`)."""

_HOLDER = text(
    "SELECT a.application_name FROM pg_locks l JOIN pg_stat_activity a ON a.pid = l.pid "
    "WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 1 "
    "AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database()) "
    "AND (l.classid::bigint << 32 | l.objid::bigint) = :lock"
)


async def has_owner(tx: AsyncConnection) -> bool:
    """Whether a server owns this PostgreSQL database; if not, none can own it before the transaction ends."""
    return not await tx.scalar(text("SELECT pg_try_advisory_xact_lock_shared(:lock)"), {"lock": LOCK})


@asynccontextmanager
async def owned(database: Database, lost: Callable[[str], object]) -> AsyncIterator[None]:
    """Own the database for the duration of the block; raises `InUse`. `lost` is called with the new owner's name."""
    if database.path is None:
        async with _watch(Claim(database), lost):
            yield
    else:
        with locked(database.path.with_name(f"{database.path.name}.lock"), str(database.path)):
            yield


@asynccontextmanager
async def _watch(claim: Claim, lost: Callable[[str], object]) -> AsyncIterator[None]:
    async def watch() -> None:
        while True:
            await asyncio.sleep(CHECK_SECONDS)
            holder = await claim.confirm()
            if holder is not None:
                lost(holder)
                return

    await claim.acquire()
    watching = asyncio.get_running_loop().create_task(watch())
    try:
        yield
    finally:
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)
        await claim.release()


class Claim:
    """The advisory lock on PostgreSQL."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._name = f"plugbay {os.getpid()} on {socket.gethostname()}".encode()[:MAX_NAME].decode(errors="ignore")
        self._connection: AsyncConnection | None = None

    async def acquire(self) -> None:
        """Acquire the lock; raises `InUse` or `StoreUnavailable`."""
        ends = asyncio.get_running_loop().time() + PATIENCE
        while (holder := await self._try_acquire()) is not None:
            if asyncio.get_running_loop().time() >= ends:
                raise InUse(f"the database is in use by another plugbay server: {holder}")
            await asyncio.sleep(RETRY_SECONDS)

    async def confirm(self) -> str | None:
        """Check the lock, and take it again if its connection broke. Returns None, or the name of another holder."""
        try:
            if self._connection is not None:
                await self._connection.execute(text("SELECT 1"))
                return None
        except (SQLAlchemyError, OSError) as error:
            LOG.warning("the connection that holds the database is lost; it is taken again: %s", type(error).__name__)
            await self.release()
        try:
            holder = await self._try_acquire()
        except StoreUnavailable:
            return None  # no evidence of another owner; the next check will tell
        finally:
            self._database.forget()  # another server may have owned it meanwhile
        return None if holder == self._name else holder

    async def release(self) -> None:
        """Release the lock."""
        connection, self._connection = self._connection, None
        if connection is not None:
            await discard(connection)

    async def _try_acquire(self) -> str | None:
        """Try to acquire; None on success, else the holder, which may be a broken connection of our own."""
        connection = await self._database.dedicated()
        ours = False
        try:
            await connection.execute(text("SELECT set_config('application_name', :name, false)"), {"name": self._name})
            if not await connection.scalar(text("SELECT pg_try_advisory_lock(:lock)"), {"lock": LOCK}):
                return str(await connection.scalar(_HOLDER, {"lock": LOCK}) or "unknown")
            if await connection.scalar(text("SELECT to_regclass('leases') IS NOT NULL")):
                # A gateway holds this lock only while it takes its lease.
                number = await connection.scalar(_GATEWAYS)
                if number:
                    return f"{number} gateways with [cluster]"
            ours, self._connection = True, connection
            return None
        except (SQLAlchemyError, OSError) as error:
            raise StoreUnavailable("no connection to it") from error
        finally:
            if not ours:
                await discard(connection)
