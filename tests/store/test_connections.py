"""Transactions with their own connection report their outcome, also when it is unknown."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError, SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine

from plugbay.store.connections import EVERY_ORG, ORG, SingleCommit, connect, discard, open_connection
from plugbay.store.database import Database
from plugbay.store.failures import StoreUnavailable
from plugbay.store.orgs import Org, get, insert
from tests.support.databases import postgresql
from tests.support.loops import Run
from tests.support.requirements import requirement

ACME = Org("org_1", "Acme", {}, 1.0, 1.0)


@pytest.fixture
def url() -> Iterator[str]:
    name = postgresql().create()
    yield postgresql().url(name)
    postgresql().drop(name)


def engine_of(url: str) -> AsyncEngine:
    return create_async_engine(url, connect_args={"server_settings": {"plugbay.org": EVERY_ORG}})


def test_commit_or_rollback_is_reported_once(url: str, run: Run) -> None:
    async def main() -> None:
        engine = engine_of(url)
        writer, ended = SingleCommit(engine), list[bool | None]()
        with pytest.raises(LookupError):
            async with writer.transaction(ended.append) as tx:
                await insert(tx, ACME)
                raise LookupError
        assert ended == [False]
        async with writer.transaction(ended.append) as tx:
            assert await insert(tx, ACME), "nothing was left"
            assert ended == [False]
        assert ended == [False, True]
        async with connect(engine) as tx:
            assert await get(tx, "org_1") == ACME
        await writer.close()
        await engine.dispose()

    run(main)


def test_the_outcome_of_an_interrupted_commit_is_unknown(url: str, run: Run) -> None:
    async def main() -> None:
        engine = engine_of(url)
        ended = list[bool | None]()
        with pytest.raises((SQLAlchemyError, OSError)):
            async with SingleCommit(engine).transaction(ended.append) as tx:
                pid = await tx.scalar(text("SELECT pg_backend_pid()"))
                await asyncio.to_thread(postgresql().execute, f"SELECT pg_terminate_backend({pid}, 10000)")
        assert ended == [None]
        await engine.dispose()

    run(main)


def test_a_server_that_is_not_there_is_unavailable(tmp_path: Path, run: Run) -> None:
    async def main() -> None:
        engine = create_async_engine(f"postgresql+asyncpg://nobody@/nothing?host={tmp_path}")
        ended = list[bool | None]()
        with pytest.raises(StoreUnavailable):
            async with SingleCommit(engine).transaction(ended.append):
                raise AssertionError("nobody gets here")
        assert ended == [False]
        await engine.dispose()

    run(main)


def test_a_connection_that_is_discarded_takes_with_it_what_it_had_open(url: str, run: Run) -> None:
    async def main() -> None:
        engine = engine_of(url)
        connection = await open_connection(engine)
        await insert(connection, ACME)
        await discard(connection)
        await discard(connection)  # closing twice is allowed
        async with connect(engine) as tx:
            assert await get(tx, "org_1") is None
        await engine.dispose()

    run(main)


@requirement("vai:control-second-wall")
def test_a_transaction_of_an_org_sees_and_writes_its_own_rows_only(url: str, run: Run) -> None:
    async def main() -> None:
        database = await Database.open(url, migrate=False)
        both = [ACME, replace(ACME, id="org_2")]

        async def seen(tx: AsyncConnection) -> list[str]:
            return list((await tx.execute(text("SELECT id FROM orgs ORDER BY id"))).scalars())

        async with database.transaction() as tx:
            assert [await insert(tx, org) for org in both] == [True, True]
            assert await seen(tx) == ["org_1", "org_2"]
        token = ORG.set("org_2")
        async with database.transaction() as tx:
            assert await seen(tx) == ["org_2"]
            assert (await tx.execute(text("UPDATE orgs SET name = 'x' WHERE id = 'org_1'"))).rowcount == 0
            assert (await tx.execute(text("DELETE FROM orgs WHERE id = 'org_1'"))).rowcount == 0
            async with database.every_org():
                assert await seen(tx) == ["org_1", "org_2"]
            assert await seen(tx) == ["org_2"]
            with pytest.raises(LookupError):
                async with database.every_org():
                    raise LookupError
            assert await seen(tx) == ["org_2"]
        with pytest.raises(DBAPIError, match="row-level security"):
            async with database.transaction() as tx:
                await insert(tx, ACME)
        with pytest.raises(DBAPIError, match="does not exist"):
            async with database.transaction() as tx, database.every_org():
                await tx.execute(text("SELECT * FROM nothing"))
        async with database.reading() as tx:
            assert await seen(tx) == ["org_2"]
            found = await asyncio.create_task(_seen_by_task(database))
            assert found == ["org_2"], "a task that a request starts inherits its org"
        ORG.reset(token)
        async with database.reading() as tx:
            assert await seen(tx) == ["org_1", "org_2"], "the setting does not stay on a connection"
        await database.close()

    run(main)


async def _seen_by_task(database: Database) -> list[str]:
    async with database.reading() as tx:
        return list((await tx.execute(text("SELECT id FROM orgs ORDER BY id"))).scalars())


@requirement("vai:control-second-wall")
def test_a_connection_that_names_no_org_sees_no_row_unless_it_is_a_superusers(run: Run) -> None:
    async def main(owner: str, superuser: str) -> None:
        database = await Database.open(owner, migrate=False)
        async with database.transaction() as tx:
            await insert(tx, ACME)
        assert not await database.ignores_policies()
        await database.close()
        for url, number in ((owner, 0), (superuser, 1)):
            engine = create_async_engine(url)
            async with connect(engine) as connection:
                assert await connection.scalar(text("SELECT count(*) FROM orgs")) == number
            await engine.dispose()
        database = await Database.open(superuser, migrate=False)
        assert await database.ignores_policies()
        await database.close()

    name = postgresql().create()
    run(lambda: main(postgresql().url(name), postgresql().superuser_url(name)))
    postgresql().drop(name)
