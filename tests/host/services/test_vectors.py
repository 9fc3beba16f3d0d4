"""Vector stores: the registry, the embedded store, and its embedder."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plugbay.host.disk.sqlite_files import IN_MEMORY
from plugbay.host.services import vectors
from plugbay.host.services.vectors import (
    DIMENSIONS,
    MAX_BATCH,
    MAX_CHARACTERS,
    MAX_CONTENT,
    MAX_DIMENSIONS,
    MAX_NAME,
    EmbeddedVectors,
    HashingEmbedder,
    VectorBackend,
    VectorMatch,
    VectorQuery,
    VectorRecord,
    VectorRegistry,
)
from plugbay.model.errors import CallFailed, Code, Failure
from tests.support.loops import Run
from tests.support.requirements import requirement


class Nowhere:
    """A store that keeps nothing."""

    async def upsert(self, collection: str, records: Sequence[VectorRecord]) -> int:
        return 0

    async def search(self, collection: str, query: VectorQuery) -> list[VectorMatch]:
        return []

    async def delete(self, collection: str, ids: Sequence[str]) -> int:
        return 0


@requirement("nexo:host-vector-registry")
def test_the_first_to_take_a_name_keeps_it() -> None:
    registry = VectorRegistry()
    first: VectorBackend = Nowhere()
    assert registry.register("qdrant", first, "one") is None
    reason = registry.register("qdrant", Nowhere(), "two")
    assert reason is not None
    assert "one" in reason
    assert registry.get("qdrant") is first


@requirement("nexo:host-vector-registry")
def test_names_are_listed() -> None:
    registry = VectorRegistry()
    for name, owner in (("qdrant", "one"), ("pinecone", "one"), ("embedded", "host")):
        registry.register(name, Nowhere(), owner)
    assert registry.names() == ("embedded", "pinecone", "qdrant")


def test_an_unregistered_name_is_not_found() -> None:
    registry = VectorRegistry()
    registry.register("embedded", Nowhere(), "host")
    found = registry.get("qdrant")
    assert isinstance(found, Failure)
    assert (found.code, found.detail) == (Code.NOT_FOUND, {"backend": "qdrant"})
    assert "embedded" in found.message


@requirement("nexo:host-vector-shapes")
def test_records_questions_and_matches_have_the_shapes_of_the_contract() -> None:
    record = VectorRecord("r1", "hello", (0.5, 0.25), {"source": "kb"})
    assert record.to_json() == {
        "id": "r1",
        "content": "hello",
        "embedding": [0.5, 0.25],
        "metadata": {"source": "kb"},
    }
    assert VectorQuery([1.0], 3).to_json() == {"embedding": [1.0], "limit": 3}
    assert VectorQuery([1.0], 3, {"must": []}).to_json() == {"embedding": [1.0], "limit": 3, "filter": {"must": []}}
    match = {"id": "r1", "content": "hello", "score": 0.97, "metadata": {"source": "kb"}}
    assert VectorMatch.from_json(match).to_json() == match


def test_a_match_may_leave_out_content_and_metadata() -> None:
    assert VectorMatch.from_json({"id": "r1", "score": 1, "metadata": None}) == VectorMatch("r1", "", 1.0, {})


@requirement("nexo:host-vector-shapes")
@pytest.mark.parametrize(
    "value",
    [
        None,
        [],
        "x",
        {},
        {"id": "a"},
        {"id": 1, "score": 1},
        {"id": "a", "score": "1"},
        {"id": "a", "score": 1, "content": 5},
        {"id": "a", "score": 1, "metadata": "x"},
    ],
)
def test_anything_else_is_no_match(value: Any) -> None:
    with pytest.raises(CallFailed) as caught:
        VectorMatch.from_json(value)
    assert caught.value.code == Code.MALFORMED_RESPONSE


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


def test_deleting_counts_the_deleted_records(run: Run) -> None:
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


def test_a_record_at_the_limit_is_stored(run: Run) -> None:
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
    monkeypatch.setattr(vectors, "MAX_CANDIDATES", 3)

    async def story(store: EmbeddedVectors) -> None:
        for number in range(5):
            await store.upsert("kb", [record(str(number), [1.0])])
        assert sorted(await found(store, [1.0])) == ["2", "3", "4"]
        await store.upsert("kb", [record("0", [1.0])])
        assert sorted(await found(store, [1.0])) == ["0", "3", "4"], "what is written again is new again"

    with_store(run, story)


EMBEDDER = HashingEmbedder()


def likeness(one: str, other: str) -> float:
    return sum(a * b for a, b in zip(EMBEDDER.vector(one), EMBEDDER.vector(other), strict=True))


@given(st.text())
def test_a_vector_has_unit_length_or_is_zero(text: str) -> None:
    vector = EMBEDDER.vector(text)
    assert len(vector) == DIMENSIONS
    assert math.isclose(math.hypot(*vector), 1.0) or not any(vector)
    assert vector == EMBEDDER.vector(text)


def test_a_stored_vector_stays_comparable_because_the_places_never_change() -> None:
    places = {place: round(value, 6) for place, value in enumerate(EMBEDDER.vector("tea")) if value}
    assert places == {178: 0.57735, 215: 0.57735, 247: 0.57735}


def test_forms_of_a_word_are_nearer_than_other_words() -> None:
    assert likeness("painting the walls", "paint on a wall") > likeness("painting the walls", "green tea") + 0.2
    assert likeness("Café", "cafe") == pytest.approx(1.0)


def test_a_text_without_words_is_near_nothing() -> None:
    assert not any(EMBEDDER.vector("?!"))


def test_only_the_beginning_of_a_long_text_counts() -> None:
    start = "tea " * (MAX_CHARACTERS // 4)
    assert EMBEDDER.vector(start + "coffee") == EMBEDDER.vector(start)
    assert EMBEDDER.vector("coffee " + start) != EMBEDDER.vector(start)


def test_every_text_gets_its_vector_in_order(run: Run) -> None:
    async def main() -> None:
        embedder = HashingEmbedder(16)
        assert await embedder.embed(["a", "b"]) == [embedder.vector("a"), embedder.vector("b")]
        assert len(embedder.vector("a")) == 16

    run(main)


def test_a_vector_without_dimensions_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one"):
        HashingEmbedder(0)
