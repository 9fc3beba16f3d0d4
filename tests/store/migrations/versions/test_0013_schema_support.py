"""The thirteenth step adds the table of the oldest program; it takes it away again and touches no record."""

from __future__ import annotations

from sqlalchemy import Connection, inspect, text

from plugbay.store.database import Database
from plugbay.store.migrations import OLDEST_PROGRAM, downgrade, upgrade
from plugbay.store.orgs import Org, get, insert
from tests.support.loops import Run


def _has_table(connection: Connection) -> bool:
    return inspect(connection).has_table("schema_support")


def test_the_thirteenth_step_adds_the_oldest_program(database_url: str, run: Run) -> None:
    async def main() -> None:
        database = await Database.open(database_url, migrate=False)
        org = Org("org_1", "Acme", {}, 1.0, 1.0)
        async with database.transaction() as tx:
            await insert(tx, org)
            await tx.run_sync(downgrade, "0012")
            assert not await tx.run_sync(_has_table)
            await tx.run_sync(upgrade)
            assert await tx.scalar(text("SELECT oldest_program FROM schema_support")) == OLDEST_PROGRAM
            assert await get(tx, "org_1") == org
        await database.close()

    run(main)
