"""A file that can be used opens, one that cannot says why, and the loop runs on while the disk works."""

from __future__ import annotations

import asyncio
import sqlite3
import stat
from pathlib import Path

import pytest

from plugbay.host.disk import sqlite
from plugbay.host.disk.sqlite import Database, Schema
from plugbay.host.disk.sqlite_files import IN_MEMORY
from plugbay.model.errors import CallFailed, Code, PlugbayError
from tests.support.disks import failing_disk
from tests.support.loops import Run

FIRST = ("CREATE TABLE things (name TEXT)",)
SECOND = ("ALTER TABLE things ADD COLUMN size INTEGER", "INSERT INTO things VALUES ('migrated', 2)")
SCHEMA = Schema("thing", 77, (FIRST,))


def add(connection: sqlite3.Connection) -> None:
    connection.execute("INSERT INTO things (name) VALUES ('x')")


def count(connection: sqlite3.Connection) -> int:
    return int(connection.execute("SELECT count(*) FROM things").fetchone()[0])


async def refusal(path: Path, schema: Schema = SCHEMA) -> str:
    with pytest.raises(PlugbayError) as caught:
        await Database(path, schema).open()
    return str(caught.value)


async def failure_of(file: Database, work: sqlite.Work[None]) -> CallFailed:
    with pytest.raises(CallFailed) as caught:
        await file.write(work)
    return caught.value


def test_written_data_is_there_after_a_restart(run: Run, tmp_path: Path) -> None:
    async def main() -> None:
        for expected in (1, 2):
            file = Database(tmp_path / "deep" / "things.db", SCHEMA)
            await file.open()
            await file.write(add)
            assert await file.run(count) == expected
            await file.close()
            await file.close()

    run(main)


def test_the_file_is_its_owners_alone(run: Run, tmp_path: Path) -> None:
    async def main() -> None:
        file = Database(tmp_path / "things.db", SCHEMA)
        await file.open()
        await file.write(add)
        modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()}
        await file.close()
        assert modes == {"things.db": 0o600, "things.db-shm": 0o600, "things.db-wal": 0o600}
        for name in modes:  # as an older release, or a copy, left them
            (tmp_path / name).touch()
            (tmp_path / name).chmod(0o644)
        sqlite.make_private(tmp_path / "things.db")
        assert {stat.S_IMODE((tmp_path / name).stat().st_mode) for name in modes} == {0o600}

    run(main)


def test_an_older_file_is_migrated_and_keeps_its_data(run: Run, tmp_path: Path) -> None:
    async def main() -> None:
        old = Database(tmp_path / "things.db", SCHEMA)
        await old.open()
        await old.write(add)
        await old.close()
        new = Database(tmp_path / "things.db", Schema("thing", 77, (FIRST, SECOND)))
        for _ in range(2):
            await new.open()
            assert await new.run(count) == 2
            await new.close()
        assert "version 2" in await refusal(tmp_path / "things.db")

    run(main)


def test_a_migration_that_fails_leaves_the_file_as_it_was(run: Run, tmp_path: Path) -> None:
    async def main() -> None:
        path = tmp_path / "things.db"
        old = Database(path, SCHEMA)
        await old.open()
        await old.close()
        assert "no such table" in await refusal(path, Schema("thing", 77, (FIRST, (*SECOND, "DROP TABLE lost"))))
        await old.open()
        assert await old.run(count) == 0
        await old.close()

    run(main)


def test_a_file_of_another_kind_is_refused(run: Run, tmp_path: Path) -> None:
    async def main() -> None:
        file = Database(tmp_path / "things.db", SCHEMA)
        await file.open()
        await file.close()
        assert "not a database of this kind" in await refusal(tmp_path / "things.db", Schema("other", 78, (FIRST,)))

    run(main)


def test_a_file_that_is_no_database_is_refused(run: Run, tmp_path: Path) -> None:
    async def main() -> None:
        path = tmp_path / "things.db"
        path.write_bytes(b"not a database " * 1000)
        assert "not a database" in await refusal(path)
        assert path.read_bytes() == b"not a database " * 1000

    run(main)


def test_a_damaged_file_is_refused(run: Run, tmp_path: Path) -> None:
    async def main() -> None:
        path = tmp_path / "things.db"
        file = Database(path, SCHEMA)
        await file.open()
        await file.write(lambda things: things.executemany("INSERT INTO things VALUES (?)", [("x" * 50,)] * 5_000))
        await file.close()
        intact = path.read_bytes()
        path.write_bytes(intact[:8192] + b"\xff" * (len(intact) - 8192))
        assert "cannot be used" in await refusal(path)

    run(main)


def test_a_path_where_no_file_can_be_is_refused(run: Run, tmp_path: Path) -> None:
    async def main() -> None:
        (tmp_path / "file").touch()
        assert str(tmp_path) in await refusal(tmp_path)
        assert "cannot be used" in await refusal(tmp_path / "file" / "things.db")

    run(main)


