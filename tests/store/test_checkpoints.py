"""Checkpoints of harness executions."""

from __future__ import annotations

from plugbay.host.ports import ResumeState
from plugbay.store import checkpoints
from plugbay.store.database import Database
from tests.support.loops import Run


def test_a_journey_is_as_it_was_saved_last(database_url: str, run: Run) -> None:
    whole = ResumeState({"type": "user_request"}, {"kind": "checkpoint", "data": {"cursor": 12}}, "so far", 2)

    async def main() -> None:
        database = await Database.open(database_url, migrate=False)
        async with database.transaction() as tx:
            assert await checkpoints.load(tx, "org_1:exec_1") is None
            await checkpoints.save(tx, "org_1:exec_1", ResumeState(), 1.0)
            assert await checkpoints.load(tx, "org_1:exec_1") == ResumeState()
            await checkpoints.save(tx, "org_1:exec_1", whole, 2.0)
            assert await checkpoints.load(tx, "org_1:exec_1") == whole
        await database.close()

    run(main)
