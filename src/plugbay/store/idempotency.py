"""Requests with an Idempotency-Key, and their responses."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sqlalchemy import bindparam, delete, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from plugbay.store.statements import Prepared, new_row
from plugbay.store.tables import IDEMPOTENCY

_OF_KEY = IDEMPOTENCY.c.key == bindparam("of")
_INSERT = new_row(IDEMPOTENCY)
_GET = Prepared(select(IDEMPOTENCY).where(_OF_KEY))
_FINISH = Prepared(update(IDEMPOTENCY).where(_OF_KEY), sets=("state", "status", "headers", "body"))
_FORGET = Prepared(delete(IDEMPOTENCY).where(_OF_KEY))
_FORGET_RUNNING = Prepared(delete(IDEMPOTENCY).where(_OF_KEY, IDEMPOTENCY.c.state == bindparam("running")))
_FORGET_OLD = Prepared(delete(IDEMPOTENCY).where(_OF_KEY, IDEMPOTENCY.c.expires_at <= bindparam("now")))

RUNNING, DONE, UNKNOWN = "running", "done", "unknown"
"""In progress; answered; executed with an unknown response."""


@dataclass(frozen=True, slots=True)
class Repeat:
    """An earlier request."""

    key: bytes
    digest: bytes
    state: str
    status: int | None
    headers: dict[str, str] | None
    body: bytes | None
    created_at: float
    expires_at: float


async def insert(tx: AsyncConnection, key: bytes, digest: bytes, created_at: float, expires_at: float) -> bool:
    """Insert; False when the key exists already."""
    times = {"created_at": created_at, "expires_at": expires_at}
    answer: dict[str, Any] = dict.fromkeys(("status", "headers", "body"))
    return bool((await _INSERT.run(tx, {"key": key, "digest": digest, "state": RUNNING, **answer, **times})).rows)


async def get(tx: AsyncConnection, key: bytes) -> Repeat | None:
    row = (await _GET.run(tx, {"of": key})).first
    return None if row is None else Repeat(**row)


async def finish(tx: AsyncConnection, key: bytes, status: int, headers: dict[str, str], body: bytes) -> None:
    await _FINISH.run(tx, {"of": key, "state": DONE, "status": status, "headers": headers, "body": body})


async def lose(tx: AsyncConnection, key: bytes | None = None) -> None:
    """Mark a running request (None: all of them) as executed with an unknown response."""
    running = IDEMPOTENCY.c.state == RUNNING
    which = running if key is None else running & (IDEMPOTENCY.c.key == key)
    await tx.execute(update(IDEMPOTENCY).where(which).values(state=UNKNOWN))


async def forget(tx: AsyncConnection, key: bytes) -> None:
    await _FORGET.run(tx, {"of": key})


async def retake(tx: AsyncConnection, key: bytes) -> None:
    """Delete a running request that certainly is not being executed."""
    await _FORGET_RUNNING.run(tx, {"of": key, "running": RUNNING})


async def expire(tx: AsyncConnection, now: float, key: bytes) -> bool:
    """Delete a request past its retention time; whether it was."""
    return bool((await _FORGET_OLD.run(tx, {"of": key, "now": now})).changed)
