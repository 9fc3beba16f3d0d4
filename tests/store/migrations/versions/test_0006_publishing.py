"""The sixth step marks available packages as accepted, and forgets deleted packages on the way back."""

from __future__ import annotations

from msgspec.structs import replace
from sqlalchemy import Connection, inspect

from plugbay.store import packages
from plugbay.store.database import Database
from plugbay.store.migrations import downgrade, upgrade
from tests.store.test_packages import ROW
from tests.support.loops import Run


def _tables(connection: Connection) -> set[str]:
    return set(inspect(connection).get_table_names())


def test_the_sixth_step_accepts_what_is_available(database_url: str, run: Run) -> None:
    async def main() -> None:
        database = await Database.open(database_url, migrate=False)
        held = replace(ROW, id="pkg_2", version="2.0.0", status="quarantined", accepted_at=None)
        gone = replace(ROW, id="pkg_3", version="3.0.0", deleted_at=5.0)
        async with database.transaction() as tx:
            for row in (replace(ROW, accepted_at=9.0), held, gone):
                await packages.insert(tx, row)
            await tx.run_sync(downgrade, "0006")
            before = await tx.run_sync(_tables)
            await tx.run_sync(downgrade, "0005")
            assert before - await tx.run_sync(_tables) == {"marketplace_entries"}
            await tx.run_sync(upgrade, "0006")
            assert await tx.run_sync(_tables) == before
            assert await packages.get(tx, "pkg_1") == replace(ROW, accepted_at=ROW.created_at)
            assert await packages.get(tx, "pkg_2") == held
            assert await packages.find(tx, None, "acme/p", "3.0.0", deleted=True) is None
        await database.close()

    run(main)
