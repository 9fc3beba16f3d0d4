"""Words first, likeness after, and a broken vector store costs only the likeness. A real database."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from plugbay.host.services.agent_memory import AgentMemory
from plugbay.host.services.embedding import HashingEmbedder
from plugbay.host.services.memory import LongTermMemory
from plugbay.host.services.recall import VectorRecall
from plugbay.host.services.vector_store import EmbeddedVectors
from plugbay.host.services.vectors import VectorBackend, VectorMatch, VectorQuery, VectorRecord, VectorRegistry
from plugbay.model.errors import CallFailed, Code, Failure
from tests.support.loops import Run


class Broken:
    """A store whose plugin is gone."""

    async def upsert(self, collection: str, records: Sequence[VectorRecord]) -> int:
        raise CallFailed(Failure(Code.CRASHED, "gone"))

    async def search(self, collection: str, query: VectorQuery) -> list[VectorMatch]:
        raise CallFailed(Failure(Code.CRASHED, "gone"))

    async def delete(self, collection: str, ids: Sequence[str]) -> int:
        raise CallFailed(Failure(Code.CRASHED, "gone"))


def memory_with(store: VectorBackend, failures: list[Failure]) -> AgentMemory:
    registry = VectorRegistry()
    registry.register("s", store, "test")
    return AgentMemory(
        LongTermMemory(":memory:"),
        VectorRecall(registry, HashingEmbedder(), "s"),
        lambda failure: failures.append(failure),
    )


def test_what_has_no_word_in_common_is_found_by_likeness(run: Run, tmp_path: Path) -> None:
    async def main() -> None:
        failures: list[Failure] = []
        async with EmbeddedVectors(tmp_path / "v.db") as store:
            memory = memory_with(store, failures)
            await memory.open()
            await memory.remember("a", "photosynthesising leaves")
            await memory.remember("b", "photosynthesis of another agent")
            by_words = AgentMemory(memory._words)
            assert await by_words.recall("a", "photosynthetic") == []
            assert [entry.content for entry in await memory.recall("a", "photosynthetic")] == [
                "photosynthesising leaves"
            ]
            assert await memory.recall("a", "photosynthetic", 0) == []
            assert failures == []
            await memory.close()

    run(main)


def test_nothing_is_found_twice_and_the_limit_holds(run: Run, tmp_path: Path) -> None:
    async def main() -> None:
        async with EmbeddedVectors(tmp_path / "v.db") as store:
            memory = memory_with(store, [])
            await memory.open()
            for number in range(6):
                await memory.remember("a", f"concise answers {number}")
            found = await memory.recall("a", "concise", 4)
            assert len(found) == len({entry.id for entry in found}) == 4
            assert len(await memory.recall("a", "concise", 10)) == 6
            await memory.close()

    run(main)


def test_a_broken_store_costs_the_likeness_and_is_reported(run: Run) -> None:
    async def main() -> None:
        failures: list[Failure] = []
        memory = memory_with(Broken(), failures)
        await memory.open()
        entry = await memory.remember("a", "concise answers")
        assert await memory.recall("a", "concise") == [entry]
        assert await memory.forget("a", entry.id)
        assert [failure.code for failure in failures] == [Code.CRASHED] * 3
        await memory.close()

    run(main)


def test_an_agent_forgets_only_what_is_its_own(run: Run, tmp_path: Path) -> None:
    async def main() -> None:
        async with EmbeddedVectors(tmp_path / "v.db") as store:
            memory = memory_with(store, [])
            await memory.open()
            entry = await memory.remember("a", "concise answers")
            assert not await memory.forget("b", entry.id)
            assert await memory.recall("a", "concise") == [entry]
            assert await memory.forget("a", entry.id)
            assert await memory.recall("a", "concise") == []
            await memory.close()

    run(main)
