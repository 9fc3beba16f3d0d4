"""`Repeats`: a request that comes twice is carried out once, and answered twice with the same words.

    before = await repeats.claim(key, digest, KEPT_CREATES)
    …                                                   the work, if there is no answer from before
    await repeats.settle(key, Answered(200, {}, body))  or LOST, or REFUSED: the key is free again

Owns how long answers are kept, who carries out a request now, and what is said to a repetition that is not one. Every
database has one gateway, so a claim that nobody here holds is nobody's: it was committed without us being told, and is
taken again. What became of a request while the database was away is remembered and written when it is back. What a
request is, and how its answer is written, is `control`'s.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from typing import Literal

from plugbay.server.domain.clock import Clock
from plugbay.server.domain.errors import GatewayError, conflict
from plugbay.store import idempotency as rows
from plugbay.store.database import Database
from plugbay.store.failures import StoreUnavailable
from plugbay.store.idempotency import Repeat

LOG = logging.getLogger("plugbay.server.domain")

KEPT_CREATES = 24 * 3600.0
KEPT_UPDATES = 3600.0
"""Seconds that the answer to a request that makes something, or changes something, can be had again."""

MAX_BODY = 1 << 20
"""Bytes of an answer that is kept; of a larger one it is only known that there was one."""

MAX_OWED = 64 << 20
"""Bytes of answers that wait for the database; of further ones it is only known that there was one."""

PAUSE = 0.5
"""Seconds before answers that wait are tried again."""


@dataclass(frozen=True, slots=True)
class Answered:
    """A request was carried out, and answered so."""

    status: int
    headers: dict[str, str]
    body: bytes


Outcome = Answered | Literal["lost", "refused"]

LOST: Literal["lost"] = "lost"
"""It was carried out, or may have been; what it was answered is not kept."""

REFUSED: Literal["refused"] = "refused"
"""It was not carried out: a repetition is judged afresh."""


class Repeats:
    """All requests that may come again."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock
        self._held: dict[bytes, bytes] = {}
        """The digests of requests that are being claimed, carried out or settled, by key."""
        self._owed: dict[bytes, Outcome] = {}
        """What is to be written as soon as the database takes it."""
        self._paying = asyncio.Lock()
        self._more = asyncio.Event()

    async def begin(self, key: bytes, digest: bytes, kept: float) -> Repeat | None:
        """None: this is the first time, carry it out. Otherwise what it was answered; raises when it cannot be.

        For requests that are carried out in the same transaction.
        """
        now = self._clock.now()
        async with self._database.transaction() as tx:
            await rows.expire(tx, now, key)
            if await rows.insert(tx, key, digest, now, now + kept):
                return None
            found = await rows.get(tx, key)
        if found is None:  # it was refused just now
            raise _in_progress()
        return _judged(found, digest)

    async def finish(self, key: bytes, outcome: Outcome) -> None:
        """What became of it, in the same transaction."""
        async with self._database.transaction() as tx:
            if outcome == REFUSED:
                await rows.forget(tx, key)
            elif isinstance(outcome, Answered) and len(outcome.body) <= MAX_BODY:
                await rows.finish(tx, key, outcome.status, outcome.headers, outcome.body)
            else:
                await rows.lose(tx, key)

    async def claim(self, key: bytes, digest: bytes, kept: float) -> Repeat | None:
        """The same as `begin` for a request that takes longer than a transaction: it must be settled."""
        held = self._held.get(key)
        if held is not None:
            raise _in_progress() if held == digest else _other()
        self._held[key] = digest
        claimed = False
        try:
            await self._pay(key)
            before = await self._claimed(key, digest, kept)
            claimed = before is None
        finally:
            if not claimed:
                del self._held[key]
        return before

    async def _claimed(self, key: bytes, digest: bytes, kept: float) -> Repeat | None:
        now = self._clock.now()
        async with self._database.transaction() as tx:
            await rows.expire(tx, now, key)
            await rows.retake(tx, key)
            if await rows.insert(tx, key, digest, now, now + kept):
                return None
            found = await rows.get(tx, key)
        assert found is not None
        return _judged(found, digest)

    async def settle(self, key: bytes, outcome: Outcome) -> None:
        """What became of a request that was claimed; it is written now, or when the database is back."""
        written = False
        try:
            await self.finish(key, outcome)
            written = True
        except StoreUnavailable as error:
            LOG.warning("an answer cannot be kept yet for a repetition of its request: %s", error)
        finally:
            if not written:
                self._owe(key, outcome)
            del self._held[key]

    def _owe(self, key: bytes, outcome: Outcome) -> None:
        waiting = sum(len(owed.body) for owed in self._owed.values() if isinstance(owed, Answered))
        too_much = isinstance(outcome, Answered) and waiting + len(outcome.body) > MAX_OWED
        self._owed[key] = LOST if too_much else outcome
        self._more.set()

    async def _pay(self, key: bytes) -> None:
        """Write what is owed, if anything is; raises `StoreUnavailable`. One at a time: a late one would take away
        what a repetition has claimed since."""
        if key not in self._owed:
            return
        async with self._paying:
            if key in self._owed:
                await self.finish(key, self._owed[key])
                del self._owed[key]

    async def catch_up(self) -> None:
        """Write what could not be written when it was settled; goes on until it is cancelled."""
        while True:
            await self._more.wait()
            if await self.pay_all():
                self._more.clear()
            else:
                await asyncio.sleep(PAUSE)

    async def pay_all(self) -> bool:
        """Try once to write all that is owed; False: there is still something."""
        try:
            for key in list(self._owed):
                await self._pay(key)
        except StoreUnavailable:
            return False
        return True

    async def recover(self) -> None:
        """Of requests that were being answered when the gateway ended, nobody will learn how."""
        async with self._database.transaction() as tx:
            await rows.lose(tx)


def _in_progress() -> GatewayError:
    return conflict("idempotency.in_progress", "the first request with this key is being answered", retryable=True)


def _other() -> GatewayError:
    return conflict("idempotency.conflict", "this Idempotency-Key was used for another request")


def _judged(found: Repeat, digest: bytes) -> Repeat:
    if found.digest != digest:
        raise _other()
    if found.state == rows.RUNNING:
        raise _in_progress()
    if found.state == rows.UNKNOWN:
        text = "the request with this key was carried out, but its answer is not kept; read what it changed"
        raise conflict("idempotency.answer_lost", text)
    return found
