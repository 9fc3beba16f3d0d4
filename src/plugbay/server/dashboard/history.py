"""`HistoryLoader`: the last hour for the charts of the overview; all open pages share one query."""

from __future__ import annotations

import asyncio
import math

import msgspec

from plugbay.server.dashboard.charts import Chart
from plugbay.server.dashboard.views.overview import MINUTES, charts_of
from plugbay.server.domain.gateway import Gateway
from plugbay.store.calls import CallMinute

REFRESH_SECONDS = 2.0
"""Seconds for which a result is used; longer if the queries take long."""

SETTLED_AFTER = 2
"""Minutes after which most calls of a minute have ended: a call counts in the minute in which it started."""

WHOLE_SECONDS = 300.0
"""Seconds between queries of the whole hour, for calls that took longer; 100,000 calls took 3 s on a busy machine."""

SHARE = 20
"""A result is used at least so many times as long as it took to make it."""


class History(msgspec.Struct, frozen=True):
    """The last hour."""

    minutes: tuple[CallMinute, ...] = ()
    charts: tuple[Chart, ...] = ()
    checks: tuple[tuple[str, str], ...] = ()
    """The readiness checks of the server and their results."""


class HistoryLoader:
    """Loads the last hour from the records of calls, the samples of resources and the readiness checks."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._loading = asyncio.Lock()
        self._due = -math.inf
        self._whole_due = -math.inf
        self._minutes: dict[int, CallMinute] = {}
        self._found = History()

    async def load(self) -> History:
        """The last hour, a few seconds old at most."""
        async with self._loading:
            clock = self._gateway.clock
            began = clock.monotonic()
            if began >= self._due:
                self._found = await self._load(clock.now())
                ended = clock.monotonic()
                self._due = ended + max(REFRESH_SECONDS, SHARE * (ended - began))
            return self._found

    async def _load(self, now: float) -> History:
        minute = int(now // 60)
        calls = await self._load_minutes(minute)
        checks = await self._gateway.checks()
        charts = charts_of(minute, calls, self._gateway.resources.samples)
        return History(calls, charts, tuple(checks.items()))

    async def _load_minutes(self, minute: int) -> tuple[CallMinute, ...]:
        """The minutes of the hour. Those that have settled are queried again only now and then."""
        first, now = minute - MINUTES + 1, self._gateway.clock.monotonic()
        is_whole = now >= self._whole_due
        since = first if is_whole else max(first, minute - SETTLED_AFTER)
        fresh = await self._gateway.calls.minutes(since * 60.0)
        if is_whole:
            self._whole_due = now + WHOLE_SECONDS
        kept = {at: each for at, each in self._minutes.items() if first <= at < since}
        self._minutes = kept | {each.minute: each for each in fresh}
        return tuple(self._minutes[at] for at in sorted(self._minutes))
