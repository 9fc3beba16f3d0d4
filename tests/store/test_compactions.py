"""Compactions."""

from __future__ import annotations

from plugbay.store import chains, compactions, sessions
from plugbay.store.database import Database
from plugbay.store.pages import Page
from plugbay.store.rows import ALL_TENANTS
from tests.store.conversing_rows import chain, compaction, session
from tests.support.loops import Run


def test_a_compaction_is_made_once_and_ends_once(database_url: str, run: Run) -> None:
    async def main() -> None:
        database = await Database.open(database_url, migrate=False)
        async with database.transaction() as tx:
            await sessions.insert(tx, session("sess_1"))
            await chains.insert(tx, chain("ch_1"))
            assert await compactions.insert(tx, compaction("cmp_1", pinned_items=[{"a": 1}]))
            assert not await compactions.insert(tx, compaction("cmp_1"))
            assert await compactions.begin(tx, "cmp_1", None, 2.0)
            assert await compactions.begin(tx, "cmp_1", None, 3.0), "a gateway that was killed is followed by another"
            [left] = await compactions.unfinished(tx)
            assert (left.attempts, left.started_at, left.pinned_items) == (2, 3.0, [{"a": 1}])
            assert await compactions.end(tx, "cmp_1", None, status="succeeded", new_chain_id="ch_1", completed_at=4.0)
            assert not await compactions.end(tx, "cmp_1", None, status="failed", completed_at=5.0)
            assert not await compactions.begin(tx, "cmp_1", None, 6.0)
            found = await compactions.find(tx, "cmp_1", lock=True)
            assert found is not None and (found.status, found.new_chain_id) == ("succeeded", "ch_1")
            part = await compactions.page(tx, Page(), ALL_TENANTS, chain_id="ch_1", status="succeeded")
            assert part.items == (found,)
            assert (await compactions.page(tx, Page(), ALL_TENANTS, only=frozenset({"sess_9"}))).items == ()
        await database.close()

    run(main)
