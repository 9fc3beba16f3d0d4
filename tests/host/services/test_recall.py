"""Entries are found again by likeness, each agent's own only, in whichever store the operator named."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

import pytest

from plugbay.host.disk.sqlite import IN_MEMORY
from plugbay.host.services.embedding import HashingEmbedder
from plugbay.host.services.memory import MemoryEntry
from plugbay.host.services.recall import VectorRecall
from plugbay.host.services.vector_store import EmbeddedVectors
from plugbay.host.services.vectors import VectorMatch, VectorQuery, VectorRecord, VectorRegistry
from plugbay.model.errors import CallFailed, Code, Failure
from tests.support.loops import Run
from tests.support.requirements import requirement

NOW = "2026-05-01T00:00:00Z"
Story = Callable[[VectorRecall, VectorRegistry], Awaitable[None]]


def entry(id: str, content: str, agent: str = "a") -> MemoryEntry:
    return MemoryEntry(id, agent, content, ("tag",), (), NOW, "fact")


def with_recall(run: Run, story: Story, backend: str = "embedded") -> None:
    async def main() -> None:
        async with EmbeddedVectors(IN_MEMORY) as store:
            registry = VectorRegistry()
            registry.register("embedded", store, "host")
            await story(VectorRecall(registry, HashingEmbedder(), backend), registry)

    run(main)


async def found(recall: VectorRecall, query: str, agent: str = "a", limit: int = 10) -> list[str]:
    return [match.id for match in await recall.recall(agent, query, limit)]


@requirement("nexo:host-vector-recall")
def test_what_is_most_like_the_question_comes_first(run: Run) -> None:
    async def story(recall: VectorRecall, _: VectorRegistry) -> None:
        await recall.remember(entry("1", "painting the kitchen walls"))
        await recall.remember(entry("2", "a cup of green tea"))
        assert (await found(recall, "paint on a wall"))[0] == "1"
        assert await found(recall, "gren teas", limit=1) == ["2"]
        (match,) = await recall.recall("a", "tea", 1)
        assert match.metadata == {"agent_id": "a", "tags": ["tag"], "memory_type": "fact"}

    with_recall(run, story)


@requirement("nexo:host-vector-recall")
def test_an_agent_never_sees_the_entries_of_another(run: Run) -> None:
    async def story(recall: VectorRecall, _: VectorRegistry) -> None:
        await recall.remember(entry("1", "tea", "a"))
        await recall.remember(entry("2", "tea", "b"))
        assert await found(recall, "tea", "a") == ["1"]
        assert await found(recall, "tea", "b") == ["2"]
        assert await found(recall, "tea", "nobody") == []

    with_recall(run, story)


def test_the_same_entry_again_replaces_it_and_forgetting_removes_it(run: Run) -> None:
    async def story(recall: VectorRecall, _: VectorRegistry) -> None:
        await recall.remember(entry("1", "tea"))
        await recall.remember(entry("1", "coffee"))
        assert [match.content for match in await recall.recall("a", "coffee")] == ["coffee"]
        assert await recall.forget("a", "1")
        assert not await recall.forget("a", "1")
        assert not await recall.forget("nobody", "1")
        assert await found(recall, "coffee") == []

    with_recall(run, story)


class Leaky:
    """A store that ignores collections, and one that fails."""

    def __init__(self, failure: Failure | None = None) -> None:
        self._failure = failure
        self._records: list[VectorRecord] = []

    async def upsert(self, collection: str, records: Sequence[VectorRecord]) -> int:
        self._records.extend(records)
        return len(records)

    async def search(self, collection: str, query: VectorQuery) -> list[VectorMatch]:
        if self._failure is not None:
            raise CallFailed(self._failure)
        return [VectorMatch(record.id, record.content, 1.0, record.metadata) for record in self._records]

    async def delete(self, collection: str, ids: Sequence[str]) -> int:
        if self._failure is not None:
            raise CallFailed(self._failure)
        return 0


def test_a_store_that_mixes_up_its_collections_leaks_nothing(run: Run) -> None:
    async def story(recall: VectorRecall, registry: VectorRegistry) -> None:
        registry.register("leaky", Leaky(), "plugin")
        await recall.remember(entry("1", "tea", "a"))
        await recall.remember(entry("2", "tea", "b"))
        assert await found(recall, "tea", "b") == ["2"]

    with_recall(run, story, "leaky")


def test_a_store_that_left_is_not_found_and_one_that_came_back_is_used(run: Run) -> None:
    async def story(recall: VectorRecall, registry: VectorRegistry) -> None:
        for asked in (recall.recall("a", "tea"), recall.remember(entry("1", "tea")), recall.forget("a", "1")):
            with pytest.raises(CallFailed) as caught:
                await asked
            assert caught.value.code == Code.NOT_FOUND
        registry.register("qdrant", Leaky(), "plugin")
        await recall.remember(entry("1", "tea"))
        assert await found(recall, "tea") == ["1"]

    with_recall(run, story, "qdrant")


@pytest.mark.parametrize("code", [Code.TIMEOUT, Code.NOT_FOUND])
def test_a_failure_of_the_store_is_the_callers_to_see(run: Run, code: str) -> None:
    async def story(recall: VectorRecall, registry: VectorRegistry) -> None:
        registry.register("broken", Leaky(Failure(code, "no")), "plugin")
        for asked in (recall.recall("a", "tea"), recall.forget("a", "1")):
            with pytest.raises(CallFailed) as caught:
                await asked
            assert caught.value.code == code

    with_recall(run, story, "broken")
