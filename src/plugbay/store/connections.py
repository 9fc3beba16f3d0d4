"""Database connections, and transactions with one connection each (PostgreSQL).

A failure to connect is always `StoreUnavailable`.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from plugbay.store.failures import StoreUnavailable
from plugbay.store.statements import Outcome, Write

Ended = Callable[[bool | None], None]
"""Called once at the end of a transaction: committed (True), rolled back (False), or unknown (None)."""


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
