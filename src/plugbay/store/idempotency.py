"""Rows of requests that may be repeated, and of what they were answered."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sqlalchemy import delete, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from plugbay.store.statements import insert_new
from plugbay.store.tables.tenancy import IDEMPOTENCY

RUNNING, DONE, UNKNOWN = "running", "done", "unknown"
"""Being answered; answered; carried out, but what was answered is not known."""


@dataclass(frozen=True, slots=True)
class Repeat:
    """A request that was made before."""

    key: bytes
    digest: bytes
    state: str
    status: int | None
    headers: dict[str, str] | None
    body: bytes | None
    created_at: float
    expires_at: float


async def insert(tx: AsyncConnection, key: bytes, digest: bytes, created_at: float, expires_at: float) -> bool:
    """False when it is there already, running or not."""
    values: dict[str, Any] = {"key": key, "digest": digest, "state": RUNNING}
    return await insert_new(tx, IDEMPOTENCY, {**values, "created_at": created_at, "expires_at": expires_at})


async def get(tx: AsyncConnection, key: bytes) -> Repeat | None:
    row = (await tx.execute(select(IDEMPOTENCY).where(IDEMPOTENCY.c.key == key))).first()
    return None if row is None else Repeat(**row._mapping)


async def finish(tx: AsyncConnection, key: bytes, status: int, headers: dict[str, str], body: bytes) -> None:
    values = {"state": DONE, "status": status, "headers": headers, "body": body}
    await tx.execute(update(IDEMPOTENCY).where(IDEMPOTENCY.c.key == key).values(values))


async def lose(tx: AsyncConnection, key: bytes | None = None) -> None:
    """Nobody will learn any more what the request was answered; None: no request that is running."""
    running = IDEMPOTENCY.c.state == RUNNING
    which = running if key is None else running & (IDEMPOTENCY.c.key == key)
    await tx.execute(update(IDEMPOTENCY).where(which).values(state=UNKNOWN))


async def forget(tx: AsyncConnection, key: bytes) -> None:
    await tx.execute(delete(IDEMPOTENCY).where(IDEMPOTENCY.c.key == key))


async def expire(tx: AsyncConnection, now: float, key: bytes | None = None) -> int:
    """Forget what is too old to be repeated, of one key or of all; how many those were."""
    old = IDEMPOTENCY.c.expires_at <= now
    which = old if key is None else old & (IDEMPOTENCY.c.key == key)
    return (await tx.execute(delete(IDEMPOTENCY).where(which))).rowcount
