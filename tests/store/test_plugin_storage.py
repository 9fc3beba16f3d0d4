"""The storage of plugins in the control plane's database does what the one in a file does."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from plugbay.host.services.storage import PluginStorage, Storage
from plugbay.model.errors import CallFailed, Code
from plugbay.store.database import Database
from plugbay.store.plugin_storage import SqlStorage
from tests.support.loops import Run

LIMITS = {"max_total": 100, "max_keys": 3}


@asynccontextmanager
async def storages(url: str) -> AsyncIterator[list[Storage]]:
    """The one in a file, and the one in the database."""
    database = await Database.open(url, migrate=False)
    one, other = PluginStorage(":memory:", **LIMITS), SqlStorage(database, **LIMITS)
    await one.open()
    await other.open()
    yield [one, other]
    await one.close()
    await other.close()
    await database.close()


def test_values_are_kept_for_each_plugin(database_url: str, run: Run) -> None:
    async def main() -> None:
        async with storages(database_url) as both:
            for storage in both:
                assert await storage.get("p", "k") == (False, None)
                await storage.set("p", "k", {"a": [1, None, "ä\0"]})
                await storage.set("q", "k", 2)
                assert await storage.get("p", "k") == (True, {"a": [1, None, "ä\0"]})
                await storage.set("p", "k", None)
                assert await storage.get("p", "k") == (True, None) and await storage.get("q", "k") == (True, 2)
                assert await storage.delete("p", "k") and not await storage.delete("p", "k")

    run(main)


def test_keys_are_in_the_order_of_their_bytes(database_url: str, run: Run) -> None:
    async def main() -> None:
        async with storages(database_url) as both:
            for storage in both:
                for key in ("b", "Z", "aä"):
                    await storage.set("p", key, 1)
                assert await storage.keys("p") == ["Z", "aä", "b"]
                assert await storage.keys("p", "a") == ["aä"] and await storage.keys("p", limit=1) == ["Z"]
                assert await storage.keys("q") == [] and await storage.keys("p", limit=-1) == []

    run(main)


@pytest.mark.parametrize(("key", "size"), [("d", 1), ("a", 100)])
def test_a_quota_holds_for_keys_and_bytes(key: str, size: int, database_url: str, run: Run) -> None:
    async def main() -> None:
        async with storages(database_url) as both:
            for storage in both:
                for each in ("a", "b", "c"):
                    await storage.set("p", each, 1)
                with pytest.raises(CallFailed) as caught:
                    await storage.set("p", key, "x" * size)
                assert caught.value.failure.code == Code.UNAVAILABLE
                await storage.set("p", "a", "x" * 50)
                await storage.set("q", "a", "x" * 90)

    run(main)


def test_what_is_no_key_and_no_value_is_refused(database_url: str, run: Run) -> None:
    async def main() -> None:
        async with storages(database_url) as both:
            wrong = (("", 1), ("k" * 513, 1), ("k", object()))
            for storage, (key, value) in itertools.product(both, wrong):
                with pytest.raises(CallFailed) as caught:
                    await storage.set("p", key, value)
                assert caught.value.failure.code == Code.INVALID_INPUT

    run(main)
