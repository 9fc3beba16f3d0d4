"""Entries survive a restart, are found by their words and by their meaning, and belong to one agent."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plugbay.host.disk.sqlite_files import IN_MEMORY
from plugbay.host.services.memory import (
    MAX_ANSWER,
    MAX_CONTENT,
    MAX_LIMIT,
    MAX_NAME,
    MAX_QUERY,
    MAX_TAGS,
    MAX_TERMS,
    QUERY_CONCEPTS,
    AgentMemory,
    LongTermMemory,
    MemoryEntry,
    VectorRecall,
    match_expression,
)
from plugbay.host.services.vectors import (
    EmbeddedVectors,
    HashingEmbedder,
    VectorBackend,
    VectorMatch,
    VectorQuery,
    VectorRecord,
    VectorRegistry,
)
from plugbay.host.stamps import as_utc, is_uuid
from plugbay.model.errors import CallFailed, Code, Failure, PlugbayError
from tests.support.loops import Run, run_on
from tests.support.requirements import requirement

AGENT = "ventas_v1"
Story = Callable[[LongTermMemory], Awaitable[None]]


def with_memory(run: Run, story: Story, path: Path | str = IN_MEMORY) -> None:
    async def main() -> None:
        async with LongTermMemory(path) as memory:
            await story(memory)

    run(main)


async def contents(memory: LongTermMemory, query: str, limit: int = 10, agent: str = AGENT) -> list[str]:
    return [entry.content for entry in await memory.recall(agent, query, limit)]


async def refusal(asked: Awaitable[Any]) -> str:
    with pytest.raises(CallFailed) as caught:
        await asked
    assert caught.value.code == Code.INVALID_INPUT
    return caught.value.failure.message


@requirement("nexo:host-memory-entry")
def test_an_entry_has_exactly_the_seven_fields(run: Run) -> None:
    async def story(memory: LongTermMemory) -> None:
        entry = await memory.remember(AGENT, "user prefers concise answers", tags=["preference"])
        shape = entry.to_json()
        assert list(shape) == "id agent_id content tags concept_tags created_at memory_type".split()
        assert is_uuid(shape["id"])
        assert as_utc(shape["created_at"]) == shape["created_at"]
        assert (shape["agent_id"], shape["content"], shape["tags"]) == (AGENT, entry.content, ["preference"])
        assert "brevity" in shape["concept_tags"]
        assert shape["memory_type"] is None
        assert await memory.recall(AGENT, "concise") == [entry]

    with_memory(run, story)


def test_ids_and_times_come_from_the_sources_given(run: Run) -> None:
    async def main() -> None:
        async with LongTermMemory(IN_MEMORY, new_id=lambda: "the id", now=lambda: "the time") as memory:
            entry = await memory.remember(AGENT, "x", memory_type="fact")
            assert (entry.id, entry.created_at, entry.memory_type) == ("the id", "the time", "fact")

    run(main)


def test_entries_survive_a_restart(run: Run, tmp_path: Path) -> None:
    kept: list[MemoryEntry] = []

    async def first(memory: LongTermMemory) -> None:
        kept.append(await memory.remember(AGENT, "Ana lives in Lima", tags=["person", "ciudad"], memory_type="fact"))

    async def second(memory: LongTermMemory) -> None:
        assert await memory.recall(AGENT, "lima") == kept

    with_memory(run, first, tmp_path / "memory.db")
    with_memory(run, second, tmp_path / "memory.db")


@requirement("nexo:host-memory-recall")
def test_the_best_match_comes_first(run: Run) -> None:
    async def story(memory: LongTermMemory) -> None:
        for text in ("the weather was nice", "tea, green tea", "tea with milk at the station before the long trip"):
            await memory.remember(AGENT, text)
        assert await contents(memory, "tea") == ["tea, green tea", "tea with milk at the station before the long trip"]
        assert await contents(memory, "rain") == []

    with_memory(run, story)


@requirement("nexo:host-memory-concepts")
def test_a_question_finds_an_entry_that_shares_no_word_with_it(run: Run) -> None:
    async def story(memory: LongTermMemory) -> None:
        await memory.remember(AGENT, "keep replies short")
        await memory.remember(AGENT, "the car is red")
        assert await contents(memory, "user prefers concise wording") == ["keep replies short"]

    with_memory(run, story)


@requirement("nexo:host-memory-concepts")
def test_a_question_is_widened_by_at_most_three_concepts() -> None:
    query = "prefer concise family dinner in the cheapest hotel, pay by invoice"
    own = {"prefer", "concise", "family", "dinner", "cheapest", "hotel", "pay", "invoice"}
    terms = set(match_expression(query).replace('"', "").split(" OR "))
    assert terms > own
    assert len(terms - own) <= QUERY_CONCEPTS


def test_only_so_many_words_of_a_question_are_searched_for() -> None:
    many = " ".join(f"word{number}" for number in range(500))
    assert len(match_expression(many).split(" OR ")) <= MAX_TERMS + QUERY_CONCEPTS


def test_tags_and_forms_of_a_word_are_found(run: Run) -> None:
    async def story(memory: LongTermMemory) -> None:
        await memory.remember(AGENT, "blue", tags=["bicycle shed"])
        await memory.remember(AGENT, "she was painting walls")
        assert await contents(memory, "bicycles") == ["blue"]
        assert await contents(memory, "paint") == ["she was painting walls"]

    with_memory(run, story)


@pytest.mark.parametrize(
    ("content", "query"),
    [
        ("한국어 문서", "한국어"),
        ("カタカナ です", "カタカナ"),
        ("हिन्दी भाषा", "हिन्दी"),
        ("Contraseña nueva", "contrasena"),
        ("contrasena", "CONTRASEÑA"),
        ("see retryCountLimit", "retryCountLimit"),
        ("see retryCountLimit", "retry count"),
        ("snake_case_name", "case"),
    ],
)
def test_words_of_other_scripts_and_of_code_are_found(content: str, query: str) -> None:
    async def story(memory: LongTermMemory) -> None:
        await memory.remember(AGENT, content)
        assert await contents(memory, query) == [content]

    with_memory(run_on("asyncio"), story)


@requirement("nexo:host-memory-isolation")
def test_an_agent_never_sees_the_memories_of_another(run: Run) -> None:
    async def story(memory: LongTermMemory) -> None:
        await memory.remember("a", "secret of a")
        await memory.remember("A", "secret of A")
        await memory.remember("a' OR 1=1 --", "secret of c")
        for agent, own in (("a", "secret of a"), ("A", "secret of A"), ("a' OR 1=1 --", "secret of c")):
            assert await contents(memory, "secret", agent=agent) == [own]
            assert await contents(memory, "", agent=agent) == [own]
        assert await contents(memory, "secret", agent="nobody") == []

    with_memory(run, story)


def test_a_blank_question_gets_the_newest_entries_newest_first(run: Run) -> None:
    async def story(memory: LongTermMemory) -> None:
        for number in range(5):
            await memory.remember(AGENT, f"note {number}")
        assert await contents(memory, " \n", 3) == ["note 4", "note 3", "note 2"]
        assert await contents(memory, "?!*") == [], "a question without words is not a blank one"

    with_memory(run, story)


@requirement("nexo:host-memory-limit")
@pytest.mark.parametrize(("limit", "found"), [(-1, 0), (0, 0), (1, 1), (MAX_LIMIT, 1_000), (10**30, 1_000)])
def test_the_limit_is_between_nothing_and_a_thousand(run: Run, limit: int, found: int) -> None:
    async def story(memory: LongTermMemory) -> None:
        await asyncio.gather(*(memory.remember(AGENT, f"note {number}") for number in range(1_010)))
        assert len(await memory.recall(AGENT, "note", limit)) == found
        assert len(await memory.recall(AGENT, "", limit)) == found

    with_memory(run, story)


@requirement("nexo:host-memory-limit")
def test_the_default_limit_is_ten(run: Run) -> None:
    async def story(memory: LongTermMemory) -> None:
        for number in range(12):
            await memory.remember(AGENT, f"note {number}")
        assert len(await memory.recall(AGENT, "note")) == 10

    with_memory(run, story)


def test_an_answer_stays_small_enough_to_be_sent(run: Run) -> None:
    async def story(memory: LongTermMemory) -> None:
        for _ in range(20):
            await memory.remember(AGENT, "\x01" * 10 + "note " * 10_000)
        entries = await memory.recall(AGENT, "note", 1_000)
        assert 0 < len(entries) < 20
        assert len(msgspec.json.encode([entry.to_json() for entry in entries])) < MAX_ANSWER + 1_000

    with_memory(run, story)


def test_a_forgotten_entry_is_not_found(run: Run) -> None:
    async def story(memory: LongTermMemory) -> None:
        gone = await memory.remember(AGENT, "tea in the morning")
        await memory.remember(AGENT, "tea at night")
        assert await memory.forget(gone.id)
        assert not await memory.forget(gone.id)
        assert not await memory.forget("no such id")
        assert await contents(memory, "tea") == await contents(memory, "") == ["tea at night"]
        assert await contents(memory, "morning") == []

    with_memory(run, story)


@requirement("nexo:host-memory-isolation")
def test_entries_are_looked_up_by_id_in_the_order_asked_and_for_their_agent_only(run: Run) -> None:
    async def story(memory: LongTermMemory) -> None:
        one, two = await memory.remember(AGENT, "one"), await memory.remember(AGENT, "two")
        foreign = await memory.remember("other", "three")
        assert await memory.entries(AGENT, [two.id, "no such id", foreign.id, one.id]) == [two, one]
        assert await memory.entries(AGENT, []) == []

    with_memory(run, story)


def test_many_questions_at_once_each_get_their_own_answer(run: Run, tmp_path: Path) -> None:
    async def story(memory: LongTermMemory) -> None:
        await asyncio.gather(*(memory.remember(f"agent{n}", f"fact{n} is known") for n in range(50)))
        asked = [contents(memory, f"fact{n}", agent=f"agent{n}") for n in range(50) for _ in range(4)]
        assert await asyncio.gather(*asked) == [[f"fact{n} is known"] for n in range(50) for _ in range(4)]

    with_memory(run, story, tmp_path / "memory.db")


SYNTAX = [
    '"',
    '""',
    "tea OR coffee",
    "tea AND",
    "NOT tea",
    "NEAR(tea milk, 2)",
    "content : tea",
    "{content tags} : tea",
    "-tea",
    "^tea",
    "te*",
    '"tea',
    "tea)",
    "'; DROP TABLE memories; --",
    "tea\x00milk",
    "_ __",
    "\ud800 tea",
]


@requirement("nexo:host-memory-injection")
@pytest.mark.parametrize("query", SYNTAX)
def test_nothing_in_a_question_is_syntax(query: str) -> None:
    async def story(memory: LongTermMemory) -> None:
        await memory.remember(AGENT, "tea")
        await memory.remember("other", "tea")
        assert set(await contents(memory, query)) <= {"tea"}
        assert await contents(memory, "tea") == ["tea"]

    with_memory(run_on("asyncio"), story)


def test_the_same_questions_would_be_syntax_if_they_were_passed_on_as_they_are() -> None:
    broken = []
    with contextlib.closing(sqlite3.connect(IN_MEMORY)) as connection:
        connection.execute("CREATE VIRTUAL TABLE words USING fts5 (content)")
        for query in SYNTAX[:-1]:
            try:
                connection.execute("SELECT * FROM words WHERE words MATCH ?", (query,)).fetchall()
            except sqlite3.OperationalError:
                broken.append(query)
    assert {'"', "tea AND", "-tea", "tea)", "'; DROP TABLE memories; --"} <= set(broken)


@requirement("nexo:host-memory-injection")
@settings(max_examples=30)
@given(st.lists(st.text() | st.sampled_from(SYNTAX), min_size=1, max_size=10))
def test_any_text_is_kept_as_it_is_and_any_text_may_be_asked(texts: list[str]) -> None:
    sound = [text for text in texts if text.encode("utf-8", "ignore").decode() == text]

    async def story(memory: LongTermMemory) -> None:
        for text in sound:
            await memory.remember(AGENT, text)
            await memory.remember("other", f"other: {text}")
        for text in texts:
            assert set(await contents(memory, text)) <= set(sound)
        assert await contents(memory, "") == sound[::-1]

    with_memory(run_on("asyncio"), story)


def test_an_entry_over_the_limit_is_refused_and_one_at_the_limit_is_stored(run: Run) -> None:
    async def story(memory: LongTermMemory) -> None:
        largest = "é" * (MAX_CONTENT // 2)
        await memory.remember("é" * (MAX_NAME // 2), largest, tags=["t" * MAX_NAME] * MAX_TAGS)
        await memory.recall(AGENT, "q" * MAX_QUERY)
        assert str(MAX_CONTENT) in await refusal(memory.remember(AGENT, largest + "x"))
        assert str(MAX_QUERY) in await refusal(memory.recall(AGENT, "q" * (MAX_QUERY + 1)))
        assert str(MAX_TAGS) in await refusal(memory.remember(AGENT, "x", tags=["t"] * (MAX_TAGS + 1)))
        assert str(MAX_NAME) in await refusal(memory.remember(AGENT, "x", tags=["t" * (MAX_NAME + 1)]))
        assert str(MAX_NAME) in await refusal(memory.remember(AGENT, "x", memory_type="t" * (MAX_NAME + 1)))
        assert str(MAX_NAME) in await refusal(memory.recall("a" * (MAX_NAME + 1), "x"))
        assert "empty" in await refusal(memory.remember("", "x"))
        assert "Unicode" in await refusal(memory.remember(AGENT, "\ud800"))
        assert "Unicode" in await refusal(memory.remember(AGENT, "x", tags=["\ud800"]))
        assert "Unicode" in await refusal(memory.forget("\ud800"))
        assert await contents(memory, "") == []

    with_memory(run, story)


def test_a_file_that_cannot_be_used_is_refused_when_it_is_opened(run: Run, tmp_path: Path) -> None:
    (tmp_path / "memory.db").write_bytes(b"junk" * 5_000)

    async def main() -> None:
        with pytest.raises(PlugbayError, match="memory database"):
            await LongTermMemory(tmp_path / "memory.db").open()

    run(main)


NOW = "2026-05-01T00:00:00Z"
RecallStory = Callable[[VectorRecall, VectorRegistry], Awaitable[None]]


def entry(id: str, content: str, agent: str = "a") -> MemoryEntry:
    return MemoryEntry(id, agent, content, ("tag",), (), NOW, "fact")


def with_recall(run: Run, story: RecallStory, backend: str = "embedded") -> None:
    async def main() -> None:
        async with EmbeddedVectors(IN_MEMORY) as store:
            registry = VectorRegistry()
            registry.register("embedded", store, "host")
            await story(VectorRecall(registry, HashingEmbedder(), backend), registry)

    run(main)


async def found(recall: VectorRecall, query: str, agent: str = "a", limit: int = 10) -> list[str]:
    return [match.id for match in await recall.recall(agent, query, limit)]


@requirement("nexo:host-vector-recall")
def test_the_most_similar_entry_comes_first(run: Run) -> None:
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


def test_an_entry_without_a_common_word_is_found_by_similarity(run: Run, tmp_path: Path) -> None:
    async def main() -> None:
        failures: list[Failure] = []
        async with EmbeddedVectors(tmp_path / "v.db") as store:
            memory = memory_with(store, failures)
            await memory.open()
            await memory.remember("a", "photosynthesising leaves")
            await memory.remember("b", "photosynthesis of another agent")
            by_words = AgentMemory(memory.text)
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


def test_an_agent_forgets_only_its_own_entries(run: Run, tmp_path: Path) -> None:
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


@requirement("host:memory-operate")
def test_a_cleared_agent_has_nothing_left_in_text_and_vectors_and_others_keep_theirs(run: Run) -> None:
    async def main() -> None:
        registry, store = VectorRegistry(), EmbeddedVectors(IN_MEMORY)
        await store.open()
        registry.register("embedded", store, "test")
        memory = AgentMemory(LongTermMemory(IN_MEMORY), VectorRecall(registry, HashingEmbedder()))
        await memory.open()
        for agent in ("ada", "ada", "ben"):
            await memory.remember(agent, "photosynthesising leaves")
        assert (await memory.clear("ada"), await memory.clear("ada"), await memory.clear("nobody")) == (2, 0, 0)
        assert await memory.recall("ada", "photosynthetic") == []
        assert len(await memory.recall("ben", "leaves")) == 1
        with pytest.raises(CallFailed, match="must not be empty"):
            await memory.clear("")
        await memory.close()
        await store.close()

    run(main)
