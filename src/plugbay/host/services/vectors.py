"""Vectors: the values and the port of vector stores, their registry, the host's own store, and its embedder.

`EmbeddedVectors` compares exactly and linearly in SQLite, so it is bounded;
plugins provide larger stores.
"""

from __future__ import annotations

import heapq
import math
import sqlite3
from array import array
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from operator import mul
from pathlib import Path
from typing import Any, Protocol
from zlib import crc32

import msgspec

from plugbay.host.disk.sqlite import Database, Schema
from plugbay.host.services.concepts import words
from plugbay.host.services.registry import Registry
from plugbay.model.errors import CallFailed, Code, Failure
from plugbay.wire.fast_json import MsgspecCodec
from plugbay.wire.strict_json import Unencodable


class VectorRecord(msgspec.Struct, frozen=True):
    """A record in a vector store."""

    id: str
    content: str
    embedding: Sequence[float]
    metadata: Mapping[str, Any] = msgspec.field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "content": self.content,
            "embedding": list(self.embedding),
            "metadata": dict(self.metadata),
        }


class VectorQuery(msgspec.Struct, frozen=True):
    """A search. `filter` goes to the store unchanged; its meaning is the store's own."""

    embedding: Sequence[float]
    limit: int = 10
    filter: Any = None

    def to_json(self) -> dict[str, Any]:
        shape: dict[str, Any] = {"embedding": list(self.embedding), "limit": self.limit}
        return shape if self.filter is None else {**shape, "filter": self.filter}


class VectorMatch(msgspec.Struct, frozen=True):
    """A found record. The scale of `score` is the store's own."""

    id: str
    content: str
    score: float
    metadata: Mapping[str, Any] = msgspec.field(default_factory=dict)

    @classmethod
    def from_json(cls, value: Any) -> VectorMatch:
        """A match from the JSON of a plugin's store; raises `CallFailed` for an invalid one."""
        shape = value if isinstance(value, Mapping) else {}
        id, content, score = shape.get("id"), shape.get("content", ""), shape.get("score")
        metadata = shape.get("metadata") or {}
        if (
            not isinstance(id, str)
            or not isinstance(content, str)
            or not isinstance(score, int | float)
            or not isinstance(metadata, Mapping)
        ):
            text = "a match is an object with id, content, score and metadata"
            raise CallFailed(Failure(Code.MALFORMED_RESPONSE, text))
        return cls(id, content, float(score), metadata)

    def to_json(self) -> dict[str, Any]:
        return {"id": self.id, "content": self.content, "score": self.score, "metadata": dict(self.metadata)}


class VectorBackend(Protocol):
    """A store of vectors. Every method raises `CallFailed` and nothing else."""

    async def upsert(self, collection: str, records: Sequence[VectorRecord]) -> int:
        """Store records, replacing those with the same id; returns how many were stored."""
        ...

    async def search(self, collection: str, query: VectorQuery) -> list[VectorMatch]:
        """The records nearest to the query, nearest first."""
        ...

    async def delete(self, collection: str, ids: Sequence[str]) -> int:
        """Delete records; returns how many there were."""
        ...


class VectorRegistry(Registry[VectorBackend]):
    """The vector stores of one host, by name."""

    KIND = "vector backend"

    def names(self) -> tuple[str, ...]:
        return tuple(self)

    def get(self, name: str) -> VectorBackend | Failure:
        found = self.find(name)
        if found is not None:
            return found
        there_is = ", ".join(self) or "none"
        return Failure(
            Code.NOT_FOUND, f"there is no vector backend {name!r}; known backends: {there_is}", detail={"backend": name}
        )


