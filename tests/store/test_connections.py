"""Transactions with their own connection report their outcome, also when it is unknown."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import text
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import create_async_engine

from plugbay.store.connections import SingleCommit, connect, discard, open_connection
from plugbay.store.failures import StoreUnavailable
from plugbay.store.orgs import Org, get, insert
from tests.support.databases import postgresql
from tests.support.loops import Run

ACME = Org("org_1", "Acme", {}, 1.0, 1.0)


@pytest.fixture
def url() -> Iterator[str]:
    name = postgresql().create()
    yield postgresql().url(name)
    postgresql().drop(name)


def test_commit_or_rollback_is_reported_once(url: str, run: Run) -> None:
    async def main() -> None:
        engine = create_async_engine(url)
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
        engine = create_async_engine(url)
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
        engine = create_async_engine(url)
        connection = await open_connection(engine)
        await insert(connection, ACME)
        await discard(connection)
        await discard(connection)  # closing twice is allowed
        async with connect(engine) as tx:
            assert await get(tx, "org_1") is None
        await engine.dispose()

    run(main)
