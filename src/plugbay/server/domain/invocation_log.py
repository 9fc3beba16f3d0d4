"""`SqlInvocationLog`: invocations as rows. Opened before anything starts, closed once, whatever the database is doing.

Owns that what has ended is written down in the end: while the database cannot be used, it is remembered and tried
again; what a killed gateway left open is closed by the next one. With the row all tokens of the invocation end.
"""

from __future__ import annotations

import asyncio
import logging

import msgspec

from plugbay.host.ports import InvocationRecord, ResumeState
from plugbay.server.domain.clock import Clock
from plugbay.server.domain.live import ENDED, STARTED, Live, LiveEvent
from plugbay.server.domain.meters import Meters
from plugbay.store import checkpoints as journey_rows
from plugbay.store import invocations as rows
from plugbay.store import tokens as token_rows
from plugbay.store.database import Database
from plugbay.store.failures import StoreUnavailable

LOG = logging.getLogger("plugbay.server.domain")

RESTARTED = "host_restarted"
"""The reason, and the error code, of what was open when a gateway was killed."""

UNBEGUN = "unavailable"
"""The error code of what was not begun, because it could not be written down that it begins."""

TRIES = 3
"""Attempts to close a row before its caller is answered; the others are made behind its back."""

PAUSE = 0.5
"""Seconds between two of them."""

KEPT_JOURNEYS = 30 * 24 * 3600.0
"""Seconds for which it is known how far an execution has come, since it was last heard of."""


class SqlInvocationLog:
    """The log of one gateway."""

    def __init__(self, database: Database, live: Live, meters: Meters, clock: Clock) -> None:
        self._database = database
        self._live = live
        self._meters = meters
        self._clock = clock
        self._unclosed: dict[str, InvocationRecord] = {}
        self._more = asyncio.Event()

    async def opened(self, record: InvocationRecord) -> None:
        """It begins; raises when that cannot be written down."""
        try:
            async with self._database.transaction() as tx:
                await rows.open(tx, record)
        except StoreUnavailable:
            # Nobody can tell whether it was committed. It does not begin, so a row that is there is closed.
            self._owe(msgspec.structs.replace(record, status="failed", ended_at=record.started_at, error_code=UNBEGUN))
            raise
        self._live.tell(LiveEvent(STARTED, record))

    async def closed(self, record: InvocationRecord) -> None:
        """It has ended."""
        for attempt in range(TRIES):
            if await self._close(record):
                return
            if attempt + 1 < TRIES:
                await asyncio.sleep(PAUSE)
        self._owe(record)

    def _owe(self, record: InvocationRecord) -> None:
        self._unclosed[record.invocation_id] = record
        self._more.set()

    async def recover(self) -> int:
        """Close what a gateway that was killed left open, and end its tokens; how many invocations those were."""
        now = self._clock.now()
        async with self._database.transaction() as tx:
            left = await rows.close_all(tx, now, "failed", RESTARTED, RESTARTED)
            await token_rows.revoke_all(tx, now)
        if left:
            LOG.warning("%d invocations were open when the last gateway ended; they count as failed", len(left))
        return len(left)

    async def catch_up(self) -> None:
        """Close what could not be closed when it ended; goes on until it is cancelled."""
        while True:
            await self._more.wait()
            if await self.close_rest():
                self._more.clear()
            else:
                await asyncio.sleep(PAUSE)

    async def close_rest(self) -> bool:
        """Try once to close what is left; False: there is still something."""
        for id, record in list(self._unclosed.items()):
            if await self._close(record):
                del self._unclosed[id]
        return not self._unclosed

    async def _close(self, record: InvocationRecord) -> bool:
        """False: the database cannot be used now."""
        now = self._clock.now()
        try:
            async with self._database.transaction() as tx:
                first = await rows.close(tx, record)
                await token_rows.revoke_of_invocation(tx, record.invocation_id, now)
        except StoreUnavailable as error:
            LOG.warning("the end of %s cannot be written down yet: %s", record.invocation_id, error)
            return False
        if first:
            self._meters.count("plugin_invocations", kind=record.export_kind, status=str(record.status))
            self._live.tell(LiveEvent(ENDED, record))
        return True


class SqlCheckpoints:
    """How far harnesses have come, in the database."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    async def save(self, execution_id: str, journey: ResumeState) -> None:
        async with self._database.transaction() as tx:
            await journey_rows.save(tx, execution_id, journey, self._clock.now())

    async def load(self, execution_id: str) -> ResumeState | None:
        async with self._database.reading() as tx:
            return await journey_rows.load(tx, execution_id)
