"""`SqlMemory`: the memory of agents in the database of the control plane, on SQLite and PostgreSQL alike.

The words of an entry are rows with weights; a search adds up those that it has in common with an entry. Words are
compared without their endings.
"""

from __future__ import annotations

import math
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from msgspec.structs import asdict
from sqlalchemy import delete, func, insert, select

from plugbay.host.services.concepts import derive, significant, words
from plugbay.host.services.memory import (
    MAX_LIMIT,
    MAX_TERMS,
    QUERY_CONCEPTS,
    MemoryEntry,
    check_entry,
    check_name,
    check_query,
    fit,
)
from plugbay.host.stamps import new_uuid, utc_now
from plugbay.store.database import Database, Tx
from plugbay.store.plugin_data import changing, check_text, viewing
from plugbay.store.tables import AGENT_MEMORIES, AGENT_MEMORY_TERMS

MAX_TERM = 64
"""Characters of a word that are compared."""

MAX_INDEXED = 1_000
"""Different words of one entry that are found; the most frequent ones."""

MAX_HITS = 20_000
"""Words in common that one search looks at."""

TEXT_WEIGHT, TAG_WEIGHT, CONCEPT_WEIGHT = 1.0, 2.0, 0.5
"""A word of the text, of a tag that the caller set, of a derived tag."""

USUAL_WORDS = 50
"""Words of a usual entry: a word counts less in a longer one."""

ENDINGS = (("ies", "y"), ("ing", ""), ("ed", ""), ("es", ""), ("s", ""))
MIN_STEM = 3

_COLUMNS = tuple(AGENT_MEMORIES.c[name] for name in MemoryEntry.__struct_fields__)
_TERMS = AGENT_MEMORY_TERMS.c


def stem(word: str) -> str:
    """A word without its ending, so that forms of a word are the same."""
    for ending, instead in ENDINGS:
        if word.endswith(ending) and len(word) - len(ending) >= MIN_STEM:
            word = word.removesuffix(ending) + instead
            break
    return (word[:-1] if word.endswith("e") and len(word) > MIN_STEM else word)[:MAX_TERM]


def weights(entry: MemoryEntry) -> dict[str, float]:
    """The words by which an entry is found, and how much each counts."""
    content = Counter(map(stem, words(entry.content)))
    longer = 1.2 * (0.25 + 0.75 * content.total() / USUAL_WORDS)
    found: defaultdict[str, float] = defaultdict(float)
    for term, times in content.most_common(MAX_INDEXED):
        found[term] += TEXT_WEIGHT * 2.2 * times / (times + longer)
    for tags, weight in ((entry.tags, TAG_WEIGHT), (entry.concept_tags, CONCEPT_WEIGHT)):
        for term in {stem(word) for tag in tags for word in words(tag)}:
            found[term] += weight
    return {term.replace("\0", ""): weight for term, weight in found.items()}


