"""The memory of agents: entries in SQLite, found by their words and, with a vector store, by similarity.

`LongTermMemory` keeps the entries and their full-text index, `VectorRecall` the same entries as vectors, `AgentMemory`
makes one answer of both. One agent never sees another's entries; a vector store that fails costs the similarity search,
never the memory.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Protocol

import msgspec

from plugbay.host.disk.sqlite import Database, Schema
from plugbay.host.services.concepts import derive, significant, words
from plugbay.host.services.vectors import (
    Embedder,
    VectorBackend,
    VectorMatch,
    VectorQuery,
    VectorRecord,
    VectorRegistry,
)
from plugbay.host.stamps import new_uuid, utc_now
from plugbay.model.errors import CallFailed, Code, Failure, Origin, PlugbayError

MEMORY_FILE = "memory.db"
"""Below the state folder: the memory of a host whose plugbay.toml names no other file."""

MAX_CONTENT = 65_536
"""Bytes of one entry. A memory is a fact or a note; a document belongs in a file."""
MAX_QUERY = 8_192
"""Bytes of one query; far more than any query has words that count."""
MAX_TERMS = 32
"""Words of a query that are searched for; each costs a walk through the index."""
MAX_NAME = 200
"""Bytes of an agent's id, a tag or a type: they are names."""
MAX_TAGS = 64
"""Tags of one entry."""
MAX_LIMIT = 1_000
"""Entries of one answer; the cap that contracts name."""
MAX_ANSWER = 900_000
"""Bytes of JSON of one answer. A plugin may read no frame beyond 1 MiB, so an answer above it would never arrive."""
QUERY_CONCEPTS = 3
"""Concept tags added to a query; more would outweigh its own words."""

SCHEMA = Schema(
    "memory",
    0x50424D31,  # "PBM1"
    (
        (
            """CREATE TABLE memories (
                number INTEGER PRIMARY KEY,
                id TEXT NOT NULL UNIQUE,
                agent_id TEXT NOT NULL,
                content TEXT NOT NULL,
                tags TEXT NOT NULL,
                concept_tags TEXT NOT NULL,
                created_at TEXT NOT NULL,
                memory_type TEXT
            )""",
            "CREATE INDEX memories_of_agent ON memories (agent_id, number)",
            # The index keeps no copy of the texts; the triggers keep it in step with the table.
            """CREATE VIRTUAL TABLE memory_words USING fts5 (
                content, tags, concept_tags,
                content = 'memories', content_rowid = 'number',
                tokenize = 'porter unicode61 remove_diacritics 2'
            )""",
            """CREATE TRIGGER memory_added AFTER INSERT ON memories BEGIN
                INSERT INTO memory_words (rowid, content, tags, concept_tags)
                VALUES (new.number, new.content, new.tags, new.concept_tags);
            END""",
            """CREATE TRIGGER memory_removed AFTER DELETE ON memories BEGIN
                INSERT INTO memory_words (memory_words, rowid, content, tags, concept_tags)
                VALUES ('delete', old.number, old.content, old.tags, old.concept_tags);
            END""",
        ),
    ),
)

_COLUMNS = "m.id, m.agent_id, m.content, m.tags, m.concept_tags, m.created_at, m.memory_type"
_ADD = """INSERT INTO memories (id, agent_id, content, tags, concept_tags, created_at, memory_type)
    VALUES (?, ?, ?, ?, ?, ?, ?)"""
_NEWEST = f"SELECT {_COLUMNS} FROM memories m WHERE m.agent_id = ? ORDER BY m.number DESC LIMIT ?"
_ONE = f"SELECT {_COLUMNS} FROM memories m WHERE m.id = ? AND m.agent_id = ?"
# Weights: the text 1, tags that the caller set 2, derived tags 0.5.
_BEST = f"""SELECT {_COLUMNS} FROM memory_words JOIN memories m ON m.number = memory_words.rowid
    WHERE memory_words MATCH ? AND m.agent_id = ?
    ORDER BY bm25(memory_words, 1.0, 2.0, 0.5), m.number DESC LIMIT ?"""


