"""The first to take a name keeps it; what an owner offers goes with the owner."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from plugbay.host.services.vectors import VectorBackend, VectorMatch, VectorQuery, VectorRecord, VectorRegistry
from plugbay.model.errors import CallFailed, Code, Failure
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


def test_a_name_nobody_took_is_not_found() -> None:
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
