"""Requests with an Idempotency-Key, and their responses."""

from __future__ import annotations

from typing import Any

import msgspec
from sqlalchemy import bindparam, delete, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from plugbay.store.rows import ANY_OWNER, of_owner
from plugbay.store.statements import Prepared, new_row
from plugbay.store.tables import IDEMPOTENCY

_OF_KEY = IDEMPOTENCY.c.key == bindparam("of")
_OURS = IDEMPOTENCY.c.owner.is_not_distinct_from(bindparam("mine"))
_NOT_LOST = IDEMPOTENCY.c.state != bindparam("lost")
"""Another gateway has told clients that the answer is lost, when it took over the work of this one."""
_INSERT = new_row(IDEMPOTENCY)
_GET = Prepared(select(IDEMPOTENCY).where(_OF_KEY))
_FINISH = Prepared(update(IDEMPOTENCY).where(_OF_KEY, _OURS, _NOT_LOST), sets=("state", "status", "headers", "body"))
_FORGET = Prepared(delete(IDEMPOTENCY).where(_OF_KEY, _OURS))
_FORGET_RUNNING = Prepared(delete(IDEMPOTENCY).where(_OF_KEY, _OURS, IDEMPOTENCY.c.state == bindparam("running")))
_FORGET_OLD = Prepared(delete(IDEMPOTENCY).where(_OF_KEY, IDEMPOTENCY.c.expires_at <= bindparam("now")))

RUNNING, DONE, UNKNOWN = "running", "done", "unknown"
"""In progress; answered; executed with an unknown response."""


class Repeat(msgspec.Struct, frozen=True):
    """An earlier request."""

    key: bytes
    digest: bytes
    state: str
    status: int | None
    headers: dict[str, str] | None
    body: bytes | None
    created_at: float
    expires_at: float
    owner: str | None = None
    """The gateway that carries it out, if several share the database."""


async def insert(
    tx: AsyncConnection, key: bytes, digest: bytes, created_at: float, expires_at: float, owner: str | None = None
) -> bool:
    """Insert; False when the key exists already."""
    times = {"created_at": created_at, "expires_at": expires_at}
    answer: dict[str, Any] = dict.fromkeys(("status", "headers", "body"))
    values = {"key": key, "digest": digest, "state": RUNNING, "owner": owner, **answer, **times}
    return bool((await _INSERT.run(tx, values)).rows)


async def get(tx: AsyncConnection, key: bytes) -> Repeat | None:
    row = (await _GET.run(tx, {"of": key})).first
    return None if row is None else Repeat(**row)


async def finish(
    tx: AsyncConnection, key: bytes, status: int, headers: dict[str, str], body: bytes, owner: str | None = None
) -> None:
    """Keep the response to a request of this owner."""
    answer = {"state": DONE, "status": status, "headers": headers, "body": body}
    await _FINISH.run(tx, {"of": key, "mine": owner, "lost": UNKNOWN, **answer})


async def lose(tx: AsyncConnection, key: bytes | None = None, owner: str | None = ANY_OWNER) -> None:
    """Mark a running request (None: all of them) of this owner as executed with an unknown response."""
    running = (IDEMPOTENCY.c.state == RUNNING) & of_owner(IDEMPOTENCY.c.owner, owner)
    which = running if key is None else running & (IDEMPOTENCY.c.key == key)
    await tx.execute(update(IDEMPOTENCY).where(which).values(state=UNKNOWN))


async def forget(tx: AsyncConnection, key: bytes, owner: str | None = None) -> None:
    await _FORGET.run(tx, {"of": key, "mine": owner})


async def retake(tx: AsyncConnection, key: bytes, owner: str | None = None) -> None:
    """Delete a running request of this owner, which certainly is not being executed."""
    await _FORGET_RUNNING.run(tx, {"of": key, "mine": owner, "running": RUNNING})


async def expire(tx: AsyncConnection, now: float, key: bytes) -> bool:
    """Delete a request past its retention time; whether it was."""
    return bool((await _FORGET_OLD.run(tx, {"of": key, "now": now})).changed)
