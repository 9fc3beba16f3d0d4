"""What the stores of plugins on nodes share: failures as plugins get them, and a lock for each plugin."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from sqlalchemy import text

from plugbay.model.errors import CallFailed, Code, Failure, Origin
from plugbay.store.database import Database, Tx
from plugbay.store.failures import StoreUnavailable


@asynccontextmanager
async def changing(database: Database) -> AsyncIterator[Tx]:
    """A transaction; raises `CallFailed` when the database is away. Joins an open one of the same task."""
    try:
        async with database.transaction() as tx:
            yield tx
    except StoreUnavailable as error:
        raise _away(error) from None


@asynccontextmanager
async def viewing(database: Database) -> AsyncIterator[Tx]:
    """A read view; raises `CallFailed` when the database is away."""
    try:
        async with database.reading() as tx:
            yield tx
    except StoreUnavailable as error:
        raise _away(error) from None


async def lock(tx: Tx, name: str) -> None:
    """Wait for other transactions with this lock; SQLite has one writer."""
    if tx.dialect.name == "postgresql":
        key = int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), signed=True)
        await tx.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": key})


def check_text(*texts: str) -> None:
    """Raises `CallFailed` for names that a database does not take."""
    for each in texts:
        try:
            each.encode()
        except UnicodeEncodeError as error:
            raise CallFailed(Failure(Code.INVALID_INPUT, f"no Unicode text: {error.reason}")) from None
        if "\0" in each:
            raise CallFailed(Failure(Code.INVALID_INPUT, "a name has no U+0000"))


def _away(error: StoreUnavailable) -> CallFailed:
    return CallFailed(Failure(Code.UNAVAILABLE, str(error), origin=Origin.SYSTEM, retryable=True))
