"""The eleventh step adds what plugins on nodes keep; it takes it away again and touches no record."""

from __future__ import annotations

from sqlalchemy import inspect

from plugbay.store.database import Database
from plugbay.store.migrations import downgrade, upgrade
from plugbay.store.orgs import Org, get, insert
from tests.support.loops import Run

TABLES = {"plugin_storage", "agent_memories", "agent_memory_terms", "vector_collections", "vector_records"}


def test_the_eleventh_step_adds_the_tables_of_plugins(database_url: str, run: Run) -> None:
    async def main() -> None:
        database = await Database.open(database_url, migrate=False)
        org = Org("org_1", "Acme", {}, 1.0, 1.0)
        async with database.transaction() as tx:
            await insert(tx, org)
            await tx.run_sync(downgrade, "0011")
            tables = set(await tx.run_sync(lambda connection: inspect(connection).get_table_names()))
            await tx.run_sync(downgrade, "0010")
            before = set(await tx.run_sync(lambda connection: inspect(connection).get_table_names()))
            assert tables - before == TABLES
            await tx.run_sync(upgrade, "0011")
            assert set(await tx.run_sync(lambda connection: inspect(connection).get_table_names())) == tables
            assert await get(tx, "org_1") == org
        await database.close()

    run(main)
