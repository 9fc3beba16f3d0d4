"""`SqlVectors`: the host's own vector store in the database of the control plane. Compares exactly and linearly."""

from __future__ import annotations

import asyncio
import heapq
import time
from collections.abc import Mapping, Sequence

from sqlalchemy import delete, insert, select, update

from plugbay.host.services.vectors import (
    MAX_CANDIDATES,
    MAX_LIMIT,
    VectorMatch,
    VectorQuery,
    VectorRecord,
    check_batch,
    check_dimension,
    check_name,
    compare,
    invalid,
    no_collection,
    record_row,
    unit,
)
from plugbay.store.database import Database, Tx
from plugbay.store.plugin_data import changing, check_text, lock, viewing
from plugbay.store.statements import insert_missing
from plugbay.store.tables import VECTOR_COLLECTIONS, VECTOR_RECORDS

_RECORDS = VECTOR_RECORDS.c


class SqlVectors:
    """As `EmbeddedVectors`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def upsert(self, collection: str, records: Sequence[VectorRecord]) -> int:
        """As `EmbeddedVectors.upsert`."""
        check_name(collection)
        check_batch(records)
        check_text(collection, *(record.id for record in records))
        if not records:
            return 0
        rows = {record.id: record_row(record) for record in records}
        dimension = len(records[0].embedding)
        for record in records:
            check_dimension(dimension, len(record.embedding))
        now = time.time_ns()
        written = [
            {**dict(zip(("id", "content", "metadata", "vector"), row, strict=True)), "number": now + at}
            for at, row in enumerate(rows.values())
        ]
        async with changing(self._database) as tx:
            await lock(tx, f"vectors {collection}")
            await self._fix_dimension(tx, collection, dimension)
            await tx.execute(
                delete(VECTOR_RECORDS).where(_RECORDS.collection == collection, _RECORDS.id.in_(list(rows)))
            )
            await tx.execute(insert(VECTOR_RECORDS), [{"collection": collection, **row} for row in written])
        return len(records)

    async def _fix_dimension(self, tx: Tx, collection: str, dimension: int) -> None:
        """The first record of a new or empty collection decides its dimension."""
        await insert_missing(tx, VECTOR_COLLECTIONS, [{"name": collection, "dimension": dimension}])
        fixed = await _dimension(tx, collection)
        if fixed == dimension:
            return
        if await tx.scalar(select(_RECORDS.id).where(_RECORDS.collection == collection).limit(1)) is not None:
            check_dimension(fixed, dimension)
        own = VECTOR_COLLECTIONS.c.name == collection
        await tx.execute(update(VECTOR_COLLECTIONS).where(own).values(dimension=dimension))

    async def search(self, collection: str, query: VectorQuery) -> list[VectorMatch]:
        """As `EmbeddedVectors.search`."""
        wanted = unit(query.embedding)
        conditions = {} if query.filter is None else query.filter
        if not isinstance(conditions, Mapping):
            raise invalid("a filter is an object with the required metadata")
        check_text(collection)
        limit = max(0, min(query.limit, MAX_LIMIT))
        newest = select(_RECORDS.id, _RECORDS.content, _RECORDS.metadata, _RECORDS.vector)
        newest = newest.where(_RECORDS.collection == collection).order_by(_RECORDS.number.desc()).limit(MAX_CANDIDATES)
        async with viewing(self._database) as tx:
            check_dimension(await _dimension(tx, collection), len(wanted))
            rows = (await tx.execute(newest)).all()
        matches = compare(rows, wanted, conditions)
        return await asyncio.to_thread(heapq.nlargest, limit, matches, key=lambda match: match.score)

    async def delete(self, collection: str, ids: Sequence[str]) -> int:
        """As `EmbeddedVectors.delete`."""
        check_batch(ids)
        check_text(collection, *ids)
        async with changing(self._database) as tx:
            await _dimension(tx, collection)
            chosen = (_RECORDS.collection == collection, _RECORDS.id.in_(list(ids)))
            return (await tx.execute(delete(VECTOR_RECORDS).where(*chosen))).rowcount


async def _dimension(tx: Tx, collection: str) -> int:
    """The dimension of an existing collection."""
    query = select(VECTOR_COLLECTIONS.c.dimension).where(VECTOR_COLLECTIONS.c.name == collection)
    found: int | None = await tx.scalar(query)
    if found is None:
        raise no_collection(collection)
    return found
