"""Pagination: every record once, newest first, whatever is added meanwhile."""

from __future__ import annotations

from plugbay.store.database import Database
from plugbay.store.orgs import Org, insert, page
from plugbay.store.pages import Page, Part
from tests.support.loops import Run


def test_the_parts_of_a_list_have_every_record_once_and_newest_first(database_url: str, run: Run) -> None:
    async def main() -> None:
        database = await Database.open(database_url, migrate=False)
        async with database.transaction() as tx:
            for number in range(7):  # three times, so that ids decide too
                await insert(tx, Org(f"org_{number}", "Org", {}, float(number // 3), 1.0))
        seen: list[str] = []
        after = None
        while True:
            async with database.reading() as tx:
                part: Part[Org] = await page(tx, Page(3, after))
            seen += [org.id for org in part.items]
            after = part.after
            if after is None:
                break
            async with database.transaction() as tx:  # newer than all: on none of the following pages
                await insert(tx, Org(f"org_new_{len(seen)}", "Org", {}, 99.0, 1.0))
        assert seen == ["org_6", "org_5", "org_4", "org_3", "org_2", "org_1", "org_0"]
        await database.close()

    run(main)


def test_a_list_that_fits_has_no_next_part(database_url: str, run: Run) -> None:
    async def main() -> None:
        database = await Database.open(database_url, migrate=False)
        async with database.transaction() as tx:
            await insert(tx, Org("org_1", "Org", {}, 1.0, 1.0))
            assert (await page(tx, Page(1))).after is None
            assert (await page(tx, Page(1), id="org_2")).items == ()
        await database.close()

    run(main)


def test_a_search_finds_parts_of_texts_and_takes_signs_as_they_are(database_url: str, run: Run) -> None:
    async def main() -> None:
        database = await Database.open(database_url, migrate=False)
        async with database.transaction() as tx:
            for id, name in (("tea", "Tea 100%"), ("cafe", "The_Cafe"), ("org", "Bar")):
                await insert(tx, Org(id, name, {}, 1.0, 1.0))
            for search, found in (
                ("TEA", {"tea"}),
                ("e", {"tea", "cafe"}),
                ("%", {"tea"}),
                ("_", {"cafe"}),
                ("\\", set()),
                ("", {"tea", "cafe", "org"}),
                (None, {"tea", "cafe", "org"}),
            ):
                assert {org.id for org in (await page(tx, Page(), search=search)).items} == found, search
        await database.close()

    run(main)
