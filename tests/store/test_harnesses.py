"""Harness executions."""

from __future__ import annotations

from plugbay.store import chains, harnesses, sessions
from plugbay.store.database import Database
from plugbay.store.pages import Page
from plugbay.store.rows import ALL_TENANTS
from tests.store.conversing_rows import chain, execution, session
from tests.support.loops import Run


def test_an_execution_begins_and_ends_once_until_it_is_queued_again(database_url: str, run: Run) -> None:
    async def main() -> None:
        database = await Database.open(database_url, migrate=False)
        async with database.transaction() as tx:
            await sessions.insert(tx, session("sess_1"))
            await chains.insert(tx, chain("ch_1"))
            await harnesses.insert(tx, execution("exec_1"))
            assert await harnesses.begin(tx, "exec_1", 2.0)
            assert not await harnesses.begin(tx, "exec_1", 3.0)
            assert [each.id for each in await harnesses.unfinished(tx)] == ["exec_1"]
            assert await harnesses.end(tx, "exec_1", None, status="failed", completed_at=3.0)
            assert not await harnesses.end(tx, "exec_1", None, status="succeeded", completed_at=4.0)
            assert await harnesses.change(tx, "exec_1", status="queued", cancel_requested=True)
            assert not await harnesses.begin(tx, "exec_1", 5.0), "nobody wants it any more"
            found = await harnesses.find(tx, "exec_1", lock=True)
            assert found is not None and (found.status, found.started_at) == ("queued", 2.0)
            part = await harnesses.page(tx, Page(), ALL_TENANTS, binding_id="bind_1")
            assert part.items == (found,)
            assert (await harnesses.page(tx, Page(), ALL_TENANTS, status="failed")).items == ()
        await database.close()

    run(main)