class MemoryEntry(msgspec.Struct, frozen=True):
    """One entry of an agent's memory."""

    id: str
    """A UUID."""
    agent_id: str
    content: str
    tags: tuple[str, ...]
    concept_tags: tuple[str, ...]
    """Derived from the content: its subjects."""
    created_at: str
    """RFC 3339, UTC."""
    memory_type: str | None = None

    def to_json(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "agent_id": self.agent_id,
            "content": self.content,
            "tags": list(self.tags),
            "concept_tags": list(self.concept_tags),
            "created_at": self.created_at,
            "memory_type": self.memory_type,
        }


class TextMemory(Protocol):
    """The entries of all agents and their search: in a file (`LongTermMemory`), or in the database of a control plane.

    Methods raise `CallFailed`, `open` a `PlugbayError`.
    """

    path: Path | str
    """Where they are, for messages."""

    async def open(self) -> None: ...
    async def close(self) -> None: ...

    async def remember(
        self, agent_id: str, content: str, *, tags: Sequence[str] = (), memory_type: str | None = None
    ) -> MemoryEntry:
        """Store `content` for this agent."""
        ...

    async def recall(self, agent_id: str, query: str, limit: int = 10) -> list[MemoryEntry]:
        """The entries of this agent that match `query`, best first; for a blank query the newest, newest first."""
        ...

    async def entries(self, agent_id: str, ids: Sequence[str]) -> list[MemoryEntry]:
        """This agent's entries with these ids, in that order; an id it has no entry for is left out."""
        ...

    async def forget(self, memory_id: str) -> bool:
        """Remove an entry for good; False when there is none with this id."""
        ...

    async def clear(self, agent_id: str) -> list[str]:
        """Remove every entry of this agent for good; returns their ids."""
        ...


class LongTermMemory:
    """The memory of every agent of one host, in one file. All methods raise `CallFailed`, `open` a `PlugbayError`."""

    def __init__(
        self,
        path: Path | str,
        *,
        on_demand: bool = False,
        new_id: Callable[[], str] = new_uuid,
        now: Callable[[], str] = utc_now,
    ) -> None:
        """`on_demand`: the file is opened, and made, by the first use after `open`."""
        self.path = path
        self._database = Database(path, SCHEMA)
        self._on_demand = on_demand
        self._opening: asyncio.Lock | None = None
        """While a file that opens on demand is not open yet."""
        self._new_id = new_id
        self._now = now

    async def open(self) -> None:
        if self._on_demand:
            self._opening = asyncio.Lock()
        else:
            await self._database.open()

    async def close(self) -> None:
        self._opening = None
        await self._database.close()

    async def _opened(self) -> Database:
        """The database, opened now if this is its first use."""
        opening = self._opening
        if opening is not None:
            async with opening:
                if self._opening is opening:
                    await self._open_now()
        return self._database

    async def _open_now(self) -> None:
        try:
            await self._database.open()
        except PlugbayError as error:
            raise CallFailed(Failure(Code.UNAVAILABLE, str(error), origin=Origin.SYSTEM)) from None
        self._opening = None

    async def __aenter__(self) -> LongTermMemory:
        await self.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def remember(
        self, agent_id: str, content: str, *, tags: Sequence[str] = (), memory_type: str | None = None
    ) -> MemoryEntry:
        """Store `content` for this agent."""
        check_entry(agent_id, content, tags, memory_type)
        new_id, now = self._new_id(), self._now()

        def add(connection: sqlite3.Connection) -> MemoryEntry:
            entry = MemoryEntry(new_id, agent_id, content, tuple(tags), derive(content), now, memory_type)
            connection.execute(_ADD, _row(entry))
            return entry

        return await (await self._opened()).write(add)

    async def recall(self, agent_id: str, query: str, limit: int = 10) -> list[MemoryEntry]:
        """The entries of this agent that match `query`, best first; for a blank query the newest, newest first."""
        check_query(agent_id, query)
        limit = max(0, min(limit, MAX_LIMIT))

        def look_up(connection: sqlite3.Connection) -> list[MemoryEntry]:
            if not query.strip():
                return fit(map(_entry, connection.execute(_NEWEST, (agent_id, limit))))
            expression = match_expression(query)
            rows = connection.execute(_BEST, (expression, agent_id, limit)) if expression else ()
            return fit(map(_entry, rows))

        return await (await self._opened()).run(look_up)

    async def entries(self, agent_id: str, ids: Sequence[str]) -> list[MemoryEntry]:
        """This agent's entries with these ids, in that order; an id it has no entry for is left out."""

        def look_up(connection: sqlite3.Connection) -> list[MemoryEntry]:
            rows = (connection.execute(_ONE, (memory_id, agent_id)).fetchone() for memory_id in ids[:MAX_LIMIT])
            return fit(_entry(row) for row in rows if row is not None)

        return await (await self._opened()).run(look_up)

    async def forget(self, memory_id: str) -> bool:
        """Remove an entry for good; False when there is none with this id."""

        def remove(connection: sqlite3.Connection) -> bool:
            return connection.execute("DELETE FROM memories WHERE id = ?", (memory_id,)).rowcount == 1

        return await (await self._opened()).write(remove)

    async def clear(self, agent_id: str) -> list[str]:
        """Remove every entry of this agent for good; returns their ids."""
        check_name("the agent's id", agent_id)

        def remove(connection: sqlite3.Connection) -> list[str]:
            ids = [row[0] for row in connection.execute("SELECT id FROM memories WHERE agent_id = ?", (agent_id,))]
            connection.execute("DELETE FROM memories WHERE agent_id = ?", (agent_id,))
            return ids

        return await (await self._opened()).write(remove)