MAX_CANDIDATES = 10_000
"""Records that one search compares, the newest first. At 256 dimensions each takes 15 us, so a search ends in 0.2 s."""
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
# Replacing gives a new number: the record written last is the newest.
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
        check_name(collection)
        check_batch(records)
        if not records:
            return 0
        rows = [record_row(record) for record in records]
        dimension = len(records[0].embedding)
        for record in records:
            check_dimension(dimension, len(record.embedding))

        def put(connection: sqlite3.Connection) -> int:
            number = _get_or_create(connection, collection, dimension)
            connection.executemany(_PUT, [(number, *row) for row in rows])
            return len(rows)

        return await self._database.write(put)

    async def search(self, collection: str, query: VectorQuery) -> list[VectorMatch]:
        """The nearest of the newest `MAX_CANDIDATES` records, by cosine, nearest first."""
        wanted = unit(query.embedding)
        conditions = {} if query.filter is None else query.filter
        if not isinstance(conditions, Mapping):
            raise invalid("a filter is an object with the required metadata")
        limit = max(0, min(query.limit, MAX_LIMIT))

        def look_up(connection: sqlite3.Connection) -> list[VectorMatch]:
            number, dimension = _find(connection, collection)
            check_dimension(dimension, len(wanted))
            rows = connection.execute(_NEWEST, (number, MAX_CANDIDATES))
            return heapq.nlargest(limit, compare(rows, wanted, conditions), key=lambda match: match.score)

        return await self._database.run(look_up)

    async def delete(self, collection: str, ids: Sequence[str]) -> int:
        check_batch(ids)

        def remove(connection: sqlite3.Connection) -> int:
            number, _ = _find(connection, collection)
            before = connection.total_changes
            rows = [(number, id) for id in ids]
            connection.executemany("DELETE FROM records WHERE collection = ? AND id = ?", rows)
            return connection.total_changes - before

        return await self._database.write(remove)


def _find(connection: sqlite3.Connection, collection: str) -> tuple[int, int]:
    """Number and dimension of an existing collection."""
    row = connection.execute("SELECT number, dimension FROM collections WHERE name = ?", (collection,)).fetchone()
    if row is None:
        raise no_collection(collection)
    return row[0], row[1]


def no_collection(collection: str) -> CallFailed:
    """The collection does not exist."""
    text = f"there is no collection {collection!r}"
    return CallFailed(Failure(Code.NOT_FOUND, text, detail={"collection": collection}))


def _get_or_create(connection: sqlite3.Connection, collection: str, dimension: int) -> int:
    """The number of a collection for vectors of this dimension, created when it does not exist."""
    connection.execute("INSERT OR IGNORE INTO collections (name, dimension) VALUES (?, ?)", (collection, dimension))
    number, fixed = _find(connection, collection)
    if fixed != dimension and connection.execute("SELECT 1 FROM records WHERE collection = ?", (number,)).fetchone():
        check_dimension(fixed, dimension)
    connection.execute("UPDATE collections SET dimension = ? WHERE number = ?", (dimension, number))
    return number


def compare(rows: Iterable[Any], wanted: array[float], conditions: Mapping[str, Any]) -> Iterable[VectorMatch]:
    """Matches of stored rows, which are id, content, metadata as JSON, and vector."""
    for id, content, written, blob in rows:
        metadata = msgspec.json.decode(written)
        if all(name in metadata and _equals(metadata[name], value) for name, value in conditions.items()):
            vector = array("f", blob)
            yield VectorMatch(id, content, sum(map(mul, wanted, vector)), metadata)


def _equals(stored: Any, wanted: Any) -> bool:
    """Equal as JSON, where `true` is not 1."""
    return bool(stored == wanted) and isinstance(stored, bool) == isinstance(wanted, bool)


def record_row(record: VectorRecord) -> tuple[str, str, str, bytes]:
    """A record as it is stored: id, content, metadata as JSON, and the vector at unit length."""
    check_name(record.id)
    try:
        metadata = _CODEC.encode(dict(record.metadata))
    except Unencodable as error:
        raise invalid(f"record {record.id!r}: {error}") from None
    if max(_size(record.content), len(metadata)) > MAX_CONTENT:
        raise invalid(f"record {record.id!r}: content and metadata have at most {MAX_CONTENT} bytes each")
    return record.id, record.content, metadata.decode(), unit(record.embedding).tobytes()


