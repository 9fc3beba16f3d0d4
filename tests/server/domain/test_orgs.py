"""Orgs and projects: rights to create and to see them."""

from __future__ import annotations

from pathlib import Path

from plugbay.server.domain.principal import OPERATOR, Principal
from plugbay.store.pages import Page
from tests.support.clocks import TurnedClock
from tests.support.gateways import code_of, gateway_at, make_org
from tests.support.loops import Run
from tests.support.requirements import requirement

MINE = Principal("key", "org_1", None, "admin", key_id="key_1")
OTHER = Principal("key", "org_2", None, "admin", key_id="key_2")
PROJECT = Principal("key", "org_1", "proj_1", "admin", key_id="key_3")


@requirement("vai:control-cross-tenant")
def test_an_org_is_visible_to_its_own_keys_only(database_url: str, tmp_path: Path, run: Run) -> None:
    async def main() -> None:
        async with gateway_at(database_url, tmp_path) as gateway:
            await make_org(gateway)
            await make_org(gateway, "org_2", "proj_2")
            orgs = gateway.orgs
            assert (await orgs.get(MINE, "org_1")).name == "An org"
            assert await code_of(orgs.get(OTHER, "org_1")) == "org.not_found"
            assert await code_of(orgs.get(MINE, "org_3")) == "org.not_found"
            assert await code_of(orgs.project(OTHER, "org_1", "proj_1")) == "project.not_found"
            assert await code_of(orgs.project(MINE, "org_1", "proj_2")) == "project.not_found"
            assert await code_of(orgs.change_project(OTHER, "org_1", "proj_1", "x")) == "project.not_found"
            assert await code_of(orgs.create_project(OTHER, "org_1", "x")) == "org.not_found"
            assert [org.id for org in (await orgs.page(MINE, Page())).items] == ["org_1"]
            assert len((await orgs.page(OPERATOR, Page())).items) == 2
            assert await code_of(orgs.projects(OTHER, "org_1", Page())) == "org.not_found"
            assert [each.id for each in (await orgs.projects(PROJECT, "org_1", Page())).items] == ["proj_1"]

    run(main)


def test_only_the_operator_makes_orgs_and_a_key_of_a_project_changes_none(
    sqlite_url: str, tmp_path: Path, run: Run
) -> None:
    async def main() -> None:
        clock = TurnedClock()
        async with gateway_at(sqlite_url, tmp_path, clock=clock) as gateway:
            await make_org(gateway)
            orgs = gateway.orgs
            assert await code_of(orgs.create(MINE, "Mine", {})) == "auth.role_denied"
            assert await code_of(orgs.create(OPERATOR, "Twice", {}, "org_1")) == "org.exists"
            assert await code_of(orgs.create_project(MINE, "org_1", "Twice", "proj_1")) == "project.exists"
            assert await code_of(orgs.create_project(PROJECT, "org_1", "x")) == "auth.role_denied"
            assert await code_of(orgs.change(PROJECT, "org_1", name="x")) == "auth.role_denied"
            clock.turn(5)
            changed = await orgs.change(MINE, "org_1", name="Other")
            assert changed.name == "Other" and changed.updated_at == changed.created_at + 5
            assert (await orgs.change_project(MINE, "org_1", "proj_1", "Other")).name == "Other"
            assert (await orgs.create(OPERATOR, "Named by us", {})).id.startswith("org_")

    run(main)
