"""Vectors in the control plane's database are found like those in a file."""

from __future__ import annotations

import pytest

from plugbay.host.services.vectors import EmbeddedVectors, VectorBackend, VectorQuery, VectorRecord
from plugbay.model.errors import CallFailed, Code
from plugbay.store.database import Database
from plugbay.store.vectors import SqlVectors
from tests.support.loops import Run

RECORDS = [
    VectorRecord("a", "north\0", [1.0, 0.0], {"on": True}),
    VectorRecord("b", "east", [0.0, 2.0], {"on": 1}),
    VectorRecord("c", "both", [3.0, 3.0]),
]


async def code_of(work: object) -> str:
    with pytest.raises(CallFailed) as caught:
        await work  # type: ignore[misc]
    return caught.value.failure.code


def test_both_stores_find_the_same(database_url: str, run: Run) -> None:
    async def check(store: VectorBackend) -> None:
        assert await code_of(store.search("c", VectorQuery([1.0, 0.0]))) == Code.NOT_FOUND
        assert await code_of(store.delete("c", ["a"])) == Code.NOT_FOUND
        assert await store.upsert("c", []) == 0 and await store.upsert("c", RECORDS) == 3
        found = await store.search("c", VectorQuery([1.0, 0.1], 2))
        assert [(match.id, match.content) for match in found] == [("a", "north\0"), ("c", "both")]
        assert found[0].metadata == {"on": True} and 0.9 < found[0].score <= 1.0
        only = await store.search("c", VectorQuery([1.0, 1.0], filter={"on": True}))
        assert [match.id for match in only] == ["a"]
        assert await code_of(store.search("c", VectorQuery([1.0]))) == Code.INVALID_INPUT
        assert await code_of(store.search("c", VectorQuery([1.0, 0.0], filter=[1]))) == Code.INVALID_INPUT
        assert await code_of(store.upsert("c", [VectorRecord("d", "", [1.0])])) == Code.INVALID_INPUT
        assert await store.upsert("c", [VectorRecord("a", "south", [-1.0, 0.0])]) == 1
        assert (await store.search("c", VectorQuery([-1.0, 0.0], 1)))[0].content == "south"
        assert await store.delete("c", ["a", "b", "none"]) == 2 and await store.delete("c", ["c"]) == 1
        assert await store.search("c", VectorQuery([1.0, 0.0])) == []
        assert await store.upsert("c", [VectorRecord("d", "", [1.0, 2.0, 3.0])]) == 1, "it is empty"

    async def main() -> None:
        database = await Database.open(database_url, migrate=False)
        async with EmbeddedVectors(":memory:") as file:
            await check(file)
            await check(SqlVectors(database))
        await database.close()

    run(main)


def test_names_are_checked(database_url: str, run: Run) -> None:
    async def main() -> None:
        database = await Database.open(database_url, migrate=False)
        store = SqlVectors(database)
        for name, id in (("", "a"), ("a\0", "a"), ("a", "b\0"), ("x" * 600, "a")):
            assert await code_of(store.upsert(name, [VectorRecord(id, "", [1.0])])) == Code.INVALID_INPUT
        await database.close()

    run(main)
