"""`Retention`: removes records that are older than their retention time.

Small transactions, never busy more than half of the time; errors are logged, counted and retried. `store.retention`
defines which records belong together; nothing that has not ended is removed, however old.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter

import msgspec

from plugbay.host.config.sections import RetentionConfig
from plugbay.server.domain.audit import Audit
from plugbay.server.domain.background import Poller
from plugbay.server.domain.clock import Clock
from plugbay.server.domain.credentials import KEPT_EXPIRED
from plugbay.server.domain.invocations import KEPT_JOURNEYS
from plugbay.server.domain.meters import Meters
from plugbay.server.domain.principal import Principal
from plugbay.store import leases
from plugbay.store import retention as rows
from plugbay.store.database import Database
from plugbay.store.failures import StoreUnavailable
from plugbay.store.retention import Cutoffs, Key

LOG = logging.getLogger("plugbay.server.domain")

ROUND_EVERY = 600.0
"""Seconds between two rounds; a round that finds nothing reads ten indexes."""

FIRST_ROUND_AFTER = 60.0
"""Seconds from a start to the first round, because a start is busy."""

RETRY_AFTER = 30.0
"""Seconds until the next round after an error, most often an unavailable database."""

BATCH = 200
"""Records removed in one transaction, with their parts. Writers wait for it: 40 ms on SQLite and a busy machine. About
2,000 records a second are removed, more than a server creates."""

REMOVED, FAILED = "records_removed", "record_removals_failed"
"""The meters."""


class RetentionCount(msgspec.Struct, frozen=True):
    """One kind of record: its retention time in seconds (None: for ever), and the number of old records."""

    kept: float | None
    number: int


DUTY = "duty/retention"
"""The lease of the gateway whose round it is. Two rounds at once would be harmless."""


class Retention:
    """Removes old records. `run` it in the background."""

    def __init__(
        self,
        database: Database,
        settings: RetentionConfig,
        audit: Audit,
        meters: Meters,
        clock: Clock,
        batch: int = BATCH,
    ) -> None:
        self._database = database
        self._audit = audit
        self._meters = meters
        self._clock = clock
        self._batch = batch
        self._kept: dict[str, float | None] = {
            **settings.model_dump(),
            "spending": settings.invocations,
            "answers": 0.0,  # each answer has its own expiry
            "tokens": KEPT_EXPIRED,
            "journeys": KEPT_JOURNEYS,
        }
        self._round = asyncio.Lock()
        for kind in rows.KINDS:
            meters.count(REMOVED, 0, kind=kind)
            meters.count(FAILED, 0, kind=kind)

    async def run(self) -> None:
        """Remove old records periodically until cancelled."""
        await Poller(self._remove_or_wait, first=FIRST_ROUND_AFTER).run()

    async def _remove_or_wait(self) -> float:
        """One round; returns the seconds until the next."""
        try:
            if not await self._is_ours():
                return ROUND_EVERY
            await self.remove()
        except Exception:  # logged and counted already
            return RETRY_AFTER
        return ROUND_EVERY

    async def _is_ours(self) -> bool:
        """Whether no other gateway has done or does this round."""
        if self._database.owner is None:
            return True
        async with self._database.transaction() as tx:
            return await leases.take(tx, DUTY, self._database.owner, ROUND_EVERY / 2) is not None

    async def prune(self, caller: Principal) -> dict[str, RetentionCount]:
        """Remove old records now, on request; returns the counts."""
        removed = await self.remove()
        numbers = {kind: old.number for kind, old in removed.items() if old.number}
        async with self._database.transaction() as tx:
            await self._audit.record(tx, caller, "records.prune", "records", "all", removed=numbers)
        return removed

    async def preview(self) -> dict[str, RetentionCount]:
        """Count the records that `remove` would delete now."""
        cutoffs = self._cutoffs()
        async with self._database.reading() as tx:
            return {kind: RetentionCount(self._kept[kind], await rows.count(tx, kind, cutoffs)) for kind in rows.KINDS}

    async def remove(self) -> dict[str, RetentionCount]:
        """One round over all kinds; returns the counts. Raises the first error after all kinds were tried."""
        removed: Counter[str] = Counter()
        wrong: list[Exception] = []
        async with self._round:
            cutoffs = self._cutoffs()
            for kind in rows.KINDS:
                try:
                    await self._remove(kind, cutoffs, removed)
                except Exception as error:
                    self._failed(kind, error)
                    wrong.append(error)
        if removed.total():
            LOG.info("old records were removed", extra={"removed": dict(+removed)})
        if wrong:
            raise wrong[0]
        return {kind: RetentionCount(self._kept[kind], removed[kind]) for kind in rows.KINDS}

    def _failed(self, kind: str, error: Exception) -> None:
        self._meters.count(FAILED, kind=kind)
        bug = None if isinstance(error, StoreUnavailable) else error
        LOG.warning("old %s cannot be removed now; retried later: %s", kind, error, exc_info=bug)

    def _cutoffs(self) -> Cutoffs:
        now = self._clock.now()
        return {kind: None if kept is None else now - kept for kind, kept in self._kept.items()}

    async def _remove(self, kind: str, cutoffs: Cutoffs, removed: Counter[str]) -> None:
        """Remove all old records of one kind and count them."""
        after: Key | None = None
        while cutoffs[kind] is not None:
            began = self._clock.monotonic()
            async with self._database.reading() as tx:
                found = await rows.find(tx, kind, cutoffs, self._batch, after)
            if not found:
                return
            async with self._database.transaction() as tx:
                number = await rows.remove(tx, kind, cutoffs, found)
            removed[kind] += number
            self._meters.count(REMOVED, number, kind=kind)
            after = found[-1]
            await asyncio.sleep(self._clock.monotonic() - began)  # at most half of the time
