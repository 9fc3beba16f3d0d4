"""The third step makes exactly the tables of conversations and deliveries, and takes them away again."""

from __future__ import annotations

from sqlalchemy import inspect

from plugbay.store.database import Database
from plugbay.store.migrations import downgrade
from tests.support.loops import Run

TABLES = {
    "blocks",
    "chains",
    "compactions",
    "harness_executions",
    "run_events",
    "runs",
    "sessions",
    "tool_executions",
    "deliveries",
    "delivery_attempts",
    "events",
}


def test_the_third_step_makes_the_tables_of_conversations_and_takes_them_back(database_url: str, run: Run) -> None:
    async def main() -> None:
        database = await Database.open(database_url, migrate=False)
        async with database.transaction() as tx:
            await tx.run_sync(downgrade, "0005")
            before = set(await tx.run_sync(lambda connection: inspect(connection).get_table_names()))
            assert before >= TABLES and "deliveries" in TABLES
            await tx.run_sync(downgrade, "0002")
            after = set(await tx.run_sync(lambda connection: inspect(connection).get_table_names()))
            assert before - after == TABLES
        await database.close()

    run(main)
