"""The SQLite driver (at most one thread round trip per statement, safe cancellation) and group commits."""

from __future__ import annotations

import asyncio
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import insert as insert_into
from sqlalchemy import select, text
from sqlalchemy.exc import IntegrityError, OperationalError

from plugbay.store import database as module
from plugbay.store import sqlite
from plugbay.store.database import Database
from plugbay.store.failures import StoreUnavailable
from plugbay.store.orgs import Org, get, insert
from plugbay.store.sqlite import Connection
from plugbay.store.statements import Prepared, new_row
from plugbay.store.tables import IDEMPOTENCY
from tests.process.helpers import ROOT
from tests.support.loops import Run
from tests.support.patience import PATIENCE, until
from tests.support.requirements import requirement
from tests.support.tiers import exhaustive, first_alone

ACME = Org("org_1", "Acme", {"network": "none"}, 1.0, 1.0)

SLOW = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1000000) SELECT count(*) FROM n"


@pytest.fixture
def ways(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """One entry per function run in the connection's thread."""
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
            pass  # the connection is opened
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


def test_an_error_of_a_statement_reaches_its_caller(sqlite_url: str, run: Run) -> None:
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
def test_an_abandoned_statement_does_not_block_the_loop(sqlite_url: str, run: Run) -> None:
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
        assert turns > 100  # the loop went on while the statement ran to its end
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


TWICE = "INSERT INTO orgs (id, name, policy, created_at, updated_at) VALUES ('org_0', '', '{}', 1, 1)"

WRITER = """
import asyncio, os, sys
from plugbay.store.database import Database
from plugbay.store.orgs import Org, insert

async def main():
    database = await Database.open(sys.argv[1], migrate=False)

    async def write(number):
        while True:
            number += 100
            async with database.transaction() as tx:
                await insert(tx, Org(f"org_{number}", "Org", {}, 1.0, 1.0))
            os.write(1, b"org_%d\\n" % number)

    await asyncio.gather(*map(write, range(100)))

asyncio.run(main())
"""


def org(number: int) -> Org:
    return Org(f"org_{number}", "Org", {}, 1.0, 1.0)


async def written(database: Database, number: int) -> None:
    async with database.transaction() as tx:
        await insert(tx, org(number))


def on_disk(folder: Path) -> set[str]:
    """What another connection reads."""
    other = sqlite3.connect(folder / "plugbay.db")
    try:
        return {id for (id,) in other.execute("SELECT id FROM orgs")}
    finally:
        other.close()


class Commits:
    """Each commit waits for the test, may fail, and is counted."""

    def __init__(self) -> None:
        self.count = 0
        self.may = asyncio.Event()
        self.may.set()
        self.error: Exception | None = None

    def watch(self, monkeypatch: pytest.MonkeyPatch) -> Commits:
        real = Connection.commit

        async def commit(connection: Connection) -> None:
            self.count += 1
            await self.may.wait()
            if self.error is not None:
                raise self.error
            await real(connection)

        monkeypatch.setattr(Connection, "commit", commit)
        return self


def full() -> OperationalError:
    error = sqlite3.OperationalError("database or disk is full")
    error.sqlite_errorname = "SQLITE_FULL"
    return OperationalError("COMMIT", None, error)


def test_a_hundred_at_once_have_one_commit_and_one_alone_has_its_own(
    sqlite_url: str, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        database = await Database.open(sqlite_url, migrate=False)
        commits = Commits().watch(monkeypatch)
        await asyncio.gather(*(written(database, number) for number in range(100)))
        assert (commits.count, len(on_disk(tmp_path))) == (1, 100)
        await written(database, 100)
        await written(database, 101)
        assert (commits.count, len(on_disk(tmp_path))) == (3, 102)
        await database.close()

    run(main)


@requirement("vai:control-group-commit")
def test_one_that_fails_among_a_hundred_is_taken_back_alone(sqlite_url: str, tmp_path: Path, run: Run) -> None:
    async def main() -> None:
        database = await Database.open(sqlite_url, migrate=False)

        async def changes_its_mind() -> None:
            async with database.transaction() as tx:
                await insert(tx, org(1_000))
                raise LookupError("not like this")

        async def breaks_a_rule() -> None:
            async with database.transaction() as tx:
                await insert(tx, org(1_001))
                await tx.execute(text(TWICE))

        good = [written(database, number) for number in range(98)]
        ended = await asyncio.gather(
            *good[:50], changes_its_mind(), breaks_a_rule(), *good[50:], return_exceptions=True
        )
        assert [type(each) for each in ended if each is not None] == [LookupError, IntegrityError]
        assert on_disk(tmp_path) == {f"org_{number}" for number in range(98)}
        await database.close()

    run(main)


@requirement("vai:control-group-commit")
def test_no_result_is_returned_before_it_is_on_disk(
    sqlite_url: str, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        database = await Database.open(sqlite_url, migrate=False)
        commits = Commits().watch(monkeypatch)
        commits.may.clear()
        afterwards: list[str] = []

        async def finds_it_there() -> None:
            async with database.transaction() as tx:
                database.after_commit(lambda: afterwards.append("never"))
                if await get(tx, "org_0") is not None:
                    raise LookupError("somebody was first")

        async def writes() -> None:
            async with database.transaction() as tx:
                database.after_commit(lambda: afterwards.append("committed"))
                await insert(tx, org(0))

        tasks = [asyncio.ensure_future(each) for each in (writes(), finds_it_there())]
        await until(lambda: commits.count == 1)
        assert not any(task.done() for task in tasks) and (afterwards, on_disk(tmp_path)) == ([], set())
        commits.may.set()
        await asyncio.wait(tasks)
        assert tasks[0].exception() is None and isinstance(tasks[1].exception(), LookupError)
        assert (afterwards, on_disk(tmp_path)) == (["committed"], {"org_0"})
        await database.close()

    run(main)


@requirement("vai:control-group-commit")
def test_a_failed_commit_fails_the_whole_group_and_the_next_one_works(
    sqlite_url: str, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        database = await Database.open(sqlite_url, migrate=False)
        commits = Commits().watch(monkeypatch)
        commits.error = full()
        afterwards: list[int] = []

        async def refuses() -> None:
            async with database.transaction():
                database.after_commit(lambda: afterwards.append(1))
                raise LookupError("what it found may never have been")

        ended = await asyncio.gather(
            *(written(database, number) for number in range(5)), refuses(), return_exceptions=True
        )
        assert [type(each) for each in ended] == [StoreUnavailable] * 6 and "SQLITE_FULL" in str(ended[0])
        assert (commits.count, afterwards, on_disk(tmp_path)) == (1, [], set())
        commits.error = None
        await written(database, 7)
        assert on_disk(tmp_path) == {"org_7"}
        await database.close()

    run(main)


def test_when_sqlite_rolls_back_the_whole_group_fails(sqlite_url: str, tmp_path: Path, run: Run) -> None:
    async def main() -> None:
        database = await Database.open(sqlite_url, migrate=False)

        async def loses_it() -> None:
            async with database.transaction() as tx:
                await tx.execute(text("ROLLBACK"))  # as SQLite does itself when the disk is full
                raise LookupError

        ended = await asyncio.gather(written(database, 0), loses_it(), written(database, 1), return_exceptions=True)
        assert [type(each) for each in ended[:2]] == [StoreUnavailable] * 2 and ended[2] is None
        assert on_disk(tmp_path) == {"org_1"}, "whoever came after it has a transaction of its own"
        await database.close()

    run(main)


NEW, NOTE = new_row(IDEMPOTENCY), Prepared(insert_into(IDEMPOTENCY))


def noted(number: int, **other: Any) -> dict[str, Any]:
    row: dict[str, Any] = {"key": b"%d" % number, "digest": b"d", "state": "done", "status": 200, "headers": {}}
    return {**row, "body": b"", "created_at": 1.0, "expires_at": 2.0, "owner": None, **other}


async def notes(database: Database) -> set[bytes]:
    async with database.reading() as tx:
        return set((await tx.execute(select(IDEMPOTENCY.c.key))).scalars())


def test_a_batch_is_written_whole_with_one_thread_round_trip(sqlite_url: str, run: Run, ways: list[int]) -> None:
    async def main() -> None:
        database = await Database.open(sqlite_url, migrate=False)
        await database.write((NEW, noted(0)))  # the connection is opened
        ways.clear()
        first, second = await database.write((NEW, noted(1)), (NEW, noted(0)))
        assert (len(ways), first.rows, second.rows) == (1, [{"key": b"1"}], [])
        assert await notes(database) == {b"0", b"1"}
        await database.close()

    run(main)


@requirement("vai:control-group-commit")
def test_a_batch_that_fails_is_taken_back_alone(sqlite_url: str, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        database = await Database.open(sqlite_url, migrate=False)
        commits = Commits().watch(monkeypatch)
        ended = await asyncio.gather(
            database.write((NOTE, noted(0))),
            database.write((NOTE, noted(1)), (NOTE, noted(0))),
            written(database, 1),
            database.write((NOTE, noted(2))),
            return_exceptions=True,
        )
        assert [type(each) for each in ended] == [list, IntegrityError, type(None), list]
        assert await notes(database) == {b"0", b"2"} and commits.count == 1
        await database.close()

    run(main)


def test_a_batch_joins_the_transaction_of_its_task(sqlite_url: str, run: Run) -> None:
    async def main() -> None:
        database = await Database.open(sqlite_url, migrate=False)
        with pytest.raises(LookupError):
            async with database.transaction():
                await database.write((NOTE, noted(0)))
                raise LookupError
        assert await notes(database) == set()
        await database.close()

    run(main)


def test_a_batch_waits_for_an_abandoned_statement(sqlite_url: str, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PATIENCE", PATIENCE)

    async def main() -> None:
        database = await Database.open(sqlite_url, migrate=False)

        inside = asyncio.Event()

        async def slow() -> None:
            async with database.transaction() as tx:
                inside.set()
                await tx.execute(text(SLOW))

        abandoned = asyncio.ensure_future(slow())
        await inside.wait()
        await asyncio.sleep(0)  # the statement runs in the thread
        abandoned.cancel()
        await database.write((NOTE, noted(0)), (NOTE, noted(1)))
        assert await notes(database) == {b"0", b"1"}
        await database.close()

    run(main)


def test_a_batch_in_a_group_that_sqlite_rolls_back_fails_with_it(
    sqlite_url: str, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        database = await Database.open(sqlite_url, migrate=False)
        real = sqlite._execute_statement

        def lose(connection: sqlite3.Connection, statement: str, parameters: Any, many: bool = False) -> Any:
            if b"1" in parameters:
                connection.execute("ROLLBACK")  # as SQLite does itself when the disk is full
                raise sqlite3.OperationalError("database or disk is full")
            return real(connection, statement, parameters, many)

        monkeypatch.setattr(sqlite, "_execute_statement", lose)
        batches = [database.write((NOTE, noted(number))) for number in range(3)]
        ended = await asyncio.gather(*batches, return_exceptions=True)
        assert [type(each) for each in ended] == [StoreUnavailable, StoreUnavailable, list]
        assert await notes(database) == {b"2"}
        await database.close()

    run(main)


def test_batches_that_wait_are_run_at_once_except_those_whose_callers_have_gone(
    sqlite_url: str, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        database = await Database.open(sqlite_url, migrate=False)
        commits = Commits().watch(monkeypatch)
        commits.may.clear()
        first = asyncio.ensure_future(database.write((NOTE, noted(0))))
        await until(lambda: commits.count == 1)
        later = [asyncio.ensure_future(database.write((NOTE, noted(number)))) for number in range(1, 100)]
        await asyncio.sleep(0)  # they wait in line
        later[4].cancel()
        commits.may.set()
        await asyncio.wait([first, *later])
        assert commits.count == 2 and [task.cancelled() for task in later].count(True) == 1
        assert await notes(database) == {b"%d" % number for number in range(100) if number != 5}
        await database.close()

    run(main)


def test_batches_that_wait_too_long_are_refused_and_the_next_is_written(
    sqlite_url: str, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "PATIENCE", 0.01)

    async def main() -> None:
        database = await Database.open(sqlite_url, migrate=False)
        async with database.transaction():
            batches = [asyncio.ensure_future(database.write((NOTE, noted(number)))) for number in range(3)]
            ended = await asyncio.gather(*batches, return_exceptions=True)
            assert [str(each) for each in ended] == [str(StoreUnavailable("too many writes are waiting for it"))] * 3
        await database.write((NOTE, noted(3)))
        assert await notes(database) == {b"3"}
        await database.close()

    run(main)


def test_a_turn_that_comes_together_with_a_cancellation_is_passed_on(run: Run) -> None:
    async def main() -> None:
        turns = sqlite._Turns(PATIENCE)
        await turns.take()
        unlucky, next_one = (asyncio.ensure_future(turns.take()) for _ in range(2))
        await asyncio.sleep(0)  # both wait
        turns.release()
        unlucky.cancel()
        await asyncio.wait_for(next_one, PATIENCE)
        assert unlucky.cancelled()
        turns.release()
        await asyncio.wait_for(turns.take(), PATIENCE)
        turns.close()

    run(main)


def test_a_cancelled_member_is_rolled_back_alone(sqlite_url: str, tmp_path: Path, run: Run) -> None:
    async def main() -> None:
        database = await Database.open(sqlite_url, migrate=False)
        inside = asyncio.Event()

        async def stay() -> None:
            async with database.transaction() as tx:
                await insert(tx, org(1_000))
                inside.set()
                await asyncio.Event().wait()

        tasks = [asyncio.ensure_future(each) for each in (written(database, 0), stay(), written(database, 1))]
        await inside.wait()
        tasks[1].cancel()
        await asyncio.wait(tasks)
        assert tasks[1].cancelled() and on_disk(tmp_path) == {"org_0", "org_1"}
        await database.close()

    run(main)


def test_a_statement_under_way_of_one_that_is_cancelled_is_taken_back_too(
    sqlite_url: str, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "PATIENCE", 60.0)  # slow on a busy machine
    slow = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 300000) "
    late = f"INSERT INTO orgs SELECT 'org_' || max(i), '', '{{}}', 1, 1 FROM ({slow}SELECT i FROM n)"

    async def main() -> None:
        database = await Database.open(sqlite_url, migrate=False)
        inside = asyncio.Event()

        async def stay() -> None:
            async with database.transaction() as tx:
                inside.set()
                await tx.execute(text(late))

        tasks = [asyncio.ensure_future(each) for each in (written(database, 0), stay(), written(database, 1))]
        await inside.wait()
        await asyncio.sleep(0)
        tasks[1].cancel()
        await asyncio.wait(tasks)
        assert tasks[1].cancelled() and on_disk(tmp_path) == {"org_0", "org_1"}
        await database.close()

    run(main)


def test_a_member_cancelled_during_the_commit_is_committed_with_its_callbacks(
    sqlite_url: str, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        database = await Database.open(sqlite_url, migrate=False)
        commits = Commits().watch(monkeypatch)
        commits.may.clear()
        afterwards = asyncio.Event()

        async def write() -> None:
            async with database.transaction() as tx:
                await insert(tx, org(0))
                database.after_commit(afterwards.set)

        task, other = asyncio.ensure_future(write()), asyncio.ensure_future(written(database, 1))
        await until(lambda: commits.count == 1)
        task.cancel()
        await asyncio.wait({task})
        commits.may.set()
        await other
        assert task.cancelled() and afterwards.is_set() and on_disk(tmp_path) == {"org_0", "org_1"}
        await database.close()

    run(main)


def test_callbacks_after_a_commit_run_in_the_context_of_their_caller(sqlite_url: str, run: Run) -> None:
    name: ContextVar[int] = ContextVar("name")

    async def main() -> None:
        database = await Database.open(sqlite_url, migrate=False)
        seen: list[tuple[int, int]] = []

        async def write(number: int) -> None:
            name.set(number)
            async with database.transaction() as tx:
                await insert(tx, org(number))
                database.after_commit(lambda: seen.append((number, name.get())))

        await asyncio.gather(*(asyncio.create_task(write(number)) for number in range(5)))
        assert seen == [(number, number) for number in range(5)]
        await database.close()

    run(main)


def test_what_goes_wrong_after_a_commit_is_the_business_of_one(sqlite_url: str, tmp_path: Path, run: Run) -> None:
    async def main() -> None:
        database = await Database.open(sqlite_url, migrate=False)

        def fail() -> None:
            raise LookupError("afterwards")

        async def write() -> None:
            async with database.transaction() as tx:
                await insert(tx, org(0))
                database.after_commit(fail)

        ended = await asyncio.gather(write(), written(database, 1), return_exceptions=True)
        assert isinstance(ended[0], LookupError) and ended[1] is None
        assert on_disk(tmp_path) == {"org_0", "org_1"}
        await database.close()

    run(main)


def test_cancellation_while_waiting_for_the_lock_leaves_no_lock(
    sqlite_url: str, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    used: list[Connection] = []
    run_in_thread = Connection.run_in_thread

    async def noted(connection: Connection, work: Any) -> Any:
        used.append(connection)
        return await run_in_thread(connection, work)

    monkeypatch.setattr(Connection, "run_in_thread", noted)

    async def main() -> None:
        database = await Database.open(sqlite_url, migrate=False)
        await written(database, 0)
        stranger = sqlite3.connect(tmp_path / "plugbay.db", isolation_level=None)
        stranger.execute("BEGIN IMMEDIATE")
        used.clear()
        task = asyncio.ensure_future(written(database, 1))
        await until(lambda: bool(used))
        task.cancel()
        stranger.execute("ROLLBACK")
        await asyncio.wait({task})
        assert task.cancelled()
        stranger.execute("BEGIN IMMEDIATE")  # it is free
        stranger.execute("ROLLBACK")
        stranger.close()
        await written(database, 2)
        assert on_disk(tmp_path) == {"org_0", "org_2"}
        await database.close()

    run(main)


def test_a_member_that_waits_too_long_fails_alone(
    sqlite_url: str, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "PATIENCE", 0.01)

    async def main() -> None:
        database = await Database.open(sqlite_url, migrate=False)
        async with database.transaction() as tx:
            await insert(tx, org(0))
            with pytest.raises(StoreUnavailable, match="too many writes are waiting"):
                await asyncio.create_task(written(database, 1))
        assert on_disk(tmp_path) == {"org_0"}
        await database.close()

    run(main)


def test_a_database_is_closed_after_all_who_are_in_line(
    sqlite_url: str, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        database = await Database.open(sqlite_url, migrate=False)
        commits = Commits().watch(monkeypatch)
        commits.may.clear()
        tasks = [asyncio.ensure_future(written(database, number)) for number in range(3)]
        await until(lambda: commits.count == 1)
        closing = asyncio.ensure_future(database.close())
        commits.may.set()
        await closing
        await asyncio.gather(*tasks)
        assert on_disk(tmp_path) == {"org_0", "org_1", "org_2"}

    run(main)


@requirement("vai:control-group-commit")
@pytest.mark.parametrize("after", first_alone([250, 1, 1_000]))
def test_a_kill_loses_no_confirmed_commit(sqlite_url: str, tmp_path: Path, after: int) -> None:
    command: list[Any] = [sys.executable, "-c", WRITER, sqlite_url]
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=ROOT) as writer:
        assert writer.stdout is not None
        told = [writer.stdout.readline() for _ in range(after)]
        writer.send_signal(signal.SIGKILL)
        told += writer.stdout.readlines()
    names = {line.decode().strip() for line in told if line.endswith(b"\n")}
    assert len(names) >= after and names <= on_disk(tmp_path)
    found = sqlite3.connect(tmp_path / "plugbay.db")
    assert found.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    found.close()


def test_a_connection_whose_opening_was_cancelled_is_closed(tmp_path: Path, run: Run) -> None:
    opened: list[sqlite3.Connection] = []
    may_open = threading.Event()

    def slowly() -> sqlite3.Connection:
        may_open.wait(PATIENCE)
        opened.append(sqlite3.connect(tmp_path / "x.db", check_same_thread=False))
        return opened[0]

    async def main() -> None:
        async def opening() -> None:
            await Connection(slowly)

        task = asyncio.create_task(opening())
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        may_open.set()
        await until(lambda: bool(opened) and is_closed(opened[0]))

    run(main)


def is_closed(connection: sqlite3.Connection) -> bool:
    try:
        connection.total_changes  # noqa: B018 - closed connections refuse it
    except sqlite3.ProgrammingError:
        return True
    return False


def test_a_statement_that_outlives_its_loop_ends_in_silence(
    tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    raised: list[threading.ExceptHookArgs] = []
    monkeypatch.setattr(threading, "excepthook", raised.append)
    begun, may_end = threading.Event(), threading.Event()
    made: list[Connection] = []

    def slow() -> int:
        begun.set()
        may_end.wait(PATIENCE)
        return 1

    async def main() -> None:
        connection: Any = await Connection(lambda: sqlite3.connect(tmp_path / "x.db", check_same_thread=False))
        made.append(connection)
        task = asyncio.create_task(connection._execute(slow))
        await until(begun.is_set)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        connection.stop()

    run(main)
    may_end.set()
    made[0]._thread.join(PATIENCE)
    assert not made[0]._thread.is_alive() and raised == []
