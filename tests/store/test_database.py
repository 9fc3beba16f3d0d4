"""Connections, transactions and the row cache, on both databases."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import stat
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from functools import partial
from pathlib import Path

import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from plugbay.store import database as module
from plugbay.store import keys, orgs
from plugbay.store.database import Database, RowCache, Tx, sqlite_file
from plugbay.store.failures import StoreRefused, StoreUnavailable
from plugbay.store.orgs import Org, get, insert
from tests.support.databases import database as database_of_kind
from tests.support.databases import postgresql
from tests.support.loops import Run
from tests.support.patience import PATIENCE, until
from tests.support.requirements import requirement

PRAGMAS = {"journal_mode": "wal", "synchronous": 2, "foreign_keys": 1, "busy_timeout": 5000}

ACME = Org("org_1", "Acme", {"network": "none"}, 1_770_000_000.123456, 1_770_000_000.5)


def test_what_was_committed_is_there_and_what_failed_is_not(database_url: str, run: Run) -> None:
    async def main() -> None:
        database = await Database.open(database_url)
        async with database.transaction() as tx:
            assert await insert(tx, ACME)
        with pytest.raises(LookupError):
            async with database.transaction() as tx:
                assert await insert(tx, Org("org_2", "Other", {}, 1.0, 1.0))
                raise LookupError
        async with database.reading() as tx:
            assert await get(tx, "org_1") == ACME
            assert await get(tx, "org_2") is None
        await database.close()

    run(main)


def test_a_transaction_inside_another_of_the_same_task_is_part_of_it(database_url: str, run: Run) -> None:
    async def main() -> None:
        database = await Database.open(database_url, migrate=False)
        with pytest.raises(LookupError):
            async with database.transaction() as outer:
                async with database.transaction() as inner:
                    assert inner is outer
                    await insert(inner, ACME)
                async with database.reading() as inside:
                    assert await get(inside, "org_1") == ACME
                raise LookupError
        async with database.reading() as tx:
            assert await get(tx, "org_1") is None
        await database.close()

    run(main)


def test_a_task_that_was_started_inside_a_transaction_is_not_part_of_it(database_url: str, run: Run) -> None:
    async def main() -> None:
        database = await Database.open(database_url, migrate=False)

        async def other() -> Org | None:
            async with database.reading() as tx:
                return await get(tx, "org_1")

        async with database.transaction() as tx:
            await insert(tx, ACME)
            assert await asyncio.create_task(other()) is None
        assert await asyncio.create_task(other()) == ACME
        await database.close()

    run(main)


def test_what_waits_for_the_commit_is_done_after_it_and_never_when_there_is_none(sqlite_url: str, run: Run) -> None:
    async def main() -> None:
        database = await Database.open(sqlite_url, migrate=False)
        done: list[str] = []
        database.after_commit(lambda: done.append("at once"))
        async with database.transaction():
            async with database.transaction():
                database.after_commit(lambda: done.append("committed"))
            assert done == ["at once"]
        assert done == ["at once", "committed"]
        with pytest.raises(LookupError):
            async with database.transaction():
                database.after_commit(lambda: done.append("never"))
                raise LookupError
        assert done == ["at once", "committed"]
        await database.close()

    run(main)


def test_after_a_commit_in_doubt_a_callback_looks_once_the_server_must_have_finished_it(
    database_url: str, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "STATEMENT_TIMEOUT", 0.05)

    async def main() -> None:
        database = await Database.open(database_url, migrate=False)
        done: list[str] = []
        ended = database._ended
        monkeypatch.setattr(database, "_ended", lambda unit, committed: ended(unit, None))
        async with database.transaction():
            database.after_commit(lambda: done.append("sure"))
            database.after_commit(lambda: done.append("in doubt"), in_doubt=True)
        assert done == []
        await until(lambda: done == ["in doubt"])
        await database.close()

    run(main)


def test_fifty_writers_at_once_all_have_their_turn(database_url: str, run: Run) -> None:
    async def main() -> None:
        database = await Database.open(database_url, migrate=False)

        async def write(number: int) -> None:
            async with database.transaction() as tx:
                await insert(tx, Org(f"org_{number}", "Org", {}, float(number), 1.0))

        await asyncio.gather(*map(write, range(50)))
        async with database.reading() as tx:
            assert (await tx.execute(text("SELECT count(*) FROM orgs"))).scalar_one() == 50
        await database.close()

    run(main)


def test_a_reader_does_not_wait_for_the_writer(database_url: str, run: Run) -> None:
    async def main() -> None:
        database = await Database.open(database_url, migrate=False)
        async with database.transaction() as tx:
            await insert(tx, ACME)
            await asyncio.create_task(database.ping())
        await database.close()

    run(main)


def test_a_writer_that_is_cancelled_leaves_the_turn_to_the_next(sqlite_url: str, run: Run) -> None:
    async def main() -> None:
        database = await Database.open(sqlite_url, migrate=False)
        inside = asyncio.Event()

        async def stay() -> None:
            async with database.transaction() as tx:
                await insert(tx, ACME)
                inside.set()
                await asyncio.Event().wait()

        task = asyncio.create_task(stay())
        await inside.wait()
        task.cancel()
        await asyncio.wait({task})
        async with database.transaction() as tx:
            assert await get(tx, "org_1") is None
        await database.close()

    run(main)


def test_sqlite_commits_survive_a_power_failure_and_foreign_keys_are_on(sqlite_url: str, run: Run) -> None:
    async def main() -> None:
        database = await Database.open(sqlite_url, migrate=False)
        async with database.reading() as tx:
            pragmas = {name: (await tx.execute(text(f"PRAGMA {name}"))).scalar_one() for name in PRAGMAS}
        assert pragmas == PRAGMAS
        await database.close()

    run(main)


def test_a_locked_sqlite_is_unavailable_and_then_works_again(
    sqlite_url: str, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "PATIENCE", 0.02)

    async def main() -> None:
        database = await Database.open(sqlite_url, migrate=False)
        stranger = sqlite3.connect(tmp_path / "plugbay.db", isolation_level=None)
        stranger.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreUnavailable, match="SQLITE_BUSY"):
            async with database.transaction():
                raise AssertionError("nobody gets here")
        stranger.execute("ROLLBACK")
        stranger.close()
        async with database.transaction() as tx:
            assert await insert(tx, ACME)
        await database.close()

    run(main)


def test_a_full_sqlite_is_unavailable_and_keeps_what_it_had(sqlite_url: str, run: Run) -> None:
    async def main() -> None:
        database = await Database.open(sqlite_url, migrate=False)
        async with database.transaction() as tx:
            await insert(tx, ACME)
            pages = (await tx.execute(text("PRAGMA page_count"))).scalar_one()
            await tx.execute(text(f"PRAGMA max_page_count={pages}"))
            with pytest.raises(StoreUnavailable, match="SQLITE_FULL"), module._TranslateErrors():
                await insert(tx, Org("org_2", "x" * 100_000, {}, 1.0, 1.0))
        await database.close()

    run(main)


def test_writers_that_wait_too_long_get_store_unavailable(
    sqlite_url: str, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "PATIENCE", 0.01)

    async def main() -> None:
        database = await Database.open(sqlite_url, migrate=False)

        async def write() -> None:
            async with database.transaction():
                raise AssertionError("nobody gets here")

        async with database.transaction():
            with pytest.raises(StoreUnavailable, match="too many writes are waiting"):
                await asyncio.create_task(write())
        await database.close()

    run(main)


def test_a_postgresql_that_ends_our_connections_is_used_again_with_new_ones(run: Run) -> None:
    server = postgresql()
    name = server.create()

    async def main() -> None:
        database = await Database.open(server.url(name), migrate=False)
        with pytest.raises(StoreUnavailable):
            async with database.transaction() as tx:
                pid = (await tx.execute(text("SELECT pg_backend_pid()"))).scalar_one()
                await asyncio.to_thread(server.execute, f"SELECT pg_terminate_backend({pid})")
                await until(lambda: True)
                await insert(tx, ACME)
        async with database.transaction() as tx:
            assert await insert(tx, ACME)
        await database.close()

    run(main)
    server.drop(name)


def test_a_database_that_is_not_there_is_unavailable(tmp_path: Path, run: Run) -> None:
    async def main() -> None:
        with pytest.raises(StoreUnavailable):
            await Database.open(f"postgresql://nobody@/nothing?host={tmp_path}")

    run(main)


@pytest.mark.parametrize("url", ["mysql://host/db", "no url"])
def test_another_kind_of_database_is_refused_by_name(url: str, run: Run) -> None:
    async def main() -> None:
        with pytest.raises(StoreRefused):
            await Database.open(url)

    run(main)


def test_a_file_that_is_no_database_is_refused(tmp_path: Path, run: Run) -> None:
    file = tmp_path / "plugbay.db"
    file.write_text("not a database, and nobody said that it was one")

    async def main() -> None:
        for migrate in (True, False):
            with pytest.raises(StoreRefused, match="not a database, or is damaged"):
                await Database.open(f"sqlite:///{file}", migrate=migrate)

    run(main)


def overwrite_pages(file: Path) -> None:
    """Overwrite the first page of one table, as a failing disk does."""
    connection = sqlite3.connect(file)
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    (size,) = connection.execute("PRAGMA page_size").fetchone()
    (number,) = connection.execute("SELECT rootpage FROM sqlite_master WHERE name = 'orgs'").fetchone()
    connection.close()
    with open(file, "r+b") as pages:
        pages.seek((number - 1) * size)
        pages.write(b"\xa5" * size)


@requirement("vai:control-damaged-database")
def test_a_file_with_overwritten_pages_is_refused(tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "plugbay.db"

    async def main() -> None:
        await (await Database.open(f"sqlite:///{file}")).close()
        again = await Database.open(f"sqlite:///{file}")
        assert await again.find_damage(quick=False) is None
        await again.close()
        overwrite_pages(file)
        with pytest.raises(StoreRefused, match=r"plugbay\.db is damaged .*recover"):
            await Database.open(f"sqlite:///{file}", migrate=False)
        monkeypatch.setattr(module, "MAX_CHECKED", 0)  # a large file is not read at every start
        unchecked = await Database.open(f"sqlite:///{file}", migrate=False)
        assert await unchecked.find_damage(quick=False) is not None
        await unchecked.close()

    run(main)


@requirement("vai:control-ready")
def test_a_database_that_another_process_has_locked_is_not_writable(tmp_path: Path, run: Run) -> None:
    file = tmp_path / "plugbay.db"

    async def main() -> None:
        database = await Database.open(f"sqlite:///{file}")
        await database.check_writable(PATIENCE)
        other = sqlite3.connect(file, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreUnavailable, match="locked for writing"):
            await database.check_writable(0.05)
        other.execute("ROLLBACK")
        other.close()
        await database.check_writable(PATIENCE)
        await database.close()

    run(main)


@requirement("vai:control-ready")
def test_a_database_that_is_read_only_is_not_writable(tmp_path: Path, run: Run) -> None:
    async def main(url: str) -> None:
        database = await Database.open(url)
        await database.check_writable(PATIENCE)
        connection = await database.dedicated()
        name = await connection.scalar(text("SELECT current_database()"))
        await connection.execute(text(f'ALTER DATABASE "{name}" SET default_transaction_read_only = on'))
        await connection.close()
        await database.close()
        database = await Database.open(url, migrate=False)
        with pytest.raises(StoreUnavailable, match="read-only"):
            await database.check_writable(PATIENCE)
        await database.close()

    with database_of_kind("postgresql", tmp_path) as url:
        run(partial(main, url))


def test_the_folder_of_a_sqlite_is_made(tmp_path: Path, run: Run) -> None:
    async def main() -> None:
        database = await Database.open(f"sqlite:///{tmp_path}/a/b/plugbay.db")
        assert database.dialect == "sqlite"
        await database.close()

    run(main)
    assert (tmp_path / "a/b/plugbay.db").exists()


def test_the_files_of_a_sqlite_are_for_its_owner_alone_also_those_that_were_open_to_others(
    tmp_path: Path, run: Run
) -> None:
    path = tmp_path / "plugbay.db"

    async def modes() -> dict[str, int]:
        database = await Database.open(f"sqlite+aiosqlite:///{path}")
        try:
            return {file.name: stat.S_IMODE(file.stat().st_mode) for file in tmp_path.iterdir()}
        finally:
            await database.close()

    async def main() -> None:
        private = dict.fromkeys(("plugbay.db", "plugbay.db-shm", "plugbay.db-wal"), 0o600)
        assert await modes() == private
        path.chmod(0o644)
        assert await modes() == private

    before = os.umask(0o022)
    try:
        run(main)
    finally:
        os.umask(before)


def test_the_file_of_a_url_is_known_before_it_is_opened(tmp_path: Path) -> None:
    assert sqlite_file(f"sqlite:///{tmp_path}/a/../b.db") == tmp_path / "b.db"
    for url in ("sqlite://", "sqlite:///:memory:", "postgresql://somewhere/plugbay"):
        assert sqlite_file(url) is None


def test_a_read_view_is_consistent(database_url: str, run: Run) -> None:
    async def main() -> None:
        database = await Database.open(database_url, migrate=False)
        query = text("SELECT count(*) FROM orgs")
        async with database.reading() as view:
            assert await view.scalar(query) == 0

            async def write() -> None:
                async with database.transaction() as tx:
                    await insert(tx, ACME)

            await asyncio.create_task(write())
            assert await view.scalar(query) == 0
        async with database.reading() as view:
            assert await view.scalar(query) == 1
        await database.close()

    run(main)


def test_a_server_that_says_nothing_is_given_up(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SILENCE", 3.0)  # a busy machine may be slow with the statements before
    monkeypatch.setattr(module, "STATEMENT_TIMEOUT", 600.0)
    name = postgresql().create()

    async def main() -> None:
        database = await Database.open(postgresql().url(name), migrate=False)

        async def sleep(begun: Callable[[], AbstractAsyncContextManager[AsyncConnection]]) -> None:
            with pytest.raises(StoreUnavailable):
                async with begun() as tx:
                    await tx.execute(text("SELECT pg_sleep(600)"))

        await asyncio.gather(sleep(database.transaction), sleep(database.reading))
        await database.ping()
        await database.close()

    run(main)
    postgresql().drop(name)


KEY = keys.ApiKey("key_1", "org_1", None, "a key", "admin", "abcd", 1.0, None, None)


class Known:
    """The cached name of an org; `reads` counts reads of the table."""

    def __init__(self, database: Database, room: int = 10) -> None:
        self.database = database
        self.reads = 0
        self.before_read = asyncio.Event()
        self.before_read.set()
        self.reading = asyncio.Event()
        self.memory = RowCache[str, str](database, room, len)

    async def name(self, id: str = "org_1") -> str | None:
        async def read() -> str | None:
            self.reads += 1
            async with self.database.reading() as tx:
                found = await orgs.get(tx, id)
                self.reading.set()
                await self.before_read.wait()
            return None if found is None else found.name

        return await self.memory.get(id, read)


async def opened(url: str, *names: str) -> Database:
    """A database with orgs of these names."""
    database = await Database.open(url, migrate=False)
    async with database.transaction() as tx:
        for number, name in enumerate(names, 1):
            await orgs.insert(tx, Org(f"org_{number}", name, {}, 1.0, 1.0))
    return database


async def renamed(database: Database, name: str) -> None:
    async with database.transaction() as tx:
        await orgs.change(tx, "org_1", name=name)


@requirement("vai:control-revocation-at-once")
def test_what_was_read_is_remembered_until_a_settled_table_changes(database_url: str, run: Run) -> None:
    async def main() -> None:
        database = await opened(database_url, "Acme")
        known = Known(database)
        assert [await known.name() for _ in range(3)] == ["Acme"] * 3 and known.reads == 1
        await renamed(database, "Emca")
        assert [await known.name() for _ in range(3)] == ["Emca"] * 3 and known.reads == 2
        async with database.transaction() as tx:
            await keys.insert(tx, KEY, b"d" * 32)  # another settled table invalidates the cache as well
        assert await known.name() == "Emca" and known.reads == 3
        await database.close()

    run(main)


def test_a_change_of_another_table_keeps_the_cache(database_url: str, run: Run) -> None:
    async def main() -> None:
        database = await opened(database_url, "Acme")
        known = Known(database)
        await known.name()
        async with database.transaction() as tx:
            await orgs.insert_project(tx, orgs.Project("proj_1", "org_1", "A project", 1.0, 1.0))
        assert await known.name() == "Acme" and known.reads == 1
        await database.close()

    run(main)


@requirement("vai:control-revocation-at-once")
def test_during_a_change_the_cache_is_neither_read_nor_written(database_url: str, run: Run) -> None:
    async def main() -> None:
        database = await opened(database_url, "Acme")
        known = Known(database)
        await known.name()
        async with database.transaction() as tx:
            await orgs.change(tx, "org_1", name="Emca")
            assert database.edition is None
            assert await known.name() == "Emca", "whoever changes it sees what it has done"
            assert await asyncio.create_task(known.name()) == "Acme", "and nobody else does"
            assert known.reads == 3
        assert await known.name() == "Emca" and known.reads == 4
        await database.close()

    run(main)


def test_what_was_taken_back_was_never_remembered(database_url: str, run: Run) -> None:
    async def main() -> None:
        database = await opened(database_url, "Acme")
        known = Known(database)
        with pytest.raises(LookupError):
            async with database.transaction() as tx:
                await orgs.change(tx, "org_1", name="Emca")
                assert await known.name() == "Emca"
                raise LookupError
        assert (await known.name(), database.edition) == ("Acme", 2)
        await database.close()

    run(main)


@requirement("vai:control-revocation-at-once")
def test_what_was_read_before_a_change_is_not_remembered_after_it(database_url: str, run: Run) -> None:
    async def main() -> None:
        database = await opened(database_url, "Acme")
        known = Known(database)
        known.before_read.clear()
        late = asyncio.ensure_future(known.name())
        await known.reading.wait()
        await renamed(database, "Emca")
        known.before_read.set()
        assert await late == "Acme", "it was so when it was asked"
        assert await known.name() == "Emca"
        await database.close()

    run(main)


def test_a_change_with_an_unknown_outcome_disables_the_cache_for_as_long_as_it_may_take(
    sqlite_url: str, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "STATEMENT_TIMEOUT", 0.05)

    async def main() -> None:
        database = await opened(sqlite_url, "Acme")
        known = Known(database)
        unit = module._Transaction()
        unit.unsettles = True
        database._count_edition(1)
        database._ended(unit, None)
        assert database.edition is None
        while database.edition is None:
            before = known.reads
            assert await known.name() == "Acme" and known.reads == before + 1
        before = known.reads
        assert [await known.name() for _ in range(2)] == ["Acme"] * 2 and known.reads <= before + 1
        await database.close()

    run(main)


def test_there_is_room_for_so_much_and_what_was_used_longest_ago_goes(sqlite_url: str, run: Run) -> None:
    async def main() -> None:
        database = await opened(sqlite_url, "aaaa", "bbbb", "cccc", "d" * 11)
        known = Known(database, room=10)
        for id in ("org_1", "org_2", "org_1", "org_3"):
            await known.name(id)
        assert known.reads == 3
        await known.name("org_1")
        assert known.reads == 3
        await known.name("org_2")
        assert known.reads == 4, "it had to go"
        assert [await known.name("org_4") for _ in range(2)] == ["d" * 11] * 2 and known.reads == 6, "too large"
        await database.close()

    run(main)


def test_what_was_not_found_is_looked_for_again(sqlite_url: str, run: Run) -> None:
    async def main() -> None:
        database = await opened(sqlite_url)
        known = Known(database)
        assert [await known.name() for _ in range(2)] == [None, None] and known.reads == 2
        await database.close()

    run(main)


def test_a_change_that_could_not_be_noticed_is_refused(database_url: str, run: Run) -> None:
    async def main() -> None:
        database = await opened(database_url, "Acme")
        async with database.transaction() as tx:
            with pytest.raises(RuntimeError, match="settled"):
                await asyncio.create_task(_renamed(tx))
        async with database.reading() as tx:
            with pytest.raises(RuntimeError, match="settled"):
                await _renamed(tx)
        assert await Known(database).name() == "Acme"
        await database.close()

    async def _renamed(tx: Tx) -> None:
        await orgs.change(tx, "org_1", name="Emca")

    run(main)
