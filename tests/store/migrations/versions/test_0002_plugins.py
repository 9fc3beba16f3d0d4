"""The second step makes exactly the tables of plugins, and takes them away again."""

from __future__ import annotations

from sqlalchemy import inspect

from plugbay.store.database import Database
from plugbay.store.migrations import downgrade
from tests.support.loops import Run

TABLES = {
    "plugin_bindings",
    "plugin_invocations",
    "plugin_journeys",
    "plugin_packages",
    "plugin_spending",
    "plugin_tokens",
    "secrets",
}


def test_the_second_step_makes_the_tables_of_plugins_and_takes_them_back(database_url: str, run: Run) -> None:
    async def main() -> None:
        database = await Database.open(database_url, migrate=False)
        async with database.transaction() as tx:
            await tx.run_sync(downgrade, "0002")
            before = set(await tx.run_sync(lambda connection: inspect(connection).get_table_names()))
            await tx.run_sync(downgrade, "0001")
            after = set(await tx.run_sync(lambda connection: inspect(connection).get_table_names()))
            assert before - after == TABLES - {"orgs"} and "secrets" in TABLES
        await database.close()

    run(main)
