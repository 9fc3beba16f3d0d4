"""Orgs and projects."""

from __future__ import annotations

from plugbay.store import orgs
from plugbay.store.database import Database
from plugbay.store.orgs import Org, Project
from plugbay.store.pages import Page
from tests.support.loops import Run

ACME = Org("org_1", "Acme", {}, 1.0, 1.0)
SHOP = Project("proj_1", "org_1", "Shop", 2.0, 2.0)


def test_orgs_and_projects_come_back_and_can_be_changed(database_url: str, run: Run) -> None:
    async def main() -> None:
        database = await Database.open(database_url, migrate=False)
        async with database.transaction() as tx:
            assert await orgs.insert(tx, ACME)
            assert not await orgs.insert(tx, ACME)
            assert await orgs.insert_project(tx, SHOP)
            assert not await orgs.insert_project(tx, SHOP)
            assert await orgs.get(tx, "org_1") == ACME
            assert await orgs.get_project(tx, "proj_1") == SHOP
            assert await orgs.change(tx, "org_1", name="Other", updated_at=3.0) == Org("org_1", "Other", {}, 1.0, 3.0)
            assert await orgs.change(tx, "org_2", name="Other") is None
            changed = await orgs.change_project(tx, "proj_1", name="Other", updated_at=3.0)
            assert changed == Project("proj_1", "org_1", "Other", 2.0, 3.0)
            assert await orgs.change_project(tx, "proj_2", name="Other") is None
        await database.close()

    run(main)


def test_projects_are_listed_for_their_own_org(database_url: str, run: Run) -> None:
    async def main() -> None:
        database = await Database.open(database_url, migrate=False)
        async with database.transaction() as tx:
            for org in ("org_1", "org_2"):
                await orgs.insert(tx, Org(org, org, {}, 1.0, 1.0))
                await orgs.insert_project(tx, Project(f"proj_of_{org}", org, "P", 1.0, 1.0))
            part = await orgs.page_of_projects(tx, "org_1", Page())
            assert [project.id for project in part.items] == ["proj_of_org_1"]
            assert (await orgs.page_of_projects(tx, "org_1", Page(), id="proj_of_org_2")).items == ()
        await database.close()

    run(main)
