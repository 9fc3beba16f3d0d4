"""The rules that the tables of conversations hold at all times."""

from __future__ import annotations

import pytest
from sqlalchemy.exc import IntegrityError

from plugbay.store import chains, runs, sessions
from plugbay.store.database import Database
from plugbay.store.tables.conversations import BLOCKS, CHAINS, RUNS
from tests.store.conversing_rows import chain, run_row, session
from tests.support.loops import Run


def test_two_runs_without_an_end_on_one_chain_are_impossible(database_url: str, run: Run) -> None:
    async def main() -> None:
        database = await Database.open(database_url, migrate=False)
        async with database.transaction() as tx:
            await sessions.insert(tx, session("sess_1"))
            await chains.insert(tx, chain("ch_1"))
            await runs.insert(tx, run_row("run_1", status="completed"))
            await runs.insert(tx, run_row("run_2", status="running"))
        with pytest.raises(IntegrityError):
            async with database.transaction() as tx:
                await tx.execute(RUNS.update().where(RUNS.c.id == "run_1").values(status="queued"))
        await database.close()

    run(main)


def test_a_block_belongs_to_a_chain_and_a_chain_to_a_session(database_url: str, run: Run) -> None:
    async def main() -> None:
        database = await Database.open(database_url, migrate=False)
        with pytest.raises(IntegrityError):
            async with database.transaction() as tx:
                await chains.insert(tx, chain("ch_1", session_id="sess_9"))
        await database.close()

    run(main)
    assert [key.target_fullname for key in BLOCKS.c.chain_id.foreign_keys] == [f"{CHAINS.name}.id"]
