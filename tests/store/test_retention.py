"""Old records are deleted with their children; recent, unfinished or referenced ones are not."""

from __future__ import annotations

import random

import pytest
from sqlalchemy import Select, select, text

from plugbay.store import deliveries, events, retention
from plugbay.store.database import Database, Tx
from plugbay.store.retention import KINDS, Cutoffs, Key
from plugbay.store.tables import DELIVERIES, EVENTS, INVOCATIONS, RUNS
from tests.store.aged_rows import CUTOFFS, everything, expected_gone, insert_all, insert_delivery, insert_invocation
from tests.store.conversing_rows import event
from tests.support.databases import postgresql
from tests.support.loops import Run
from tests.support.tiers import first_alone

NEVER: Cutoffs = dict.fromkeys(KINDS)


async def removed(tx: Tx, cutoffs: Cutoffs, limit: int = 7) -> dict[str, int]:
    """Delete all deletable records in small batches; returns how many of each kind."""
    numbers = dict.fromkeys(KINDS, 0)
    for kind in KINDS:
        after: Key | None = None
        while found := await retention.find(tx, kind, cutoffs, limit, after):
            assert len(found) <= limit
            numbers[kind] += await retention.remove(tx, kind, cutoffs, found)
            after = found[-1]
    return numbers


@pytest.mark.parametrize("seed", first_alone(range(3)))
def test_of_records_of_all_ages_and_states_exactly_those_go_that_may(database_url: str, run: Run, seed: int) -> None:
    async def main() -> None:
        database = await Database.open(database_url, migrate=False)
        async with database.transaction() as tx:
            await insert_all(tx, random.Random(seed))
            before = await everything(tx)
            planned = {kind: await retention.count(tx, kind, CUTOFFS) for kind in KINDS}
            numbers = await removed(tx, CUTOFFS)
            assert numbers == expected_gone(before, CUTOFFS) and all(numbers.values())
            assert planned == numbers
            assert sum((await removed(tx, CUTOFFS)).values()) == 0
            after = await everything(tx)
            assert {row.delivery_id for row in after["delivery_attempts"]} == {row.id for row in after["deliveries"]}
            for table in ("runs", "compactions", "harness_executions"):
                assert after[table] == before[table]
            left = {row.id for row in after["plugin_invocations"]}
            for table in ("runs", "compactions", "delivery_attempts", "plugin_tokens"):
                assert {row.invocation_id for row in after[table]} - {None} <= left, "names what is not there"
            if database.dialect == "sqlite":
                assert (await tx.execute(text("PRAGMA foreign_key_check"))).all() == []
        await database.close()

    run(main)


def test_nothing_goes_that_is_kept_for_ever(database_url: str, run: Run) -> None:
    async def main() -> None:
        database = await Database.open(database_url, migrate=False)
        async with database.transaction() as tx:
            await insert_all(tx, random.Random(1))
            before = await everything(tx)
            assert await removed(tx, NEVER) == dict.fromkeys(KINDS, 0) and await everything(tx) == before
            assert {kind: await retention.count(tx, kind, NEVER) for kind in KINDS} == dict.fromkeys(KINDS, 0)
        await database.close()

    run(main)


def test_what_is_at_work_stays_however_old_it_is(database_url: str, run: Run) -> None:
    all_too_old: Cutoffs = dict.fromkeys(KINDS, 1e9)

    async def main() -> None:
        database = await Database.open(database_url, migrate=False)
        async with database.transaction() as tx:
            await insert_invocation(tx, 1, 1.0, None)
            await insert_invocation(tx, 2, 1.0, 2.0)
            await insert_invocation(tx, 3, 1.0, 2.0)
            for id in ("evt_1", "evt_2"):
                await events.insert(tx, event(id))
            await insert_delivery(tx, 1, "evt_1", "delivering", None, "inv_3")
            await insert_delivery(tx, 2, "evt_2", "delivered", 2.0)
            numbers = await removed(tx, all_too_old)
            assert (numbers["invocations"], numbers["deliveries"], numbers["events"]) == (1, 1, 1)
            assert set((await tx.execute(select(INVOCATIONS.c.id))).scalars()) == {"inv_1", "inv_3"}
            assert list((await tx.execute(select(EVENTS.c.id))).scalars()) == ["evt_1"]
        await database.close()

    run(main)