def match_expression(query: str) -> str:
    """The full-text expression for a query: its significant words and its concepts. Empty when it has no words.

    Words hold letters and digits only and are quoted as well, so no part of a query is ever FTS syntax.
    """
    terms = [*significant(words(query))[:MAX_TERMS], *derive(query, QUERY_CONCEPTS)]
    return " OR ".join(f'"{term}"' for term in dict.fromkeys(terms))


def _row(entry: MemoryEntry) -> tuple[str | None, ...]:
    tags, concept_tags = (msgspec.json.encode(names).decode() for names in (entry.tags, entry.concept_tags))
    return (entry.id, entry.agent_id, entry.content, tags, concept_tags, entry.created_at, entry.memory_type)


def _entry(row: Any) -> MemoryEntry:
    memory_id, agent_id, content, tags, concept_tags, created_at, memory_type = row
    return MemoryEntry(memory_id, agent_id, content, _names(tags), _names(concept_tags), created_at, memory_type)


def fit(entries: Iterable[MemoryEntry]) -> list[MemoryEntry]:
    """The first entries that fit one answer together."""
    fitting: list[MemoryEntry] = []
    room = MAX_ANSWER
    for entry in entries:
        room -= len(msgspec.json.encode(entry.to_json()))
        if room < 0:
            break
        fitting.append(entry)
    return fitting


def _names(text: str) -> tuple[str, ...]:
    return tuple(msgspec.json.decode(text, type=list[str]))


def check_entry(agent_id: str, content: str, tags: Sequence[str], memory_type: str | None) -> None:
    """Raises `CallFailed` for an entry that is not stored."""
    check_name("the agent's id", agent_id)
    _check_size("the content", content, MAX_CONTENT)
    if len(tags) > MAX_TAGS:
        raise _refused(f"an entry has at most {MAX_TAGS} tags, not {len(tags)}")
    for tag in tags:
        check_name("a tag", tag)
    if memory_type is not None:
        check_name("the type", memory_type)


def check_query(agent_id: str, query: str) -> None:
    """Raises `CallFailed` for a query that is not answered."""
    check_name("the agent's id", agent_id)
    _check_size("the query", query, MAX_QUERY)


def check_name(what: str, name: str) -> None:
    """Raises `CallFailed` for an empty or long name."""
    if not name:
        raise _refused(f"{what} must not be empty")
    _check_size(what, name, MAX_NAME)


