"""Logins that several gateways share."""

from __future__ import annotations

import asyncio

from plugbay.store import logins
from plugbay.store.database import Database
from tests.support.loops import Run

ONE, OTHER = b"\1" * 32, b"\2" * 32


def test_a_link_is_taken_once_and_a_session_is_found_until_it_ends(database_url: str, run: Run) -> None:
    async def main() -> None:
        database = await Database.open(database_url, migrate=False)
        async with database.transaction() as tx:
            await logins.put(tx, ONE, logins.LINK, b"sealed", 100.0)
            await logins.put(tx, OTHER, logins.BROWSER, b"old", 100.0)
            await logins.put(tx, OTHER, logins.BROWSER, b"new", 200.0)
            assert await logins.find(tx, ONE, logins.BROWSER, 50.0) is None, "a link is no session"
            assert await logins.find(tx, OTHER, logins.BROWSER, 50.0) == (b"new", 200.0)
            assert await logins.find(tx, OTHER, logins.BROWSER, 200.0) is None

        async def take() -> tuple[bytes, float] | None:
            async with database.transaction() as tx:
                return await logins.take(tx, ONE, logins.LINK, 50.0)

        taken = await asyncio.gather(*(take() for _ in range(5)))
        assert sorted(map(bool, taken)) == [False] * 4 + [True]
        async with database.transaction() as tx:
            await logins.put(tx, ONE, logins.LINK, b"sealed", 100.0)
            assert await logins.take(tx, ONE, logins.LINK, 100.0) is None, "it has ended"
            await logins.put(tx, ONE, logins.LINK, b"sealed", 100.0)
            await logins.remove(tx, OTHER, 150.0)
            assert await logins.find(tx, ONE, logins.LINK, 0.0) is None, "what has ended is removed too"
            assert await logins.find(tx, OTHER, logins.BROWSER, 0.0) is None
        await database.close()

    run(main)
