"""Records to rows, and back."""

from __future__ import annotations

import pytest
from sqlalchemy import select
from sqlalchemy.exc import IntegrityError

from plugbay.store import rows
from plugbay.store.database import Database
from plugbay.store.pages import Page
from plugbay.store.rows import ALL_TENANTS, Tenant
from plugbay.store.tables import SESSIONS
from tests.store.conversing_rows import session
from tests.support.loops import Run


def test_a_record_comes_back_as_it_was(database_url: str, run: Run) -> None:
    async def main() -> None:
        database = await Database.open(database_url, migrate=False)
        kept = session("sess_1", metadata={"z": 1, "a": [None, "\0", 1.5]})
        async with database.transaction() as tx:
            await rows.insert(tx, SESSIONS)
            await rows.insert(tx, SESSIONS, kept)
            found = await rows.find(tx, SESSIONS, type(kept), "sess_1", lock=True)
            assert found == kept
            assert list(found.metadata) == ["z", "a"]
            assert await rows.find(tx, SESSIONS, type(kept), "sess_2") is None
            assert await rows.find_all(tx, select(SESSIONS), type(kept)) == [kept]
        with pytest.raises(IntegrityError):
            async with database.transaction() as tx:
                await rows.insert(tx, SESSIONS, kept)
        await database.close()

    run(main)


def test_a_change_names_the_state_it_is_made_from(database_url: str, run: Run) -> None:
    async def main() -> None:
        database = await Database.open(database_url, migrate=False)
        async with database.transaction() as tx:
            await rows.insert(tx, SESSIONS, session("sess_1"))
            assert await rows.change(tx, SESSIONS, "sess_1", SESSIONS.c.org_id == "org_1", latest_chain_id="ch_1")
            assert not await rows.change(tx, SESSIONS, "sess_1", SESSIONS.c.org_id == "org_2", latest_chain_id="ch_2")
            assert not await rows.change(tx, SESSIONS, "sess_9", latest_chain_id="ch_2")
            found = await rows.find(tx, SESSIONS, type(session("x")), "sess_1")
            assert found is not None and found.latest_chain_id == "ch_1"
        await database.close()

    run(main)


def test_pages_are_made_of_a_tenants_rows(database_url: str, run: Run) -> None:
    async def main() -> None:
        database = await Database.open(database_url, migrate=False)
        made = [
            session("sess_1", created_at=1.0),
            session("sess_2", created_at=2.0, project_id=None),
            session("sess_3", created_at=3.0, project_id="proj_2"),
            session("sess_4", created_at=4.0, org_id="org_2"),
        ]
        async with database.transaction() as tx:
            await rows.insert(tx, SESSIONS, *made)

            async def ids(tenant: Tenant, page: Page = Page(), **said: str | None) -> list[str]:  # noqa: B008
                part = await rows.page(tx, SESSIONS, type(made[0]), page, tenant, said)
                return [item.id for item in part.items]

            assert await ids(ALL_TENANTS) == ["sess_4", "sess_3", "sess_2", "sess_1"]
            assert await ids(Tenant("org_1")) == ["sess_3", "sess_2", "sess_1"]
            assert await ids(Tenant("org_1", "proj_1")) == ["sess_2", "sess_1"], "what is the org's is its projects'"
            assert await ids(Tenant("org_1"), project_id="proj_2", external_session_id=None) == ["sess_3"]
            assert await ids(ALL_TENANTS, Page(2, (3.0, "sess_3"))) == ["sess_2", "sess_1"]
        await database.close()

    run(main)
