"""Encrypted secrets."""

from __future__ import annotations

import asyncio

from msgspec.structs import replace

from plugbay.store import orgs, secrets
from plugbay.store.database import Database
from plugbay.store.pages import Page
from plugbay.store.secrets import SecretRow
from tests.support.loops import Run

ROW = SecretRow("sec_1", "org_1", "org_1", "key", 1, "k1", b"n" * 12, b"\x00sealed", 1.0, 1.0)


def test_a_secret_is_put_replaced_listed_and_removed(database_url: str, run: Run) -> None:
    async def main() -> None:
        database = await Database.open(database_url, migrate=False)
        async with database.transaction() as tx:
            await orgs.insert(tx, orgs.Org("org_1", "Acme", {}, 1.0, 1.0))
            await secrets.put(tx, ROW)
            newer = replace(ROW, version=2, sealed=b"other", updated_at=2.0)
            await secrets.put(tx, newer)
            assert await secrets.get(tx, "org_1", "org_1", "key") == newer
            assert await secrets.get(tx, "org_1", "proj_1", "key") is None
            own = replace(ROW, id="sec_2", scope="proj_1", key_id="k2", created_at=3.0)
            await secrets.put(tx, own)
            assert (await secrets.select_part(tx, "org_1", None, Page())).items == (own, newer)
            assert (await secrets.select_part(tx, None, ("proj_1",), Page())).items == (own,)
            assert (await secrets.select_part(tx, None, None, Page(), "KE")).items == (own, newer)
            assert (await secrets.select_part(tx, None, None, Page(), "%")).items == ()
            assert await secrets.encrypted_with_other_key(tx, "k1", 10) == [own]
            assert await secrets.remove(tx, "org_1", "org_1", "key")
            assert not await secrets.remove(tx, "org_1", "org_1", "key")
        await database.close()

    run(main)


def test_waiting_for_secrets_to_settle_shows_concurrent_changes(database_url: str, run: Run) -> None:
    async def main() -> None:
        database = await Database.open(database_url, migrate=False)
        reading, waiting = asyncio.Event(), asyncio.Event()

        async def put() -> None:
            async with database.transaction() as tx:
                await orgs.insert(tx, orgs.Org("org_1", "Acme", {}, 1.0, 1.0))
                await secrets.get(tx, "org_1", "org_1", "key")
                reading.set()
                await waiting.wait()
                await secrets.put(tx, ROW)

        async def settle() -> list[SecretRow]:
            async with database.transaction() as tx:
                await secrets.settle(tx)
            async with database.reading() as tx:
                return await secrets.encrypted_with_other_key(tx, "another", 10)

        putting = asyncio.create_task(put())
        await reading.wait()
        settling = asyncio.create_task(settle())
        await asyncio.sleep(0)
        waiting.set()
        assert await settling == [ROW]
        await putting
        await database.close()

    run(main)
