"""`AgentMemory`: what agents remember, found by words first and then by likeness where a vector store is configured.

Owns how the two kinds of recall become one answer. A vector store that fails costs the likeness, never the memory.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from plugbay.host.services.memory import MAX_ANSWER, MAX_LIMIT, LongTermMemory, MemoryEntry
from plugbay.host.services.recall import VectorRecall
from plugbay.model.errors import CallFailed, Failure


class AgentMemory:
    """The memory of every agent of one host. Methods raise `CallFailed`, `open` a `PlugbayError`."""

    def __init__(
        self,
        words: LongTermMemory,
        likeness: VectorRecall | None = None,
        degraded: Callable[[Failure], object] = lambda failure: None,
    ) -> None:
        """`degraded` is told when the vector store could not be used."""
        self._words = words
        self._likeness = likeness
        self._degraded = degraded

    async def open(self) -> None:
        await self._words.open()

    async def close(self) -> None:
        await self._words.close()

    async def remember(
        self, agent_id: str, content: str, *, tags: Sequence[str] = (), memory_type: str | None = None
    ) -> MemoryEntry:
        """Keep something for one agent."""
        entry = await self._words.remember(agent_id, content, tags=tags, memory_type=memory_type)
        if self._likeness is not None:
            try:
                await self._likeness.remember(entry)
            except CallFailed as error:
                self._degraded(error.failure)
        return entry

    async def recall(self, agent_id: str, query: str, limit: int = 10) -> list[MemoryEntry]:
        """What this agent remembers about `query`, best first: hits by word, then what is like it."""
        limit = max(0, min(limit, MAX_LIMIT))
        entries = await self._words.recall(agent_id, query, limit)
        if self._likeness is None or len(entries) >= limit:
            return entries
        try:
            matches = await self._likeness.recall(agent_id, query, limit)
        except CallFailed as error:
            self._degraded(error.failure)
            return entries
        known = {entry.id for entry in entries}
        alike = [match.id for match in matches if match.id not in known]
        return _fitting(entries, await self._words.entries(agent_id, alike[: limit - len(entries)]))

    async def forget(self, agent_id: str, memory_id: str) -> bool:
        """Remove one entry; False when this agent has none with that id."""
        if not await self._words.entries(agent_id, [memory_id]):
            return False
        if self._likeness is not None:
            try:
                await self._likeness.forget(agent_id, memory_id)
            except CallFailed as error:
                self._degraded(error.failure)
        return await self._words.forget(memory_id)


def _fitting(entries: list[MemoryEntry], more: list[MemoryEntry]) -> list[MemoryEntry]:
    """The first entries with as many of the others as fit one answer."""
    room = MAX_ANSWER - sum(map(_size, entries))
    fitting = list(entries)
    for entry in more:
        room -= _size(entry)
        if room < 0:
            break
        fitting.append(entry)
    return fitting


def _size(entry: MemoryEntry) -> int:
    return len(msgspec.json.encode(entry.to_json()))
