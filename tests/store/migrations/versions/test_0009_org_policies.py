"""The ninth step puts row-level security on every table that names an org, and takes it away again."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from sqlalchemy import text
from sqlalchemy.engine import make_url

from plugbay.store.database import Database, Tx
from plugbay.store.metadata import METADATA
from plugbay.store.migrations import downgrade, upgrade
from plugbay.store.orgs import Org, insert
from tests.support.databases import OWNER, database, postgresql
from tests.support.loops import Run
from tests.support.requirements import requirement

NAMED = {"orgs": "id", "audit_heads": "chain"}
"""Tables whose org is in a column of another name."""


async def protected(tx: Tx) -> set[str]:
    query = "SELECT relname FROM pg_class WHERE relrowsecurity AND relforcerowsecurity"
    return set((await tx.execute(text(query))).scalars())


@requirement("vai:control-second-wall")
def test_every_table_that_names_an_org_has_a_forced_policy(run: Run, tmp_path: Path) -> None:
    async def main(url: str) -> None:
        opened = await Database.open(url, migrate=False)
        async with opened.transaction() as tx:
            tables = {table.name for table in METADATA.tables.values() if "org_id" in table.c}
            assert await protected(tx) == tables | set(NAMED)
            await tx.run_sync(downgrade, "0008")
            assert await protected(tx) == set()
            await tx.run_sync(upgrade)
            assert await protected(tx) == tables | set(NAMED)
        await opened.close()

    with database("postgresql", tmp_path) as url:
        run(lambda: main(url))


@requirement("vai:control-second-wall")
def test_the_owner_dumps_all_rows_with_the_documented_command(run: Run, tmp_path: Path) -> None:
    async def main(url: str) -> None:
        opened = await Database.open(url, migrate=False)
        async with opened.transaction() as tx:
            await insert(tx, Org("org_1", "Acme of the dump", {}, 1.0, 1.0))
        await opened.close()

    with database("postgresql", tmp_path) as url:
        run(lambda: main(url))
        command = ["pg_dump", "--enable-row-security", "-h", str(postgresql().folder), "-U", OWNER]
        env = {**os.environ, "PGOPTIONS": "-c plugbay.org=*"}
        done = subprocess.run(
            [*command, str(make_url(url).database)], env=env, capture_output=True, text=True, check=True
        )
        assert "Acme of the dump" in done.stdout
