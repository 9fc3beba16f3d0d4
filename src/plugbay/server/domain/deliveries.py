"""`Deliveries`: what is to be told to whom, for those who look at it and those who want it told again.

Owns who sees a delivery and when it may be replayed. How it is told is the dispatcher's.
"""

from __future__ import annotations

from collections.abc import Callable

from plugbay.server.domain import backoff
from plugbay.server.domain.audit import Audit
from plugbay.server.domain.clock import Clock
from plugbay.server.domain.errors import conflict, not_found
from plugbay.server.domain.principal import Principal
from plugbay.server.domain.sessions import tenant
from plugbay.store import deliveries as rows
from plugbay.store import events as event_rows
from plugbay.store.database import Database, Tx
from plugbay.store.deliveries import Attempt, Delivery
from plugbay.store.events import Event
from plugbay.store.pages import Page, Part

DISABLED = "binding_disabled"


class Deliveries:
    """All deliveries."""

    def __init__(self, database: Database, audit: Audit, clock: Clock) -> None:
        self._database = database
        self._audit = audit
        self._clock = clock
        self.replayed: Callable[[], object] = lambda: None
        """Called when something is due again."""

    async def get(self, caller: Principal, id: str) -> tuple[Delivery, Event, list[Attempt]]:
        """A delivery, what it tells of, and every attempt at it."""
        async with self._database.reading() as tx:
            delivery = await self._existing(tx, caller, id)
            event = await event_rows.find(tx, delivery.event_id)
            assert event is not None
            return delivery, event, await rows.attempts(tx, id)

    async def page(self, caller: Principal, part: Page, **said: str | None) -> Part[Delivery]:
        async with self._database.reading() as tx:
            return await rows.page(tx, part, tenant(caller), **said)

    async def replay(self, caller: Principal, id: str) -> Delivery:
        """Have it tried again, as often as at first; not what was delivered, and not what is still being tried."""
        async with self._database.transaction() as tx:
            found = await self._existing(tx, caller, id)
            if not await rows.replay(tx, id, self._clock.now(), backoff.ATTEMPTS):
                if found.status == rows.DELIVERED:
                    raise conflict("delivery.delivered", f"{id} was delivered, and is never delivered again")
                raise conflict("delivery.not_ended", f"{id} is still being tried", retryable=True)
            await self._audit.record(
                tx, caller, "delivery.replay", "delivery", id, org_id=found.org_id, project_id=found.project_id
            )
            self._database.after_commit(self.replayed)
            return await self._existing(tx, caller, id)

    async def _existing(self, tx: Tx, caller: Principal, id: str) -> Delivery:
        delivery = await rows.find(tx, id)
        if delivery is None or not caller.sees(delivery.org_id, delivery.project_id):
            raise not_found("delivery", id)
        return delivery
