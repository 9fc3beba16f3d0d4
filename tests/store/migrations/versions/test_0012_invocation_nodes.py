"""The twelfth step adds the node of an invocation; it takes it away again and touches no record."""

from __future__ import annotations

from sqlalchemy import Connection, inspect

from plugbay.store.database import Database
from plugbay.store.migrations import downgrade, upgrade
from plugbay.store.orgs import Org, get, insert
from tests.support.loops import Run


def _has_node(connection: Connection) -> bool:
    return "node" in {column["name"] for column in inspect(connection).get_columns("plugin_invocations")}


def test_the_twelfth_step_adds_the_node_of_an_invocation(database_url: str, run: Run) -> None:
    async def main() -> None:
        database = await Database.open(database_url, migrate=False)
        org = Org("org_1", "Acme", {}, 1.0, 1.0)
        async with database.transaction() as tx:
            await insert(tx, org)
            assert await tx.run_sync(_has_node)
            await tx.run_sync(downgrade, "0010")
            assert not await tx.run_sync(_has_node)
            await tx.run_sync(upgrade, "0012")
            assert await tx.run_sync(_has_node)
            assert await get(tx, "org_1") == org
        await database.close()

    run(main)