class SqlMemory:
    """As `LongTermMemory`. A change is part of the open transaction of the caller, if there is one."""

    path: Path | str = "the database of the control plane"

    def __init__(
        self, database: Database, new_id: Callable[[], str] = new_uuid, now: Callable[[], str] = utc_now
    ) -> None:
        self._database = database
        self._new_id = new_id
        self._now = now

    async def open(self) -> None:
        """Nothing to do: the database is open."""

    async def close(self) -> None:
        """Nothing to do: the control plane closes its database."""

    async def remember(
        self, agent_id: str, content: str, *, tags: Sequence[str] = (), memory_type: str | None = None
    ) -> MemoryEntry:
        """As `LongTermMemory.remember`."""
        check_entry(agent_id, content, tags, memory_type)
        check_text(agent_id, memory_type or "", content.replace("\0", ""), *(tag.replace("\0", "") for tag in tags))
        entry = MemoryEntry(self._new_id(), agent_id, content, tuple(tags), derive(content), self._now(), memory_type)
        row = asdict(entry)
        row |= {"tags": list(tags), "concept_tags": list(entry.concept_tags), "number": time.time_ns()}
        terms = [
            {"agent_id": agent_id, "term": term, "memory_id": entry.id, "weight": weight}
            for term, weight in weights(entry).items()
        ]
        async with changing(self._database) as tx:
            await tx.execute(insert(AGENT_MEMORIES), row)
            if terms:
                await tx.execute(insert(AGENT_MEMORY_TERMS), terms)
        return entry

    async def recall(self, agent_id: str, query: str, limit: int = 10) -> list[MemoryEntry]:
        """As `LongTermMemory.recall`."""
        check_query(agent_id, query)
        check_text(agent_id)
        limit = max(0, min(limit, MAX_LIMIT))
        async with viewing(self._database) as tx:
            if query.strip():
                return fit(await _entries(tx, agent_id, (await _ranked(tx, agent_id, query))[:limit]))
            newest = select(*_COLUMNS).where(AGENT_MEMORIES.c.agent_id == agent_id)
            rows = await tx.execute(newest.order_by(AGENT_MEMORIES.c.number.desc()).limit(limit))
            return fit(map(_entry, rows.all()))

    async def entries(self, agent_id: str, ids: Sequence[str]) -> list[MemoryEntry]:
        """As `LongTermMemory.entries`."""
        check_text(agent_id, *ids)
        async with viewing(self._database) as tx:
            return fit(await _entries(tx, agent_id, ids[:MAX_LIMIT]))

    async def forget(self, memory_id: str) -> bool:
        """As `LongTermMemory.forget`."""
        check_text(memory_id)
        async with changing(self._database) as tx:
            await tx.execute(delete(AGENT_MEMORY_TERMS).where(_TERMS.memory_id == memory_id))
            return bool((await tx.execute(delete(AGENT_MEMORIES).where(AGENT_MEMORIES.c.id == memory_id))).rowcount)

    async def clear(self, agent_id: str) -> list[str]:
        """As `LongTermMemory.clear`."""
        check_name("the agent's id", agent_id)
        check_text(agent_id)
        own = AGENT_MEMORIES.c.agent_id == agent_id
        async with changing(self._database) as tx:
            ids = [row[0] for row in (await tx.execute(select(AGENT_MEMORIES.c.id).where(own))).all()]
            await tx.execute(delete(AGENT_MEMORY_TERMS).where(_TERMS.agent_id == agent_id))
            await tx.execute(delete(AGENT_MEMORIES).where(own))
        return ids


async def _ranked(tx: Tx, agent_id: str, query: str) -> list[str]:
    """The ids of the entries that have words of the query, best first."""
    terms = [*significant(words(query))[:MAX_TERMS], *derive(query, QUERY_CONCEPTS)]
    wanted = {stem(term).replace("\0", "") for term in terms}
    own = AGENT_MEMORIES.c.agent_id == agent_id
    total = int(await tx.scalar(select(func.count()).select_from(AGENT_MEMORIES).where(own)) or 0)
    hits = (
        select(_TERMS.term, _TERMS.memory_id, _TERMS.weight, AGENT_MEMORIES.c.number)
        .join(AGENT_MEMORIES, AGENT_MEMORIES.c.id == _TERMS.memory_id)
        .where(_TERMS.agent_id == agent_id, _TERMS.term.in_(sorted(wanted)))
        .order_by(AGENT_MEMORIES.c.number.desc())
        .limit(MAX_HITS)
    )
    rows = (await tx.execute(hits)).all()
    frequency = Counter(row.term for row in rows)
    scores: defaultdict[tuple[str, int], float] = defaultdict(float)
    for term, memory_id, weight, number in rows:
        rarity = math.log(1 + (total - frequency[term] + 0.5) / (frequency[term] + 0.5))
        scores[memory_id, number] += weight * rarity
    ranked = sorted(scores, key=lambda each: (scores[each], each[1]), reverse=True)
    return [memory_id for memory_id, _ in ranked]


async def _entries(tx: Tx, agent_id: str, ids: Sequence[str]) -> list[MemoryEntry]:
    query = select(*_COLUMNS).where(AGENT_MEMORIES.c.agent_id == agent_id, AGENT_MEMORIES.c.id.in_(list(ids)))
    found = {entry.id: entry for entry in map(_entry, (await tx.execute(query)).all())}
    return [found[each] for each in dict.fromkeys(ids) if each in found]


def _entry(row: Iterable[Any]) -> MemoryEntry:
    memory_id, agent_id, content, tags, concept_tags, created_at, memory_type = row
    return MemoryEntry(memory_id, agent_id, content, tuple(tags), tuple(concept_tags), created_at, memory_type)
