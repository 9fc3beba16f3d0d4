"""The eighth step chains the entries of the audit log that exist, and takes the chain away again."""

from __future__ import annotations

from msgspec.structs import replace
from sqlalchemy import text

from plugbay.store import audit
from plugbay.store.database import Database
from plugbay.store.migrations import downgrade, upgrade
from plugbay.store.pages import Page
from tests.store.test_audit import ENTRY, unplaced
from tests.support.loops import Run
from tests.support.requirements import requirement


@requirement("vai:control-audit-chain")
def test_the_eighth_step_chains_the_entries_that_exist(database_url: str, run: Run) -> None:
    async def main() -> None:
        database = await Database.open(database_url, migrate=False)
        owners = ("org_1", "org_2", None)
        old = [replace(ENTRY, id=f"aud_{at}", at=float(at), org_id=owners[at % 3]) for at in range(1, 8)]
        async with database.transaction() as tx:
            await audit.append(tx, old)
            await tx.run_sync(downgrade, "0007")
            await tx.execute(text("UPDATE audit SET at = 3000000 WHERE id IN ('aud_4', 'aud_1')"))
            await tx.run_sync(upgrade)
        async with database.reading() as tx:
            kept = (await audit.page(tx, Page())).items
            assert {entry.id: unplaced(entry).details for entry in kept} == {entry.id: entry.details for entry in old}
            reports = await audit.verify(tx)
            assert [(report.chain, report.entries, report.broken) for report in reports] == [
                ("*", 2, None),
                ("org_1", 2, None),
                ("org_2", 3, None),
            ]
        async with database.transaction() as tx:
            await audit.append(tx, [replace(ENTRY, id="aud_9", at=1.0)])
        async with database.reading() as tx:
            assert all(report.broken is None for report in await audit.verify(tx)), "the chain goes on"
        await database.close()

    run(main)
