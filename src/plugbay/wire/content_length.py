"""Length-prefixed frames: `Content-Length: <n>\\r\\n\\r\\n<n bytes>`, within bounds.

Owns the header grammar, the two limits and the end of a body. It never guesses: after a violation the start of the
next frame is unknown, so the first fault is the last item, and the decoder accepts nothing more. It never raises for a
peer's bytes.
"""

from __future__ import annotations

from plugbay.model.errors import Code
from plugbay.model.values import Value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Literal

    UnknownHeaders = Literal["fatal", "ignore"]
    RepeatedLength = Literal["fatal", "last"]

HEAD_BYTES = 200
"""Bytes of a refused header that are kept: enough to recognise its writer, too few to fill a log."""

MAX_DIGITS = 10
"""Digits of a length after its leading zeros: more than any cap needs, too few to be costly to convert."""

_PLAIN = b"Content-Length: "
_PLAIN_WINDOW = len(_PLAIN) + MAX_DIGITS + 4
"""The longest header that the short cut has to look at."""


class HeaderRules(Value):
    """The header rules of a contract. Sizes in bytes; `max_header` counts the block with its CRLFs."""

    __slots__ = ("max_body", "max_header", "plus_sign", "repeated_length", "unknown_headers")

    def __init__(
        self,
        max_header: int,
        max_body: int,
        unknown_headers: UnknownHeaders,
        repeated_length: RepeatedLength,
        plus_sign: bool,
    ) -> None:
        self.max_header = max_header
        self.max_body = max_body
        self.unknown_headers = unknown_headers
        self.repeated_length = repeated_length
        self.plus_sign = plus_sign

    def with_max_body(self, max_body: int) -> HeaderRules:
        return HeaderRules(self.max_header, max_body, self.unknown_headers, self.repeated_length, self.plus_sign)


STRICT_HEADERS = HeaderRules(
    max_header=8192,
    max_body=16 * 1024 * 1024,
    unknown_headers="fatal",
    repeated_length="last",
    plus_sign=True,
)
"""Only Content-Length may appear; the last of several counts, and `+5` is 5."""

OPEN_HEADERS = HeaderRules(
    max_header=4096,
    max_body=8 * 1024 * 1024,
    unknown_headers="ignore",
    repeated_length="fatal",
    plus_sign=False,
)
"""Other headers may appear and mean nothing; Content-Length appears once."""


class FrameFault(Value):
    """The stream broke the grammar or a cap. `head`: how the offending header, or unfinished body, begins."""

    __slots__ = ("code", "head", "reason")

    def __init__(self, code: str, reason: str, head: bytes) -> None:
        self.code = code
        self.reason = reason
        self.head = head


