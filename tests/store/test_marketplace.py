"""Marketplace entries: published once under an id, listed newest first, deleted."""

from __future__ import annotations

from msgspec.structs import replace

from plugbay.store import marketplace, packages
from plugbay.store.database import Database
from plugbay.store.marketplace import Entry
from tests.store.test_packages import ROW
from tests.support.loops import Run

ENTRY = Entry("notes", "pkg_1", "t", "https://example.com/notes", ["v1"], "lock.txt", 5.0, 1.0)


def test_entries_are_inserted_found_listed_and_deleted(database_url: str, run: Run) -> None:
    async def main() -> None:
        database = await Database.open(database_url, migrate=False)
        newer = replace(ENTRY, id="mail", created_at=2.0, reviewed_at=None, lock_file=None)
        async with database.transaction() as tx:
            await packages.insert(tx, ROW)
            assert [await marketplace.insert(tx, entry) for entry in (ENTRY, newer, ENTRY)] == [True, True, False]
            assert await marketplace.get(tx, "notes") == ENTRY and await marketplace.get(tx, "none") is None
            assert await marketplace.all_entries(tx) == [newer, ENTRY]
            assert await marketplace.all_entries(tx, "pkg_2") == []
            assert await marketplace.delete(tx, "notes") and not await marketplace.delete(tx, "notes")
        await database.close()

    run(main)
