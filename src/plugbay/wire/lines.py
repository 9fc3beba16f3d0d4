"""One message per line: cuts a byte stream at `\\n`, within a bound.

Owns the end of a line, the trimming, and the limit. Blank lines, log lines and messages all come out; the machine
interprets them. It never raises for a peer's bytes: a line that is too long becomes a `TooLong`, and decoding continues
after its newline.
"""

from __future__ import annotations

from plugbay.model.values import Value

HEAD_BYTES = 200
"""How much of a refused line is kept: enough to recognise what wrote it, too little to fill a log."""

SLACK_BYTES = 4096
"""Blanks tolerated around a line of full length: contracts measure it trimmed, so it may arrive longer."""


SPLIT_BYTES = 16_384
"""A larger chunk likely holds few, long lines: `find` runs through those six times faster than `split`."""


class TooLong(Value):
    """A line passed the cap. `seen`: its length as far as it was measured; `head`: how it begins."""

    __slots__ = ("head", "seen")

    def __init__(self, seen: int, head: bytes) -> None:
        self.seen = seen
        self.head = head


class LineDecoder:
    """Feed chunks, get lines: no newline, ASCII whitespace trimmed at both ends, blank ones as `b""`.

    A line is too long when more than `max_line` bytes are left after trimming, or when it has more than
    `max_line + slack` before. The second is reported the moment it happens, not at the newline that may never
    come; the rest of that line is then dropped as it arrives. Neither verdict depends on how the stream was
    cut into chunks.
    """

    __slots__ = ("_buffer", "_cap", "_dropped", "_head", "_max_line")

    def __init__(self, max_line: int, slack: int = SLACK_BYTES) -> None:
        self._max_line = max_line
        self._cap = max_line + slack
        self._head = min(HEAD_BYTES, self._cap + 1)
        self._buffer = bytearray()
        self._dropped = 0
        """Bytes of a line that is being skipped."""

    @property
    def pending(self) -> int:
        """Bytes of a line that has no end yet. At most `max_line + slack` of them are kept, the others are skipped."""
        return self._dropped or len(self._buffer)

    def feed(self, data: bytes) -> list[bytes | TooLong]:
        """The lines that `data` completes, in order."""
        if not (self._buffer or self._dropped):
            return self._whole(data)
        end = data.find(b"\n")
        if end < 0:
            return self._hold(data)
        items = self._hold(data[:end])
        if self._dropped:
            self._dropped = 0
        else:
            line = bytes(self._buffer)
            self._buffer.clear()
            items.append(self._judge(line))
        items += self._whole(data[end + 1 :])
        return items

    def eof(self) -> bytes | TooLong | None:
        """The unfinished last line, checked like a line; None when the stream ended after a newline."""
        rest = bytes(self._buffer)
        self._buffer.clear()
        return self._judge(rest) if rest else None

    def _whole(self, data: bytes) -> list[bytes | TooLong]:
        """Lines of a chunk that starts where a line starts."""
        if len(data) > SPLIT_BYTES:
            return self._whole_by_search(data)
        parts = data.split(b"\n")
        rest = parts.pop()
        items: list[bytes | TooLong]
        if len(data) <= self._max_line:
            items = [part.strip() for part in parts]
        else:
            items = [self._judge(part) for part in parts]
        if rest:
            items += self._hold(rest)
        return items

    def _whole_by_search(self, data: bytes) -> list[bytes | TooLong]:
        items: list[bytes | TooLong] = []
        begin = 0
        while (end := data.find(b"\n", begin)) >= 0:
            items.append(self._judge(data[begin:end]))
            begin = end + 1
        if begin < len(data):
            items += self._hold(data[begin:])
        return items

    def _hold(self, data: bytes) -> list[bytes | TooLong]:
        """Keep part of a line, unless that passes the cap; bytes over the cap are never stored."""
        if self._dropped:
            self._dropped += len(data)
            return []
        if len(self._buffer) + len(data) <= self._cap:
            self._buffer += data
            return []
        head = bytes(self._buffer[: self._head]) + data[: self._head]
        self._dropped = len(self._buffer) + len(data)
        self._buffer.clear()
        return [TooLong(self._cap + 1, head[: self._head])]

    def _judge(self, raw: bytes) -> bytes | TooLong:
        if len(raw) > self._cap:
            return TooLong(self._cap + 1, raw[: self._head])
        line = raw.strip()
        return line if len(line) <= self._max_line else TooLong(len(line), raw[: self._head])


def encode(body: bytes) -> bytes:
    """`body` as one line."""
    if body.find(b"\n") >= 0:
        raise ValueError("a line cannot hold a newline; JSON on one line has to be encoded without any")
    return body + b"\n"