class ContentLengthDecoder:
    """Feed chunks, get bodies; a `FrameFault` is always the last item there will ever be."""

    __slots__ = ("_block", "_body", "_dead", "_length", "_line_start", "_missing", "_rules")

    def __init__(self, rules: HeaderRules) -> None:
        self._rules = rules
        self._block = bytearray()
        self._line_start = 0
        self._length: int | None = None
        self._body = bytearray()
        self._missing = 0
        self._dead = False

    @property
    def pending(self) -> int:
        """Bytes held back for a frame that has no end yet."""
        return len(self._block) + len(self._body)

    def feed(self, data: bytes) -> list[bytes | FrameFault]:
        """The bodies that `data` completes, in order."""
        items: list[bytes | FrameFault] = []
        at = 0
        while at < len(data) and not self._dead:
            if self._missing:
                at = self._take_body(data, at, items)
            elif self._block:
                at = self._take_line(data, at, items)
            else:
                at = self._take_plain(data, at, items) or self._take_line(data, at, items)
        return items

    def eof(self) -> FrameFault | None:
        """The fault of ending here; None when the stream ended between two frames, or had its fault."""
        if self._missing:
            reason = f"the stream ended inside a body, {self._missing} bytes short"
            return self._fault(Code.MALFORMED_RESPONSE, reason, bytes(self._body[:HEAD_BYTES]))
        if self._block:
            return self._fault(Code.MALFORMED_RESPONSE, "the stream ended inside a header block")
        return None

    def _take_body(self, data: bytes, at: int, items: list[bytes | FrameFault]) -> int:
        piece = data[at : at + self._missing]
        self._missing -= len(piece)
        if self._body or self._missing:
            self._body += piece
        if not self._missing:
            items.append(bytes(self._body) if self._body else piece)
            self._body.clear()
        return at + len(piece)

    def _take_plain(self, data: bytes, at: int, items: list[bytes | FrameFault]) -> int:
        """Short cut for the usual header, complete in one chunk; 0 for any other."""
        if not data.startswith(_PLAIN, at):
            return 0
        end = data.find(b"\r\n\r\n", at, at + min(self._rules.max_header, _PLAIN_WINDOW))
        digits = data[at + len(_PLAIN) : end] if end >= 0 else b""
        if not digits.isdigit() or int(digits) > self._rules.max_body:
            return 0
        self._begin_body(int(digits), items)
        return end + 4

    def _take_line(self, data: bytes, at: int, items: list[bytes | FrameFault]) -> int:
        """Take one header line, or what there is of it; never stores more than `max_header` bytes."""
        room = self._rules.max_header - len(self._block)
        newline = data.find(b"\n", at, at + room)
        if newline < 0:
            self._block += data[at : at + room]
            if at + room < len(data):
                reason = f"the header block is longer than {self._rules.max_header} bytes"
                items.append(self._fault(Code.FRAME_TOO_LARGE, reason))
            return len(data)
        self._block += data[at : newline + 1]
        line = bytes(self._block[self._line_start :])
        self._line_start = len(self._block)
        fault = self._end_of_block(items) if line == b"\r\n" else self._read_line(line)
        if fault is not None:
            items.append(fault)
        return newline + 1

    def _read_line(self, line: bytes) -> FrameFault | None:
        if not line.endswith(b"\r\n"):
            return self._malformed("a header line ends in a bare LF")
        content = line[:-2]
        if not content.isascii() or not content.decode("ascii").replace("\t", " ").isprintable():
            return self._malformed("a header line holds something other than printable ASCII")
        name, colon, value = content.partition(b":")
        name = name.strip(b" \t").lower()
        if not (name and colon):
            return self._malformed("a header line has no name and colon")
        if name == b"content-length":
            return self._read_length(value.strip(b" \t"))
        if self._rules.unknown_headers == "fatal":
            return self._malformed("a header other than Content-Length")
        return None

    def _read_length(self, value: bytes) -> FrameFault | None:
        if self._length is not None and self._rules.repeated_length == "fatal":
            return self._malformed("Content-Length appears twice")
        digits = value[1:] if self._rules.plus_sign and value[:1] == b"+" else value
        if not digits.isdigit():
            return self._malformed("Content-Length is not a decimal number")
        significant = digits.lstrip(b"0") or b"0"
        if len(significant) > MAX_DIGITS:
            return self._too_large()
        self._length = int(significant)
        return None

    def _end_of_block(self, items: list[bytes | FrameFault]) -> FrameFault | None:
        if self._length is None:
            return self._malformed("a header block without Content-Length")
        if self._length > self._rules.max_body:
            return self._too_large()
        self._begin_body(self._length, items)
        return None

    def _begin_body(self, length: int, items: list[bytes | FrameFault]) -> None:
        self._block.clear()
        self._line_start = 0
        self._length = None
        self._missing = length
        if not length:
            items.append(b"")

    def _too_large(self) -> FrameFault:
        reason = f"the announced body is larger than {self._rules.max_body} bytes"
        return self._fault(Code.FRAME_TOO_LARGE, reason)

    def _malformed(self, reason: str) -> FrameFault:
        return self._fault(Code.MALFORMED_RESPONSE, reason)

    def _fault(self, code: str, reason: str, head: bytes | None = None) -> FrameFault:
        """The one fault; what is buffered is let go with it."""
        fault = FrameFault(code, reason, bytes(self._block[:HEAD_BYTES]) if head is None else head)
        self._dead = True
        self._missing = 0
        self._block.clear()
        self._body.clear()
        return fault


def encode(body: bytes, max_body: int) -> bytes:
    """`body` as one frame; what the reader is known to refuse is not sent."""
    if len(body) > max_body:
        raise ValueError(f"a body of {len(body)} bytes is over the cap of {max_body}")
    return b"Content-Length: %d\r\n\r\n%b" % (len(body), body)
