"""The rules that the tables of deliveries hold at all times."""

from __future__ import annotations

import pytest
from sqlalchemy.exc import IntegrityError

from plugbay.store import deliveries, events
from plugbay.store.database import Database
from tests.store.conversing_rows import delivery, event
from tests.support.loops import Run


def test_a_delivery_is_of_an_event_and_has_one_of_six_states(database_url: str, run: Run) -> None:
    async def main() -> None:
        database = await Database.open(database_url, migrate=False)
        async with database.transaction() as tx:
            await events.insert(tx, event("evt_1"))
            assert await deliveries.insert(tx, delivery("del_1"))
        for broken in (delivery("del_2", event_id="evt_9"), delivery("del_3", status="lost")):
            with pytest.raises(IntegrityError):
                async with database.transaction() as tx:
                    await deliveries.insert(tx, broken)
        await database.close()

    run(main)
