"""The first step makes exactly the tables of tenancy, and takes them away again."""

from __future__ import annotations

from pathlib import Path

from sqlalchemy import inspect

from plugbay.store.database import Database
from plugbay.store.migrations import downgrade, upgrade
from tests.support.loops import Run

TABLES = {"api_keys", "audit", "calls", "idempotency", "orgs", "projects"}


def test_the_first_step_makes_the_tables_of_tenancy_and_takes_them_back(tmp_path: Path, run: Run) -> None:
    async def main() -> None:
        database = await Database.open(f"sqlite:///{tmp_path}/new.db", migrate=False)
        async with database.transaction() as tx:
            await tx.run_sync(upgrade, "0001")
            made = set(await tx.run_sync(lambda connection: inspect(connection).get_table_names()))
            assert made == {*TABLES, "alembic_version"} and "orgs" in made
            await tx.run_sync(downgrade)
            left = await tx.run_sync(lambda connection: inspect(connection).get_table_names())
            assert left == ["alembic_version"]
        await database.close()

    run(main)
