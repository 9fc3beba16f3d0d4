"""A connection for as long as somebody needs it, and transactions that have one of their own each.

Owns that what cannot be connected to is `StoreUnavailable`. Refuses to know tables, and what is in a transaction.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from plugbay.store.failures import StoreUnavailable

Ended = Callable[[bool | None], None]
"""Told once when a transaction is over: it is committed, it is not, or (None) nobody knows, or not yet."""


@asynccontextmanager
async def connected(engine: AsyncEngine) -> AsyncIterator[AsyncConnection]:
    """A connection, given back afterwards."""
    connection = await opened(engine)
    try:
        yield connection
    finally:
        await connection.close()


async def opened(engine: AsyncEngine) -> AsyncConnection:
    """A connection; raises `StoreUnavailable`."""
    connection = engine.connect()
    try:
        await connection.start()
    except OSError as error:
        raise StoreUnavailable("no connection to it") from error
    return connection


async def discarded(connection: AsyncConnection) -> None:
    """Close it for good: nobody else should find what it has left open."""
    with contextlib.suppress(SQLAlchemyError, OSError):
        await connection.invalidate()
        await connection.close()


class Alone:
    """Each transaction has a connection and a commit of its own: a server sees to those that come at the same time."""

    def __init__(self, engine: AsyncEngine) -> None:
        self._engine = engine

    @asynccontextmanager
    async def transaction(self, ended: Ended) -> AsyncIterator[AsyncConnection]:
        """Everything inside is committed or nothing is."""
        outcome: bool | None = False
        try:
            async with connected(self._engine) as connection, connection.begin():
                yield connection
                outcome = None  # whoever is cut off from here on does not learn what the server makes of it
            outcome = True
        finally:
            ended(outcome)

    async def close(self) -> None:
        """Nothing is kept here."""
