"""Publishing more than fits in one piece: cutting it, and putting it together again.

    {"version", "published_ns", "partial", "chunk_index": 0.., "is_final", "data": {…}}

The first piece carries the aggregates and as much of the lists as there is room for, the others more of the lists, and
the last says that it is the last. Owns that envelope on both sides. Refuses to know topics and hosts: pieces are bytes.
"""

from __future__ import annotations

from _collections_abc import Mapping

from plugbay.model.values import Value
from plugbay.sdk.payloads import decoded, to_json, to_msgpack, written_msgpack

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import Any

    Lists = Mapping[str, Sequence[Any]]

CHUNK_BYTES = 2 << 20
"""What a piece aims for. In base64 it stays below 2.7 MiB, far from the 16 MiB that no frame may exceed."""

MAX_CHUNKS = 1_024
"""Pieces of one publish that are put together: 2 GiB, more than anybody keeps on a screen."""


# Cutting.


def split(
    items: Sequence[Any] | Lists,
    aggregates: Mapping[str, Any] | None = None,
    *,
    version: int,
    published_ns: int,
    field: str = "items",
    defaults: Mapping[str, Any] | None = None,
    partial: bool = False,
    encoding: str = "msgpack",
    chunk_bytes: int = CHUNK_BYTES,
) -> Iterator[bytes]:
    """The pieces of one publish, each encoded. An item that is larger than a piece is a piece of its own."""
    writer = _WRITERS[encoding]()
    lists = items if isinstance(items, Mapping) else {field: items}
    envelope = {"version": version, "published_ns": published_ns, "partial": partial}
    slices = _slices(writer, lists, dict(aggregates or {}), dict(defaults or {}), chunk_bytes)
    for index, (data, is_final) in enumerate(slices):
        yield writer.envelope({**envelope, "chunk_index": index, "is_final": is_final}, data)


def _slices(
    writer: Writer, lists: Lists, first: dict[str, Any], defaults: dict[str, Any], most: int
) -> Iterator[tuple[bytes, bool]]:
    """The encoded `data` of each piece, and whether it is the last. Each item is encoded once."""
    fields, room = first, most - len(writer.encode(first))
    taken: dict[str, list[bytes]] = {name: [] for name in lists}
    is_first = True
    for name, item in ((name, item) for name, items in lists.items() for item in items):
        encoded = writer.encode(item)
        if len(encoded) > room and (is_first or any(taken.values())):
            yield writer.data(fields, taken), False
            fields, taken, room, is_first = defaults, {name: [] for name in lists}, most, False
        taken[name].append(encoded)
        room -= len(encoded)
    yield writer.data(fields, taken), True


class JsonWriter:
    """Pieces as JSON."""

    __slots__ = ()

    def encode(self, value: Any) -> bytes:
        return to_json(value)

    def data(self, fields: Mapping[str, Any], lists: Mapping[str, Sequence[bytes]]) -> bytes:
        members = {name: to_json(value) for name, value in fields.items()}
        members |= {name: b"[%b]" % b",".join(items) for name, items in lists.items()}
        return self._object(members)

    def envelope(self, fields: Mapping[str, Any], data: bytes) -> bytes:
        return self._object({**{name: to_json(value) for name, value in fields.items()}, "data": data})

    def _object(self, members: Mapping[str, bytes]) -> bytes:
        return b"{%b}" % b",".join(b"%b:%b" % (to_json(name), value) for name, value in members.items())


class MsgpackWriter:
    """Pieces as MessagePack: maps with named fields, as the published plugins read them."""

    __slots__ = ()

    def encode(self, value: Any) -> bytes:
        return to_msgpack(value)

    def data(self, fields: Mapping[str, Any], lists: Mapping[str, Sequence[bytes]]) -> bytes:
        spliced = {name: [written_msgpack(item) for item in items] for name, items in lists.items()}
        return to_msgpack({**fields, **spliced})

    def envelope(self, fields: Mapping[str, Any], data: bytes) -> bytes:
        return to_msgpack({**fields, "data": written_msgpack(data)})


