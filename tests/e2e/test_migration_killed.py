"""A migration that is killed at any statement: the next start completes it, and no record is lost.

A database of the first version with records is migrated by a real process, which is killed before or after one of its
statements. All kills hit the same database, so each start also takes up what the one before it left. PLUGBAY_STEP is
the distance of two of these statements; `make prove` takes each.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from sqlalchemy import Connection, text
from sqlalchemy.engine import make_url

from plugbay.store import audit
from plugbay.store.database import Database
from plugbay.store.metadata import METADATA
from plugbay.store.migrations import upgrade
from tests.process.helpers import ROOT
from tests.support.databases import KINDS, postgresql
from tests.support.requirements import requirement
from tests.support.tiers import exhaustive, first_alone

ORGS, ENTRIES = 3, 20

FIRST = "0001"

STEP = int(os.environ.get("PLUGBAY_STEP", "3"))


@contextmanager
def old_database(kind: str, folder: Path) -> Iterator[str]:
    """A database of the first version, with records."""
    if kind == "sqlite":
        url = f"sqlite+aiosqlite:///{folder}/old.db"
        asyncio.run(make_old(url))
        yield url
        return
    server = postgresql()
    name = server.create("template0")
    asyncio.run(make_old(server.url(name)))
    yield server.url(name)
    server.drop(name)


async def make_old(url: str) -> None:
    database = Database(_engine_of(url))
    async with database.transaction() as tx:
        await tx.run_sync(upgrade, FIRST)
        for org in range(ORGS):
            values = {"id": f"org_{org}", "name": "An org", "policy": "{}"}
            await tx.execute(text("INSERT INTO orgs VALUES (:id, :name, :policy, 1, 1)"), values)
        for number in range(ENTRIES):
            owner = f"org_{number % ORGS}" if number % 4 else None
            statement = (
                "INSERT INTO audit (id, at, org_id, actor_kind, actor_id, action, subject_kind, subject_id, details)"
                " VALUES (:id, :at, :org, 'key', 'key_1', 'org.update', 'org', 'x', :details)"
            )
            entry: dict[str, Any] = {
                "id": f"aud_{number}",
                "at": number // 2,
                "org": owner,
                "details": '{"n": [1, "é"]}',
            }
            await tx.execute(text(statement), entry)
    await database.close()


def _engine_of(url: str) -> Any:
    from plugbay.store.database import _engine, _parse_url

    return _engine(_parse_url(url))


class Lives:
    """Starts with a database, one after the other."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.e2e.migration_lives"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            text=True,
        )

    def live(self, url: str, when: str = "before", number: int = 0) -> tuple[int, str]:
        """The end of a start, and its number of statements if it was not killed."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(f"{when} {number} {url}\n")
        self._process.stdin.flush()
        end, done = self._process.stdout.readline().split()
        return int(end), done

    def close(self) -> None:
        with self._process:
            assert self._process.stdin is not None
            self._process.stdin.close()


@pytest.fixture(scope="module")
def lives() -> Iterator[Lives]:
    lives = Lives()
    yield lives
    lives.close()


def differences(connection: Connection) -> list[Any]:
    return list(compare_metadata(MigrationContext.configure(connection), METADATA))


async def check_complete(url: str) -> None:
    """The tables are those of the code, all records are there, and the audit log is chained."""
    database = await Database.open(url, migrate=False)
    async with database.reading() as tx:
        assert await tx.run_sync(differences) == []
        assert await tx.scalar(text("SELECT count(*) FROM orgs")) == ORGS
        reports = await audit.verify(tx)
        assert sum(report.entries for report in reports) == ENTRIES
        assert [report.broken for report in reports] == [None] * (ORGS + 1)
    await database.close()


async def version(url: str) -> tuple[str, int]:
    """The version of the tables, and the number of entries."""
    found = make_url(url)
    query = "SELECT version_num, (SELECT count(*) FROM audit) FROM alembic_version"
    if found.get_backend_name() == "sqlite":
        with closing(sqlite3.connect(str(found.database))) as file:
            return file.execute(query).fetchone()  # type: ignore[no-any-return]
    database = await Database.open(url, migrate=False)
    try:
        async with database.reading() as tx:
            row = (await tx.execute(text(query))).one()
            return row[0], row[1]
    finally:
        await database.close()


def count_statements(kind: str, folder: Path, lives: Lives) -> int:
    """The statements of a start that is not killed; the control."""
    folder.mkdir()
    with old_database(kind, folder) as url:
        end, done = lives.live(url)
        assert end == 0
        asyncio.run(check_complete(url))
        return int(done)


def kill_at(url: str, lives: Lives, when: str, number: int) -> tuple[int, str]:
    """How a start ended, and the version that it left; no entry is lost."""
    end, _ = lives.live(url, when, number)
    found, entries = asyncio.run(version(url))
    assert entries == ENTRIES, (when, number)
    return end, found


@requirement("vai:store-migration-killed")
@pytest.mark.parametrize("kind", first_alone(KINDS))
def test_a_migration_that_is_killed_at_some_statements_is_completed_by_the_next_start(
    kind: str, lives: Lives, tmp_path: Path
) -> None:
    with old_database(kind, tmp_path) as url:
        for when, number in (("before", 1), ("after", 60), ("before", 120)):
            assert kill_at(url, lives, when, number) == (-9, FIRST)
        assert lives.live(url)[0] == 0
        asyncio.run(check_complete(url))


@requirement("vai:store-migration-killed")
@exhaustive
@pytest.mark.parametrize("kind", KINDS)
def test_a_migration_that_is_killed_at_any_statement_is_completed_by_the_next_start(
    kind: str, lives: Lives, tmp_path: Path
) -> None:
    """Only the commit makes the new version. After a statement is before the next one; SQLite tries that too."""
    total = count_statements(kind, tmp_path / "control", lives)
    assert total > 120
    every = ("before", "after") if kind == "sqlite" else ("before",)
    numbers = sorted({*range(1, total, STEP), *range(total - 3, total + 1)})
    points = [*((number, when) for number in numbers for when in every), (total, "after")]
    with old_database(kind, tmp_path) as url:
        for number, when in points:
            end, found = kill_at(url, lives, when, number)
            if found != FIRST:
                assert number >= total - 2, "a step of the migration was committed alone"
                break
            assert end == -9, (when, number)
        assert lives.live(url)[0] == 0
        asyncio.run(check_complete(url))
