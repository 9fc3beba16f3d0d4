"""`IdempotentRequests`: a repeated request runs once and gets the same answer again.

    before = await idempotency.claim(key, digest, KEPT_CREATES)
    …                                                         carry out the request, unless there is an answer
    await idempotency.settle(key, Completed(200, {}, body))   or LOST, or REFUSED: the key is free again

A claim of this gateway that this process does not hold is stale (its commit was not confirmed) and is taken over.
Outcomes that the database could not take are kept in memory and written when it is back.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Literal

import msgspec

from plugbay.server.domain.background import Poller
from plugbay.server.domain.clock import Clock
from plugbay.server.domain.errors import GatewayError, conflict
from plugbay.store import idempotency as rows
from plugbay.store.database import Database
from plugbay.store.failures import StoreUnavailable
from plugbay.store.idempotency import Repeat
from plugbay.store.rows import ANY_OWNER

LOG = logging.getLogger("plugbay.server.domain")

KEPT_CREATES = 24 * 3600.0
KEPT_UPDATES = 3600.0
"""Seconds for which answers to creating and updating requests are kept."""

MAX_BODY = 1 << 20
"""Bytes of a stored answer; a larger one is recorded as lost."""

MAX_DEFERRED = 64 << 20
"""Bytes of deferred answers; further ones are recorded as lost."""

PAUSE = 0.5
"""Seconds between attempts to write deferred answers."""


class Completed(msgspec.Struct, frozen=True):
    """The request was carried out; this is its answer."""

    status: int
    headers: dict[str, str]
    body: bytes


Outcome = Completed | Literal["lost", "refused"]

LOST: Literal["lost"] = "lost"
"""It was carried out, or may have been; the answer is not kept."""

REFUSED: Literal["refused"] = "refused"
"""It was not carried out: a repetition runs again."""


class IdempotentRequests:
    """All requests with an idempotency key."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock
        self._held: dict[bytes, bytes] = {}
        """Digests of requests in progress, by key."""
        self._deferred: dict[bytes, Outcome] = {}
        """Outcomes to write when the database is available again."""
        self._writing = asyncio.Lock()
        self._writer = Poller(self._write_rest, first=None)

    async def begin(self, key: bytes, digest: bytes, kept: float) -> Repeat | None:
        """Claim a key: None for the first request, which is to be carried out; otherwise the stored answer.

        For requests that are carried out in the same transaction. Raises if there is no answer to give.
        """
        return await self._insert(key, digest, kept)

    async def finish(self, key: bytes, outcome: Outcome) -> None:
        """Record the outcome, in the same transaction."""
        ours = self._database.owner
        async with self._database.transaction() as tx:
            if outcome == REFUSED:
                await rows.forget(tx, key, ours)
            elif isinstance(outcome, Completed) and len(outcome.body) <= MAX_BODY:
                await rows.finish(tx, key, outcome.status, outcome.headers, outcome.body, ours)
            else:
                await rows.lose(tx, key, ours)

    async def claim(self, key: bytes, digest: bytes, kept: float) -> Repeat | None:
        """Like `begin`, for a request that takes longer than a transaction; must be settled."""
        held = self._held.get(key)
        if held is not None:
            raise _in_progress() if held == digest else _key_conflict()
        self._held[key] = digest
        claimed = False
        try:
            await self._write_one(key)
            before = await self._insert(key, digest, kept, take_over=True)
            claimed = before is None
        finally:
            if not claimed:
                del self._held[key]
        return before

    async def _insert(self, key: bytes, digest: bytes, kept: float, *, take_over: bool = False) -> Repeat | None:
        """Insert a claim; `take_over` a stale one."""
        now, ours = self._clock.now(), self._database.owner
        async with self._database.transaction(fenced=True) as tx:
            await rows.expire(tx, now, key)
            if take_over:
                await rows.retake(tx, key, ours)
            if await rows.insert(tx, key, digest, now, now + kept, ours):
                return None
            found = await rows.get(tx, key)
        if found is None:  # refused concurrently
            raise _in_progress()
        return _replay_or_raise(found, digest)

    async def settle(self, key: bytes, outcome: Outcome) -> None:
        """Record the outcome of a claimed request, now or when the database is available again."""
        written = False
        try:
            await self.finish(key, outcome)
            written = True
        except StoreUnavailable as error:
            LOG.warning("the answer of an idempotent request cannot be stored; it is retried: %s", error)
        finally:
            if not written:
                self._defer(key, outcome)
            del self._held[key]

    def _defer(self, key: bytes, outcome: Outcome) -> None:
        waiting = sum(len(deferred.body) for deferred in self._deferred.values() if isinstance(deferred, Completed))
        too_much = isinstance(outcome, Completed) and waiting + len(outcome.body) > MAX_DEFERRED
        self._deferred[key] = LOST if too_much else outcome
        self._writer.wake()

    async def _write_one(self, key: bytes) -> None:
        """Write the deferred outcome of a key, if there is one; raises `StoreUnavailable`.

        One at a time: a late write would overwrite the claim of a repetition.
        """
        if key not in self._deferred:
            return
        async with self._writing:
            if key in self._deferred:
                await self.finish(key, self._deferred[key])
                del self._deferred[key]

    async def run(self) -> None:
        """Write deferred outcomes until cancelled."""
        await self._writer.run()

    async def _write_rest(self) -> float | None:
        if await self.write_deferred():
            return None
        await asyncio.sleep(PAUSE)
        return 0.0

    async def write_deferred(self) -> bool:
        """Write all deferred outcomes once; False if some are left."""
        try:
            for key in list(self._deferred):
                await self._write_one(key)
        except StoreUnavailable:
            return False
        return True

    async def start(self) -> None:
        """Close requests of the last server; those of other gateways are closed when their leases end."""
        if self._database.fence is None:
            await self.close_left(ANY_OWNER)

    async def close_left(self, owner: str | None) -> None:
        """Mark requests that were running when their gateway ended: their answers are lost."""
        async with self._database.transaction() as tx:
            await rows.lose(tx, owner=owner)


def _in_progress() -> GatewayError:
    return conflict("idempotency.in_progress", "the first request with this key is still running", retryable=True)


def _key_conflict() -> GatewayError:
    return conflict("idempotency.conflict", "this Idempotency-Key was used for another request")


def _replay_or_raise(found: Repeat, digest: bytes) -> Repeat:
    if found.digest != digest:
        raise _key_conflict()
    if found.state == rows.RUNNING:
        raise _in_progress()
    if found.state == rows.UNKNOWN:
        text = "the request with this key was carried out, but its answer was not stored; read the changed records"
        raise conflict("idempotency.answer_lost", text)
    return found
