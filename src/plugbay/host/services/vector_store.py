"""`EmbeddedVectors`: the vector store every host has, in a SQLite file, without any other service.

Owns collections, their dimension and the comparison of every candidate by cosine. Exact and linear, hence bounded; who
outgrows it plugs in another store. Knows nothing of texts and agents.
"""

from __future__ import annotations

import heapq
import math
import sqlite3
from array import array
from collections.abc import Iterable, Mapping, Sequence
from operator import mul
from pathlib import Path
from typing import Any

import msgspec

from plugbay.host.disk.sqlite import Database, Schema
from plugbay.host.services.vectors import VectorMatch, VectorQuery, VectorRecord
from plugbay.model.errors import CallFailed, Code, Failure
from plugbay.wire.fast_json import MsgspecCodec
from plugbay.wire.strict_json import Unencodable

MAX_CANDIDATES = 10_000
"""Records one search compares, the newest first. At 256 dimensions one takes some 15 us, so a search ends in 0.2 s."""
MAX_DIMENSIONS = 4_096
"""Of one vector; the widest embeddings in use have 3,072."""
MAX_BATCH = 1_000
"""Records or ids of one call."""
MAX_LIMIT = 1_000
"""Matches of one search."""
MAX_NAME = 512
"""Bytes of a collection's or record's name."""
MAX_CONTENT = 65_536
"""Bytes of a record's content, and of its metadata as JSON; the same as one memory entry."""

SCHEMA = Schema(
    "vector",
    0x50425631,  # "PBV1"
    (
        (
            """CREATE TABLE collections (
                number INTEGER PRIMARY KEY,
                name TEXT NOT NULL UNIQUE,
                dimension INTEGER NOT NULL
            )""",
            """CREATE TABLE records (
                number INTEGER PRIMARY KEY AUTOINCREMENT,
                collection INTEGER NOT NULL REFERENCES collections (number),
                id TEXT NOT NULL,
                content TEXT NOT NULL,
                metadata TEXT NOT NULL,
                vector BLOB NOT NULL,
                UNIQUE (collection, id)
            )""",
            "CREATE INDEX records_of_collection ON records (collection, number)",
        ),
    ),
)

_CODEC = MsgspecCodec()
_NEWEST = "SELECT id, content, metadata, vector FROM records WHERE collection = ? ORDER BY number DESC LIMIT ?"
# Replacing gives a new number: what was written last is the newest.
_PUT = "INSERT OR REPLACE INTO records (collection, id, content, metadata, vector) VALUES (?, ?, ?, ?, ?)"


class EmbeddedVectors:
    """A `VectorBackend` in one file. `filter` is an object whose values must equal those in the metadata."""

    def __init__(self, path: Path | str) -> None:
        self._database = Database(path, SCHEMA)

    async def open(self) -> None:
        await self._database.open()

    async def close(self) -> None:
        await self._database.close()

    async def __aenter__(self) -> EmbeddedVectors:
        await self.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def upsert(self, collection: str, records: Sequence[VectorRecord]) -> int:
        """Store all records or none. The first one decides the dimension of a new or empty collection."""
        _check_name(collection)
        _check_batch(records)
        if not records:
            return 0
        rows = [_row(record) for record in records]
        dimension = len(records[0].embedding)
        for record in records:
            _check_dimension(dimension, len(record.embedding))

        def put(connection: sqlite3.Connection) -> int:
            number = _claim(connection, collection, dimension)
            connection.executemany(_PUT, [(number, *row) for row in rows])
            return len(rows)

        return await self._database.write(put)

    async def search(self, collection: str, query: VectorQuery) -> list[VectorMatch]:
        """The nearest of the newest `MAX_CANDIDATES` records, by cosine, nearest first."""
        wanted = _unit(query.embedding)
        conditions = {} if query.filter is None else query.filter
        if not isinstance(conditions, Mapping):
            raise _refused("a filter is an object: which metadata must have which value")
        limit = max(0, min(query.limit, MAX_LIMIT))

        def look_up(connection: sqlite3.Connection) -> list[VectorMatch]:
            number, dimension = _find(connection, collection)
            _check_dimension(dimension, len(wanted))
            rows = connection.execute(_NEWEST, (number, MAX_CANDIDATES))
            return heapq.nlargest(limit, _compare(rows, wanted, conditions), key=lambda match: match.score)

        return await self._database.run(look_up)

    async def delete(self, collection: str, ids: Sequence[str]) -> int:
        _check_batch(ids)

        def remove(connection: sqlite3.Connection) -> int:
            number, _ = _find(connection, collection)
            before = connection.total_changes
            rows = [(number, id) for id in ids]
            connection.executemany("DELETE FROM records WHERE collection = ? AND id = ?", rows)
            return connection.total_changes - before

        return await self._database.write(remove)


