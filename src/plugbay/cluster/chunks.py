"""Inputs and results that are too large for one message: their parts, how they are put together, and the limits. Pure.

The sender waits while `WINDOW` parts have no credit, so a NATS server never holds more of one body. The receiver gives
a credit for each part, and checks order, size and, with the last part, the SHA-256.
"""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import sha256
from typing import TYPE_CHECKING

import msgspec

from plugbay.cluster.envelope import Part
from plugbay.wire.json_gate import Malformed

if TYPE_CHECKING:
    from hashlib import _Hash as HASH

WHOLE = 512 << 10
"""Bytes of a message that is sent at once; a larger one goes in parts."""

CHUNK = 256 << 10
"""Bytes of a part."""

WINDOW = 8
"""Parts without a credit."""

MAX_BODY = 64 << 20
"""Bytes of a body. Contracts allow 60 MiB and less."""

MAX_PEER = 2 * MAX_BODY
"""Bytes of all bodies of one peer that are being put together, as they were announced."""

STALLED_SECONDS = 15.0
"""A body without a further part, or without a credit, is given up after so long."""


class TooMuch(Exception):
    """A peer sends more large bodies at once than this process holds."""


class Sending(msgspec.Struct):
    """A body on its way."""

    body: bytes
    chunk: int = CHUNK
    sent: int = 0
    credited: int = 0
    digest: HASH = msgspec.field(default_factory=sha256)

    @property
    def count(self) -> int:
        return -(-len(self.body) // self.chunk)

    @property
    def is_over(self) -> bool:
        return self.credited >= self.count

    def due(self) -> Iterator[tuple[int, bytes, str]]:
        """The parts that may be sent now: number, bytes, and the hash of the whole with the last one."""
        while self.sent < min(self.count, self.credited + WINDOW):
            number, self.sent = self.sent, self.sent + 1
            data = self.body[number * self.chunk : self.sent * self.chunk]
            self.digest.update(data)
            yield number, data, self.digest.hexdigest() if self.sent == self.count else ""

    def credit(self, count: int) -> None:
        """The receiver has so many parts; a count that cannot be is ignored."""
        if self.credited < count <= self.sent:
            self.credited = count


class Assembly(msgspec.Struct):
    """A body that is being put together."""

    peer: str
    size: int
    last: float
    """When its last part came."""
    data: bytearray = msgspec.field(default_factory=bytearray)
    parts: int = 0
    digest: HASH = msgspec.field(default_factory=sha256)


class Assemblies:
    """All bodies that are being put together here."""

    def __init__(self, limit: int = MAX_PEER) -> None:
        self._limit = limit
        self._open: dict[str, Assembly] = {}

    def __contains__(self, call: str) -> bool:
        return call in self._open

    def __len__(self) -> int:
        return len(self._open)

    def open(self, peer: str, call: str, size: int, now: float) -> None:
        """Expect a body, from its beginning; raises `TooMuch`, or `Malformed` for an impossible size."""
        self.drop(call)
        if not 0 < size <= MAX_BODY:
            raise Malformed(f"a body of {size:,} bytes")
        if size + sum(each.size for each in self._open.values() if each.peer == peer) > self._limit:
            raise TooMuch
        self._open[call] = Assembly(peer, size, now)

    def add(self, part: Part, data: bytes, now: float) -> bytes | None:
        """Take a part of an expected body; returns the whole with the last one. Raises `Malformed`."""
        found = self._open[part.call]
        if part.seq != found.parts or part.size != found.size:
            raise Malformed(f"part {part.seq} of {part.size:,} bytes came instead of {found.parts} of {found.size:,}")
        if not data or len(found.data) + len(data) > found.size:
            raise Malformed("a part is empty, or larger than announced")
        found.data += data
        found.digest.update(data)
        found.parts, found.last = found.parts + 1, now
        if len(found.data) < found.size:
            return None
        del self._open[part.call]
        if found.digest.hexdigest() != part.sha256:
            raise Malformed("the SHA-256 of a large body is wrong")
        return bytes(found.data)

    def drop(self, call: str) -> None:
        """Forget a body."""
        self._open.pop(call, None)

    def stalled(self, now: float) -> list[str]:
        """The calls whose next part is overdue."""
        return [call for call, each in self._open.items() if now - each.last > STALLED_SECONDS]
