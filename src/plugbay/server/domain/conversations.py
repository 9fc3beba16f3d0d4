"""`Conversations`: sessions, chains, runs, compactions, harnesses and hooks, made from what they need of the others.

Owns their order: what a killed gateway left is closed before anything new begins, and work is cut off before the
invocations it is done in.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from plugbay.host.services.llm.registry import LlmRegistry
from plugbay.server.domain.audit import Audit
from plugbay.server.domain.chains import Chains
from plugbay.server.domain.clock import Clock
from plugbay.server.domain.compactions import Compactions
from plugbay.server.domain.deliveries import Deliveries
from plugbay.server.domain.dispatcher import LEASE, Dispatcher
from plugbay.server.domain.events import Events
from plugbay.server.domain.harnesses import Harnesses
from plugbay.server.domain.meters import Meters
from plugbay.server.domain.orgs import Orgs
from plugbay.server.domain.run_feed import Feeds
from plugbay.server.domain.run_loop import Gear
from plugbay.server.domain.runs import Runs
from plugbay.server.domain.sessions import Sessions
from plugbay.server.domain.tasks import Tasks
from plugbay.server.domain.tools import Toolbox
from plugbay.server.domain.workers import Budgets, Workers
from plugbay.store.database import Database


class Conversations:
    """All of them, as one area of the gateway."""

    def __init__(
        self,
        database: Database,
        llm: Callable[[], LlmRegistry],
        workers: Workers,
        budgets: Budgets,
        orgs: Orgs,
        audit: Audit,
        tasks: Tasks,
        meters: Meters,
        clock: Clock,
        *,
        lease: float = LEASE,
    ) -> None:
        self._tasks = tasks
        self.dispatcher = Dispatcher(database, workers, clock, meters, lease=lease)
        self.events = Events(database, workers, clock)
        self.events.told = self.dispatcher.wake
        self.deliveries = Deliveries(database, audit, clock)
        self.deliveries.replayed = self.dispatcher.wake
        self.sessions = Sessions(database, orgs, audit, clock)
        self.chains = Chains(database, self.sessions, audit, clock)
        feeds = Feeds()
        gear = Gear(database, llm, self.chains, Toolbox(database, workers, feeds, clock), feeds, clock)
        self.runs = Runs(gear, self.sessions, workers, budgets, self.events, audit)
        self.compactions = Compactions(
            database, self.chains, self.sessions, workers, budgets, self.events, audit, clock
        )
        self.harnesses = Harnesses(database, self.chains, self.sessions, workers, audit, clock)

    async def start(self) -> None:
        """Close or take up what the last gateway left, then deliver."""
        await self.runs.start()
        await self.harnesses.start()
        await self.compactions.start()
        self._tasks.start("deliveries", self.dispatcher.run)

    async def stop(self) -> None:
        """Cut off what is at work, the outermost first, and see it closed; plugins have their grace all at once."""
        await asyncio.gather(self.harnesses.stop(), self.compactions.stop(), self.runs.stop())
        await self.dispatcher.stop()
