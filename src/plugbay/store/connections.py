"""Database connections, transactions with one connection each (PostgreSQL), and the org that a connection sees.

A failure to connect is always `StoreUnavailable`. On PostgreSQL the policies of the tables (row-level security) compare
the org of each row with the setting `plugbay.org`. It is `EVERY_ORG` for connections of the server; a transaction in a
request of an org sets it to that org.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from contextvars import ContextVar

from sqlalchemy import text
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from plugbay.store.failures import StoreUnavailable
from plugbay.store.statements import Outcome, Write

Ended = Callable[[bool | None], None]
"""Called once at the end of a transaction: committed (True), rolled back (False), or unknown (None)."""

EVERY_ORG = "*"
"""The value of `plugbay.org` for the operator, for background work, and before a caller is known."""

ORG: ContextVar[str] = ContextVar("plugbay_org", default=EVERY_ORG)
"""The org whose rows transactions see; tasks inherit it from the request that starts them."""

_SET_ORG = text("SELECT set_config('plugbay.org', :org, true)")
"""Until the end of the transaction."""


async def enter_org(connection: AsyncConnection) -> None:
    """Show only the rows of the current org in the transaction of this connection."""
    await connection.execute(_SET_ORG, {"org": ORG.get()})


@asynccontextmanager
async def connect(engine: AsyncEngine) -> AsyncIterator[AsyncConnection]:
    """A connection for the duration of the block."""
    connection = await open_connection(engine)
    try:
        yield connection
    finally:
        await connection.close()


async def open_connection(engine: AsyncEngine) -> AsyncConnection:
    """Open a connection; raises `StoreUnavailable`."""
    connection = engine.connect()
    try:
        await connection.start()
    except OSError as error:
        raise StoreUnavailable("no connection to it") from error
    return connection


async def discard(connection: AsyncConnection) -> None:
    """Close a connection without returning it to the pool, because its state is unknown."""
    with contextlib.suppress(SQLAlchemyError, OSError):
        await connection.invalidate()
        await connection.close()


class SingleCommit:
    """One connection and one commit per transaction; the database server handles concurrency."""

    def __init__(self, engine: AsyncEngine) -> None:
        self._engine = engine

    @asynccontextmanager
    async def transaction(self, ended: Ended) -> AsyncIterator[AsyncConnection]:
        """Commit everything inside, or nothing."""
        outcome: bool | None = False
        try:
            async with connect(self._engine) as connection, connection.begin():
                if ORG.get() != EVERY_ORG:
                    await enter_org(connection)
                yield connection
                outcome = None  # a cancellation from here on leaves the outcome unknown
            outcome = True
        finally:
            ended(outcome)

    async def write(self, writes: Sequence[Write]) -> list[Outcome]:
        """Commit these statements, or none of them."""
        async with self.transaction(lambda _: None) as connection:
            return [await statement.run(connection, values) for statement, values in writes]

    async def close(self) -> None:
        """Nothing to release."""
