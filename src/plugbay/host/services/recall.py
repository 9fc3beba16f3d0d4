"""Recall by likeness: memory entries as vectors, each agent's in a collection of its own.

Owns how entries map to records and collections. Knows neither the store, which the operator names, nor how texts become
vectors. Complements the recall by words in `memory.py`.
"""

from __future__ import annotations

from plugbay.host.services.embedding import Embedder
from plugbay.host.services.memory import MemoryEntry
from plugbay.host.services.vectors import VectorBackend, VectorMatch, VectorQuery, VectorRecord, VectorRegistry
from plugbay.model.errors import CallFailed, Code, Failure

EMBEDDED = "embedded"
"""The store the host brings along."""


class VectorRecall:
    """Remembers entries in one vector store and finds those that are like a question. Raises `CallFailed`."""

    def __init__(self, registry: VectorRegistry, embedder: Embedder, backend: str = EMBEDDED) -> None:
        self._registry = registry
        self._embedder = embedder
        self._backend = backend

    async def remember(self, entry: MemoryEntry) -> None:
        """Store an entry; the same one again replaces it."""
        backend = self._store()
        (embedding,) = await self._embedder.embed([entry.content])
        metadata = {"agent_id": entry.agent_id, "tags": list(entry.tags), "memory_type": entry.memory_type}
        record = VectorRecord(entry.id, entry.content, embedding, metadata)
        await backend.upsert(_collection(entry.agent_id), [record])

    async def recall(self, agent_id: str, query: str, limit: int = 10) -> list[VectorMatch]:
        """What this agent remembers that is most like `query`, best first; nothing when it remembers nothing."""
        backend = self._store()
        (embedding,) = await self._embedder.embed([query])
        try:
            matches = await backend.search(_collection(agent_id), VectorQuery(embedding, limit))
        except CallFailed as error:
            if _is_missing_collection(error.failure):
                return []
            raise
        # A store that mixes up its collections must not make agents see each other's memories.
        return [match for match in matches if match.metadata.get("agent_id", agent_id) == agent_id]

    async def forget(self, agent_id: str, memory_id: str) -> bool:
        """Remove an entry from the store; False when it is not there."""
        try:
            return await self._store().delete(_collection(agent_id), [memory_id]) > 0
        except CallFailed as error:
            if _is_missing_collection(error.failure):
                return False
            raise

    def _store(self) -> VectorBackend:
        """The store as it is registered now: a plugin that offers one comes and goes."""
        found = self._registry.get(self._backend)
        if isinstance(found, Failure):
            raise CallFailed(found)
        return found


def _collection(agent_id: str) -> str:
    return f"agent:{agent_id}"


def _is_missing_collection(failure: Failure) -> bool:
    return failure.code == Code.NOT_FOUND and "collection" in failure.detail
