"""What the stores of plugins share."""

from __future__ import annotations

import asyncio

import pytest

from plugbay.model.errors import CallFailed, Code
from plugbay.store.database import Database
from plugbay.store.failures import StoreUnavailable
from plugbay.store.plugin_data import changing, check_text, lock, viewing
from tests.support.loops import Run


@pytest.mark.parametrize("text", ["a\0b", "\ud800"])
def test_names_that_a_database_does_not_take_are_refused(text: str) -> None:
    check_text("a", "ä", "")
    with pytest.raises(CallFailed) as caught:
        check_text("a", text)
    assert caught.value.failure.code == Code.INVALID_INPUT


def test_a_database_that_is_away_is_unavailable(sqlite_url: str, run: Run) -> None:
    async def main() -> None:
        database = await Database.open(sqlite_url, migrate=False)
        for block in (changing, viewing):
            with pytest.raises(CallFailed) as caught:
                async with block(database):
                    raise StoreUnavailable("away")
            assert caught.value.failure.code == Code.UNAVAILABLE and caught.value.failure.retryable
        await database.close()

    run(main)


def test_a_lock_is_for_one_transaction_at_a_time(database_url: str, run: Run) -> None:
    async def main() -> None:
        database, log = await Database.open(database_url, migrate=False), []

        async def change(number: int) -> None:
            async with changing(database) as tx:
                await lock(tx, "a")
                log.append(("begin", number))
                await asyncio.sleep(0.02)
                log.append(("end", number))

        await asyncio.gather(*(change(number) for number in range(3)))
        assert [what for what, _ in log] == ["begin", "end"] * 3
        assert all(log[at][1] == log[at + 1][1] for at in (0, 2, 4))
        await database.close()

    run(main)
