"""Tokens and spending."""

from __future__ import annotations

import asyncio

from msgspec.structs import replace

from plugbay.store import invocations, tokens
from plugbay.store.database import Database
from plugbay.store.tokens import TokenRow
from tests.store.test_invocations import record
from tests.support.databases import run_write
from tests.support.loops import Run

ROW = TokenRow(b"\x01" * 32, "inv_1", "bind_1", "org_1", "exec_1", {"scopes": ["runs:read"]}, 1.0, 9.0)


def test_a_token_is_revoked_by_itself_with_its_invocation_with_its_binding_and_with_all(
    database_url: str, run: Run
) -> None:
    rows = [replace(ROW, digest=bytes([number]) * 32) for number in range(1, 5)]
    rows[1] = replace(rows[1], invocation_id="inv_2")
    rows[2] = replace(rows[2], invocation_id="inv_2", binding_id="bind_2")
    rows[3] = replace(rows[3], invocation_id="inv_2", binding_id=None)

    async def main() -> None:
        database = await Database.open(database_url, migrate=False)
        async with database.transaction() as tx:
            await run_write(tx, invocations.opening(record(1)))
            await run_write(tx, invocations.opening(record(2)))
            for row in rows:
                await tokens.add(tx, row)

            async def alive() -> list[int]:
                found = [await tokens.get(tx, row.digest) for row in rows]
                return [at for at, row in enumerate(found, 1) if row is not None and row.revoked_at is None]

            assert await alive() == [1, 2, 3, 4]
            await tokens.revoke(tx, rows[3].digest, 5.0)
            await tokens.revoke_of_binding(tx, "bind_2", 5.0)
            assert await alive() == [1, 2]
            await run_write(tx, tokens.revoking("inv_2", 5.0))
            assert await alive() == [1] and await tokens.revoke_all(tx, 6.0) == 1 and await alive() == []
            first = await tokens.get(tx, rows[3].digest)
            assert first is not None and first.revoked_at == 5.0  # once; later calls change nothing
        await database.close()

    run(main)


def test_of_many_who_spend_at_the_same_moment_as_many_succeed_as_there_is_to_spend(database_url: str, run: Run) -> None:
    async def main() -> None:
        database = await Database.open(database_url, migrate=False)

        async def spend(what: str, limit: int | None) -> int | None:
            async with database.transaction() as tx:
                return await tokens.spend(tx, "org_1", "exec_1", what, limit, 1.0)

        spent = await asyncio.gather(*(spend("child_run", 3) for _ in range(8)))
        assert sorted(number for number in spent if number is not None) == [1, 2, 3]
        assert await spend("child_run", 0) is None and await spend("compaction", None) == 1
        async with database.reading() as tx:
            assert await tokens.spent(tx, "org_1", "exec_1") == {"child_run": 3, "compaction": 1}
            assert await tokens.spent(tx, "org_2", "exec_1") == {}
        await database.close()

    run(main)
