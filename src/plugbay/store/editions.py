"""`SharedEdition`: the number of the state of settled tables, read from a database that several gateways share.

    edition = await shared.get()        the number, read after this call began

Reads are shared: callers that come while one is under way wait for the next one, so there is one at a time. A read that
fails raises `StoreUnavailable`; an older number would let a revoked key pass. Never read it from a replica.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from sqlalchemy import select, update
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncConnection

from plugbay.store.connections import discard
from plugbay.store.failures import StoreUnavailable, transient_error
from plugbay.store.tables import EDITIONS

_ONLY = EDITIONS.c.id == 1
_READ = select(EDITIONS.c.edition).where(_ONLY)
_ADD = update(EDITIONS).where(_ONLY).values(edition=EDITIONS.c.edition + 1)


async def count_change(tx: AsyncConnection) -> None:
    """A transaction changed settled tables. Its last statement: other such transactions wait for its commit."""
    await tx.execute(_ADD)


class SharedEdition:
    """The edition of one database, with a connection of its own."""

    def __init__(self, connect: Callable[[], Awaitable[AsyncConnection]]) -> None:
        self._connect = connect
        self._connection: AsyncConnection | None = None
        self._waiting: asyncio.Future[int] | None = None
        self._reading: asyncio.Task[None] | None = None

    async def get(self) -> int:
        """The edition of now, or of a moment after now; raises `StoreUnavailable`."""
        if self._waiting is None:
            loop = asyncio.get_running_loop()
            self._waiting = loop.create_future()
            if self._reading is None:
                self._reading = loop.create_task(self._read_for_all())
        return await asyncio.shield(self._waiting)

    async def _read_for_all(self) -> None:
        while self._waiting is not None:
            waiting, self._waiting = self._waiting, None
            try:
                waiting.set_result(await self._read())
            except Exception as error:
                waiting.set_exception(error)
                waiting.exception()  # retrieved, also if all callers have gone
            except BaseException:
                waiting.cancel()
                raise
            finally:
                if self._waiting is None:
                    self._reading = None

    async def _read(self) -> int:
        try:
            if self._connection is None:
                self._connection = await self._connect()
            return int(await self._connection.scalar(_READ) or 0)
        except (SQLAlchemyError, OSError) as error:
            await self._drop()
            known = transient_error(error) if isinstance(error, SQLAlchemyError) else None
            raise known or StoreUnavailable("its edition cannot be read") from error

    async def _drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            await discard(connection)

    async def close(self) -> None:
        """Close the connection."""
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.gather(self._reading, return_exceptions=True)
        await self._drop()
