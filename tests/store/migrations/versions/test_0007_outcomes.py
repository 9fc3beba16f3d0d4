"""The seventh step keeps outcomes of invocations, and takes the columns away again."""

from __future__ import annotations

from sqlalchemy import Connection, inspect

from plugbay.host.ports import ResumeState
from plugbay.store import checkpoints, deliveries, events, invocations
from plugbay.store.database import Database
from plugbay.store.invocations import Outcome
from plugbay.store.migrations import downgrade, upgrade
from tests.store.aged_rows import insert_invocation
from tests.store.conversing_rows import delivery, event
from tests.support.loops import Run

ADDED = {
    ("plugin_invocations", "result"),
    ("plugin_invocations", "result_bytes"),
    ("plugin_invocations", "failure"),
    ("plugin_journeys", "attempts"),
    ("deliveries", "test"),
    ("delivery_attempts", "failure"),
}


def _columns(connection: Connection) -> set[tuple[str, str]]:
    found = inspect(connection)
    return {(table, column["name"]) for table in found.get_table_names() for column in found.get_columns(table)}


def test_the_seventh_step_adds_outcomes_to_what_is_there(database_url: str, run: Run) -> None:
    async def main() -> None:
        database = await Database.open(database_url, migrate=False)
        async with database.transaction() as tx:
            await insert_invocation(tx, 1, 1.0, 2.0)
            await events.insert(tx, event("evt_1"))
            await deliveries.insert(tx, delivery("del_1", test=True))
            await checkpoints.save(tx, "exec_1", ResumeState(attempts=3), 1.0)
            await tx.run_sync(downgrade, "0007")
            before = await tx.run_sync(_columns)
            await tx.run_sync(downgrade, "0006")
            assert before - await tx.run_sync(_columns) == ADDED
            await tx.run_sync(upgrade, "0007")
            assert await tx.run_sync(_columns) == before
            kept = await deliveries.find(tx, "del_1")
            assert kept is not None and kept.test is False
            assert await checkpoints.load(tx, "exec_1") == ResumeState()
            assert await invocations.outcome(tx, "inv_1") == Outcome()
        await database.close()

    run(main)
