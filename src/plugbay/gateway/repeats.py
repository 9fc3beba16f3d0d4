"""`Repeats`: a request that comes twice is carried out once, and answered twice with the same words.

Owns how long answers are kept, and what is said to a repetition that is not one. What a request is, and how its answer
is written, is `control`'s.
"""

from __future__ import annotations

from plugbay.gateway.clock import Clock
from plugbay.gateway.errors import GatewayError, conflict
from plugbay.store import idempotency as rows
from plugbay.store.database import Database
from plugbay.store.idempotency import Repeat

KEPT_CREATES = 24 * 3600.0
KEPT_UPDATES = 3600.0
"""Seconds that the answer to a request that makes something, or changes something, can be had again."""

MAX_BODY = 1 << 20
"""Bytes of an answer that is kept; of a larger one it is only known that there was one."""


class Repeats:
    """All requests that may come again."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    async def begin(self, key: bytes, digest: bytes, kept: float) -> Repeat | None:
        """None: this is the first time, carry it out. Otherwise what it was answered; raises when it cannot be."""
        now = self._clock.now()
        async with self._database.transaction() as tx:
            await rows.expire(tx, now, key)
            if await rows.insert(tx, key, digest, now, now + kept):
                return None
            found = await rows.get(tx, key)
        if found is None:  # it was refused just now
            raise _in_progress()
        return _judged(found, digest)

    async def finish(self, key: bytes, status: int, headers: dict[str, str], body: bytes | None) -> None:
        """It was carried out, and answered so; None: with what is not kept."""
        async with self._database.transaction() as tx:
            if body is None or len(body) > MAX_BODY:
                await rows.lose(tx, key)
            else:
                await rows.finish(tx, key, status, headers, body)

    async def forget(self, key: bytes) -> None:
        """It was refused: a repetition is judged afresh."""
        async with self._database.transaction() as tx:
            await rows.forget(tx, key)

    async def recover(self) -> None:
        """Of requests that were being answered when the gateway ended, nobody will learn how."""
        async with self._database.transaction() as tx:
            await rows.lose(tx)


def _in_progress() -> GatewayError:
    return conflict("idempotency.in_progress", "the first request with this key is being answered", retryable=True)


def _judged(found: Repeat, digest: bytes) -> Repeat:
    if found.digest != digest:
        raise conflict("idempotency.conflict", "this Idempotency-Key was used for another request")
    if found.state == rows.RUNNING:
        raise _in_progress()
    if found.state == rows.UNKNOWN:
        text = "the request with this key was carried out, but its answer is not kept; read what it changed"
        raise conflict("idempotency.answer_lost", text)
    return found
