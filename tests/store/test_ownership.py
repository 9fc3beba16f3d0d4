"""One server per database, on both kinds."""

from __future__ import annotations

import asyncio
import os
import re
from pathlib import Path

import pytest
from sqlalchemy import text

from plugbay.store import ownership
from plugbay.store.database import Database
from plugbay.store.locks import InUse
from plugbay.store.ownership import LOCK, Claim, owned
from tests.support.conversing import settled
from tests.support.databases import postgresql
from tests.support.loops import Run
from tests.support.patience import until
from tests.support.requirements import requirement

TERMINATE = text(
    "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE application_name LIKE 'plugbay %'"
)


def unexpected(holder: str) -> None:
    raise AssertionError(holder)


async def waiters(database: Database) -> int:
    """Number of waiting requests for our lock."""
    async with database.reading() as tx:
        query = text("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted")
        return int(await tx.scalar(query) or 0)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ownership, "PATIENCE", 0.0)
    monkeypatch.setattr(ownership, "CHECK_SECONDS", 0.02)


@requirement("vai:control-one-gateway")
def test_a_second_server_is_refused_and_the_owner_is_named(database_url: str, run: Run, impatient: None) -> None:
    async def main() -> None:
        first, second = [await Database.open(database_url, migrate=False) for _ in range(2)]
        async with owned(first, unexpected):
            with pytest.raises(InUse, match=rf"in use by another plugbay server.*\b{os.getpid()}\b"):
                async with owned(second, unexpected):
                    raise AssertionError("two have it")
            await first.ping()
        async with owned(second, unexpected):
            await second.ping()
        await first.close()
        await second.close()

    run(main)


def test_one_file_has_one_owner_by_whatever_name_it_is_called(sqlite_url: str, tmp_path: Path, run: Run) -> None:
    async def main() -> None:
        (tmp_path / "other").mkdir()
        (tmp_path / "other" / "link.db").symlink_to(tmp_path / "plugbay.db")
        first = await Database.open(sqlite_url, migrate=False)
        second = await Database.open(f"sqlite:///{tmp_path}/other/link.db", migrate=False)
        async with owned(first, unexpected):
            with pytest.raises(InUse, match=re.escape(str(tmp_path / "plugbay.db"))):
                async with owned(second, unexpected):
                    raise AssertionError("two have it")
        await first.close()
        await second.close()

    run(main)


@pytest.fixture
def server_url() -> str:
    """A PostgreSQL database of its own: its connections are killed."""
    return postgresql().url(postgresql().create())


@requirement("vai:control-one-gateway")
def test_a_connection_that_is_lost_is_made_again(server_url: str, run: Run, impatient: None) -> None:
    async def main() -> None:
        database, other = [await Database.open(server_url, migrate=False) for _ in range(2)]
        claim = Claim(database)
        await claim.acquire()
        edition = database.edition
        assert await claim.confirm() is None and database.edition == edition
        async with other.transaction() as tx:
            assert await tx.scalar(TERMINATE) == 1
        assert await claim.confirm() is None
        assert database.edition != edition, "another may have had it, so nothing that is remembered counts"
        with pytest.raises(InUse):
            await Claim(other).acquire()
        await claim.release()
        after = Claim(other)
        await after.acquire()
        await after.release()
        await database.close()
        await other.close()

    run(main)


@requirement("vai:control-one-gateway")
def test_a_server_that_lost_the_database_is_notified(server_url: str, run: Run, impatient: None) -> None:
    async def main() -> None:
        database, other = [await Database.open(server_url, migrate=False) for _ in range(2)]
        told: list[str] = []
        async with owned(database, told.append):
            taking = await other.dedicated()
            await taking.execute(text("SELECT set_config('application_name', 'somebody', false)"))
            waiting = asyncio.create_task(taking.execute(text(f"SELECT pg_advisory_lock({LOCK})")))
            await settled(lambda: waiters(other), bool)
            async with other.transaction() as tx:
                assert await tx.scalar(TERMINATE) == 1
            await until(lambda: told == ["somebody"])
            await waiting
        await taking.close()
        await database.close()
        await other.close()

    run(main)
