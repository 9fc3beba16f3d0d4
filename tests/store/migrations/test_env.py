"""Migrations lead to exactly the tables of the code, and back to nothing, on both databases."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from sqlalchemy import Connection, inspect, text

from plugbay.store import tables
from plugbay.store.database import Database
from plugbay.store.failures import StoreRefused
from plugbay.store.metadata import METADATA
from plugbay.store.migrations import downgrade, upgrade
from plugbay.store.orgs import Org, insert
from tests.support.loops import Run
from tests.support.requirements import requirement

assert tables.ORGS is not None  # imported so that METADATA is complete


def _differences(connection: Connection) -> list[object]:
    context = MigrationContext.configure(connection, opts={"compare_type": True, "compare_server_default": True})
    return list(compare_metadata(context, METADATA))


def test_after_all_migrations_the_tables_are_those_of_the_code(database_url: str, run: Run) -> None:
    async def main() -> None:
        database = await Database.open(database_url)
        async with database.transaction() as tx:
            assert await tx.run_sync(_differences) == []
            await tx.execute(text("ALTER TABLE orgs ADD COLUMN odd INTEGER"))
            assert await tx.run_sync(_differences) != [], "a difference would be seen"
        await database.close()

    run(main)


def test_all_migrations_can_be_taken_back_and_made_again(database_url: str, run: Run) -> None:
    async def main() -> None:
        database = await Database.open(database_url)
        async with database.transaction() as tx:
            await tx.run_sync(downgrade)
            assert set(await tx.run_sync(lambda connection: inspect(connection).get_table_names())) == {
                "alembic_version"
            }
            await tx.run_sync(upgrade)
            assert await tx.run_sync(_differences) == []
        await database.close()

    run(main)


def test_a_migration_that_fails_leaves_nothing_behind(database_url: str, run: Run) -> None:
    async def main() -> None:
        database = await Database.open(database_url)
        with pytest.raises(LookupError):
            async with database.transaction() as tx:
                await tx.run_sync(downgrade)
                raise LookupError
        async with database.reading() as tx:
            assert await tx.run_sync(_differences) == []
        await database.close()

    run(main)


def test_a_database_that_is_newer_than_the_program_is_refused(database_url: str, run: Run) -> None:
    async def main() -> None:
        database = await Database.open(database_url)
        async with database.transaction() as tx:
            await tx.execute(text("UPDATE alembic_version SET version_num = '9999'"))
            await tx.execute(text("DROP TABLE schema_support"))
        await database.close()
        with pytest.raises(StoreRefused, match="newer than this plugbay"):
            await Database.open(database_url)

    run(main)


def test_the_release_before_works_with_tables_that_were_migrated_for_it(database_url: str, run: Run) -> None:
    """The tables of a later release are these tables with additions, and a row that names the oldest program."""

    async def main() -> None:
        database = await Database.open(database_url)
        async with database.transaction() as tx:
            await tx.execute(text("UPDATE alembic_version SET version_num = '9999'"))
            await tx.execute(text("ALTER TABLE orgs ADD COLUMN later INTEGER"))
        await database.close()
        database = await Database.open(database_url)
        async with database.transaction() as tx:
            await insert(tx, Org("org_1", "Acme", {}, 1.0, 1.0))
            assert await tx.scalar(text("SELECT version_num FROM alembic_version")) == "9999", "it is left alone"
            await tx.execute(text("UPDATE schema_support SET oldest_program = '9998'"))
        await database.close()
        with pytest.raises(StoreRefused, match="newer than this plugbay"):
            await Database.open(database_url)

    run(main)


def test_an_empty_file_becomes_a_database(tmp_path: Path, run: Run) -> None:
    async def main() -> None:
        for _ in range(2):  # the second time there is nothing to do
            database = await Database.open(f"sqlite:///{tmp_path}/new.db")
            async with database.reading() as tx:
                assert await tx.run_sync(_differences) == []
            await database.close()

    run(main)


OPENS = """
import asyncio, sys
from plugbay.store.database import Database

async def main():
    database = await Database.open(sys.argv[1])
    await database.close()
    print("alembic" in sys.modules)

asyncio.run(main())
"""


@requirement("host:start-light")
def test_alembic_is_loaded_only_if_there_is_something_to_migrate(tmp_path: Path) -> None:
    argv = [sys.executable, "-c", OPENS, f"sqlite:///{tmp_path}/new.db"]
    loaded = [subprocess.run(argv, capture_output=True, text=True, check=True).stdout.strip() for _ in range(2)]
    assert loaded == ["True", "False"]
