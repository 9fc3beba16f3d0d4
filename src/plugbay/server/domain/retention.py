"""`Retention`: what is too old to be kept goes, a little at a time, so that a database stops growing some day.

Owns how long each kind of record is kept, and how gently the old ones are removed: few in a transaction, never at work
for more than half of the time, and an error is told and tried again. What is over, and what goes together, is
`store.retention`'s: nothing that has not ended goes, however old it is.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from dataclasses import dataclass

from plugbay.host.config.retention import RetentionConfig
from plugbay.server.domain.audit import Audit
from plugbay.server.domain.clock import Clock
from plugbay.server.domain.credentials import KEPT_EXPIRED
from plugbay.server.domain.invocations import KEPT_JOURNEYS
from plugbay.server.domain.meters import Meters
from plugbay.server.domain.principal import Principal
from plugbay.store import retention as rows
from plugbay.store.database import Database
from plugbay.store.failures import StoreUnavailable
from plugbay.store.retention import Cutoffs, Key

LOG = logging.getLogger("plugbay.server.domain")

EVERY = 600.0
"""Seconds between two rounds: one that finds nothing asks ten indexes, and one that finds much is soon over."""

AT_FIRST = 60.0
"""Seconds from a start to the first round: a start has enough to do with what is new."""

SOONER = 30.0
"""Seconds until the next round when something went wrong with one: most often the database is away."""

BATCH = 200
"""Records removed in one transaction, with their parts: 40 ms on SQLite and a busy machine, for which writers wait.
Some 2,000 a second go like that, more than a server makes."""

REMOVED, FAILED = "records_removed", "record_removals_failed"
"""The meters."""


@dataclass(frozen=True, slots=True)
class Old:
    """One kind of record: how long it is kept (None: for ever), and how many are too old, or were."""

    kept: float | None
    number: int


class Retention:
    """Removes what is too old. `run` it in the background."""

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
            "answers": 0.0,  # they say themselves until when
            "tokens": KEPT_EXPIRED,
            "journeys": KEPT_JOURNEYS,
        }
        self._round = asyncio.Lock()
        for kind in rows.KINDS:
            meters.count(REMOVED, 0, kind=kind)
            meters.count(FAILED, 0, kind=kind)

    async def run(self) -> None:
        """Remove what is too old, soon and then every while, until it is cancelled."""
        await asyncio.sleep(AT_FIRST)
        while True:
            try:
                await self.remove()
            except Exception:  # it was told and counted where it happened
                await asyncio.sleep(SOONER)
            else:
                await asyncio.sleep(EVERY)

    async def prune(self, caller: Principal) -> dict[str, Old]:
        """Remove it at once, because somebody asks for it; what was removed."""
        removed = await self.remove()
        numbers = {kind: old.number for kind, old in removed.items() if old.number}
        async with self._database.transaction() as tx:
            await self._audit.record(tx, caller, "records.prune", "records", "all", removed=numbers)
        return removed

    async def planned(self) -> dict[str, Old]:
        """What would be removed now."""
        cutoffs = self._cutoffs()
        async with self._database.reading() as tx:
            return {kind: Old(self._kept[kind], await rows.count(tx, kind, cutoffs)) for kind in rows.KINDS}

    async def remove(self) -> dict[str, Old]:
        """One round over all kinds; what was removed. Raises what went wrong with one, after all others."""
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
            LOG.info("what was too old is removed", extra={"removed": dict(+removed)})
        if wrong:
            raise wrong[0]
        return {kind: Old(self._kept[kind], removed[kind]) for kind in rows.KINDS}

    def _failed(self, kind: str, error: Exception) -> None:
        self._meters.count(FAILED, kind=kind)
        bug = None if isinstance(error, StoreUnavailable) else error
        LOG.warning("old %s cannot be removed yet: %s", kind, error, exc_info=bug)

    def _cutoffs(self) -> Cutoffs:
        now = self._clock.now()
        return {kind: None if kept is None else now - kept for kind, kept in self._kept.items()}

    async def _remove(self, kind: str, cutoffs: Cutoffs, removed: Counter[str]) -> None:
        """All of one kind, and count them as they go."""
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
            await asyncio.sleep(self._clock.monotonic() - began)  # as much time for others as it took
