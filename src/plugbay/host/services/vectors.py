"""Vectors: what a record, a question and a match look like, the port every store fills, and who offers which store.

Owns the names of the stores and the rule that the first to take a name keeps it. Knows no store (`vector_store.py` is
the one the host brings along, plugins bring others) and no text (`embedding.py` makes vectors of it).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from plugbay.model.errors import CallFailed, Code, Failure


@dataclass(frozen=True, slots=True)
class VectorRecord:
    """Something to find again by its vector."""

    id: str
    content: str
    embedding: Sequence[float]
    metadata: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "content": self.content,
            "embedding": list(self.embedding),
            "metadata": dict(self.metadata),
        }


@dataclass(frozen=True, slots=True)
class VectorQuery:
    """Which records to find. How `filter` is read is the store's business; nobody rewrites it on the way."""

    embedding: Sequence[float]
    limit: int = 10
    filter: Any = None

    def to_json(self) -> dict[str, Any]:
        shape: dict[str, Any] = {"embedding": list(self.embedding), "limit": self.limit}
        return shape if self.filter is None else {**shape, "filter": self.filter}


@dataclass(frozen=True, slots=True)
class VectorMatch:
    """A record that was found. The scale of `score` is the store's own."""

    id: str
    content: str
    score: float
    metadata: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def from_json(cls, value: Any) -> VectorMatch:
        """A match as a store in another process wrote it; raises `CallFailed` for anything else."""
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
        """Store records, replacing those with the same id; how many were stored."""
        ...

    async def search(self, collection: str, query: VectorQuery) -> list[VectorMatch]:
        """The records nearest to the query, nearest first."""
        ...

    async def delete(self, collection: str, ids: Sequence[str]) -> int:
        """Forget records; how many there were."""
        ...


class VectorRegistry:
    """The stores of one host, by name. An owner is a plugin's id or whatever else comes and goes as one."""

    def __init__(self) -> None:
        self._offers: dict[str, tuple[VectorBackend, str]] = {}

    def register(self, name: str, backend: VectorBackend, owner: str) -> str | None:
        """Offer a store under `name`; a text says who has the name already, and then nothing changes."""
        taken = self._offers.get(name)
        if taken is not None:
            return f"the vector backend {name!r} is already offered by {taken[1]}"
        self._offers[name] = (backend, owner)
        return None

    def withdraw(self, name: str) -> None:
        """The store is no longer offered; its name is free."""
        del self._offers[name]

    def names(self) -> tuple[str, ...]:
        return tuple(sorted(self._offers))

    def get(self, name: str) -> VectorBackend | Failure:
        offer = self._offers.get(name)
        if offer is not None:
            return offer[0]
        there_is = ", ".join(self.names()) or "none"
        return Failure(
            Code.NOT_FOUND, f"no vector backend is called {name!r}; there is {there_is}", detail={"backend": name}
        )
