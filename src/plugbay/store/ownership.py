"""One gateway for each database: whoever comes second is refused, and told who was first.

Owns the lock that says so, for as long as a gateway lives: of SQLite on a file beside the database (`locks`), of
PostgreSQL in the server, on a connection of its own. The system and the server let go of it however the gateway ends.
A connection that is lost is made again; only when somebody else has the lock by then, the gateway is told to stop.
Knows no table: what a gateway does in between is written only where a row still is as that gateway left it.
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

from plugbay.store.connections import discarded
from plugbay.store.database import PATIENCE, Database
from plugbay.store.failures import StoreUnavailable
from plugbay.store.locks import InUse, locked

LOG = logging.getLogger("plugbay.store")

LOCK = 0x706C75676F776E
"""Any number that nobody else takes for a lock in the same database."""

LOOK = 5.0
"""Seconds between two looks whether the server still knows us; for as long, what is remembered of it may be old where
another gateway has taken it over."""

PAUSE = 0.2
"""Seconds before a lock is tried again: of a gateway that was just killed, the server learns a little later."""

MAX_NAME = 63
"""Bytes of a name that PostgreSQL keeps for a connection."""

_HOLDER = text(
    "SELECT a.application_name FROM pg_locks l JOIN pg_stat_activity a ON a.pid = l.pid "
    "WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 1 "
    "AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database()) "
    "AND (l.classid::bigint << 32 | l.objid::bigint) = :lock"
)


@asynccontextmanager
async def owned(database: Database, lost: Callable[[str], object]) -> AsyncIterator[None]:
    """The database is ours as long as this lasts; raises `InUse`. `lost` is told who has it if it is not any more."""
    if database.path is None:
        async with _watched(Claim(database), lost):
            yield
    else:
        with locked(database.path.with_name(f"{database.path.name}.lock"), str(database.path)):
            yield


@asynccontextmanager
async def _watched(claim: Claim, lost: Callable[[str], object]) -> AsyncIterator[None]:
    async def watch() -> None:
        while True:
            await asyncio.sleep(LOOK)
            holder = await claim.confirmed()
            if holder is not None:
                lost(holder)
                return

    await claim.take()
    watching = asyncio.get_running_loop().create_task(watch())
    try:
        yield
    finally:
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)
        await claim.release()


class Claim:
    """Our lock in a PostgreSQL."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._name = f"plugbay {os.getpid()} on {socket.gethostname()}".encode()[:MAX_NAME].decode(errors="ignore")
        self._connection: AsyncConnection | None = None

    async def take(self) -> None:
        """It is ours; raises `InUse`, or `StoreUnavailable`."""
        ends = asyncio.get_running_loop().time() + PATIENCE
        while (holder := await self._tried()) is not None:
            if asyncio.get_running_loop().time() >= ends:
                raise InUse(f"the database is in use by another plugbay server: {holder}")
            await asyncio.sleep(PAUSE)

    async def confirmed(self) -> str | None:
        """Whether it still is ours, taken again if its connection was lost: None. Else who has it."""
        try:
            if self._connection is not None:
                await self._connection.execute(text("SELECT 1"))
                return None
        except (SQLAlchemyError, OSError) as error:
            LOG.warning("the connection that holds the database is lost; it is taken again: %s", type(error).__name__)
            await self.release()
        try:
            holder = await self._tried()
        except StoreUnavailable:
            return None  # nobody else can be told from here to have it; the next look will
        finally:
            self._database.forget()  # meanwhile somebody else may have had it
        return None if holder == self._name else holder

    async def release(self) -> None:
        """Let go of it."""
        connection, self._connection = self._connection, None
        if connection is not None:
            await discarded(connection)

    async def _tried(self) -> str | None:
        """Who has it, which may be a connection of ours that the server does not know to be lost; None: we do."""
        connection = await self._database.dedicated()
        ours = False
        try:
            await connection.execute(text("SELECT set_config('application_name', :name, false)"), {"name": self._name})
            ours = bool(await connection.scalar(text("SELECT pg_try_advisory_lock(:lock)"), {"lock": LOCK}))
            if ours:
                self._connection = connection
                return None
            return str(await connection.scalar(_HOLDER, {"lock": LOCK}) or "unknown")
        except (SQLAlchemyError, OSError) as error:
            raise StoreUnavailable("no connection to it") from error
        finally:
            if not ours:
                await discarded(connection)
