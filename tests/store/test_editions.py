"""Caches of several gateways on one database: no gateway returns what another has changed."""

from __future__ import annotations

import asyncio
from contextvars import copy_context
from pathlib import Path

import pytest
from sqlalchemy.ext.asyncio import AsyncConnection

from plugbay.store import keys, orgs
from plugbay.store.database import Database, RowCache
from plugbay.store.editions import SharedEdition
from plugbay.store.failures import StoreUnavailable
from plugbay.store.keys import ApiKey
from plugbay.store.leases import Fence
from plugbay.store.orgs import Org
from plugbay.store.tables import API_KEYS
from tests.support.databases import database as database_of_kind
from tests.support.loops import Run
from tests.support.patience import until

FENCE = Fence("gateway/a", "a", 1)
KEY = ApiKey("key_1", "org_1", None, "A key", "admin", "abcd", 1.0, None, None)
DIGEST = b"\1" * 32


class Gateway:
    """The cache of keys of one of several gateways."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.reads = 0
        self._cache = RowCache[bytes, ApiKey](database, 10)
        database.share(FENCE)

    async def revoked_at(self) -> float | None:
        """As one request reads it."""

        async def read() -> ApiKey | None:
            self.reads += 1
            async with self.database.reading() as tx:
                return await keys.by_digest(tx, DIGEST)

        async def request() -> float | None:
            found = await self._cache.get(DIGEST, read)
            assert found is not None
            return found.revoked_at

        return await asyncio.get_running_loop().create_task(request(), context=copy_context())


def test_a_change_at_one_gateway_is_seen_by_the_next_request_at_another(tmp_path: Path, run: Run) -> None:
    async def main(url: str) -> None:
        one, other = [Gateway(await Database.open(url, migrate=False)) for _ in range(2)]
        async with one.database.transaction() as tx:
            await orgs.insert(tx, Org("org_1", "An org", {}, 1.0, 1.0))
            await keys.insert(tx, KEY, DIGEST)
        assert [await other.revoked_at() for _ in range(5)] == [None] * 5
        assert other.reads == 1, "it is cached"
        for turn in range(20):
            async with one.database.transaction() as tx:
                await tx.execute(API_KEYS.update().values(revoked_at=float(turn)))
            assert await other.revoked_at() == turn
            assert await one.revoked_at() == turn
        await one.database.close()
        await other.database.close()

    with database_of_kind("postgresql", tmp_path) as url:
        run(lambda: main(url))


def test_a_transaction_sees_its_own_change_and_no_cache_keeps_it(tmp_path: Path, run: Run) -> None:
    async def main(url: str) -> None:
        gateway = Gateway(await Database.open(url, migrate=False))
        cache = RowCache[bytes, ApiKey](gateway.database, 10)

        async def read() -> ApiKey | None:
            async with gateway.database.reading() as tx:
                return await keys.by_digest(tx, DIGEST)

        async with gateway.database.transaction() as tx:
            await orgs.insert(tx, Org("org_1", "An org", {}, 1.0, 1.0))
            await keys.insert(tx, KEY, DIGEST)
        with pytest.raises(LookupError):
            async with gateway.database.transaction() as tx:
                await keys.revoke(tx, "key_1", 5.0)
                found = await cache.get(DIGEST, read)
                assert found is not None and found.revoked_at == 5.0
                raise LookupError
        found = await cache.get(DIGEST, read)
        assert found is not None and found.revoked_at is None
        await gateway.database.close()

    with database_of_kind("postgresql", tmp_path) as url:
        run(lambda: main(url))


class Source:
    """A database whose edition is read when the test says so."""

    def __init__(self) -> None:
        self.edition = 1
        self.reads = 0
        self.open = asyncio.Event()
        self.broken = False

    async def connect(self) -> AsyncConnection:
        source = self

        class Connection:
            async def scalar(self, statement: object) -> int:
                source.reads += 1
                found = source.edition
                await source.open.wait()
                if source.broken:
                    raise OSError("gone")
                return found

            async def invalidate(self) -> None: ...

            async def close(self) -> None: ...

        return Connection()  # type: ignore[return-value]


def test_callers_share_a_read_that_begins_after_they_came(run: Run) -> None:
    async def main() -> None:
        source = Source()
        shared = SharedEdition(source.connect)
        early = [asyncio.create_task(shared.get()) for _ in range(3)]
        await until(lambda: source.reads == 1)
        source.edition = 2
        late = [asyncio.create_task(shared.get()) for _ in range(3)]
        await asyncio.sleep(0)
        source.open.set()
        assert await asyncio.gather(*early, *late) == [1, 1, 1, 2, 2, 2]
        assert source.reads == 2
        await shared.close()

    run(main)


def test_a_read_that_fails_is_no_answer_and_the_next_one_is_tried(run: Run) -> None:
    async def main() -> None:
        source = Source()
        source.open.set()
        shared = SharedEdition(source.connect)
        source.broken = True
        with pytest.raises(StoreUnavailable):
            await shared.get()
        source.broken = False
        assert await shared.get() == 1
        await shared.close()

    run(main)
