"""Chains, and the bytes of their blocks."""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from sqlalchemy.exc import IntegrityError

from plugbay.store import chains, sessions
from plugbay.store.database import Database
from plugbay.store.pages import Page
from plugbay.store.rows import ALL_TENANTS
from plugbay.store.tables import CHAINS
from tests.store.conversing_rows import block, chain, session
from tests.support.loops import Run
from tests.support.requirements import requirement


@requirement("vai:control-chain-append-only")
def test_blocks_keep_their_bytes_and_their_places(database_url: str, run: Run) -> None:
    async def main() -> None:
        database = await Database.open(database_url, migrate=False)
        async with database.transaction() as tx:
            await sessions.insert(tx, session("sess_1"))
            await chains.insert(tx, chain("ch_1"))
            await chains.append(tx, [block(1), block(2), block(3)])
            assert await chains.blocks(tx, "ch_1") == [block(1), block(2), block(3)]
            assert await chains.blocks(tx, "ch_1", after=1, through=2) == [block(2)]
            assert await chains.blocks(tx, "ch_1", limit=1) == [block(1)]
        with pytest.raises(IntegrityError):
            async with database.transaction() as tx:
                await chains.append(tx, [block(3)])
        await database.close()

    run(main)


def test_a_compaction_makes_one_chain_at_most(database_url: str, run: Run) -> None:
    async def main() -> None:
        database = await Database.open(database_url, migrate=False)
        async with database.transaction() as tx:
            await sessions.insert(tx, session("sess_1"))
            await chains.insert(tx, chain("ch_1"))
            await chains.insert(tx, chain("ch_2", created_by_compaction_id="cmp_1"))
            found = await chains.by_compaction(tx, "cmp_1")
            assert found is not None and found.id == "ch_2"
            assert await chains.by_compaction(tx, "cmp_2") is None
        with pytest.raises(IntegrityError):
            async with database.transaction() as tx:
                await chains.insert(tx, chain("ch_3", created_by_compaction_id="cmp_1"))
        await database.close()

    run(main)


def test_chains_are_found_and_changed(database_url: str, run: Run) -> None:
    async def main() -> None:
        database = await Database.open(database_url, migrate=False)
        async with database.transaction() as tx:
            for number in (1, 2):
                await sessions.insert(tx, session(f"sess_{number}"))
                await chains.insert(tx, chain(f"ch_{number}", session_id=f"sess_{number}"))
            assert await chains.change(tx, "ch_1", CHAINS.c.status == "idle", status="running")
            assert not await chains.change(tx, "ch_1", CHAINS.c.status == "idle", status="running")
            part = await chains.page(tx, Page(), ALL_TENANTS, status="running")
            assert [item.id for item in part.items] == ["ch_1"]
            part = await chains.page(tx, Page(), ALL_TENANTS, only=frozenset({"sess_2"}))
            assert [item.id for item in part.items] == ["ch_2"]
        with pytest.raises(IntegrityError):
            async with database.transaction() as tx:
                await chains.change(tx, "ch_1", status="asleep")
        await database.close()

    run(main)


def test_the_end_of_a_chain_is_found_without_reading_all_of_it(database_url: str, run: Run) -> None:
    async def main() -> None:
        database = await Database.open(database_url, migrate=False)
        async with database.transaction() as tx:
            await sessions.insert(tx, session("sess_1"))
            await chains.insert(tx, chain("ch_1"))
            assert await chains.last_kind(tx, "ch_1", without=()) is None
            assert await chains.last_of_run(tx, "ch_1", "run_1") is None
            made = replace(block(2), run_id="run_1", kind="response")
            later = replace(block(3), kind="system")
            await chains.append(tx, [block(1), made, later])
            assert await chains.last_kind(tx, "ch_1", without=("system",)) == "response"
            assert await chains.last_kind(tx, "ch_1", without=("system", "response")) == "input"
            assert await chains.last_of_run(tx, "ch_1", "run_1") == 2
        await database.close()

    run(main)
