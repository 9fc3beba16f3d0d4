"""Rows of requests that may be repeated, and of what they were answered."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sqlalchemy import bindparam, delete, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from plugbay.store.prepared import Prepared
from plugbay.store.statements import new_row
from plugbay.store.tables.tenancy import IDEMPOTENCY

_OF_KEY = IDEMPOTENCY.c.key == bindparam("of")
_INSERT = new_row(IDEMPOTENCY)
_GET = Prepared(select(IDEMPOTENCY).where(_OF_KEY))
_FINISH = Prepared(update(IDEMPOTENCY).where(_OF_KEY), sets=("state", "status", "headers", "body"))
_FORGET = Prepared(delete(IDEMPOTENCY).where(_OF_KEY))
_FORGET_RUNNING = Prepared(delete(IDEMPOTENCY).where(_OF_KEY, IDEMPOTENCY.c.state == bindparam("running")))
_FORGET_OLD = Prepared(delete(IDEMPOTENCY).where(_OF_KEY, IDEMPOTENCY.c.expires_at <= bindparam("now")))

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
    times = {"created_at": created_at, "expires_at": expires_at}
    answer: dict[str, Any] = dict.fromkeys(("status", "headers", "body"))
    return bool((await _INSERT.run(tx, {"key": key, "digest": digest, "state": RUNNING, **answer, **times})).rows)


async def get(tx: AsyncConnection, key: bytes) -> Repeat | None:
    row = (await _GET.run(tx, {"of": key})).first
    return None if row is None else Repeat(**row)


async def finish(tx: AsyncConnection, key: bytes, status: int, headers: dict[str, str], body: bytes) -> None:
    await _FINISH.run(tx, {"of": key, "state": DONE, "status": status, "headers": headers, "body": body})


async def lose(tx: AsyncConnection, key: bytes | None = None) -> None:
    """Nobody will learn any more what the request was answered; None: no request that is running."""
    running = IDEMPOTENCY.c.state == RUNNING
    which = running if key is None else running & (IDEMPOTENCY.c.key == key)
    await tx.execute(update(IDEMPOTENCY).where(which).values(state=UNKNOWN))


async def forget(tx: AsyncConnection, key: bytes) -> None:
    await _FORGET.run(tx, {"of": key})


async def retake(tx: AsyncConnection, key: bytes) -> None:
    """Forget a request that counts as being answered, by whoever knows that nobody is at it."""
    await _FORGET_RUNNING.run(tx, {"of": key, "running": RUNNING})


async def expire(tx: AsyncConnection, now: float, key: bytes) -> bool:
    """Forget a request that is too old to be repeated; whether it was."""
    return bool((await _FORGET_OLD.run(tx, {"of": key, "now": now})).changed)
