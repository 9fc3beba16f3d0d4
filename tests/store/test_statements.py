"""Statements that the two databases write differently."""

from __future__ import annotations

from sqlalchemy import select

from plugbay.store.database import Database
from plugbay.store.statements import insert_missing, insert_new, upsert
from plugbay.store.tables.tenancy import ORGS
from tests.support.loops import Run

VALUES = {"id": "org_1", "name": "Acme", "policy": {}, "created_at": 1.0, "updated_at": 1.0}


def test_a_row_that_is_there_already_is_left_alone_and_the_transaction_goes_on(database_url: str, run: Run) -> None:
    async def main() -> None:
        database = await Database.open(database_url, migrate=False)
        async with database.transaction() as tx:
            assert await insert_new(tx, ORGS, VALUES)
            assert not await insert_new(tx, ORGS, {**VALUES, "name": "Other"})
            assert (await tx.execute(select(ORGS.c.name))).scalars().all() == ["Acme"]
        await database.close()

    run(main)


def test_of_many_rows_those_that_are_missing_are_inserted(database_url: str, run: Run) -> None:
    async def main() -> None:
        database = await Database.open(database_url, migrate=False)
        async with database.transaction() as tx:
            await insert_missing(tx, ORGS, [VALUES])
            await insert_missing(tx, ORGS, [{**VALUES, "name": "Other"}, {**VALUES, "id": "org_2", "name": "New"}])
            assert (await tx.execute(select(ORGS.c.name).order_by(ORGS.c.id))).scalars().all() == ["Acme", "New"]
        await database.close()

    run(main)


def test_an_upsert_puts_new_values_in_the_place_of_old_ones(database_url: str, run: Run) -> None:
    async def main() -> None:
        database = await Database.open(database_url, migrate=False)
        async with database.transaction() as tx:
            await upsert(tx, ORGS, VALUES)
            await upsert(tx, ORGS, {**VALUES, "name": "Other"})
            assert (await tx.execute(select(ORGS.c.name))).scalars().all() == ["Other"]
        await database.close()

    run(main)
