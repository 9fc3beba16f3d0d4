"""The store every host has: nearest first, one dimension per collection, filters by equality, bounded."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from plugbay.host.disk.sqlite import IN_MEMORY
from plugbay.host.services import vector_store
from plugbay.host.services.vector_store import MAX_BATCH, MAX_CONTENT, MAX_DIMENSIONS, MAX_NAME, EmbeddedVectors
from plugbay.host.services.vectors import VectorBackend, VectorMatch, VectorQuery, VectorRecord
from plugbay.model.errors import CallFailed, Code, Failure
from tests.support.loops import Run
from tests.support.requirements import requirement

Story = Callable[[EmbeddedVectors], Awaitable[None]]


def with_store(run: Run, story: Story, path: Path | str = IN_MEMORY) -> None:
    async def main() -> None:
        async with EmbeddedVectors(path) as store:
            await story(store)

    run(main)


def record(id: str, embedding: Sequence[float], **metadata: Any) -> VectorRecord:
    return VectorRecord(id, f"content of {id}", embedding, metadata)


async def found(store: EmbeddedVectors, embedding: Sequence[float], limit: int = 10, filter: Any = None) -> list[str]:
    return [match.id for match in await store.search("kb", VectorQuery(embedding, limit, filter))]


async def failure_of(asked: Awaitable[Any]) -> Failure:
    with pytest.raises(CallFailed) as caught:
        await asked
    return caught.value.failure


@requirement("nexo:host-vector-embedded")
def test_the_nearest_come_first_by_cosine(run: Run) -> None:
    async def story(store: EmbeddedVectors) -> None:
        backend: VectorBackend = store
        records = [record("east", [2.0, 0.0]), record("north", [0.0, 3.0], k=1), record("west", [-1.0, 0.0])]
        assert await backend.upsert("kb", records) == 3
        matches = await backend.search("kb", VectorQuery([10.0, 1.0], 2))
        assert [match.id for match in matches] == ["east", "north"]
        assert matches[0].score == pytest.approx(10 / math.sqrt(101), abs=1e-6)
        assert matches[1] == VectorMatch("north", "content of north", matches[1].score, {"k": 1})

    with_store(run, story)


def test_records_survive_a_restart(run: Run, tmp_path: Path) -> None:
    async def first(store: EmbeddedVectors) -> None:
        await store.upsert("kb", [record("a", [1.0, 2.0])])

    async def second(store: EmbeddedVectors) -> None:
        assert await found(store, [1.0, 2.0]) == ["a"]

    with_store(run, first, tmp_path / "vectors.db")
    with_store(run, second, tmp_path / "vectors.db")


def test_the_same_id_replaces_and_another_collection_is_another_world(run: Run) -> None:
    async def story(store: EmbeddedVectors) -> None:
        await store.upsert("kb", [record("a", [1.0, 0.0]), record("b", [1.0, 0.0])])
        await store.upsert("other", [record("a", [0.0, 1.0, 0.0])])
        assert await store.upsert("kb", [VectorRecord("a", "new", [0.0, 1.0])]) == 1
        (match,) = await store.search("kb", VectorQuery([0.0, 1.0], 1))
        assert (match.id, match.content) == ("a", "new")
        assert len(await found(store, [0.0, 1.0])) == 2

    with_store(run, story)


def test_deleting_counts_what_was_there(run: Run) -> None:
    async def story(store: EmbeddedVectors) -> None:
        await store.upsert("kb", [record("a", [1.0]), record("b", [1.0])])
        assert await store.delete("kb", ["a", "a", "zzz"]) == 1
        assert await store.delete("kb", []) == 0
        assert await found(store, [1.0]) == ["b"]

    with_store(run, story)


def test_a_filter_demands_equal_values(run: Run) -> None:
    async def story(store: EmbeddedVectors) -> None:
        await store.upsert("kb", [record("a", [1.0], ns="one", n=1), record("b", [1.0], ns="two"), record("c", [1.0])])
        await store.upsert("kb", [record("d", [1.0], n=True, deep={"x": [1]})])
        assert await found(store, [1.0], filter={"ns": "one"}) == ["a"]
        assert await found(store, [1.0], filter={"ns": "one", "n": 2}) == []
        assert await found(store, [1.0], filter={"n": 1}) == ["a"], "true is not 1"
        assert await found(store, [1.0], filter={"deep": {"x": [1]}}) == ["d"]
        assert await found(store, [1.0], filter={"ns": None}) == [], "absent is not null"
        assert len(await found(store, [1.0], filter={})) == 4
        assert (await failure_of(store.search("kb", VectorQuery([1.0], 1, ["ns"])))).code == Code.INVALID_INPUT

    with_store(run, story)


@requirement("nexo:host-vector-dimension")
def test_a_vector_of_another_dimension_is_refused(run: Run) -> None:
    async def story(store: EmbeddedVectors) -> None:
        await store.upsert("kb", [record("a", [1.0, 2.0, 3.0])])
        for asked in (
            store.upsert("kb", [record("b", [1.0, 2.0])]),
            store.search("kb", VectorQuery([1.0, 2.0])),
            store.upsert("new", [record("a", [1.0, 2.0, 3.0]), record("b", [1.0, 2.0])]),
        ):
            failure = await failure_of(asked)
            assert (failure.code, failure.detail) == (Code.INVALID_INPUT, {"expected": 3, "got": 2})
        assert (await failure_of(store.search("new", VectorQuery([1.0])))).code == Code.NOT_FOUND

    with_store(run, story)


def test_an_emptied_collection_may_change_its_dimension(run: Run) -> None:
    async def story(store: EmbeddedVectors) -> None:
        await store.upsert("kb", [record("a", [1.0, 2.0])])
        await store.delete("kb", ["a"])
        assert await found(store, [1.0, 2.0]) == []
        await store.upsert("kb", [record("a", [1.0])])
        assert await found(store, [1.0]) == ["a"]

    with_store(run, story)


@requirement("nexo:host-vector-collection")
def test_a_collection_that_is_not_there_is_not_found(run: Run) -> None:
    async def story(store: EmbeddedVectors) -> None:
        for asked in (store.search("kb", VectorQuery([1.0])), store.delete("kb", ["a"])):
            failure = await failure_of(asked)
            assert (failure.code, failure.detail) == (Code.NOT_FOUND, {"collection": "kb"})
        assert await store.upsert("kb", []) == 0
        assert (await failure_of(store.search("kb", VectorQuery([1.0])))).code == Code.NOT_FOUND

    with_store(run, story)


def test_a_vector_of_zeros_is_near_nothing(run: Run) -> None:
    async def story(store: EmbeddedVectors) -> None:
        await store.upsert("kb", [record("zero", [0.0, 0.0]), record("one", [0.0, 0.1])])
        assert [match.score for match in await store.search("kb", VectorQuery([0.0, 5.0]))] == [pytest.approx(1.0), 0.0]
        assert [match.score for match in await store.search("kb", VectorQuery([0.0, 0.0]))] == [0.0, 0.0]

    with_store(run, story)


@pytest.mark.parametrize(
    "bad",
    [
        record("a", []),
        record("a", [1.0] * (MAX_DIMENSIONS + 1)),
        record("a", [math.nan]),
        record("a", [math.inf, 1.0]),
        record("a", [10**400]),
        record("a", ["x"]),  # type: ignore[list-item]
        record("", [1.0]),
        record("i" * (MAX_NAME + 1), [1.0]),
        record("\ud800", [1.0]),
        record("a", [1.0], x=math.nan),
        record("a", [1.0], x="y" * MAX_CONTENT),
        VectorRecord("a", "y" * (MAX_CONTENT + 1), [1.0]),
        VectorRecord("a", "\ud800", [1.0]),
    ],
    ids=repr,
)
def test_a_record_that_cannot_be_kept_is_refused_with_all_the_others(run: Run, bad: VectorRecord) -> None:
    async def story(store: EmbeddedVectors) -> None:
        await store.upsert("kb", [record("kept", [1.0])])
        assert (await failure_of(store.upsert("kb", [record("fine", [1.0]), bad]))).code == Code.INVALID_INPUT
        assert await found(store, [1.0]) == ["kept"]

    with_store(run, story)


def test_what_just_fits_is_kept(run: Run) -> None:
    async def story(store: EmbeddedVectors) -> None:
        largest = VectorRecord(
            "i" * MAX_NAME, "y" * MAX_CONTENT, [1.0] * MAX_DIMENSIONS, {"x": "y" * (MAX_CONTENT - 8)}
        )
        await store.upsert("kb", [largest])
        assert await found(store, largest.embedding) == [largest.id]

    with_store(run, story)


def test_a_batch_is_bounded(run: Run) -> None:
    async def story(store: EmbeddedVectors) -> None:
        many = [record(str(number), [1.0]) for number in range(MAX_BATCH + 1)]
        assert await store.upsert("kb", many[1:]) == MAX_BATCH
        assert (await failure_of(store.upsert("kb", many))).code == Code.INVALID_INPUT
        assert (await failure_of(store.delete("kb", [one.id for one in many]))).code == Code.INVALID_INPUT
        assert (await failure_of(store.upsert("c" * (MAX_NAME + 1), many[:1]))).code == Code.INVALID_INPUT

    with_store(run, story)


@pytest.mark.parametrize(("limit", "expected"), [(-5, 0), (0, 0), (2, 2), (10**30, 3)])
def test_the_limit_is_clamped(run: Run, limit: int, expected: int) -> None:
    async def story(store: EmbeddedVectors) -> None:
        await store.upsert("kb", [record(str(number), [1.0]) for number in range(3)])
        assert len(await found(store, [1.0], limit)) == expected

    with_store(run, story)


def test_a_search_compares_the_newest_records_only(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vector_store, "MAX_CANDIDATES", 3)

    async def story(store: EmbeddedVectors) -> None:
        for number in range(5):
            await store.upsert("kb", [record(str(number), [1.0])])
        assert sorted(await found(store, [1.0])) == ["2", "3", "4"]
        await store.upsert("kb", [record("0", [1.0])])
        assert sorted(await found(store, [1.0])) == ["0", "3", "4"], "what is written again is new again"

    with_store(run, story)
