"""The types of session snapshots, as the contract names them: `WIRE_VERSION` and `UsageDataEvent`.

A publish of usage data is a sequence of `UsageDataEvent`s in MessagePack: chunk 0 has the aggregates, all have calls,
and only the last is final. A reader refuses another version and shows the reason; it never raises for it.
"""

from __future__ import annotations

from plugbay.model.values import Value
from plugbay.sdk.services.brokered import ChunkCollector, Mismatch, decode_payload, split_chunks, to_msgpack

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from typing import Any

WIRE_VERSION = 3
"""Of usage data in version 2 of the contract."""

CALLS = "calls"
"""The list in `data` that later chunks continue."""


class UsageDataEvent(Value):
    """One chunk of a publish of usage data."""

    __slots__ = ("chunk_index", "data", "is_final", "partial", "published_ns", "version")

    def __init__(
        self,
        data: Mapping[str, Any],
        published_ns: int,
        *,
        version: int = WIRE_VERSION,
        partial: bool = False,
        chunk_index: int = 0,
        is_final: bool = True,
    ) -> None:
        self.version = version
        self.published_ns = published_ns
        """Identifies the publish: all of its chunks have the same."""
        self.partial = partial
        self.chunk_index = chunk_index
        self.is_final = is_final
        self.data = data

    def encode(self) -> bytes:
        """The chunk as the payload of a snapshot."""
        names = ("version", "published_ns", "partial", "chunk_index", "is_final", "data")
        return to_msgpack({name: getattr(self, name) for name in names})

    @classmethod
    def decode(cls, payload: bytes) -> UsageDataEvent | Mismatch:
        """The chunk in a payload, or the version that it has instead. Raises `ValueError` for anything else."""
        envelope = decode_payload(payload)
        if not isinstance(envelope, dict) or not isinstance(envelope.get("data"), dict):
            raise ValueError("the payload is not a UsageDataEvent: an object with version and data is expected")
        if envelope.get("version") != WIRE_VERSION:
            return Mismatch(WIRE_VERSION, envelope.get("version"))
        return cls(
            envelope["data"],
            envelope.get("published_ns", 0),
            partial=envelope.get("partial", False),
            chunk_index=envelope.get("chunk_index", 0),
            is_final=envelope.get("is_final", True),
        )


def split_usage(
    calls: Sequence[Any], aggregates: Mapping[str, Any] | None = None, *, published_ns: int, partial: bool = False
) -> Iterator[bytes]:
    """The payloads of one publish, each about 2 MiB."""
    return split_chunks(
        calls, aggregates, version=WIRE_VERSION, published_ns=published_ns, field=CALLS, partial=partial
    )


def collect_usage() -> ChunkCollector:
    """A collector that joins the chunks of usage data."""
    return ChunkCollector(WIRE_VERSION)
