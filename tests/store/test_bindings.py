"""Bindings."""

from __future__ import annotations

from msgspec.structs import replace

from plugbay.store import bindings, orgs, packages
from plugbay.store.bindings import BindingRow
from plugbay.store.database import Database, Tx
from plugbay.store.pages import Page
from tests.store.test_packages import ROW as PACKAGE
from tests.support.loops import Run

ROW = BindingRow(
    id="bind_1",
    package_row="pkg_1",
    package_id="acme/p",
    package_version="1.0.0",
    export_id="t",
    export_kind="tool",
    org_id="org_1",
    project_id=None,
    config={"a": 1},
    secrets={"key": "secret://org_1/key"},
    policy={},
    status="active",
    traffic_percent=100,
    revision=1,
    created_at=1.0,
    updated_at=1.0,
)


async def surroundings(tx: Tx) -> None:
    await orgs.insert(tx, orgs.Org("org_1", "Acme", {}, 1.0, 1.0))
    await orgs.insert_project(tx, orgs.Project("proj_1", "org_1", "One", 1.0, 1.0))
    await packages.insert(tx, PACKAGE)


def test_a_binding_is_changed_from_the_revision_that_was_seen_and_from_no_other(database_url: str, run: Run) -> None:
    async def main() -> None:
        database = await Database.open(database_url, migrate=False)
        async with database.transaction() as tx:
            await surroundings(tx)
            await bindings.lock_org(tx, "org_1")
            await bindings.add(tx, ROW)
            assert await bindings.get(tx, "bind_1") == ROW and await bindings.get(tx, "bind_2") is None
            changed = replace(ROW, status="disabled", revision=2)
            assert await bindings.is_active(tx, "bind_1")
            assert await bindings.replace(tx, changed) and not await bindings.replace(tx, changed)
            assert await bindings.get(tx, "bind_1") == changed
            assert not await bindings.is_active(tx, "bind_1") and not await bindings.is_active(tx, "bind_2")
        await database.close()

    run(main)


def test_bindings_are_found_by_whose_they_are_what_they_bind_and_whether_they_run(database_url: str, run: Run) -> None:
    of_project = replace(ROW, id="bind_2", project_id="proj_1", created_at=2.0)
    hook = replace(ROW, id="bind_3", export_id="h", export_kind="hook", created_at=3.0)
    asleep = replace(ROW, id="bind_4", status="disabled", created_at=4.0)

    async def main() -> None:
        database = await Database.open(database_url, migrate=False)
        async with database.transaction() as tx:
            await surroundings(tx)
            for row in (ROW, of_project, hook, asleep):
                await bindings.add(tx, row)
            assert await bindings.active(tx, "org_1") == [ROW, of_project, hook]
            assert await bindings.active(tx, "org_1", export_kind="hook") == [hook]
            assert await bindings.active(tx, "org_2", export_id="t") == []
            assert await bindings.of_packages(tx, ["pkg_1"], "org_1", "proj_2") == [ROW, hook, asleep]
            assert await bindings.of_packages(tx, ["pkg_2"], None, None) == []
            assert await bindings.digests_in_use(tx) == {PACKAGE.digest}
            other = replace(
                ROW, id="bind_5", secrets={"a": "secret://org_1/key2", "b": "secret://org_1/k%y"}, created_at=5.0
            )
            await bindings.add(tx, other)
            key, none = ("org_1", "secret://org_1/key"), ("org_2", "secret://org_1/key")
            assert await bindings.with_secrets(tx, [key, none], 2) == [asleep, hook]
            assert await bindings.with_secrets(tx, [none], 10) == [] == await bindings.with_secrets(tx, [], 10)
            assert await bindings.with_secrets(tx, [("org_1", "secret://org_1/key2")], 10) == [other]
            assert await bindings.with_secrets(tx, [("org_1", "secret://org_1/k%y")], 10) == [other]
            await bindings.delete(tx, other.id)
            part = await bindings.select_part(tx, "org_1", "proj_1", Page(limit=2), {})
            assert part.items == (asleep, hook) and part.after == (3.0, "bind_3")
            part = await bindings.select_part(tx, "org_1", None, Page(limit=2, after=part.after), {})
            assert part.items == (of_project, ROW) and part.after is None
            assert (await bindings.select_part(tx, None, None, Page(), {"status": "disabled"})).items == (asleep,)
        await database.close()

    run(main)
