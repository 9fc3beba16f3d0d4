"""One HTTP/1.1 request over a connection of its own, to one checked address, with bounds on the response.

httpcore2 speaks the protocol. `PinnedBackend` opens its socket and never resolves a name; no connection is used twice,
so none is shared between plugins. Bodies are never decompressed. The import takes 0.1 s: do it on a thread.
"""

from __future__ import annotations

import asyncio
import os
import re
import ssl
from collections.abc import Iterable
from typing import Any

import httpcore2
import msgspec

from plugbay.model.errors import CallFailed, Code, Failure
from plugbay.model.sizes import MAX_PAYLOAD

MAX_HEAD = 32 << 10
"""Bytes of all status lines and headers of one response; browsers allow 8 to 256 KiB."""

MAX_HEADERS = 100
"""Headers of one response."""

MAX_BODY = MAX_PAYLOAD
"""Bytes of one body."""

MAX_FRAMING = 64 << 10
"""Bytes of chunk framing in excess of the content: ten million chunks of one byte are an attack."""

MAX_INTERIM = 5
"""Responses of the 1xx kind before the real one."""

MAX_REASON = 200
"""Characters of a library's error text."""

_VALUE = re.compile(rb"[^\x00-\x08\x0a-\x1f\x7f]*")
_INTERIM = re.compile(rb"HTTP/1\.[01] 1")
_BAD_LINE = re.compile(rb"(?<!\r)\n|\n[ \t]")
"""A bare line feed, or a folded header line: h11 tolerates both, other readers do not agree on their meaning."""

Headers = tuple[tuple[str, str], ...]


class Reply(msgspec.Struct, frozen=True):
    """One response."""

    status: int
    headers: Headers
    body: bytes = b""

    def header(self, name: str) -> str | None:
        """The first header of this lower-case name."""
        return next((value for key, value in self.headers if key.lower() == name), None)


class Unreachable(Exception):
    """No connection; nothing was sent."""


class OwnAddress(Exception):
    """The connection led to this machine."""


class BoundedStream(httpcore2.AsyncNetworkStream):
    """Reads no more bytes than `allowance`; `send` raises it as content arrives."""

    def __init__(self, stream: httpcore2.AsyncNetworkStream) -> None:
        self._stream = stream
        self._writing: asyncio.Future[None] | None = None
        self.allowance = MAX_HEAD
        self.first_bytes: bytearray | None = bytearray()
        """All bytes up to now, until the headers are checked."""

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        if self.allowance <= 0:
            raise broken(f"the response has more than {MAX_HEAD:,} bytes of headers, or more framing than content")
        data = await self._stream.read(min(max_bytes, self.allowance), timeout)
        self.allowance -= len(data)
        if self.first_bytes is not None:
            self.first_bytes += data
        return data

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:
        """Write in the background: a server may answer, and stop reading, before it has the whole request."""
        if not buffer:  # the end of a request
            return
        if self._writing is not None:
            await self._writing
        self._writing = asyncio.ensure_future(self._stream.write(buffer, timeout))
        self._writing.add_done_callback(lambda done: done.cancelled() or done.exception())  # `read` fails as well

    async def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> BoundedStream:
        self._stream = await self._stream.start_tls(ssl_context, server_hostname, timeout)
        return self

    async def aclose(self) -> None:
        if self._writing is not None:
            self._writing.cancel()
        await self._stream.aclose()

    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)


class PinnedBackend(httpcore2.AsyncNetworkBackend):
    """Connects to one address, whatever the host name resolves to by now."""

    def __init__(
        self, address: str, *, allow_local: bool = False, network: httpcore2.AsyncNetworkBackend | None = None
    ) -> None:
        """Without `allow_local` a public address of this machine is refused: local services may trust local peers."""
        self._address = address
        self._allow_local = allow_local
        self._network = network or httpcore2.AnyIOBackend()
        self.stream: BoundedStream | None = None

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> BoundedStream:
        stream = await self._network.connect_tcp(self._address, port, timeout, local_address, socket_options)
        self.stream = BoundedStream(stream)
        if not self._allow_local and stream.get_extra_info("server_addr")[0] == stream.get_extra_info("client_addr")[0]:
            raise OwnAddress
        return self.stream

    async def connect_unix_socket(self, *args: Any, **options: Any) -> BoundedStream:
        raise httpcore2.ConnectError("plugins cannot connect to a Unix socket")


async def send(request: httpcore2.Request, backend: PinnedBackend, trust: ssl.SSLContext | None) -> Reply:
    """The response; raises `Unreachable`, `OwnAddress`, and `CallFailed` for a bad response."""
    connection = httpcore2.AsyncHTTPConnection(request.url.origin, ssl_context=trust, network_backend=backend)
    try:
        response = await connection.handle_async_request(request)
        assert backend.stream is not None and backend.stream.first_bytes is not None
        _check_lines(bytes(backend.stream.first_bytes))
        backend.stream.first_bytes = None
        headers = _headers(response)
        return Reply(response.status, headers, await _body(request, response, backend.stream))
    except (httpcore2.ConnectError, httpcore2.ConnectTimeout) as error:
        raise Unreachable(_reason(error)) from None
    except (httpcore2.NetworkError, httpcore2.ProtocolError) as error:
        raise broken(f"the response cannot be read: {_reason(error)}") from None
    finally:
        if backend.stream is not None:  # httpcore2 leaves it open when a TLS handshake is cancelled
            await backend.stream.aclose()


def broken(why: str) -> CallFailed:
    """The failure of a request that is invalid, or whose server or network is at fault."""
    return CallFailed(Failure(Code.INVALID_INPUT, why))


def _check_lines(raw: bytes) -> None:
    """Refuse header lines with two meanings, and too many interim responses; `raw` begins with the response."""
    for _ in range(MAX_INTERIM + 1):
        head, _, raw = raw.partition(b"\r\n\r\n")
        if _BAD_LINE.search(head):
            raise broken("the response has a malformed header line")
        if not _INTERIM.match(head):
            return
    raise broken(f"the server sent more than {MAX_INTERIM} interim responses")


def _headers(response: httpcore2.Response) -> Headers:
    if response.status == 101:
        raise broken("the server switches to another protocol")
    if len(response.headers) > MAX_HEADERS:
        raise broken(f"the response has more than {MAX_HEADERS} headers")
    if not all(_VALUE.fullmatch(value) for _, value in response.headers):
        raise broken("a header of the response has a control character")
    return tuple((name.decode("ascii"), value.decode("latin-1")) for name, value in response.headers)


async def _body(request: httpcore2.Request, response: httpcore2.Response, stream: BoundedStream) -> bytes:
    lengths = [value for name, value in response.headers if name.lower() == b"content-length"]
    if lengths and request.method != b"HEAD" and response.status not in (204, 304):
        _check_size(int(lengths[0]))
    body = bytearray()
    stream.allowance = MAX_FRAMING
    async for piece in response.aiter_stream():
        body += piece
        _check_size(len(body))
        stream.allowance += 2 * len(piece)
    return bytes(body)


def _check_size(size: int) -> None:
    if size > MAX_BODY:
        raise broken(f"the body has more than {MAX_BODY:,} bytes")


def _reason(error: BaseException) -> str:
    """The text of the first cause, cut: it may quote the server. httpcore2 and anyio wrap the errors of the system."""
    while error.__cause__ is not None:
        error = error.__cause__
    if isinstance(error, OSError) and error.errno and not isinstance(error, ssl.SSLError):
        return os.strerror(error.errno)  # each event loop words these differently
    return str(error)[:MAX_REASON] or type(error).__name__
