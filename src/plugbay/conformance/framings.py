"""How messages are cut out of what a plugin writes, and marked in what it reads: by lines, or by their length.

Owns the two ways. Strict: what a contract does not allow is told as a problem, and nothing is guessed. Refuses to know
what is in a message.
"""

from __future__ import annotations

from typing import ClassVar, NamedTuple, Protocol

from plugbay.wire.content_length import OPEN_HEADERS, STRICT_HEADERS, ContentLengthDecoder, FrameFault, HeaderRules
from plugbay.wire.lines import LineDecoder, TooLong


class Piece(NamedTuple):
    """The bytes of one message, or those that are none and why."""

    body: bytes
    problem: str = ""


class Framing(Protocol):
    """One direction of one conversation each way."""

    where: str
    """Where one message is, in words: `on one line`."""
    empty: str
    """What to call a message of no bytes."""

    def feed(self, data: bytes) -> list[Piece]: ...

    def eof(self) -> Piece | None:
        """What the end of the output leaves over."""

    def marked(self, body: bytes, mark: str | None = None) -> bytes:
        """The body as it is sent; with `mark`, with another line end or header than usual."""


class Lines:
    """A message ends with its line."""

    where = "on one line"
    empty = "a blank line"

    def __init__(self, max_line: int) -> None:
        self._max_line = max_line
        self._decoder = LineDecoder(max_line)

    def feed(self, data: bytes) -> list[Piece]:
        return [self._piece(line) for line in self._decoder.feed(data)]

    def eof(self) -> Piece | None:
        rest = self._decoder.eof()
        return None if rest is None else self._piece(rest)

    def marked(self, body: bytes, mark: str | None = None) -> bytes:
        return body + (mark or "\n").encode()

    def _piece(self, line: bytes | TooLong) -> Piece:
        if isinstance(line, TooLong):
            return Piece(line.head, f"a line of more than {self._max_line:,} bytes")
        return Piece(line)


class Lengths:
    """A header says how long the message behind it is. Whatever breaks that is the last that is read."""

    where = "in one frame"
    empty = "a frame without a body"
    rules: ClassVar[HeaderRules] = STRICT_HEADERS

    def __init__(self, max_body: int) -> None:
        assert max_body == self.rules.max_body
        self._decoder = ContentLengthDecoder(self.rules)

    def feed(self, data: bytes) -> list[Piece]:
        return [_framed(item) for item in self._decoder.feed(data)]

    def eof(self) -> Piece | None:
        fault = self._decoder.eof()
        return None if fault is None else _framed(fault)

    def marked(self, body: bytes, mark: str | None = None) -> bytes:
        """`{}` of the mark becomes the length."""
        return (mark or "Content-Length: {}\r\n\r\n").format(len(body)).encode() + body


class OpenLengths(Lengths):
    """The same with other headers beside the length, which mean nothing."""

    rules = OPEN_HEADERS


def _framed(item: bytes | FrameFault) -> Piece:
    return Piece(item.head, item.reason) if isinstance(item, FrameFault) else Piece(item)
