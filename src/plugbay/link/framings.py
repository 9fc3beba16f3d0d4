"""Cuts messages out of bytes, by lines or by Content-Length, for tools that watch or imitate a conversation.

Owns which contract uses which framing, with the limits of either end. Strict: a violation is reported as a problem,
nothing is guessed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar, NamedTuple, Protocol

from plugbay.contracts.ainb.messages import MAX_BODY as AINB_BODY
from plugbay.contracts.base import Role
from plugbay.contracts.kaged.messages import MAX_READ
from plugbay.contracts.mcp.messages import MAX_LINE
from plugbay.contracts.nexo.messages import MAX_CHILD_LINE
from plugbay.contracts.nexo.messages import MAX_HOST_LINE as NEXO_HOST_LINE
from plugbay.contracts.rune.messages import MAX_HOST_LINE, MAX_PLUGIN_LINE
from plugbay.contracts.vai.messages import MAX_BODY as VAI_BODY
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


_CUT_BY: dict[str, tuple[Callable[[int], Framing], int, int]] = {
    "rune": (Lines, MAX_HOST_LINE, MAX_PLUGIN_LINE),
    "nexo": (Lines, NEXO_HOST_LINE, MAX_CHILD_LINE),
    "kaged": (Lines, MAX_READ, MAX_READ),
    "ainb": (Lengths, AINB_BODY, AINB_BODY),
    "vai": (OpenLengths, VAI_BODY, VAI_BODY),
    "mcp": (Lines, MAX_LINE, MAX_LINE),
}
"""The way of each contract, and the most bytes of a message of its host and of its plugin."""


def framing_of(contract: str, speaker: str) -> Framing:
    """How the messages of one end of a conversation are told apart; for one conversation."""
    make, hosts, plugins = _CUT_BY[contract]
    return make(hosts if speaker == Role.HOST else plugins)
