"""Statements take one way to the thread of their connection; what is begun and given up there harms nobody after it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import text
from sqlalchemy.exc import IntegrityError, OperationalError

from plugbay.store.database import Database
from plugbay.store.orgs import Org, get, insert
from plugbay.store.sqlite import Connection
from tests.support.loops import Run
from tests.support.patience import until
from tests.support.tiers import exhaustive

ACME = Org("org_1", "Acme", {"network": "none"}, 1.0, 1.0)

SLOW = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 3000000) SELECT count(*) FROM n"


@pytest.fixture
def ways(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """One entry for each time that something is done in the thread of a connection."""
    seen: list[int] = []
    execute = Connection._execute

    async def counted(self: Connection, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        seen.append(len(seen))
        return await execute(self, function, *args, **kwargs)  # type: ignore[no-untyped-call]

    monkeypatch.setattr(Connection, "_execute", counted)
    return seen


def test_to_look_something_up_takes_one_way(sqlite_url: str, run: Run, ways: list[int]) -> None:
    async def main() -> None:
        database = await Database.open(sqlite_url, migrate=False)
        ways.clear()
        async with database.reading() as tx:
            assert await get(tx, "org_1") is None
        assert len(ways) == 1
        await database.close()

    run(main)


def test_to_write_something_takes_one_more_for_the_disk(sqlite_url: str, run: Run, ways: list[int]) -> None:
    async def main() -> None:
        database = await Database.open(sqlite_url, migrate=False)
        async with database.transaction():
            pass  # its connection is made
        ways.clear()
        async with database.transaction() as tx:
            assert await insert(tx, ACME)
        assert len(ways) == 2
        async with database.reading() as tx:
            assert await get(tx, "org_1") == ACME
        await database.close()

    run(main)


def test_rows_and_counts_come_back(sqlite_url: str, run: Run) -> None:
    async def main() -> None:
        database = await Database.open(sqlite_url, migrate=False)
        async with database.transaction() as tx:
            await tx.execute(text("CREATE TABLE t (id INTEGER PRIMARY KEY, word TEXT UNIQUE)"))
            many = [{"word": f"w{number}"} for number in range(5)]
            assert (await tx.execute(text("INSERT INTO t (word) VALUES (:word)"), many)).rowcount == 5
            assert (await tx.execute(text("UPDATE t SET word = 'x' || word WHERE id < 3"))).rowcount == 2
            rows = await tx.execute(text("SELECT id, word FROM t ORDER BY id"))
            assert list(rows.keys()) == ["id", "word"]
            assert [tuple(row) for row in rows][:2] == [(1, "xw0"), (2, "xw1")]
            nothing = await tx.execute(text("SELECT id FROM t WHERE id = 99"))
            assert nothing.first() is None
        await database.close()

    run(main)


def test_an_error_of_a_statement_reaches_whoever_made_it(sqlite_url: str, run: Run) -> None:
    async def main() -> None:
        database = await Database.open(sqlite_url, migrate=False)
        async with database.transaction() as tx:
            await insert(tx, ACME)
        with pytest.raises(IntegrityError):
            async with database.transaction() as tx:
                statement = (
                    "INSERT INTO orgs (id, name, policy, created_at, updated_at) VALUES ('org_1', '', '{}', 1, 1)"
                )
                await tx.execute(text(statement))
        with pytest.raises(OperationalError, match="no such table"):
            async with database.reading() as tx:
                await tx.execute(text("SELECT 1 FROM nowhere"))
        async with database.reading() as tx:
            assert await get(tx, "org_1") == ACME
        await database.close()

    run(main)


def test_a_view_shows_one_moment_until_its_end(sqlite_url: str, run: Run) -> None:
    async def main() -> None:
        database = await Database.open(sqlite_url, migrate=False)

        async def write() -> None:
            async with database.transaction() as tx:
                await insert(tx, ACME)

        async with database.reading() as tx:
            assert await get(tx, "org_1") is None
            await asyncio.create_task(write())
            assert await get(tx, "org_1") is None
        async with database.reading() as tx:
            assert await get(tx, "org_1") == ACME
        await database.close()

    run(main)


@exhaustive
def test_a_statement_that_nobody_waits_for_any_more_does_not_stop_the_loop(sqlite_url: str, run: Run) -> None:
    async def main() -> None:
        database = await Database.open(sqlite_url, migrate=False)
        begun = asyncio.Event()

        async def slow() -> None:
            async with database.reading() as tx:
                await get(tx, "org_1")
                begun.set()
                await tx.execute(text(SLOW))

        task = asyncio.create_task(slow())
        await begun.wait()
        await asyncio.sleep(0)
        turns = 0
        task.cancel()
        while not task.done():
            turns += 1
            await asyncio.sleep(0)
        assert turns > 100  # the loop went on while the statement was run to its end
        with pytest.raises(asyncio.CancelledError):
            await task
        async with database.transaction() as tx:
            assert await insert(tx, ACME)
        await database.close()

    run(main)


def test_no_thread_is_left_after_the_end(sqlite_url: str, run: Run) -> None:
    async def main() -> None:
        before = threading.active_count()
        database = await Database.open(sqlite_url, migrate=False)
        assert threading.active_count() > before
        await database.close()
        await until(lambda: threading.active_count() == before)

    run(main)