if TYPE_CHECKING:
    Writer = JsonWriter | MsgpackWriter

_WRITERS: dict[str, type[Writer]] = {"json": JsonWriter, "msgpack": MsgpackWriter}


# Putting together.


class Mismatch(Value):
    """The publisher writes another version than we read: something to show, and nothing to guess about."""

    __slots__ = ("expected", "got")

    def __init__(self, expected: int, got: Any) -> None:
        self.expected = expected
        self.got = got

    def __str__(self) -> str:
        return f"the publisher writes version {self.got}, and this plugin reads version {self.expected}"


class ChunkCollector:
    """Takes the pieces of one topic as they come, and has the whole once the last is there.

    A piece without its predecessor is dropped, since aggregates without their lists, or lists with a gap, are worse
    than what was there before; a first piece starts anew.
    """

    __slots__ = ("_index", "_parts", "_published_ns", "data", "dropped", "mismatch", "version")

    def __init__(self, version: int) -> None:
        self.version = version
        self.data: dict[str, Any] | None = None
        """The last publish that was complete."""
        self.mismatch: Mismatch | None = None
        """Set by a piece of another version, until a publish of ours is complete."""
        self.dropped = 0
        """Pieces that could not be used."""
        self._parts: dict[str, Any] | None = None
        self._published_ns: Any = None
        self._index = 0

    @property
    def collecting(self) -> bool:
        """Whether a publish has begun and not ended."""
        return self._parts is not None

    def add(self, piece: Any) -> dict[str, Any] | None:
        """Take a `Snapshot`, its bytes, or an envelope that was read already; the whole, when this was the last."""
        envelope = _envelope(piece)
        if "version" in envelope and envelope["version"] != self.version:
            self.mismatch = Mismatch(self.version, envelope["version"])
            return None
        if not (_is_usable(envelope) and self._take(envelope)):
            self.dropped += 1
            return None
        return self._complete() if envelope.get("is_final", True) else None

    def _take(self, envelope: Mapping[str, Any]) -> bool:
        """Whether the piece is the first, or the next."""
        index, data = envelope.get("chunk_index", 0), envelope["data"]
        if index == 0:
            self._parts, self._published_ns = _begun(data), envelope.get("published_ns")
        elif self._parts is None or envelope.get("published_ns") != self._published_ns or index <= self._index:
            return False  # of another publish, or heard before: the one we collect may still be complete
        elif index > self._index + 1 or index >= MAX_CHUNKS:
            self._parts = None
            return False
        else:
            _append(self._parts, data)
        self._index = index
        return True

    def _complete(self) -> dict[str, Any] | None:
        self.data, self._parts, self.mismatch = self._parts, None, None
        return self.data


def _envelope(piece: Any) -> dict[str, Any]:
    """What a piece says; nothing when it is no object."""
    try:
        said = piece if isinstance(piece, dict) else decoded(getattr(piece, "data", piece))
    except ValueError:
        return {}
    return said if isinstance(said, dict) else {}


def _is_usable(envelope: Mapping[str, Any]) -> bool:
    index = envelope.get("chunk_index", 0)
    return "version" in envelope and isinstance(envelope.get("data"), dict) and type(index) is int and index >= 0


def _begun(data: Mapping[str, Any]) -> dict[str, Any]:
    """The first piece, with lists that are ours to extend."""
    return {name: list(value) if isinstance(value, list) else value for name, value in data.items()}


def _append(parts: dict[str, Any], data: Mapping[str, Any]) -> None:
    """Every list goes on; whatever else a later piece says stands for nothing."""
    for name, value in _begun(data).items():
        if isinstance(value, list) and isinstance(parts.setdefault(name, value), list) and parts[name] is not value:
            parts[name] += value
