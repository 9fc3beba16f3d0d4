"""The audit log."""

from __future__ import annotations

from dataclasses import replace

from plugbay.store import audit
from plugbay.store.audit import Entry
from plugbay.store.database import Database
from plugbay.store.pages import Page
from tests.support.loops import Run

ENTRY = Entry("aud_1", 1.0, "org_1", None, "key", "key_1", "org.update", "org", "org_1", "req_1", {"fields": ["name"]})


def test_entries_come_back_filtered_and_newest_first(database_url: str, run: Run) -> None:
    async def main() -> None:
        other = replace(ENTRY, id="aud_2", at=2.0, org_id="org_2", subject_id="org_2", action="org.create")
        database = await Database.open(database_url, migrate=False)
        async with database.transaction() as tx:
            await audit.insert(tx, ENTRY)
            await audit.insert(tx, other)
            assert (await audit.page(tx, Page())).items == (other, ENTRY)
            assert (await audit.page(tx, Page(), org_id="org_1")).items == (ENTRY,)
            assert (await audit.page(tx, Page(), subject_id="org_2")).items == (other,)
            assert (await audit.page(tx, Page(), action="org.create", org_id="org_1")).items == ()
        await database.close()

    run(main)
