"""`Membership`: this gateway as one of several on the same PostgreSQL, and its part of the work of gateways that died.

    membership = Membership(database, SharedClock(), seconds=30.0)
    async with membership.joined(stop):          before the gateway is created: it fixes the owner of its work
        membership.reaps(runs.close_left)        called with the id of a gateway whose lease is over

A gateway holds the lease `gateway/ID`. ID is random for each start: a restarted gateway must not own the work of its
dead self. When the lease is over, another gateway takes it, which fences the old holder, closes its work, and removes
the lease last. A gateway whose lease was taken must stop.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from plugbay.model.tenure import RENEWALS, Standing, Tenure
from plugbay.server.domain.clock import SharedClock, boot_time
from plugbay.server.domain.ids import new_id
from plugbay.store import leases
from plugbay.store.database import Database, Tx
from plugbay.store.failures import StoreUnavailable
from plugbay.store.leases import Lease, LeaseLost
from plugbay.store.locks import InUse
from plugbay.store.ownership import has_owner

LOG = logging.getLogger("plugbay.server.domain")

GATEWAY = "gateway/"
"""Names of the leases of gateways begin with this."""

PULSE = 0.5
"""Seconds between looks at changes and cancellations of other gateways."""

Close = Callable[[str | None], Awaitable[object]]
"""Closes or continues the work of a gateway; must do nothing to work that has ended or that another owner has."""


class Membership:
    """One gateway among others."""

    def __init__(self, database: Database, clock: SharedClock, seconds: float = 30.0) -> None:
        self._database = database
        self.clock = self._clock = clock
        self.seconds = seconds
        self.id = new_id("gw_")
        self._name = GATEWAY + self.id
        self._tenure = Tenure(0.0, seconds)
        self._closers: list[Close] = []
        self._pulses: list[Callable[[Tx], Awaitable[object]]] = []
        self._on_edition: list[Callable[[], Awaitable[object]]] = []
        self._edition: int | None = None
        self._calm_since = boot_time()
        """Since when each renewal has succeeded."""
        self.renewals = 0
        """Renewals of the lease that succeeded."""
        self.gateways = 1
        """Gateways with a lease."""
        self.lost: Callable[[str], object] = lambda _: None
        """Called once when another gateway has taken our lease."""

    async def join(self) -> None:
        """Take the lease; raises `InUse` if a server owns the whole database."""
        asked_at = boot_time()
        async with self._database.transaction() as tx:
            if await has_owner(tx):
                hint = "stop it, or start it with [cluster] too"
                raise InUse(f"the database is in use by a plugbay server without [cluster]; {hint}")
            taken = await leases.take(tx, self._name, self.id, self.seconds, self._facts())
            await self._follow_clock(tx)
        assert taken is not None
        self._tenure = Tenure(asked_at, self.seconds)
        self._database.share(taken.fence)

    @asynccontextmanager
    async def joined(self, lost: Callable[[str], object]) -> AsyncIterator[None]:
        """Be a gateway for the duration of the block; `lost` is called if another gateway takes our lease."""
        self.lost = lost
        await self.join()
        keeping = asyncio.get_running_loop().create_task(self.keep())
        try:
            yield
        finally:
            keeping.cancel()
            await asyncio.gather(keeping, return_exceptions=True)
            await self.leave()

    def _facts(self) -> dict[str, Any]:
        return {"host": socket.gethostname(), "pid": os.getpid()}

    def reaps(self, *closers: Close) -> None:
        """Call these for a gateway that died."""
        self._closers += closers

    def pulses(self, *looks: Callable[[Tx], Awaitable[object]]) -> None:
        """Call these twice a second, in a read view: for requests of other gateways."""
        self._pulses += looks

    def on_edition(self, *changes: Callable[[], Awaitable[object]]) -> None:
        """Call these after a gateway has changed settled tables."""
        self._on_edition += changes

    def problem(self) -> str | None:
        """Why this gateway should get no requests now; None if there is no reason."""
        standing = self._tenure.standing(boot_time())
        return None if standing is Standing.HELD else "its lease was not renewed in time"

    # The lease.

    async def keep(self) -> None:
        """Renew the lease until cancelled, or until it is lost."""
        while True:
            await asyncio.sleep(self.seconds / RENEWALS)
            try:
                if not await self._renew():
                    LOG.error("another gateway has taken over the work of this one; it stops", extra={"id": self.id})
                    self.lost(self.id)
                    return
            except StoreUnavailable as error:
                self._calm_since = boot_time()
                LOG.warning("the lease of this gateway cannot be renewed: %s", error)

    async def _follow_clock(self, tx: Tx) -> None:
        asked_at = boot_time()
        self._clock.follow(await leases.database_time(tx), asked_at)

    async def _renew(self) -> bool:
        fence = self._database.fence
        assert fence is not None
        asked_at = boot_time()
        if self._tenure.standing(asked_at) is not Standing.HELD:
            self._calm_since = asked_at  # we stood still, or the database did: others could not renew either
        async with self._database.transaction() as tx:
            if not await leases.renew(tx, fence, self.seconds):
                return False
            await self._follow_clock(tx)
        self._tenure = Tenure(asked_at, self.seconds)
        self.renewals += 1
        return True

    async def leave(self) -> None:
        """Give the lease back: another gateway closes at once what is left."""
        try:
            async with self._database.transaction() as tx:
                if self._database.fence is not None:
                    await leases.release(tx, self._database.fence)
        except StoreUnavailable as error:
            LOG.warning("the lease of this gateway was not released; it expires by itself: %s", error)

    # Other gateways.

    async def watch(self) -> None:
        """Follow the changes of other gateways, and close the work of those that died, until cancelled."""
        looked_at = 0.0
        while True:
            try:
                await self._pulse()
                if boot_time() - looked_at >= min(1.0, self.seconds / RENEWALS):
                    looked_at = boot_time()
                    await self.reap()
            except LeaseLost:
                pass  # `keep` finds it too, and ends this
            except StoreUnavailable as error:
                LOG.warning("changes of other gateways cannot be read: %s", error)
            await asyncio.sleep(PULSE)

    async def _pulse(self) -> None:
        async with self._database.reading() as tx:
            for look in self._pulses:
                await look(tx)
        edition = await self._database.read_edition()
        if edition != self._edition:
            self._edition = edition
            for change in self._on_edition:
                await change()

    async def reap(self) -> None:
        """Count the gateways, and take over those whose lease is over."""
        async with self._database.reading() as tx:
            found = await leases.find(tx, GATEWAY)
        living = [lease for lease, held in found if held and lease.name == GATEWAY + lease.holder]
        self.gateways = max(1, len(living))
        for lease, held in found:
            if not held and (self._is_calm or lease.holder == leases.NOBODY):
                await self._take_over(lease)

    @property
    def _is_calm(self) -> bool:
        """Whether every other gateway could have renewed its lease: the database was there for the length of one."""
        return boot_time() - self._calm_since >= self.seconds

    async def _take_over(self, lease: Lease) -> None:
        owner = lease.name.removeprefix(GATEWAY)
        await self._database.end_stalled()  # it may have the lock of the lease
        async with self._database.transaction(fenced=True) as tx:
            taken = await leases.take_over(tx, lease, self.id, self.seconds)
        if taken is None:
            return
        LOG.warning("the gateway %s is gone; its work is closed here", owner, extra=lease.facts)
        for close in self._closers:
            await close(owner)
        async with self._database.transaction() as tx:
            await leases.remove(tx, taken.fence)

    async def close_exclusive(self) -> None:
        """Close what a server without `[cluster]` left open: none is running now."""
        for close in self._closers:
            await close(None)

    async def list(self) -> list[Lease]:
        """The gateways of now."""
        async with self._database.reading() as tx:
            found = await leases.find(tx, GATEWAY)
        return [lease for lease, held in found if held and lease.name == GATEWAY + lease.holder]
