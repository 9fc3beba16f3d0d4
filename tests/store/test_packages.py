"""Packages: one row per owner, package and version."""

from __future__ import annotations

from msgspec.structs import replace

from plugbay.store import packages
from plugbay.store.database import Database
from plugbay.store.packages import PackageRow
from plugbay.store.pages import Page
from tests.support.loops import Run

ROW = PackageRow(
    "pkg_1", None, "acme/p", "1.0.0", "sha256:1", "t", {"name": "P"}, "verified", "k", "available", "upload", 1.0
)


def test_a_version_exists_once_per_owner_and_an_org_sees_its_own_and_shared_ones(database_url: str, run: Run) -> None:
    async def main() -> None:
        database = await Database.open(database_url, migrate=False)
        own = replace(ROW, id="pkg_2", org_id="org_1", created_at=2.0)
        others = replace(ROW, id="pkg_3", org_id="org_2", created_at=3.0, status="quarantined")
        async with database.transaction() as tx:
            assert [await packages.insert(tx, row) for row in (ROW, own, others)] == [True] * 3
            assert not await packages.insert(tx, replace(ROW, id="pkg_4", digest="sha256:2"))
            assert await packages.get(tx, "pkg_1") == ROW
            assert await packages.find(tx, "org_1", "acme/p", "1.0.0") == own
            assert await packages.find(tx, None, "acme/p", "2.0.0") is None
            assert (await packages.select_part(tx, "org_1", Page())).items == (own, ROW)
            assert (await packages.select_part(tx, None, Page(), status="quarantined")).items == (others,)
            assert (await packages.select_part(tx, None, Page(), package_id="acme/q")).items == ()
            assert await packages.usable(tx, "org_2") == [ROW]
        await database.close()

    run(main)


def test_a_deleted_package_keeps_its_row_and_is_found_only_on_request(database_url: str, run: Run) -> None:
    async def main() -> None:
        database = await Database.open(database_url, migrate=False)
        async with database.transaction() as tx:
            await packages.insert(tx, ROW)
            assert await packages.get(tx, "pkg_1", lock="update") == ROW and await packages.is_stored(tx, "sha256:1")
            assert await packages.verified(tx) == [ROW]
            await packages.delete(tx, "pkg_1", 7.0)
            gone = replace(ROW, deleted_at=7.0)
            assert await packages.get(tx, "pkg_1") is None and await packages.usable(tx, None) == []
            assert await packages.find(tx, None, "acme/p", "1.0.0", lock="share") is None
            assert await packages.find(tx, None, "acme/p", "1.0.0", deleted=True, lock="update") == gone
            assert (await packages.select_part(tx, None, Page())).items == ()
            assert not await packages.is_stored(tx, "sha256:1") and await packages.verified(tx) == []
            again = replace(ROW, digest="sha256:2", org_id="org_9", accepted_at=8.0)
            await packages.replace_contents(tx, again)
            assert await packages.get(tx, "pkg_1") == replace(again, org_id=None)
        await database.close()

    run(main)


def test_what_a_package_is_worth_may_change_and_what_it_is_may_not(sqlite_url: str, run: Run) -> None:
    async def main() -> None:
        database = await Database.open(sqlite_url, migrate=False)
        async with database.transaction() as tx:
            await packages.insert(tx, ROW)
            await packages.judge(tx, replace(ROW, status="quarantined", key_id=None, version="9.9.9"))
            assert await packages.get(tx, "pkg_1") == replace(ROW, status="quarantined", key_id=None)
        await database.close()

    run(main)
