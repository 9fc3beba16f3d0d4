"""The tenth step adds what several gateways share; it takes it away again and touches no record."""

from __future__ import annotations

from sqlalchemy import Connection, inspect, text

from plugbay.store.database import Database
from plugbay.store.migrations import downgrade, upgrade
from plugbay.store.orgs import Org, get, insert
from tests.support.loops import Run

OWNED = ("plugin_invocations", "runs", "compactions", "harness_executions", "idempotency")


def _facts(connection: Connection) -> tuple[set[str], list[bool]]:
    found = inspect(connection)
    owned = ["owner" in {column["name"] for column in found.get_columns(table)} for table in OWNED]
    return set(found.get_table_names()), owned


def test_the_tenth_step_adds_tables_and_owners(database_url: str, run: Run) -> None:
    async def main() -> None:
        database = await Database.open(database_url, migrate=False)
        org = Org("org_1", "Acme", {}, 1.0, 1.0)
        async with database.transaction() as tx:
            await insert(tx, org)
            await tx.run_sync(downgrade, "0010")
            tables, owned = await tx.run_sync(_facts)
            assert owned == [True] * len(OWNED)
            assert await tx.scalar(text("SELECT edition FROM settled")) == 1
            await tx.run_sync(downgrade, "0009")
            before, owned = await tx.run_sync(_facts)
            assert tables - before == {"leases", "settled", "cluster_settings", "logins", "package_files"}
            assert owned == [False] * len(OWNED)
            await tx.run_sync(upgrade, "0010")
            assert (await tx.run_sync(_facts))[0] == tables
            assert await get(tx, "org_1") == org
        await database.close()

    run(main)
