"""Events."""

from __future__ import annotations

from plugbay.store import events
from plugbay.store.database import Database
from plugbay.store.pages import Page
from plugbay.store.rows import ALL_TENANTS
from tests.store.conversing_rows import event
from tests.support.loops import Run


def test_a_cause_has_one_event_of_a_type(database_url: str, run: Run) -> None:
    async def main() -> None:
        database = await Database.open(database_url, migrate=False)
        async with database.transaction() as tx:
            assert await events.insert(tx, event("evt_1", cause_id="run_1"))
            assert not await events.insert(tx, event("evt_2", cause_id="run_1"))
            assert await events.insert(tx, event("evt_3", cause_id="run_1", type="run.failed", occurred_at=2.0))
            assert await events.find(tx, "evt_1") == event("evt_1", cause_id="run_1")
            assert await events.find(tx, "evt_2") is None
            assert [item.id for item in (await events.page(tx, Page(), ALL_TENANTS)).items] == ["evt_3", "evt_1"]
            part = await events.page(tx, Page(), ALL_TENANTS, type="run.failed")
            assert [item.id for item in part.items] == ["evt_3"]
        await database.close()

    run(main)