def test_what_was_taken_up_again_since_it_was_found_stays_with_all_its_parts(database_url: str, run: Run) -> None:
    cutoffs = {**NEVER, "dead_letters": 9.0}

    async def main() -> None:
        database = await Database.open(database_url, migrate=False)
        async with database.transaction() as tx:
            await events.insert(tx, event("evt_1"))
            for number in (1, 2):
                await insert_delivery(tx, number, "evt_1", "dead_letter", 2.0)
        async with database.reading() as tx:
            found = await retention.find(tx, "dead_letters", cutoffs, 9)
            assert [key[1] for key in found] == ["del_1", "del_2"]
        async with database.transaction() as tx:
            assert await deliveries.replay(tx, "del_1", 10.0, 8)
        async with database.transaction() as tx:
            assert await retention.remove(tx, "dead_letters", cutoffs, found) == 1
            assert await retention.remove(tx, "dead_letters", cutoffs, found) == 0
            assert await deliveries.find(tx, "del_2") is None and await deliveries.attempts(tx, "del_2") == []
            assert len(await deliveries.attempts(tx, "del_1")) == 1
        await database.close()

    run(main)


def test_locked_rows_are_skipped_without_waiting(run: Run) -> None:
    cutoffs = {**NEVER, "dead_letters": 9.0}
    server = postgresql()
    name = server.create()

    async def main() -> None:
        database, other = [await Database.open(server.url(name), migrate=False) for _ in range(2)]
        async with database.transaction() as tx:
            await events.insert(tx, event("evt_1"))
            for number in (1, 2):
                await insert_delivery(tx, number, "evt_1", "dead_letter", 2.0)
            found = await retention.find(tx, "dead_letters", cutoffs, 9)
        async with other.transaction() as changing:
            assert await deliveries.replay(changing, "del_1", 10.0, 8)
            async with database.transaction() as tx:
                assert await retention.remove(tx, "dead_letters", cutoffs, found) == 1
        async with database.transaction() as tx:
            assert await retention.remove(tx, "dead_letters", cutoffs, found) == 0
            assert len(await deliveries.attempts(tx, "del_1")) == 1
        await other.close()
        await database.close()

    run(main)
    server.drop(name)


async def _plan(tx: Tx, query: Select[tuple[object, ...]]) -> str:
    """The query plan; on PostgreSQL as if the tables were large."""
    written = str(query.compile(dialect=tx.dialect, compile_kwargs={"literal_binds": True}))
    if tx.dialect.name == "sqlite":
        return "\n".join(row[3] for row in (await tx.execute(text(f"EXPLAIN QUERY PLAN {written}"))).all())
    await tx.execute(text("SET LOCAL enable_seqscan = off"))
    return "\n".join(row[0] for row in (await tx.execute(text(f"EXPLAIN {written}"))).all())


def test_old_records_and_what_names_them_are_found_by_an_index(database_url: str, run: Run) -> None:
    async def main() -> None:
        database = await Database.open(database_url, migrate=False)
        whole = "SCAN" if database.dialect == "sqlite" else "Seq Scan"
        async with database.transaction() as tx:
            for kind in KINDS:
                assert whole not in await _plan(tx, retention.old(kind, CUTOFFS, 9)), kind
            for kind in ("calls", "events", "deliveries", "invocations", "audit"):
                assert whole not in await _plan(tx, retention.old(kind, CUTOFFS, 9, (1.0, "x"))), kind
            unindexed = select(DELIVERIES.c.id).where(DELIVERIES.c.error_code == "x")
            assert whole in await _plan(tx, unindexed), "a whole table would be seen"
        await database.close()

    run(main)


def test_what_nothing_names_can_go_while_what_a_run_names_stays(database_url: str, run: Run) -> None:
    cutoffs = {**NEVER, "invocations": 9.0}

    async def main() -> None:
        database = await Database.open(database_url, migrate=False)
        async with database.transaction() as tx:
            await insert_all(tx, random.Random(2))
            named = {id for id in (await tx.execute(select(RUNS.c.invocation_id))).scalars() if id is not None}
            await removed(tx, {**cutoffs, "invocations": 1e9, "deliveries": 1e9})
            left = set((await tx.execute(select(INVOCATIONS.c.id))).scalars())
            assert named and named <= left
        await database.close()

    run(main)
