"""Prepared statements equal ordinary ones on both databases, without a thread round trip on SQLite; ON CONFLICT
inserts.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import bindparam, delete, insert, select, text, update
from sqlalchemy.exc import IntegrityError

from plugbay.store.database import Database
from plugbay.store.sqlite import Connection, driver_of
from plugbay.store.statements import Prepared, insert_missing, insert_new, new_row, upsert
from plugbay.store.tables import BINDINGS, CALLS, IDEMPOTENCY, ORGS
from tests.support.loops import Run

ROW: dict[str, Any] = {
    "key": b"\x00\xff" * 16,
    "digest": b"d" * 32,
    "state": "running",
    "status": None,
    "headers": {"content-type": "text/plain", "é": ["\N{SNOWMAN}", None, 1.5]},
    "body": None,
    "created_at": 1_770_000_000.123456,
    "expires_at": 1_770_000_001.0,
    "owner": None,
}

OF = IDEMPOTENCY.c.key == bindparam("of")
INSERT = Prepared(insert(IDEMPOTENCY))
INSERT_NEW = new_row(IDEMPOTENCY)
GET = Prepared(select(IDEMPOTENCY).where(OF))
CHANGE = Prepared(update(IDEMPOTENCY).where(OF, IDEMPOTENCY.c.status.is_(None)), sets=("status", "headers", "body"))
REMOVE = Prepared(delete(IDEMPOTENCY).where(OF))


def test_values_go_there_and_come_back_as_they_were(database_url: str, run: Run) -> None:
    async def main() -> None:
        database = await Database.open(database_url, migrate=False)
        async with database.transaction() as tx:
            assert (await INSERT.run(tx, ROW)).changed == 1
            found = await GET.run(tx, {"of": ROW["key"]})
            assert found.rows == [ROW] and found.first == ROW
            (plain,) = (await tx.execute(select(IDEMPOTENCY))).mappings()
            assert dict(plain) == ROW, "any other statement finds the same"
            assert (await GET.run(tx, {"of": b"x"})).first is None
        await database.close()

    run(main)


def test_what_was_changed_is_counted(database_url: str, run: Run) -> None:
    async def main() -> None:
        database = await Database.open(database_url, migrate=False)
        async with database.transaction() as tx:
            await INSERT.run(tx, ROW)
            change = {"of": ROW["key"], "status": 200, "headers": None, "body": b"\x01"}
            assert [(await CHANGE.run(tx, change)).changed for _ in range(2)] == [1, 0]
            assert (await GET.run(tx, {"of": ROW["key"]})).rows == [
                {**ROW, "status": 200, "headers": None, "body": b"\x01"}
            ]
            assert [(await REMOVE.run(tx, {"of": ROW["key"]})).changed for _ in range(2)] == [1, 0]
        await database.close()

    run(main)


def test_a_row_that_is_there_already_comes_not_back_and_the_transaction_goes_on(database_url: str, run: Run) -> None:
    async def main() -> None:
        database = await Database.open(database_url, migrate=False)
        async with database.transaction() as tx:
            assert (await INSERT_NEW.run(tx, ROW)).rows == [{"key": ROW["key"]}]
            assert (await INSERT_NEW.run(tx, {**ROW, "state": "done"})).rows == []
            assert (await GET.run(tx, {"of": ROW["key"]})).rows == [ROW]
        await database.close()

    run(main)


def test_a_rule_that_is_broken_is_the_error_that_all_statements_have(database_url: str, run: Run) -> None:
    async def main() -> None:
        database = await Database.open(database_url, migrate=False)
        with pytest.raises(IntegrityError) as raised:
            async with database.transaction() as tx:
                await INSERT.run(tx, {**ROW, "digest": None, "state": "a secret"})
        if database.dialect == "sqlite":
            assert "a secret" not in str(raised.value)
        await database.close()

    run(main)


def test_a_change_of_a_settled_table_cannot_be_prepared_and_a_look_at_it_can() -> None:
    for statement in (update(ORGS), insert(BINDINGS), delete(ORGS)):
        with pytest.raises(ValueError, match="has to be noticed"):
            Prepared(statement)
    Prepared(select(ORGS))
    Prepared(insert(CALLS))


def test_on_sqlite_it_takes_no_way_to_the_thread(sqlite_url: str, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    ways: list[str] = []
    execute = Connection._execute

    async def counted(self: Connection, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        ways.append("there")
        return await execute(self, function, *args, **kwargs)  # type: ignore[no-untyped-call]

    monkeypatch.setattr(Connection, "_execute", counted)

    async def main() -> None:
        database = await Database.open(sqlite_url, migrate=False)
        async with database.transaction() as tx:
            ways.clear()
            await INSERT.run(tx, ROW)
            await GET.run(tx, {"of": ROW["key"]})
            assert ways == []
            await tx.execute(select(IDEMPOTENCY))
            assert ways == ["there"], "and any other statement does"
        await database.close()

    run(main)


@pytest.mark.parametrize("first", ["prepared", "any other"])
def test_a_view_that_it_begins_shows_one_moment_and_is_over_afterwards(sqlite_url: str, first: str, run: Run) -> None:
    async def main() -> None:
        database = await Database.open(sqlite_url, migrate=False)
        number = text("SELECT count(*) FROM idempotency")

        async def look(tx: Any) -> int:
            return len((await GET.run(tx, {"of": ROW["key"]})).rows)

        async def write() -> None:
            async with database.transaction() as tx:
                await INSERT.run(tx, ROW)

        async with database.reading() as view:
            assert (await look(view) if first == "prepared" else await view.scalar(number)) == 0
            driver = driver_of(view)
            assert driver.in_transaction
            await asyncio.create_task(write())
            assert (await look(view), await view.scalar(number)) == (0, 0)
        assert not driver.in_transaction
        async with database.reading() as view:
            assert (await look(view), await view.scalar(number)) == (1, 1)
        await database.close()

    run(main)


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
