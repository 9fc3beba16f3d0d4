"""One gateway of several: its lease, the work of others, and what it does when it was silent for too long."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from sqlalchemy import text

from plugbay.server.domain.clock import SharedClock
from plugbay.server.domain.membership import GATEWAY, Membership
from plugbay.store import leases
from plugbay.store.database import Database, Tx
from plugbay.store.leases import LeaseLost
from plugbay.store.locks import InUse
from plugbay.store.ownership import owned
from tests.support.databases import database as database_of_kind
from tests.support.loops import run_on
from tests.support.patience import pauses, until

SECONDS = 60.0

run = run_on("uvloop")


@asynccontextmanager
async def gateway(url: str, seconds: float = SECONDS) -> AsyncIterator[Membership]:
    """A gateway that has joined; the test renews its lease."""
    database = await Database.open(url, migrate=False)
    member = Membership(database, SharedClock(), seconds)
    try:
        await member.join()
        yield member
    finally:
        await database.close()


async def let_end(member: Membership, id: str) -> None:
    """As if so long had passed since the last renewal."""
    async with member._database.transaction() as tx:
        values = {"name": GATEWAY + id}
        await tx.execute(text("UPDATE leases SET until = 1 WHERE name = :name"), values)


def calm(member: Membership) -> None:
    """As if the database had been there for the length of a lease."""
    member._calm_since -= 2 * member.seconds


def test_the_work_of_a_dead_gateway_is_closed_by_one_other_and_its_lease_removed_last(tmp_path: Path) -> None:
    async def main(url: str) -> None:
        async with gateway(url) as one, gateway(url) as other, gateway(url) as dead:
            closed: list[tuple[str, str | None]] = []

            def closer(name: str, member: Membership) -> None:
                async def close(owner: str | None) -> None:
                    async with member._database.reading() as tx:
                        assert await leases.find(tx, GATEWAY + str(owner)), "the lease goes last"
                    closed.append((name, owner))

                member.reaps(close)

            for name, member in (("one", one), ("other", other)):
                closer(name, member)
                await member.reap()
                assert member.gateways == 3
            await let_end(one, dead.id)
            await one.reap()
            assert closed == [], "it may be that the database was away"
            assert one.gateways == 2
            for member in (one, other):
                calm(member)
            await asyncio.gather(one.reap(), other.reap())
            assert [owner for _, owner in closed] == [dead.id]
            assert {lease.holder for lease in await one.list()} == {one.id, other.id}
            assert not await dead._renew(), "it must stop"
            with pytest.raises(LeaseLost):
                async with dead._database.transaction(fenced=True):
                    raise AssertionError("not reached")

    with database_of_kind("postgresql", tmp_path) as url:
        run(lambda: main(url))


def test_a_gateway_that_left_is_closed_at_once(tmp_path: Path) -> None:
    async def main(url: str) -> None:
        closed: list[str | None] = []

        async def close(owner: str | None) -> None:
            closed.append(owner)

        async with gateway(url) as one, gateway(url) as other:
            one.reaps(close)
            await other.leave()
            await one.reap()
            assert closed == [other.id] and one.gateways == 1

    with database_of_kind("postgresql", tmp_path) as url:
        run(lambda: main(url))


def test_a_reaper_that_dies_is_followed_by_another(tmp_path: Path) -> None:
    async def main(url: str) -> None:
        async with gateway(url) as one, gateway(url) as other, gateway(url) as dead:
            closed: list[str | None] = []

            async def fail(owner: str | None) -> None:
                raise LookupError

            async def close(owner: str | None) -> None:
                closed.append(owner)

            one.reaps(fail)
            other.reaps(close)
            await let_end(one, dead.id)
            for member in (one, other):
                calm(member)
            with pytest.raises(LookupError):
                await one.reap()
            await other.reap()
            assert closed == [], "the first may still be at it"
            await let_end(other, dead.id)
            await other.reap()
            assert closed == [dead.id]

    with database_of_kind("postgresql", tmp_path) as url:
        run(lambda: main(url))


def test_a_gateway_renews_its_lease_until_it_is_taken(tmp_path: Path) -> None:
    async def main(url: str) -> None:
        lost: list[str] = []
        database = await Database.open(url, migrate=False)
        member = Membership(database, SharedClock(), 0.6)
        async with member.joined(lost.append), gateway(url) as other:
            assert member.problem() is None
            first = (await member.list())[0].until
            for pause in pauses():
                if max(lease.until for lease in await other.list() if lease.holder == member.id) > first:
                    break
                await asyncio.sleep(pause)
            async with other._database.transaction() as tx:
                await tx.execute(text("UPDATE leases SET epoch = 9, holder = 'x'"))
            await until(lambda: lost == [member.id])
        await database.close()

    with database_of_kind("postgresql", tmp_path) as url:
        run(lambda: main(url))


def test_a_gateway_that_was_silent_takes_no_requests_and_reaps_nobody(tmp_path: Path) -> None:
    async def main(url: str) -> None:
        async with gateway(url) as one:
            calm(one)
            assert one._is_calm
            one._tenure = one._tenure._replace(asked_at=one._tenure.asked_at - SECONDS)
            assert one.problem() is not None
            assert await one._renew()
            assert one.problem() is None and not one._is_calm

    with database_of_kind("postgresql", tmp_path) as url:
        run(lambda: main(url))


def test_requests_and_changes_of_other_gateways_are_followed(tmp_path: Path) -> None:
    async def main(url: str) -> None:
        seen: list[str] = []

        async def look(tx: Tx) -> None:
            seen.append("look")

        async def change() -> None:
            seen.append("change")

        async with gateway(url) as one, gateway(url) as other:
            one.pulses(look)
            one.on_edition(change)
            await one._pulse()
            assert seen == ["look", "change"]
            await one._pulse()
            assert seen == ["look", "change", "look"]
            async with other._database.transaction() as tx:
                await tx.execute(text("UPDATE settled SET edition = edition + 1"))
            watching = asyncio.create_task(one.watch())
            await until(lambda: seen.count("change") == 2)
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)

    with database_of_kind("postgresql", tmp_path) as url:
        run(lambda: main(url))


def test_a_server_that_owns_the_database_and_gateways_that_share_it_exclude_each_other(tmp_path: Path) -> None:
    async def main(url: str) -> None:
        database = await Database.open(url, migrate=False)
        async with owned(database, lambda _: None):
            with pytest.raises(InUse, match="without"):
                async with gateway(url):
                    raise AssertionError("not reached")
        async with gateway(url):
            with pytest.raises(InUse, match="1 gateways"):
                async with owned(database, lambda _: None):
                    raise AssertionError("not reached")
        await database.close()

    with database_of_kind("postgresql", tmp_path) as url:
        run(lambda: main(url))
