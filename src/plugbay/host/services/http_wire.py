"""One HTTP/1.1 request and its response on a connection that is used once.

Writes requests and reads responses, each part bounded before it is stored. Bodies are never decompressed.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from dataclasses import dataclass

from plugbay.model.errors import CallFailed, Code, Failure
from plugbay.model.fetch import MAX_BODY, MAX_HEADERS

MAX_HEAD = 32 << 10
"""Bytes of an answer's status and headers, and of one line between chunks; browsers allow 8 to 256 KiB."""

MAX_FRAMING = 64 << 10
"""Bytes between chunks, beyond as many as there is content: ten million chunks of one byte are an attack."""

MAX_INTERIM = 5
"""Answers of the 1xx kind before the real one."""

_STATUS = re.compile(rb"HTTP/1\.[01] ([1-9][0-9]{2})(?: [^\r\n]*)?")
_HEADER = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*([^\x00-\x08\x0a-\x1f\x7f]*)")
_CHUNK = re.compile(rb"([0-9a-fA-F]{1,8})[ \t]*(?:;[^\r\n]*)?\r\n")

Headers = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Reply:
    """One answer."""

    status: int
    headers: Headers
    body: bytes = b""

    def header(self, name: str) -> str | None:
        """The first header of this lower-case name."""
        return next((value for key, value in self.headers if key.lower() == name), None)


def written(method: str, path: str, headers: Sequence[tuple[str, str]], body: bytes | None) -> bytes:
    """The bytes of a request; its parts hold nothing that could end a line."""
    lines = [f"{method} {path} HTTP/1.1", *(f"{name}: {value}" for name, value in headers)]
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + (body or b"")


async def read_reply(reader: asyncio.StreamReader, method: str) -> Reply:
    """The answer to a request with this method; raises `CallFailed`. The reader's limit must be `MAX_HEAD`."""
    try:
        head = await _head(reader)
        return Reply(head.status, head.headers, await _body(reader, method, head))
    except asyncio.IncompleteReadError:
        raise broken("the server closed the connection before the answer was complete") from None
    except asyncio.LimitOverrunError:
        raise broken(f"a line or the headers of the answer have more than {MAX_HEAD:,} bytes") from None


def broken(why: str) -> CallFailed:
    """What a server, or the way to it, did wrong."""
    return CallFailed(Failure(Code.INVALID_INPUT, why))


async def _head(reader: asyncio.StreamReader) -> Reply:
    for _ in range(MAX_INTERIM + 1):
        reply = _parse_head(await reader.readuntil(b"\r\n\r\n"))
        if reply.status >= 200:
            return reply
        if reply.status == 101:
            break
    raise broken("the server sent no final response: too many interim ones, or another protocol")


def _parse_head(raw: bytes) -> Reply:
    first, *lines = raw[:-4].split(b"\r\n")
    status = _STATUS.fullmatch(first)
    headers = [_HEADER.fullmatch(line) for line in lines]
    if status is None or len(headers) > MAX_HEADERS:
        raise broken("the answer is not HTTP/1.1, or has too many headers")
    fields = [(match[1].decode("ascii"), match[2].decode("latin-1").strip()) for match in headers if match]
    if len(fields) < len(headers):
        raise broken("the response has a malformed header line")
    return Reply(int(status[1]), tuple(fields))


async def _body(reader: asyncio.StreamReader, method: str, head: Reply) -> bytes:
    if method == "HEAD" or head.status in (204, 304):
        return b""
    encoding = head.header("transfer-encoding")
    if encoding is not None:
        if encoding.lower() != "chunked":
            raise broken(f"the transfer encoding {encoding!r} is not supported, only chunked")
        return await _chunks(reader)
    lengths = {value for name, value in head.headers if name.lower() == "content-length"}
    if not lengths:
        return await _rest(reader)
    length = lengths.pop()
    if lengths or not re.fullmatch(r"[0-9]{1,18}", length):
        raise broken("the response has an invalid or ambiguous content-length")
    _check_size(int(length))
    return await reader.readexactly(int(length))


async def _rest(reader: asyncio.StreamReader) -> bytes:
    body = bytearray()
    while piece := await reader.read(MAX_HEAD):
        body += piece
        _check_size(len(body))
    return bytes(body)


async def _chunks(reader: asyncio.StreamReader) -> bytes:
    body = bytearray()
    framing = 0
    while True:
        line = await reader.readuntil(b"\r\n")
        match = _CHUNK.fullmatch(line)
        if match is None:
            raise broken("the chunked body has a malformed chunk size")
        size = int(match[1], 16)
        framing = _framed(framing + len(line) + 2, len(body) + size)
        if size == 0:
            break
        _check_size(len(body) + size)
        body += await reader.readexactly(size)
        if await reader.readexactly(2) != b"\r\n":
            raise broken("a chunk of the body is longer than its size")
    while (line := await reader.readuntil(b"\r\n")) != b"\r\n":
        framing = _framed(framing + len(line), len(body))
    return bytes(body)


def _framed(framing: int, content: int) -> int:
    if framing > MAX_FRAMING + content:
        raise broken("the chunked body has more framing than content")
    return framing


def _check_size(size: int) -> None:
    if size > MAX_BODY:
        raise broken(f"the body has more than {MAX_BODY:,} bytes")
