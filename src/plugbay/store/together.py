"""`Together`: transactions of SQLite that come at the same time, in one commit.

A commit waits for the disk, and SQLite has one writer at a time. So those who come while a commit is under way wait in
line; then they are carried out one after the other in one transaction of SQLite's, each behind a savepoint of its own,
and are committed together: however many they are, the disk is waited for once. Whoever comes alone is committed alone.

Owns that nobody is told anything before that commit: not that it worked, and not what it found either, since that may
be what another of its group has written. One that fails is taken back to its savepoint and spoils nothing of the
others. Where the commit fails, or SQLite gives the whole transaction up, all of the group are told so.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from sqlalchemy.exc import OperationalError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from plugbay.store import connections
from plugbay.store.connections import Ended
from plugbay.store.failures import StoreUnavailable
from plugbay.store.sqlite import AT_ONCE, driver_of

SAVE, BACK, KEEP = "SAVEPOINT one", "ROLLBACK TO one", "RELEASE one"


class _Member:
    """One transaction of a group."""

    def __init__(self, ended: Ended) -> None:
        self._ended = ended
        self._over: asyncio.Future[Exception | None] | None = None

    def join(self) -> None:
        """From now on it ends with its group."""
        self._over = asyncio.get_running_loop().create_future()

    def end(self, error: Exception | None) -> None:
        """Its group is committed, or is not because of this."""
        assert self._over is not None
        try:
            self._ended(True if error is None else None)
        except Exception as failed:  # of what was to be done afterwards: its own business, not the others'
            error = error or failed
        if not self._over.done():
            self._over.set_result(error)

    async def over(self) -> None:
        """Wait until its group has ended; raises why it could not be committed."""
        error = None if self._over is None else await self._over
        if error is not None:
            raise error

    def withdraw(self) -> None:
        """Nothing of it comes into the commit."""
        self._ended(False)
        self._ended = lambda _: None


class _Group:
    """Those who are committed together."""

    def __init__(self) -> None:
        self.members: list[_Member] = []
        self.committing: asyncio.Task[None] | None = None

    def end(self, error: Exception | None) -> None:
        for member in self.members:
            member.end(error)


class _Patiently:
    """A lock, for which nobody waits longer than this."""

    def __init__(self, lock: asyncio.Lock, patience: float) -> None:
        self._lock = lock
        self._patience = patience

    async def __aenter__(self) -> None:
        try:
            # Not `wait_for`: before Python 3.12 that forgets that it was cancelled when its turn comes just then.
            async with asyncio.timeout(self._patience):
                await self._lock.acquire()
        except TimeoutError:
            raise StoreUnavailable("too many wait to write to it") from None

    async def __aexit__(self, *_: object) -> None:
        self._lock.release()


class Together:
    """The one writer of a SQLite."""

    def __init__(self, engine: AsyncEngine, patience: float) -> None:
        self._engine = engine
        self._patience = patience
        self._turn = asyncio.Lock()
        self._connection: AsyncConnection | None = None
        self._group: _Group | None = None
        """Those whose transaction is open."""

    @asynccontextmanager
    async def transaction(self, ended: Ended) -> AsyncIterator[AsyncConnection]:
        """Everything inside is committed or nothing is."""
        member = _Member(ended)
        try:
            async with _Patiently(self._turn, self._patience), self._among_others(member) as connection:
                yield connection
        except Exception:
            await member.over()
            raise
        await member.over()

    async def close(self) -> None:
        """After whoever is in line."""
        async with self._turn:
            await self._let_go()

    @asynccontextmanager
    async def _among_others(self, member: _Member) -> AsyncIterator[AsyncConnection]:
        connection = await self._joined(member)
        driver = driver_of(connection)
        try:
            await driver.steps(SAVE)
            yield connection
            await driver.steps(KEEP)
        except BaseException:
            member.withdraw()
            try:
                await driver.steps(BACK, KEEP)
            except OperationalError:  # a disk that is full, say, is more than one of them can undo
                await self._lost()
            raise

    async def _joined(self, member: _Member) -> AsyncConnection:
        if self._connection is None:
            self._connection = await connections.opened(self._engine)
            await driver_of(self._connection).steps(AT_ONCE)
        if self._group is None:
            self._group = await self._begun(self._connection)
        self._group.members.append(member)
        member.join()
        return self._connection

    async def _begun(self, connection: AsyncConnection) -> _Group:
        try:
            await driver_of(connection).lock(self._patience)
        except BaseException:  # whoever is cancelled here does not learn whether it has the lock
            await self._let_go()
            raise
        group = _Group()
        # It comes into line behind those who are there already, who become part of the group by that.
        group.committing = asyncio.get_running_loop().create_task(self._commit(group))
        return group

    async def _commit(self, group: _Group) -> None:
        async with self._turn:
            if self._group is not group:
                return  # it was lost before
            self._group = None
            try:
                await self._committed()
            except Exception as error:
                await self._let_go()
                group.end(error)
            else:
                group.end(None)

    async def _committed(self) -> None:
        assert self._connection is not None
        if self._connection.in_transaction():  # as SQLAlchemy sees it, which has not seen prepared statements
            await self._connection.commit()
        else:
            await driver_of(self._connection).commit()

    async def _lost(self) -> None:
        """SQLite has given up the transaction, and so have all who were in it."""
        group, self._group = self._group, None
        await self._let_go()
        if group is not None:
            group.end(StoreUnavailable("it has given up what it had begun"))

    async def _let_go(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            await connections.discarded(connection)