def test_a_closed_file_is_unavailable_and_may_be_opened_again(run: Run) -> None:
    async def main() -> None:
        file = Database(IN_MEMORY, SCHEMA)
        assert (await failure_of(file, add)).code == Code.UNAVAILABLE
        await file.open()
        with pytest.raises(PlugbayError, match="already open"):
            await file.open()
        await file.write(add)
        await file.close()
        assert (await failure_of(file, add)).code == Code.UNAVAILABLE
        await file.open()
        assert await file.run(count) == 0
        await file.close()

    run(main)


def test_a_write_that_fails_half_way_is_undone(run: Run) -> None:
    def half(connection: sqlite3.Connection) -> None:
        add(connection)
        connection.execute("INSERT INTO nothing VALUES (1)")

    async def main() -> None:
        file = Database(IN_MEMORY, SCHEMA)
        await file.open()
        failure = (await failure_of(file, half)).failure
        assert (failure.code, failure.retryable) == (Code.INTERNAL, False)
        assert await file.run(count) == 0
        await file.write(add)
        assert await file.run(count) == 1
        await file.close()

    run(main)


def test_text_that_is_no_unicode_is_refused(run: Run) -> None:
    def ask(connection: sqlite3.Connection) -> None:
        connection.execute("SELECT ?", ("\ud800",))

    async def main() -> None:
        file = Database(IN_MEMORY, SCHEMA)
        await file.open()
        assert (await failure_of(file, ask)).code == Code.INVALID_INPUT
        await file.close()

    run(main)


def test_the_loop_runs_while_another_process_holds_the_lock(run: Run, tmp_path: Path) -> None:
    async def main() -> None:
        file = Database(tmp_path / "things.db", SCHEMA)
        await file.open()
        other = sqlite3.connect(tmp_path / "things.db", isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        writing = asyncio.create_task(file.write(add))
        for _ in range(100):
            await asyncio.sleep(0)
        assert not writing.done()
        other.execute("COMMIT")
        other.close()
        await writing
        assert await file.run(count) == 1
        await file.close()

    run(main)


def test_a_lock_that_is_never_released_is_a_failure_worth_repeating(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite, "BUSY_SECONDS", 0.01)

    async def main() -> None:
        file = Database(tmp_path / "things.db", SCHEMA)
        await file.open()
        other = sqlite3.connect(tmp_path / "things.db", isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        failure = (await failure_of(file, add)).failure
        assert (failure.code, failure.retryable) == (Code.UNAVAILABLE, True)
        other.close()
        await file.write(add)
        await file.close()

    run(main)


def test_closing_waits_for_earlier_requests(run: Run, tmp_path: Path) -> None:
    async def main() -> None:
        file = Database(tmp_path / "things.db", SCHEMA)
        await file.open()
        writes = [asyncio.create_task(file.write(add)) for _ in range(20)]
        await asyncio.sleep(0)
        await file.close()
        await asyncio.gather(*writes)
        await file.open()
        assert await file.run(count) == 20
        await file.close()

    run(main)


def test_a_disk_that_fails_is_a_failure_worth_repeating_and_loses_nothing(run: Run, tmp_path: Path) -> None:
    async def main() -> None:
        file = Database(tmp_path / "things.db", SCHEMA)
        await file.open()
        await file.write(add)
        with failing_disk():
            for _ in range(2):
                failure = (await failure_of(file, add)).failure
                assert (failure.code, failure.retryable) == (Code.UNAVAILABLE, True)
                assert "disk I/O error" in failure.message
        await file.write(add)
        assert await file.run(count) == 2
        await file.close()

    run(main)


def test_a_full_disk_is_a_failure_worth_repeating(run: Run) -> None:
    def fill(connection: sqlite3.Connection) -> None:
        connection.execute("INSERT INTO things (name) VALUES (?)", ("x" * 100_000,))

    async def main() -> None:
        file = Database(IN_MEMORY, SCHEMA)
        await file.open()
        (pages,) = await file.run(lambda connection: connection.execute("PRAGMA page_count").fetchone())
        await file.run(lambda connection: connection.execute(f"PRAGMA max_page_count = {pages}").fetchone())
        failure = (await failure_of(file, fill)).failure
        assert (failure.code, failure.retryable) == (Code.UNAVAILABLE, True)
        assert await file.run(count) == 0
        await file.close()

    run(main)


def test_a_transaction_whose_rollback_failed_blocks_no_later_one(run: Run) -> None:
    async def main() -> None:
        file = Database(IN_MEMORY, SCHEMA)
        await file.open()
        await file.run(lambda connection: connection.execute("BEGIN IMMEDIATE"))  # left open
        await file.run(add)
        await file.write(add)
        assert await file.run(count) == 1
        await file.close()

    run(main)
