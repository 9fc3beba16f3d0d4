"""Sessions."""

from __future__ import annotations

from plugbay.store import sessions
from plugbay.store.database import Database
from plugbay.store.pages import Page
from plugbay.store.rows import ALL_TENANTS
from tests.store.conversing_rows import session
from tests.support.loops import Run


def test_sessions_are_found_by_parent_and_by_external_id(database_url: str, run: Run) -> None:
    async def main() -> None:
        database = await Database.open(database_url, migrate=False)
        async with database.transaction() as tx:
            await sessions.insert(tx, session("sess_1", external_session_id="chat"))
            await sessions.insert(tx, session("sess_2", parent_session_id="sess_1"))
            assert await sessions.children(tx, frozenset({"sess_1"})) == {"sess_2"}
            assert await sessions.children(tx, frozenset()) == frozenset()
            assert await sessions.change(tx, "sess_2", metadata={"a": 1})
            found = await sessions.find(tx, "sess_2", lock=True)
            assert found is not None and found.metadata == {"a": 1}
            part = await sessions.page(tx, Page(), ALL_TENANTS, external_session_id="chat")
            assert [item.id for item in part.items] == ["sess_1"]
            part = await sessions.page(tx, Page(), ALL_TENANTS, only=frozenset({"sess_2"}))
            assert [item.id for item in part.items] == ["sess_2"]
        await database.close()

    run(main)
