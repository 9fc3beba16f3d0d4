"""The fifth step counts interruptions of deliveries that are there already, and takes the count away again."""

from __future__ import annotations

from sqlalchemy import Connection, inspect

from plugbay.store import deliveries, events
from plugbay.store.database import Database
from plugbay.store.migrations import downgrade, upgrade
from tests.store.conversing_rows import delivery, event
from tests.support.loops import Run


def _columns(connection: Connection) -> set[str]:
    return {column["name"] for column in inspect(connection).get_columns("deliveries")}


def test_the_fifth_step_counts_no_interruption_of_what_is_there(database_url: str, run: Run) -> None:
    async def main() -> None:
        database = await Database.open(database_url, migrate=False)
        async with database.transaction() as tx:
            await events.insert(tx, event("evt_1"))
            await deliveries.insert(tx, delivery("del_1", interruptions=3))
            whole = await tx.run_sync(_columns)
            await tx.run_sync(downgrade, "0005")
            before = await tx.run_sync(_columns)
            await tx.run_sync(downgrade, "0004")
            assert before - await tx.run_sync(_columns) == {"interruptions"}
            await tx.run_sync(upgrade)
            assert await tx.run_sync(_columns) == whole
            kept = await deliveries.find(tx, "del_1")
            assert kept is not None and kept.interruptions == 0
        await database.close()

    run(main)
