"""The tables of plugins: what only a database can hold at all times."""

from __future__ import annotations

import pytest
from sqlalchemy import insert
from sqlalchemy.exc import IntegrityError

from plugbay.store.database import Database
from plugbay.store.tables.plugins import BINDINGS, SPENDING, TOKENS
from tests.support.loops import Run


def test_a_token_belongs_to_an_invocation_and_a_binding_to_a_package_that_are_there(
    database_url: str, run: Run
) -> None:
    binding = {
        **dict.fromkeys("package_id package_version export_id export_kind org_id".split(), "x"),
        **{name: {} for name in ("config", "secrets", "policy")},
        **dict.fromkeys("revision created_at updated_at traffic_percent".split(), 1),
    }
    token = {"digest": b"x", "org_id": "o", "execution_id": "e", "claims": {}, "issued_at": 1, "expires_at": 2}

    async def main() -> None:
        database = await Database.open(database_url, migrate=False)
        for statement in (
            insert(TOKENS).values(**token, invocation_id="inv_none"),
            insert(BINDINGS).values(**binding, id="bind_1", package_row="pkg_none", status="active"),
            insert(BINDINGS).values(**binding, id="bind_1", package_row="pkg_none", status="asleep"),
        ):
            with pytest.raises(IntegrityError):
                async with database.transaction() as tx:
                    await tx.execute(statement)
        async with database.transaction() as tx:  # the other way round: a row that breaks no rule
            await tx.execute(insert(SPENDING).values(org_id="o", execution_id="e", what="w", spent=0, updated_at=1))
        await database.close()

    run(main)