def _find(connection: sqlite3.Connection, collection: str) -> tuple[int, int]:
    """Number and dimension of a collection that must be there."""
    row = connection.execute("SELECT number, dimension FROM collections WHERE name = ?", (collection,)).fetchone()
    if row is None:
        text = f"there is no collection {collection!r}"
        raise CallFailed(Failure(Code.NOT_FOUND, text, detail={"collection": collection}))
    return row[0], row[1]


def _claim(connection: sqlite3.Connection, collection: str, dimension: int) -> int:
    """The number of a collection that takes vectors of this dimension, made when it is not there."""
    connection.execute("INSERT OR IGNORE INTO collections (name, dimension) VALUES (?, ?)", (collection, dimension))
    number, fixed = _find(connection, collection)
    if fixed != dimension and connection.execute("SELECT 1 FROM records WHERE collection = ?", (number,)).fetchone():
        _check_dimension(fixed, dimension)
    connection.execute("UPDATE collections SET dimension = ? WHERE number = ?", (dimension, number))
    return number


def _compare(rows: sqlite3.Cursor, wanted: array[float], conditions: Mapping[str, Any]) -> Iterable[VectorMatch]:
    for id, content, written, blob in rows:
        metadata = msgspec.json.decode(written)
        if all(name in metadata and _same(metadata[name], value) for name, value in conditions.items()):
            vector = array("f", blob)
            yield VectorMatch(id, content, sum(map(mul, wanted, vector)), metadata)


def _same(stored: Any, wanted: Any) -> bool:
    """Equal as JSON, where `true` is not 1."""
    return bool(stored == wanted) and isinstance(stored, bool) == isinstance(wanted, bool)


def _row(record: VectorRecord) -> tuple[str, str, str, bytes]:
    _check_name(record.id)
    try:
        metadata = _CODEC.encode(dict(record.metadata))
    except Unencodable as error:
        raise _refused(f"record {record.id!r}: {error}") from None
    if max(_size(record.content), len(metadata)) > MAX_CONTENT:
        raise _refused(f"record {record.id!r}: content and metadata have at most {MAX_CONTENT} bytes each")
    return record.id, record.content, metadata.decode(), _unit(record.embedding).tobytes()


def _unit(embedding: Sequence[float]) -> array[float]:
    """The vector at unit length, so that a dot product is the cosine; zeros stay zeros and are near nothing."""
    if not 0 < len(embedding) <= MAX_DIMENSIONS:
        raise _refused(f"a vector has 1 to {MAX_DIMENSIONS} dimensions, not {len(embedding)}")
    try:
        length = math.hypot(*embedding)
    except (TypeError, OverflowError) as error:
        raise _refused(f"a vector is a list of numbers: {error}") from None
    if not math.isfinite(length):
        raise _refused("a vector holds finite numbers only")
    return array("f", (value / length for value in embedding) if length else embedding)


def _check_dimension(expected: int, got: int) -> None:
    if expected != got:
        text = f"dimension mismatch: expected {expected}, got {got}"
        raise CallFailed(Failure(Code.INVALID_INPUT, text, detail={"expected": expected, "got": got}))


def _check_name(name: str) -> None:
    if not 0 < _size(name) <= MAX_NAME:
        raise _refused(f"a name has 1 to {MAX_NAME} bytes, not {_size(name)}")


def _size(text: str) -> int:
    return len(text.encode("utf-8", "surrogatepass"))  # the database refuses what is no Unicode


def _check_batch(items: Sequence[object]) -> None:
    if len(items) > MAX_BATCH:
        raise _refused(f"one call takes at most {MAX_BATCH} records, not {len(items)}")


def _refused(message: str) -> CallFailed:
    return CallFailed(Failure(Code.INVALID_INPUT, message))