def unit(embedding: Sequence[float]) -> array[float]:
    """The vector at unit length, so that a dot product is the cosine; a zero vector stays zero and matches nothing."""
    if not 0 < len(embedding) <= MAX_DIMENSIONS:
        raise invalid(f"a vector has 1 to {MAX_DIMENSIONS} dimensions, not {len(embedding)}")
    try:
        length = math.hypot(*embedding)
    except (TypeError, OverflowError) as error:
        raise invalid(f"a vector is a list of numbers: {error}") from None
    if not math.isfinite(length):
        raise invalid("a vector holds finite numbers only")
    return array("f", (value / length for value in embedding) if length else embedding)


def check_dimension(expected: int, got: int) -> None:
    """Raises `CallFailed` unless the dimensions are equal."""
    if expected != got:
        text = f"dimension mismatch: expected {expected}, got {got}"
        raise CallFailed(Failure(Code.INVALID_INPUT, text, detail={"expected": expected, "got": got}))


def check_name(name: str) -> None:
    """Raises `CallFailed` for an empty or long name."""
    if not 0 < _size(name) <= MAX_NAME:
        raise invalid(f"a name has 1 to {MAX_NAME} bytes, not {_size(name)}")


def _size(text: str) -> int:
    return len(text.encode("utf-8", "surrogatepass"))  # the database refuses what is not Unicode


def check_batch(items: Sequence[object]) -> None:
    """Raises `CallFailed` for too many records."""
    if len(items) > MAX_BATCH:
        raise invalid(f"one call takes at most {MAX_BATCH} records, not {len(items)}")


def invalid(message: str) -> CallFailed:
    """The input cannot be used."""
    return CallFailed(Failure(Code.INVALID_INPUT, message))


DIMENSIONS = 256
"""A sentence has some hundred distinct trigrams; in 256 dimensions few of them collide, and a record has 1 KiB."""

MAX_CHARACTERS = 8_192
"""Characters of one text; the rest is ignored. Takes at most some ten milliseconds, which block the loop."""

GRAM = 3
"""Characters of a trigram: long enough to be specific, short enough that forms of a word share most of them."""


class Embedder(Protocol):
    """Makes similar vectors for texts of similar meaning."""

    async def embed(self, texts: Sequence[str]) -> list[list[float]]:
        """One vector per text, all of the same length; raises `CallFailed`."""
        ...


class HashingEmbedder:
    """Feature hashing of trigrams: similar spelling gives similar vectors. Needs no model and no network.

    The same text gives the same vector on every machine and in every release, because vectors are stored.
    """

    def __init__(self, dimensions: int = DIMENSIONS) -> None:
        if dimensions < 1:
            raise ValueError(f"a vector has at least one dimension, not {dimensions}")
        self.dimensions = dimensions

    async def embed(self, texts: Sequence[str]) -> list[list[float]]:
        return [self.vector(text) for text in texts]

    def vector(self, text: str) -> list[float]:
        """Of unit length; all zeros when the text has no words."""
        vector = [0.0] * self.dimensions
        for gram, count in Counter(_grams(text[:MAX_CHARACTERS])).items():
            hashed = crc32(gram.encode("utf-8", "surrogatepass"))
            # The sign comes from another bit, so collisions cancel out instead of adding up.
            sign = 1 if hashed & 0x8000_0000 else -1
            vector[(hashed & 0x7FFF_FFFF) % self.dimensions] += sign * math.sqrt(count)
        length = math.hypot(*vector)
        return [value / length for value in vector] if length else vector


def _grams(text: str) -> list[str]:
    """The trigrams of each word, with its boundaries as characters."""
    padded = [f" {word} " for word in words(text)]
    return [word[start : start + GRAM] for word in padded for start in range(len(word) - GRAM + 1)]
