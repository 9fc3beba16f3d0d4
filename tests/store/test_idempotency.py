"""Idempotent requests."""

from __future__ import annotations

from plugbay.store import idempotency
from plugbay.store.database import Database
from plugbay.store.idempotency import DONE, RUNNING, UNKNOWN, Repeat
from tests.support.loops import Run

KEY, DIGEST = b"\x01" * 32, b"\x02" * 32


def test_a_request_is_claimed_once_finished_lost_and_forgotten(database_url: str, run: Run) -> None:
    async def main() -> None:
        database = await Database.open(database_url, migrate=False)
        async with database.transaction() as tx:
            assert await idempotency.insert(tx, KEY, DIGEST, 1.0, 9.0)
            assert not await idempotency.insert(tx, KEY, DIGEST, 1.0, 9.0)
            assert await idempotency.get(tx, KEY) == Repeat(KEY, DIGEST, RUNNING, None, None, None, 1.0, 9.0)
            await idempotency.finish(tx, KEY, 201, {"location": "/x"}, b"{}")
            assert await idempotency.get(tx, KEY) == Repeat(KEY, DIGEST, DONE, 201, {"location": "/x"}, b"{}", 1.0, 9.0)
            await idempotency.lose(tx)
            found = await idempotency.get(tx, KEY)
            assert found is not None and found.state == DONE, "what is done is not lost"
            await idempotency.forget(tx, KEY)
            assert await idempotency.get(tx, KEY) is None
        await database.close()

    run(main)


def test_what_is_running_can_be_lost_and_what_is_old_expires(database_url: str, run: Run) -> None:
    async def main() -> None:
        database = await Database.open(database_url, migrate=False)
        async with database.transaction() as tx:
            await idempotency.insert(tx, KEY, DIGEST, 1.0, 9.0)
            await idempotency.lose(tx, b"\x03" * 32)
            found = await idempotency.get(tx, KEY)
            assert found is not None and found.state == RUNNING
            await idempotency.lose(tx)
            found = await idempotency.get(tx, KEY)
            assert found is not None and found.state == UNKNOWN
            await idempotency.finish(tx, KEY, 200, {}, b"late")
            found = await idempotency.get(tx, KEY)
            assert found is not None and found.state == UNKNOWN, "clients were told that the answer is lost"
            assert not await idempotency.expire(tx, 8.9, KEY)
            assert await idempotency.expire(tx, 9.0, KEY) and await idempotency.get(tx, KEY) is None
        await database.close()

    run(main)
