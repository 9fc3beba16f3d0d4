"""The page of the audit log: filters, the state of the hash chains, and admins alone."""

from __future__ import annotations

from pathlib import Path

from sqlalchemy import update

from plugbay.store.tables import AUDIT
from tests.support.dashboards import text_of, visitor_of
from tests.support.gateways import gateway_at, make_key, make_org
from tests.support.loops import Run


def test_entries_are_filtered_and_their_subjects_are_links(sqlite_url: str, tmp_path: Path, run: Run) -> None:
    async def main() -> None:
        async with gateway_at(sqlite_url, tmp_path) as gateway, visitor_of(gateway) as visitor:
            assert "No entries yet" in text_of(await visitor.get("/audit"))
            await make_org(gateway, "org_1", "proj_1")
            await make_org(gateway, "org_2", "proj_2")
            page = await visitor.get("/audit")
            assert 'href="/orgs/org_1"' in page.text and page.text.count('<th scope="row">') == 4
            for query, rows in (
                ("action=org.create", 2),
                ("subject=proj_2", 1),
                ("org=org_1", 2),
                ("search=PROJ", 2),
                ("search=operator", 4),
            ):
                found = await visitor.get(f"/audit?{query}")
                assert found.text.count('<th scope="row">') == rows, query

    run(main)


def test_a_changed_entry_is_named(sqlite_url: str, tmp_path: Path, run: Run) -> None:
    async def main() -> None:
        async with gateway_at(sqlite_url, tmp_path) as gateway, visitor_of(gateway) as visitor:
            await make_org(gateway)
            whole = text_of(await visitor.get("/audit?verify=1"))
            assert "The chains are whole" in whole and "whole org_1 2 entries" in whole
            async with gateway.database.transaction() as tx:
                await tx.execute(update(AUDIT).where(AUDIT.c.action == "org.create").values(actor_id="<b>mallory"))
            page = await visitor.get("/audit?verify=1")
            broken = text_of(page)
            assert "A chain is broken" in broken and "changed org_1" in broken and "its hash does not" in broken
            assert "<b>mallory" in broken and "<b>mallory" not in page.text

    run(main)


def test_only_admins_see_the_log_of_their_org(sqlite_url: str, tmp_path: Path, run: Run) -> None:
    async def main() -> None:
        async with gateway_at(sqlite_url, tmp_path) as gateway:
            await make_org(gateway, "org_1", "proj_1")
            await make_org(gateway, "org_2", "proj_2")
            async with visitor_of(gateway, await make_key(gateway, "org_1", "operator")) as visitor:
                assert (await visitor.get("/audit")).status_code == 403
                assert "/audit" not in (await visitor.get("/orgs")).text
            async with visitor_of(gateway, await make_key(gateway, "org_1", "admin")) as visitor:
                page = await visitor.get("/audit?verify=1")
                assert "org_1" in page.text and "org_2" not in page.text
                assert (await visitor.get("/audit?org=org_2")).status_code == 404
            async with visitor_of(gateway, await make_key(gateway, "org_1", "admin", "proj_1")) as visitor:
                own = await visitor.get("/audit")
                assert own.status_code == 200 and "Verify" not in own.text
                assert (await visitor.get("/audit?verify=1")).status_code == 403

    run(main)
