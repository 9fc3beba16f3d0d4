"""Facts on which several gateways agree."""

from __future__ import annotations

from plugbay.store import cluster_settings
from plugbay.store.database import Database
from tests.support.loops import Run


def test_the_first_value_is_that_of_all_until_it_is_replaced(database_url: str, run: Run) -> None:
    async def main() -> None:
        database = await Database.open(database_url, migrate=False)
        async with database.transaction() as tx:
            assert await cluster_settings.agree(tx, "key", b"one") == b"one"
            assert await cluster_settings.agree(tx, "key", b"other") == b"one"
            assert await cluster_settings.agree(tx, "token", b"other") == b"other"
            await cluster_settings.replace(tx, "key", b"third")
            assert await cluster_settings.agree(tx, "key", b"one") == b"third"
        await database.close()

    run(main)
