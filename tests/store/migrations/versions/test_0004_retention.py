"""The fourth step makes indexes for what is too old, of databases with records in them, and takes them away again."""

from __future__ import annotations

from sqlalchemy import Connection, inspect

from plugbay.store.database import Database
from plugbay.store.migrations import downgrade, upgrade
from tests.store.aged_rows import insert_invocation
from tests.support.loops import Run

MADE = {
    "ix_deliveries_completed_at_id",
    "ix_events_occurred_at_id",
    "ix_plugin_spending_updated_at",
    "ix_compactions_invocation_id",
    "ix_delivery_attempts_invocation_id",
    "ix_runs_invocation_id",
}


def _indexes(connection: Connection) -> set[str]:
    found = inspect(connection)
    return {str(index["name"]) for table in found.get_table_names() for index in found.get_indexes(table)}


def test_the_fourth_step_makes_indexes_for_retention_and_takes_them_back(database_url: str, run: Run) -> None:
    async def main() -> None:
        database = await Database.open(database_url, migrate=False)
        async with database.transaction() as tx:
            await insert_invocation(tx, 1, 1.0, 2.0)
            await tx.run_sync(downgrade, "0004")
            before = await tx.run_sync(_indexes)
            await tx.run_sync(downgrade, "0003")
            assert before - await tx.run_sync(_indexes) == MADE
            await tx.run_sync(upgrade, "0004")
            assert await tx.run_sync(_indexes) == before
        await database.close()

    run(main)
