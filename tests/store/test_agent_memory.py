"""The memory of agents in the control plane's database finds what the one in a file finds."""

from __future__ import annotations

import pytest

from plugbay.host.services.memory import LongTermMemory, MemoryEntry, TextMemory
from plugbay.model.errors import CallFailed, Code
from plugbay.store.agent_memory import SqlMemory, stem, weights
from plugbay.store.database import Database
from tests.support.loops import Run

FACTS = (
    ("The invoice of the printer is due in March", ("billing",)),
    ("Ana likes short answers and green tea", ()),
    ("The printers on the second floor are broken again, printer, printer", ()),
    ("A note about nothing in particular\0", ("printer",)),
)


@pytest.mark.parametrize(
    ("one", "other"),
    [("printers", "printer"), ("notes", "note"), ("cities", "city"), ("walking", "walked"), ("as", "as")],
)
def test_forms_of_a_word_are_the_same(one: str, other: str) -> None:
    assert stem(one) == stem(other)


def test_tags_count_more_and_long_texts_less() -> None:
    def weight(content: str, *tags: str) -> float:
        return weights(MemoryEntry("1", "a", content, tags, (), ""))["printer"]

    assert weight("x", "printer") > weight("printer") > weight("printer " + "word " * 200)
    assert weight("printer printer") > weight("printer")


def test_both_memories_find_the_same(database_url: str, run: Run) -> None:
    async def main() -> None:
        database = await Database.open(database_url, migrate=False)
        file: TextMemory = LongTermMemory(":memory:")
        for memory in (file, SqlMemory(database)):
            await memory.open()
            entries = [await memory.remember("ana", content, tags=tags) for content, tags in FACTS]
            other = await memory.remember("bob", "A printer of another agent", memory_type="fact")

            async def found(query: str, limit: int = 10, memory: TextMemory = memory) -> list[str]:
                return [entry.content for entry in await memory.recall("ana", query, limit)]

            assert set(await found("printers")) == {FACTS[0][0], FACTS[2][0], FACTS[3][0]}
            assert (await found("invoice printer"))[0] == FACTS[0][0]
            assert await found("green TEA?") == [FACTS[1][0]] and await found("zebra") == [] == await found("?!")
            assert await found(" ", 2) == [FACTS[3][0], FACTS[2][0]] and await found(" ", 0) == []
            assert await memory.recall("bob", "printer") == [other]
            ids = [entries[2].id, "none", other.id, entries[0].id]
            assert await memory.entries("ana", ids) == [entries[2], entries[0]]
            assert await memory.forget(entries[0].id) and not await memory.forget(entries[0].id)
            assert set(await found("printers")) == {FACTS[2][0], FACTS[3][0]}
            assert sorted(await memory.clear("ana")) == sorted(entry.id for entry in entries[1:])
            assert await found("printers") == [] and await memory.recall("bob", "printer") == [other]
        await file.close()
        await database.close()

    run(main)


def test_what_is_no_entry_is_refused(database_url: str, run: Run) -> None:
    async def main() -> None:
        database = await Database.open(database_url, migrate=False)
        memory = SqlMemory(database)
        for agent, content in (("", "x"), ("a", "x" * 70_000), ("a\0", "x"), ("a", "\ud800")):
            with pytest.raises(CallFailed) as caught:
                await memory.remember(agent, content)
            assert caught.value.failure.code == Code.INVALID_INPUT
        assert await memory.recall("a", " ") == []
        await memory.close()
        await database.close()

    run(main)
