"""`HistoryLoader`: the last hour for the charts of the overview; all open pages share one query."""

from __future__ import annotations

import asyncio
import math
from dataclasses import dataclass

from plugbay.server.dashboard.charts import Chart
from plugbay.server.dashboard.overview_views import MINUTES, charts_of
from plugbay.server.domain.gateway import Gateway
from plugbay.store.calls import CallMinute

REFRESH_SECONDS = 2.0
"""Seconds for which a result is used; longer if the queries take long."""

SHARE = 20
"""A result is used at least so many times as long as it took to make it."""


@dataclass(frozen=True, slots=True)
class History:
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
        calls = await self._gateway.calls.minutes((minute - MINUTES + 1) * 60.0)
        checks = await self._gateway.checks()
        charts = charts_of(minute, calls, self._gateway.resources.samples)
        return History(tuple(calls), charts, tuple(checks.items()))
