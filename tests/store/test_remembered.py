"""What is remembered is forgotten by the change itself, whoever makes it, before anybody is told that it is made."""

from __future__ import annotations

import asyncio

import pytest

from plugbay.store import database as module
from plugbay.store import keys, orgs
from plugbay.store.database import Database, Tx
from plugbay.store.orgs import Org
from plugbay.store.remembered import Remembered
from tests.support.loops import Run
from tests.support.patience import until
from tests.support.requirements import requirement

KEY = keys.ApiKey("key_1", "org_1", None, "a key", "admin", "abcd", 1.0, None, None)


class Known:
    """The name of an org, as it is remembered; `reads` counts looks at the table."""

    def __init__(self, database: Database, room: int = 10) -> None:
        self.database = database
        self.reads = 0
        self.before_read = asyncio.Event()
        self.before_read.set()
        self.reading = asyncio.Event()
        self.memory = Remembered[str, str](database, room, len)

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
            await keys.insert(tx, KEY, b"d" * 32)  # of another settled table: it may matter as well
        assert await known.name() == "Emca" and known.reads == 3
        await database.close()

    run(main)


def test_a_change_of_any_other_table_makes_nobody_forget(database_url: str, run: Run) -> None:
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
def test_while_somebody_changes_nothing_is_taken_from_memory_nor_put_there(database_url: str, run: Run) -> None:
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


def test_a_change_that_nobody_saw_the_end_of_makes_memory_useless_for_as_long_as_it_may_take(
    sqlite_url: str, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "STATEMENT_TIMEOUT", 0.05)

    async def main() -> None:
        database = await opened(sqlite_url, "Acme")
        known = Known(database)
        unit = module._Unit()
        unit.unsettles = True
        database._unsettling += 1
        database._ended(unit, None)
        assert database.edition is None and [await known.name() for _ in range(2)] == ["Acme"] * 2
        assert known.reads == 2
        await until(lambda: database.edition is not None)
        assert [await known.name() for _ in range(2)] == ["Acme"] * 2 and known.reads == 3
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
