"""`CallHistory`: counts every call of the host's plugins at once and writes its record soon after.

A call never waits for the database: records are written in batches. When the database cannot keep up, the oldest
waiting records are dropped and counted. `flush` at stop writes the rest.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import deque

from plugbay.host.ports import CallRecord
from plugbay.server.domain.background import Tasks
from plugbay.server.domain.errors import not_found
from plugbay.server.domain.meters import Meters
from plugbay.store import calls as rows
from plugbay.store.calls import StoredCall
from plugbay.store.database import Database
from plugbay.store.failures import StoreUnavailable
from plugbay.store.pages import Page, Part

KEPT = 100_000
"""Records kept; older ones are deleted."""

MAX_WAITING = 20_000
"""Records waiting to be written: a few seconds at the maximum rate of a host."""

BATCH = 500
"""Records per commit."""

PAUSE = 0.2
"""Seconds to collect calls for a batch; a crash loses these records."""

TRIM_EVERY = 5_000
"""New records between two trims."""


class CallHistory:
    """The call log of a host."""

    def __init__(self, database: Database, meters: Meters, kept: int = KEPT, pause: float = PAUSE) -> None:
        self._database = database
        self.meters = meters
        self._kept = kept
        self._pause = pause
        self._waiting: deque[CallRecord] = deque(maxlen=MAX_WAITING)
        self._writing: list[list[CallRecord]] = []
        """Batches being written: several if `flush` is called concurrently."""
        self._arrived = asyncio.Event()
        self._untrimmed = TRIM_EVERY
        self.lost = 0
        """Records dropped because too many waited."""
        self.last_failures: dict[str, CallRecord] = {}
        """The last failed call of each plugin since the start."""

    def finished(self, record: CallRecord) -> None:
        """Count a finished call and queue its record."""
        plugin = record.plugin or "none"
        export = record.export if record.plugin else "none"
        code = record.failure.code if record.failure else "none"
        self.meters.count("calls", plugin=plugin, export=export, status=record.status, code=code)
        self.meters.observe("call_seconds", record.duration_ms / 1000, plugin=plugin, export=export)
        if record.failure is not None and record.plugin:
            self.last_failures[record.plugin] = record
        if len(self._waiting) == MAX_WAITING:
            self.lost += 1
        self._waiting.append(record)
        self._arrived.set()

    def begin(self, tasks: Tasks) -> None:
        """Start writing records in the background."""
        tasks.start("calls", self._write)

    async def page(
        self,
        page: Page,
        *,
        plugin: str | None = None,
        export: str | None = None,
        status: str | None = None,
        since: float | None = None,
        until: float | None = None,
    ) -> Part[StoredCall]:
        """Stored records, newest first."""
        async with self._database.reading() as tx:
            return await rows.page(tx, page, plugin=plugin, export=export, status=status, since=since, until=until)

    async def get(self, call_id: str) -> StoredCall:
        """One call, stored or still waiting; raises `not_found`."""
        for record in itertools.chain(
            *self._writing, self._waiting
        ):  # before the database: it is here until it is there
            if record.call_id == call_id:
                return rows.shown(record)
        async with self._database.reading() as tx:
            found = await rows.get(tx, call_id)
        if found is None:
            raise not_found("call", call_id)
        return found

    async def flush(self) -> None:
        """Write waiting records; raises `StoreUnavailable` and keeps them."""
        while self._waiting:
            batch = [self._waiting.popleft() for _ in range(min(BATCH, len(self._waiting)))]
            self._writing.append(batch)
            try:
                async with self._database.transaction() as tx:
                    await rows.insert(tx, batch)
            except BaseException:
                self._waiting.extendleft(reversed(batch))
                raise
            finally:
                self._writing.remove(batch)
            self._untrimmed += len(batch)
        if self._untrimmed >= TRIM_EVERY:
            self._untrimmed = 0
            async with self._database.transaction() as tx:
                await rows.trim(tx, self._kept)

    async def _write(self) -> None:
        while True:
            await self._arrived.wait()
            self._arrived.clear()
            await asyncio.sleep(self._pause)
            try:
                await self.flush()
            except StoreUnavailable:
                self._arrived.set()
