"""One HTTP request to the proxy: its head, and where its body ends. Pure: bytes in, a request or a refusal out.

Accepts `CONNECT host:port` and `http://…` in full, nothing else, and each line exactly as the standard has it.
Input that another parser could read differently is refused, not repaired; the request that goes on is written anew from
what was understood. Chunks are framed anew too: sizes have one form, extensions and trailers are left out, so that no
server reads another end than we do. The pieces in which the bytes arrive never change the result.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from plugbay.model import addresses
from plugbay.process.sandbox.egress.decision import Refusal

MAX_HEAD = 16 << 10
"""Bytes of a request line and headers; servers take 8 to 64 KiB."""
MAX_HEADERS = 100
"""Headers of one request."""
HOP_BY_HOP = frozenset("connection keep-alive te trailer transfer-encoding upgrade http2-settings".split())
"""Headers of one connection only; so are all that begin with `proxy-`."""
_REWRITTEN = frozenset({"host", "content-length"})
_ONCE = ("host", "content-length", "transfer-encoding", "expect")
_FIRST = re.compile(rb"([A-Z][A-Z-]{0,31}) ([\x21-\x7e]+) HTTP/(1\.[01])\r\n")
_HEADER = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*([^\x00-\x08\x0a-\x1f\x7f]*)\r\n")
_URL = re.compile(r"http://([^/?#]*)([^#]*)", re.IGNORECASE)
_AUTHORITY = re.compile(r"(?:\[([0-9a-f:.]*:[0-9a-f:.]*)\]|([^:\[\]]+))(?::([1-9][0-9]{0,4}))?", re.IGNORECASE)
_LENGTH = re.compile(r"[0-9]{1,15}")
_HTTP_PORT = 80
Headers = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Request:
    """The request of a plugin to the proxy."""

    method: str
    host: str
    """Clean."""
    port: int
    path: str | None
    """With its query; None: a tunnel is asked for."""
    version: str = "1.1"
    headers: Headers = ()
    length: int | None = None
    """Bytes of the body; None: it has none, or comes in chunks."""
    chunked: bool = False

    def encoded(self) -> bytes:
        """The head as it goes to the server: for the host that was judged, and the last request of its connection."""
        shown = addresses.pair(self.host, self.port).removesuffix(f":{_HTTP_PORT}" if self.port == _HTTP_PORT else "")
        named = {
            word.strip().lower()
            for key, value in self.headers
            if key.lower() == "connection"
            for word in value.split(",")
        }
        lines = [f"{self.method} {self.path} HTTP/{self.version}", f"Host: {shown}"]
        lines += [f"{key}: {value}" for key, value in self.headers if _travels(key.lower(), named)]
        if self.chunked:
            lines.append("Transfer-Encoding: chunked")
        elif self.length is not None:
            lines.append(f"Content-Length: {self.length}")
        return "\r\n".join([*lines, "Connection: close", "", ""]).encode("latin-1")


class HeadParser:
    """Reads one head, piece by piece. A head that is not complete within `MAX_HEAD` bytes is refused."""

    __slots__ = ("_at", "_buffer", "_first", "_headers", "_result")

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._at = 0
        self._first: tuple[str, str, str] | None = None
        self._headers: list[tuple[str, str]] = []
        self._result: Request | Refusal | None = None

    @property
    def begun(self) -> bool:
        return bool(self._buffer)

    @property
    def rest(self) -> bytes:
        """The bytes after the head."""
        return bytes(self._buffer[self._at :])

    def feed(self, data: bytes) -> Request | Refusal | None:
        """The request, or why there is none; None: more is needed. The first answer stays."""
        if not isinstance(self._result, Refusal):
            self._buffer += data
        if self._result is None:
            self._result = self._advance()
        return self._result

    def _advance(self) -> Request | Refusal | None:
        while (end := self._buffer.find(b"\n", self._at, MAX_HEAD) + 1) > 0:
            line, self._at = bytes(self._buffer[self._at : end]), end
            if self._first is not None and line == b"\r\n":
                return _request(*self._first, tuple(self._headers))
            problem = self._take(line)
            if problem is not None:
                return problem
        if len(self._buffer) >= MAX_HEAD:
            return Refusal(431, f"the head of the request has more than {MAX_HEAD:,} bytes")
        return None

    def _take(self, line: bytes) -> Refusal | None:
        if self._first is None:
            match = _FIRST.fullmatch(line)
            if match is None:
                return Refusal(400, "the request does not begin like one of HTTP/1.1")
            self._first = (match[1].decode("ascii"), match[2].decode("ascii"), match[3].decode("ascii"))
            return None
        if len(self._headers) == MAX_HEADERS:
            return Refusal(431, f"the request has more than {MAX_HEADERS} headers")
        match = _HEADER.fullmatch(line)
        if match is None:
            return Refusal(400, "the request has a malformed header line")
        self._headers.append((match[1].decode("ascii"), match[2].decode("latin-1").strip(" \t")))
        return None


def parse_authority(text: str, default: int | None = None) -> tuple[str, int] | None:
    """The clean host and the port that `host:port` names; None: it names none, or has two readings."""
    match = _AUTHORITY.fullmatch(text)
    host = None if match is None else addresses.clean_host(match[1] or match[2])
    if match is None or host is None:
        return None
    port = int(match[3]) if match[3] else default
    return None if port is None or port > 65535 else (host, port)


def _request(method: str, target: str, version: str, headers: Headers) -> Request | Refusal:
    where = _tunnel(target) if method == "CONNECT" else _url(target)
    if isinstance(where, str):
        return Refusal(400, where)
    host, port, path = where
    single = {key: [value for name, value in headers if name.lower() == key] for key in _ONCE}
    doubled = [key for key, values in single.items() if len(values) > 1]
    if doubled:
        return Refusal(400, f"the request has more than one {doubled[0]} header")
    values = {key: found[0] for key, found in single.items() if found}
    if "host" in values and parse_authority(values["host"], port) != (host, port):
        return Refusal(400, "the Host header and the request name different hosts")
    problem = _body_problem(values, version, path)
    if problem is not None:
        return Refusal(400, problem)
    length = values.get("content-length")
    chunked = "transfer-encoding" in values
    return Request(method, host, port, path, version, headers, None if length is None else int(length), chunked)


def _tunnel(target: str) -> tuple[str, int, None] | str:
    where = parse_authority(target)
    return (*where, None) if where else "a tunnel needs host:port, with a host name or an address"


def _url(target: str) -> tuple[str, int, str] | str:
    match = _URL.fullmatch(target)
    if match is None:
        return "the proxy accepts CONNECT host:port, and other requests with a full URL such as http://host/path"
    where = parse_authority(match[1], _HTTP_PORT)
    if where is None:
        return "the URL must have an ASCII host name or an address in its usual form, and no user"
    if set(match[2]) & set('\\"<>'):
        return "the URL has characters that must be percent-encoded"
    return (*where, match[2] if match[2].startswith("/") else "/" + match[2])


def _body_problem(values: dict[str, str], version: str, path: str | None) -> str | None:
    """Why it is not certain where the body ends."""
    length, encoding = values.get("content-length"), values.get("transfer-encoding")
    if length is not None and not _LENGTH.fullmatch(length):
        return "the content-length header is not a number"
    if encoding is not None and (encoding.lower() != "chunked" or version == "1.0" or length is not None):
        return "the body must have either chunks or a length"
    if path is None and (encoding is not None or int(length or 0)):
        return "a request for a tunnel has no body"
    if values.get("expect", "100-continue").lower() != "100-continue":
        return "the Expect header has an unknown value"
    return None


def _travels(key: str, named: Iterable[str]) -> bool:
    """Whether a header goes on to the server; `named` are those that concern this connection by the plugin's word."""
    return not (key in HOP_BY_HOP or key in _REWRITTEN or key in named or key.startswith("proxy-"))


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
        """The bytes for the server."""
        ...


class Counted:
    """A body whose length was announced; without any, it is empty."""

    def __init__(self, length: int = 0) -> None:
        self._remaining = length
        self.done = length == 0
        self.problem = False

    def feed(self, data: bytes) -> bytes:
        part = data[: self._remaining]
        self._remaining -= len(part)
        self.done = self._remaining == 0
        return part


class Chunks:
    """A body in chunks."""

    def __init__(self) -> None:
        self.done = False
        self.problem = False
        self._buffer = bytearray()
        self._step = self._size
        self._remaining = 0
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
        self._remaining = int(match[1], 16)
        if self._remaining == 0:
            self._step = self._trailer
            return b""
        self._step = self._content
        return b"%x\r\n" % self._remaining

    def _content(self) -> bytes | None:
        part = bytes(self._buffer[: self._remaining])
        if not part:
            return None
        del self._buffer[: len(part)]
        self._remaining -= len(part)
        if self._remaining == 0:
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
