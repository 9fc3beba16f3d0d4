"""`CallHistory`: every call of the host's plugins, counted at once and written down soon after.

A call never waits for the database: finished ones are collected and written many at a time, and when the database
cannot keep up, the oldest of those that wait are lost and counted. A stop writes what is left.
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
"""Records; older ones are forgotten."""

MAX_WAITING = 20_000
"""Records that wait to be written: a few seconds of as many calls as one host makes."""

BATCH = 500
"""Records written together: one commit for them takes about as long as one for a single record."""

PAUSE = 0.2
"""Seconds in which calls are collected, and in which a crash would lose their records."""

TRIM_EVERY = 5_000
"""Records after which the oldest are looked for."""


class CallHistory:
    """Where a host's calls go."""

    def __init__(self, database: Database, meters: Meters, kept: int = KEPT, pause: float = PAUSE) -> None:
        self._database = database
        self.meters = meters
        self._kept = kept
        self._pause = pause
        self._waiting: deque[CallRecord] = deque(maxlen=MAX_WAITING)
        self._writing: list[list[CallRecord]] = []
        """Batches that are on their way into the database: several, when somebody asks for a flush meanwhile."""
        self._arrived = asyncio.Event()
        self._untrimmed = TRIM_EVERY
        self.lost = 0
        """Records that are nowhere: too many waited."""
        self.last_failures: dict[str, CallRecord] = {}
        """Of each plugin the last call that failed since the start; as many as there are plugins."""

    def finished(self, record: CallRecord) -> None:
        """One more call is over."""
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
        """Write down what comes, in the background."""
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
        """What is written down, newest first."""
        async with self._database.reading() as tx:
            return await rows.page(tx, page, plugin=plugin, export=export, status=status, since=since, until=until)

    async def get(self, call_id: str) -> StoredCall:
        """One call, written down or not yet; raises `not_found`."""
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
        """Write what waits; raises `StoreUnavailable`, and then it still waits."""
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
