"""Leases: the decisions as tables, and the rows on both databases."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from sqlalchemy import text

from plugbay.store import leases
from plugbay.store.database import Database
from plugbay.store.leases import Fence, Lease, LeaseLost, Verdict, decide
from tests.support.databases import database as database_of_kind
from tests.support.loops import Run
from tests.support.patience import pauses

NAME = "duty/one"


@pytest.mark.parametrize(
    ("holder", "until", "asker", "verdict"),
    [
        (leases.NOBODY, 0.0, "a", Verdict.TAKEN),
        (leases.NOBODY, 200.0, "a", Verdict.TAKEN),
        ("a", 100.5, "a", Verdict.KEPT),
        ("a", 100.0, "a", Verdict.KEPT),
        ("a", 99.9, "a", Verdict.TAKEN),
        ("b", 100.5, "a", Verdict.REFUSED),
        ("b", 100.0, "a", Verdict.REFUSED),
        ("b", 99.9, "a", Verdict.TAKEN),
    ],
)
def test_a_lease_is_taken_when_it_is_free_or_over(holder: str, until: float, asker: str, verdict: Verdict) -> None:
    assert decide(Lease(NAME, holder, 3, until, {}), asker, 100.0) is verdict


def test_a_lease_has_one_holder_and_another_epoch_for_each(database_url: str, run: Run) -> None:
    async def main() -> None:
        database = await Database.open(database_url, migrate=False)
        async with database.transaction() as tx:
            first = await leases.take(tx, NAME, "a", 60.0, {"host": "x"})
            assert first is not None and (first.epoch, first.facts) == (1, {"host": "x"})
        async with database.transaction() as tx:
            assert await leases.take(tx, NAME, "b", 60.0) is None
            again = await leases.take(tx, NAME, "a", 0.0)
            assert again is not None and again.epoch == 1
        async with database.transaction() as tx:
            await asyncio.sleep(0.01)  # the clock of the database goes on
            second = await leases.take(tx, NAME, "b", 60.0)
            assert second is not None and second.epoch == 2
            assert not await leases.renew(tx, first.fence, 60.0)
            with pytest.raises(LeaseLost):
                await leases.check(tx, first.fence)
            await leases.check(tx, second.fence)
            assert await leases.renew(tx, second.fence, 60.0, {"n": 1})
            assert await leases.release(tx, second.fence)
            third = await leases.take(tx, NAME, "a", 60.0)
            assert third is not None and third.epoch == 3
            assert [(lease.name, held) for lease, held in await leases.find(tx, "duty/")] == [(NAME, True)]
            assert not await leases.remove(tx, second.fence)
            assert await leases.remove(tx, third.fence)
            assert await leases.find(tx, "") == []
        await database.close()

    run(main)


def test_a_lease_that_is_over_is_taken_over_once(database_url: str, run: Run) -> None:
    async def main() -> None:
        database = await Database.open(database_url, migrate=False)
        async with database.transaction() as tx:
            seen = await leases.take(tx, NAME, "dead", 60.0)
            assert seen is not None
            assert await leases.take_over(tx, seen, "a", 60.0) is None, "it is held"
            assert await leases.release(tx, seen.fence)
            ((over, held),) = await leases.find(tx, NAME)
            assert not held
            taken = await leases.take_over(tx, over, "a", 60.0)
            assert taken is not None and taken.epoch == 2
            assert await leases.take_over(tx, over, "b", 60.0) is None, "another process was first"
            assert await leases.remove(tx, taken.fence)
            assert await leases.take_over(tx, over, "b", 60.0) is None, "another process has removed it"
            assert await leases.find(tx, NAME) == []
        await database.close()

    run(main)


def test_a_lease_that_is_over_is_renewed_if_no_process_has_taken_it(database_url: str, run: Run) -> None:
    async def main() -> None:
        database = await Database.open(database_url, migrate=False)
        async with database.transaction() as tx:
            taken = await leases.take(tx, NAME, "a", -1.0)
            assert taken is not None
            assert [held for _, held in await leases.find(tx, NAME)] == [False]
            assert await leases.renew(tx, taken.fence, 60.0)
            assert [held for _, held in await leases.find(tx, NAME)] == [True]
        await database.close()

    run(main)


def test_an_effect_of_the_holder_makes_a_take_wait_and_lets_renewals_pass(tmp_path: Path, run: Run) -> None:
    """The proof that a fence is worth something: no take gets between the check and the commit."""

    async def main(url: str) -> None:
        database, other = await Database.open(url, migrate=False), await Database.open(url, migrate=False)
        async with database.transaction() as tx:
            taken = await leases.take(tx, NAME, "a", -1.0)
        assert taken is not None
        order: list[str] = []

        async def take() -> None:
            async with other.transaction() as tx:
                assert await leases.take(tx, NAME, "b", 60.0) is not None
                order.append("taken")

        async with database.transaction() as tx:
            await leases.check(tx, taken.fence)
            async with other.transaction() as renewing:
                await renewing.execute(text("SET LOCAL lock_timeout = '2s'"))
                assert await leases.renew(renewing, taken.fence, -1.0)
            taking = asyncio.create_task(take())
            waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
            for pause in pauses():
                if await tx.scalar(text(waiting)):
                    break
                await asyncio.sleep(pause)
            order.append("effect")
        await taking
        assert order == ["effect", "taken"]
        with pytest.raises(LeaseLost):
            async with database.transaction() as tx:
                await leases.check(tx, taken.fence)
        await database.close()
        await other.close()

    with database_of_kind("postgresql", tmp_path) as url:
        run(lambda: main(url))


def test_a_fenced_transaction_needs_the_lease_of_its_gateway(database_url: str, run: Run) -> None:
    async def main() -> None:
        database = await Database.open(database_url, migrate=False)
        async with database.transaction(fenced=True):
            pass  # a server that owns its database needs none
        async with database.transaction() as tx:
            taken = await leases.take(tx, NAME, "a", 60.0)
        assert taken is not None and database.owner is None
        database.share(taken.fence)
        assert database.owner == "a"
        async with database.transaction(fenced=True):
            pass
        database.share(Fence(NAME, "a", 0))
        with pytest.raises(LeaseLost):
            async with database.transaction(fenced=True):
                raise AssertionError("not reached")
        with pytest.raises(LeaseLost):
            async with database.transaction(), database.transaction(fenced=True):
                raise AssertionError("not reached")
        await database.close()

    run(main)