def _check_size(what: str, text: str, limit: int) -> None:
    size = len(text.encode("utf-8", "surrogatepass"))  # the database refuses what is not Unicode
    if size > limit:
        raise _refused(f"{what} has {size} bytes; at most {limit} are allowed")


def _refused(message: str) -> CallFailed:
    return CallFailed(Failure(Code.INVALID_INPUT, message))


EMBEDDED = "embedded"
"""The name of the host's own vector store."""


class VectorRecall:
    """Memory entries in one vector store, each agent's in its own collection. Methods raise `CallFailed`."""

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
        """The entries of this agent most similar to `query`, best first; none when it has no collection."""
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

    async def forget(self, agent_id: str, *memory_ids: str) -> bool:
        """Remove entries from the store; False when none of them is there."""
        try:
            return await self._store().delete(_collection(agent_id), list(memory_ids)) > 0
        except CallFailed as error:
            if _is_missing_collection(error.failure):
                return False
            raise

    def _store(self) -> VectorBackend:
        """The store that is registered now: a plugin that provides one may come and go."""
        found = self._registry.get(self._backend)
        if isinstance(found, Failure):
            raise CallFailed(found)
        return found


def _collection(agent_id: str) -> str:
    return f"agent:{agent_id}"


def _is_missing_collection(failure: Failure) -> bool:
    return failure.code == Code.NOT_FOUND and "collection" in failure.detail


class AgentMemory:
    """The memory of every agent of one host. Methods raise `CallFailed`, `open` a `PlugbayError`."""

    def __init__(
        self,
        text: TextMemory,
        vectors: VectorRecall | None = None,
        degraded: Callable[[Failure], object] = lambda failure: None,
    ) -> None:
        """`degraded` is called with the failure when the vector store could not be used."""
        self.text = text
        self._vectors = vectors
        self._degraded = degraded

    @property
    def path(self) -> Path | str:
        """The file; `:memory:` for one that ends with the host."""
        return self.text.path

    async def open(self) -> None:
        await self.text.open()

    async def close(self) -> None:
        await self.text.close()

    async def remember(
        self, agent_id: str, content: str, *, tags: Sequence[str] = (), memory_type: str | None = None
    ) -> MemoryEntry:
        """Store an entry for one agent."""
        entry = await self.text.remember(agent_id, content, tags=tags, memory_type=memory_type)
        if self._vectors is not None:
            try:
                await self._vectors.remember(entry)
            except CallFailed as error:
                self._degraded(error.failure)
        return entry

    async def recall(self, agent_id: str, query: str, limit: int = 10) -> list[MemoryEntry]:
        """The entries of this agent that match `query`: full-text hits first, best first, then similar entries."""
        limit = max(0, min(limit, MAX_LIMIT))
        entries = await self.text.recall(agent_id, query, limit)
        if self._vectors is None or len(entries) >= limit:
            return entries
        try:
            matches = await self._vectors.recall(agent_id, query, limit)
        except CallFailed as error:
            self._degraded(error.failure)
            return entries
        known = {entry.id for entry in entries}
        alike = [match.id for match in matches if match.id not in known]
        return fit([*entries, *await self.text.entries(agent_id, alike[: limit - len(entries)])])

    async def forget(self, agent_id: str, memory_id: str) -> bool:
        """Remove one entry; False when this agent has none with that id."""
        if not await self.text.entries(agent_id, [memory_id]):
            return False
        if self._vectors is not None:
            try:
                await self._vectors.forget(agent_id, memory_id)
            except CallFailed as error:
                self._degraded(error.failure)
        return await self.text.forget(memory_id)

    async def clear(self, agent_id: str) -> int:
        """Remove every entry of one agent; returns their number."""
        ids = await self.text.clear(agent_id)
        if self._vectors is not None:
            try:
                for begin in range(0, len(ids), MAX_LIMIT):
                    await self._vectors.forget(agent_id, *ids[begin : begin + MAX_LIMIT])
            except CallFailed as error:
                self._degraded(error.failure)
        return len(ids)
