"""Where the body of a request ends, so that nothing after it reaches a server. Pure: bytes in, bytes to send on out.

Owns the framing and nothing of the content. Chunks are framed anew: sizes are written in one form, extensions and
trailers are left out, so that no server reads another end than we do. The pieces in which the bytes arrive never
change what is sent on in all.
"""

from __future__ import annotations

import re
from typing import Protocol

MAX_LINE = 1024
"""Bytes of the line before a chunk, and of one trailer."""

MAX_TRAILERS = 16
"""Lines after the last chunk."""

_SIZE = re.compile(rb"([0-9a-fA-F]{1,8})(?:[ \t]*;[\t\x20-\x7e]*)?\r\n")
_TRAILER = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+:[^\x00-\x08\x0a-\x1f\x7f]*\r\n")


class Body(Protocol):
    """One body on its way."""

    done: bool
    """Whatever comes now is not part of it."""
    problem: bool
    """It is not framed as it says; nothing more of it is sent on."""

    def feed(self, data: bytes) -> bytes:
        """What goes on to the server."""
        ...


class Counted:
    """A body whose length was announced; without any, it is empty."""

    def __init__(self, length: int = 0) -> None:
        self._left = length
        self.done = length == 0
        self.problem = False

    def feed(self, data: bytes) -> bytes:
        part = data[: self._left]
        self._left -= len(part)
        self.done = self._left == 0
        return part


class Chunks:
    """A body in chunks."""

    def __init__(self) -> None:
        self.done = False
        self.problem = False
        self._buffer = bytearray()
        self._step = self._size
        self._left = 0
        self._trailers = 0

    def feed(self, data: bytes) -> bytes:
        self._buffer += data
        out = bytearray()
        while not (self.done or self.problem):
            piece = self._step()
            if piece is None:
                break
            out += piece
        return bytes(out)

    def _size(self) -> bytes | None:
        line = self._line()
        if line is None:
            return None
        match = _SIZE.fullmatch(line)
        if match is None:
            self.problem = True
            return None
        self._left = int(match[1], 16)
        if self._left == 0:
            self._step = self._trailer
            return b""
        self._step = self._content
        return b"%x\r\n" % self._left

    def _content(self) -> bytes | None:
        part = bytes(self._buffer[: self._left])
        if not part:
            return None
        del self._buffer[: len(part)]
        self._left -= len(part)
        if self._left == 0:
            self._step = self._end
        return part

    def _end(self) -> bytes | None:
        self.problem = not b"\r\n".startswith(self._buffer[:2])
        if self.problem or len(self._buffer) < 2:
            return None
        del self._buffer[:2]
        self._step = self._size
        return b"\r\n"

    def _trailer(self) -> bytes | None:
        line = self._line()
        if line is None:
            return None
        if line == b"\r\n":
            self.done = True
            return b"0\r\n\r\n"
        self._trailers += 1
        self.problem = self._trailers > MAX_TRAILERS or not _TRAILER.fullmatch(line)
        return b""

    def _line(self) -> bytes | None:
        end = self._buffer.find(b"\n", 0, MAX_LINE) + 1
        if end == 0:
            self.problem = len(self._buffer) >= MAX_LINE
            return None
        line = bytes(self._buffer[:end])
        del self._buffer[:end]
        return line
