"""HTTP requests to one server or its authorization server, with bounds on every response.

httpcore2 speaks the protocol, through the proxy of the environment. Nothing is decompressed, and a redirect to another
origin is a failure: a credential must not follow it.
"""

from __future__ import annotations

import os
import re
import ssl
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import unquote, urljoin, urlsplit

import httpcore2
import msgspec

from plugbay.contracts.mcp.http_headers import join_headers
from plugbay.contracts.mcp.messages import MAX_LINE
from plugbay.contracts.mcp.remote import read_url
from plugbay.model.errors import Code, Failure, Origin
from plugbay.model.fetch import Url

CONNECT_SECONDS = 10.0
"""Time for a TCP connection and its TLS handshake."""

WRITE_SECONDS = 30.0

KEEP_SECONDS = 4.0
"""How long an unused connection is kept; usual servers close one after 5 seconds, and a request must not meet that."""

MAX_CONNECTIONS = 1024
"""Each running call may hold a connection; a plugin has fewer calls than this."""

MAX_REDIRECTS = 3

MAX_ERROR_BODY = 64 << 10
"""Bytes of an error's body that are read."""

MAX_QUOTE = 200
"""Characters of an error's body in a message."""

FORBIDDEN = 403

STREAM, JSON = "text/event-stream", "application/json"

_KEEPS_METHOD = (307, 308)
_REDIRECTS = (301, 302, 303, *_KEEPS_METHOD)


class HttpFailed(Exception):
    """A request has no usable response; carries the `Failure`."""

    def __init__(self, failure: Failure) -> None:
        self.failure = failure
        super().__init__(failure.message)


def failed(code: str, message: str, hint: str = "", **more: Any) -> HttpFailed:
    detail = {"hint": hint} if hint else {}
    return HttpFailed(Failure(code, message, origin=Origin.PLUGIN, detail=detail, **more))


class Response(msgspec.Struct):
    """A response whose body is not read yet."""

    url: Url
    status: int
    headers: dict[str, str]
    """By lower-case name; repeated ones are joined."""
    _stream: AsyncIterator[bytes]

    @property
    def media_type(self) -> str:
        return self.headers.get("content-type", "").partition(";")[0].strip().lower()

    async def body(self, limit: int = MAX_LINE) -> bytes:
        """The whole body; raises `HttpFailed` if it is longer."""
        data = bytearray()
        async for piece in self.pieces():
            data += piece
            if len(data) > limit:
                raise failed(Code.FRAME_TOO_LARGE, f"{self.url.origin} sent a body of more than {limit:,} bytes")
        return bytes(data)

    async def pieces(self) -> AsyncIterator[bytes]:
        """The body as it arrives."""
        try:
            async for piece in self._stream:
                yield piece
        except httpcore2.TimeoutException:
            raise failed(Code.TIMEOUT, f"{self.url.origin} sent no data for too long") from None
        except (httpcore2.NetworkError, httpcore2.ProtocolError) as error:
            text = f"the connection to {self.url.origin} was lost: {reason(error)}"
            raise failed(Code.UNAVAILABLE, text, retryable=True) from None

    async def quote(self) -> str:
        """The begin of an error's body as one line of text; empty if it is not text for people."""
        try:
            text = (await self.body(MAX_ERROR_BODY)).decode("utf-8", "replace")
        except HttpFailed:
            return ""
        if "html" in self.media_type or text.lstrip().startswith("<"):
            return ""
        line = "".join(char if char.isprintable() else " " for char in text)
        return " ".join(line.split())[:MAX_QUOTE]


class HttpClient:
    """Sends requests; the connections of one process are shared."""

    def __init__(self, environ: Mapping[str, str] | None = None, trust: ssl.SSLContext | None = None) -> None:
        self._environ = os.environ if environ is None else environ
        self._trust = trust
        self._pools: dict[str, httpcore2.AsyncConnectionPool] = {}

    async def aclose(self) -> None:
        for pool in self._pools.values():
            await pool.aclose()

    @asynccontextmanager
    async def send(
        self,
        method: str,
        url: Url,
        headers: Iterable[tuple[str, str]] = (),
        body: bytes | None = None,
        read_seconds: float | None = None,
    ) -> AsyncIterator[Response]:
        """The response to a request, redirects within its origin followed; raises `HttpFailed`."""
        fields = [("Host", url.origin.partition("://")[2]), ("User-Agent", "plugbay"), ("Accept-Encoding", "identity")]
        fields += headers
        if body is not None:
            fields.append(("Content-Length", str(len(body))))
        for _ in range(MAX_REDIRECTS + 1):
            found = await self._request(method, url, fields, body, read_seconds)
            headers_in = join_headers(found.headers)
            try:
                if "error=" in headers_in.get("proxy-status", "") and self._proxy(url):
                    why = os.fsdecode(found.extensions.get("reason_phrase", b""))
                    raise _refused_by_proxy(url, found.status, why)
                following = _redirect(method, url, found.status, headers_in)
                if following is None:
                    _refuse_encoding(url, headers_in)
                    yield Response(url, found.status, headers_in, found.aiter_stream())
                    return
            finally:
                await found.aclose()
            url = following
        raise failed(Code.UNAVAILABLE, f"{url.origin} redirects more than {MAX_REDIRECTS} times")

    async def _request(
        self, method: str, url: Url, fields: list[tuple[str, str]], body: bytes | None, read_seconds: float | None
    ) -> httpcore2.Response:
        timeouts = {"connect": CONNECT_SECONDS, "write": WRITE_SECONDS, "read": read_seconds, "pool": WRITE_SECONDS}
        request = httpcore2.Request(
            method,
            httpcore2.URL(scheme=url.scheme, host=url.host, port=url.port, target=url.path),
            headers=fields,
            content=body,
            extensions={"timeout": timeouts},
        )
        where = url.origin
        try:
            return await self._pool(url).handle_async_request(request)
        except httpcore2.ProxyError as error:
            status, _, why = reason(error).partition(" ")
            raise _refused_by_proxy(url, int(status) if status.isdigit() else 0, why) from None
        except (httpcore2.ConnectError, httpcore2.ConnectTimeout) as error:
            hint = "check the address, the server and the proxy variables"
            why = reason(error)
            raise failed(Code.UNAVAILABLE, f"{where} cannot be reached: {why}", hint, retryable=True) from None
        except httpcore2.TimeoutException:
            raise failed(Code.TIMEOUT, f"{where} did not answer in time", retryable=True) from None
        except (httpcore2.NetworkError, httpcore2.ProtocolError) as error:
            raise failed(Code.UNAVAILABLE, f"{where} closed the connection or broke HTTP: {reason(error)}") from None

    def _pool(self, url: Url) -> httpcore2.AsyncConnectionPool:
        proxy = self._proxy(url)
        pool = self._pools.get(proxy)
        if pool is None:
            if self._trust is None:
                self._trust = ssl.create_default_context()
            pool = self._pools[proxy] = httpcore2.AsyncConnectionPool(
                ssl_context=self._trust,
                proxy=_proxy(proxy) if proxy else None,
                max_connections=MAX_CONNECTIONS,
                keepalive_expiry=KEEP_SECONDS,
            )
        return pool

    def _proxy(self, url: Url) -> str:
        """The proxy for this URL, as the usual variables name it; empty: none."""
        found = {key.lower(): value for key, value in self._environ.items() if key.lower().endswith("_proxy") and value}
        proxies = {key.removesuffix("_proxy"): value for key, value in found.items()}
        exempt = [word.strip().lower().lstrip("*.") for word in proxies.get("no", "").split(",") if word.strip()]
        if any(word in ("", url.host, f"{url.host}:{url.port}") or url.host.endswith(f".{word}") for word in exempt):
            return ""
        return proxies.get(url.scheme, proxies.get("all", ""))


def _proxy(text: str) -> httpcore2.Proxy:
    whole = urlsplit(text if "://" in text else f"http://{text}")
    auth = (unquote(whole.username or ""), unquote(whole.password or "")) if whole.username else None
    host = f"[{whole.hostname}]" if ":" in (whole.hostname or "") else whole.hostname
    return httpcore2.Proxy(f"{whole.scheme}://{host}:{whole.port or 80}", auth=auth)


def _refused_by_proxy(url: Url, status: int, why: str) -> HttpFailed:
    """The failure of a request that the proxy refused. The proxy of a sandbox says which setting allows the request."""
    text, _, setting = "".join(filter(str.isprintable, why))[:MAX_QUOTE].partition("; ")
    text = f"{url.origin} cannot be reached: {text or f'the proxy refuses (status {status})'}"
    if status == FORBIDDEN:
        return failed(Code.CAPABILITY_NOT_ALLOWED, text, setting or "check the rules of the proxy")
    hint = setting or "check the address, the server and the proxy variables"
    return failed(Code.UNAVAILABLE, text, hint, retryable=True)


def _redirect(method: str, url: Url, status: int, headers: Mapping[str, str]) -> Url | None:
    """The next URL of a redirect within the same origin; None: the response is the answer. Raises `HttpFailed`."""
    if status not in _REDIRECTS:
        return None
    try:
        to = read_url(urljoin(f"{url.origin}{url.path}", headers.get("location", "")))
    except ValueError:  # brackets around an invalid address
        to = "cannot be read"
    if isinstance(to, str) or to.origin != url.origin:
        where = "a URL that cannot be used" if isinstance(to, str) else f"{to.origin}{to.path.partition('?')[0]}"
        hint = "if you trust it, declare that URL"
        raise failed(Code.UNAVAILABLE, f"{url.origin} redirects to {where}, which is not followed", hint)
    if method != "GET" and status not in _KEEPS_METHOD:
        raise failed(Code.UNAVAILABLE, f"{url.origin} redirects a {method} with status {status}; declare the final URL")
    return to


def _refuse_encoding(url: Url, headers: Mapping[str, str]) -> None:
    encoding = headers.get("content-encoding", "identity").strip().lower()
    if encoding not in ("", "identity"):
        text = f"{url.origin} sent a body in {encoding[:40]!r}, which was not requested"
        raise failed(Code.MALFORMED_RESPONSE, text)


def reason(error: BaseException) -> str:
    """The text of the first cause, cut: it may quote the server. httpcore2 and anyio wrap the errors of the system."""
    while (cause := error.__cause__ or error.__context__) is not None:
        error = cause
    if isinstance(error, OSError) and error.errno and error.errno > 0 and not isinstance(error, ssl.SSLError):
        return os.strerror(error.errno)
    return str(error)[:MAX_QUOTE] or type(error).__name__


# Server-sent events.


class StreamEvent(msgspec.Struct, frozen=True):
    """One event. `id` is the last id that the stream gave, with this event or before it."""

    data: bytes
    id: str


_LINE_END = re.compile(rb"\r\n|\n|\r")


class EventParser:
    """Reads a `text/event-stream`, piece by piece. Raises `HttpFailed` for an event that is too large."""

    __slots__ = ("_buffer", "_data", "_id", "_limit", "_scanned", "_size", "_started", "retry")

    def __init__(self, limit: int = MAX_LINE) -> None:
        self._limit = limit
        self._buffer = bytearray()
        self._data: list[bytes] = []
        self._scanned = 0
        """Bytes of the buffer that hold no line end."""
        self._size = 0
        self._id = ""
        self._started = False
        self.retry: float | None = None
        """Seconds that the server wants before a new connection."""

    def feed(self, piece: bytes) -> list[StreamEvent]:
        """The events that are complete now."""
        self._buffer += piece
        if not self._started and len(self._buffer) >= 3:
            self._started = True
            if self._buffer.startswith(b"\xef\xbb\xbf"):
                del self._buffer[:3]
        events: list[StreamEvent] = []
        start, at = 0, self._scanned
        while (end := _LINE_END.search(self._buffer, at)) is not None:
            if end.end() == len(self._buffer) and end[0] == b"\r":
                break  # the line feed may follow
            event = self._take(bytes(self._buffer[start : end.start()]))
            start = at = end.end()
            events += [event] if event is not None else []
        self._scanned = (len(self._buffer) if end is None else end.start()) - start
        del self._buffer[:start]
        if self._size + len(self._buffer) > self._limit:
            raise failed(Code.FRAME_TOO_LARGE, f"the server sent an event of more than {self._limit:,} bytes")
        return events

    def _take(self, line: bytes) -> StreamEvent | None:
        if not line:
            data, self._data, self._size = b"\n".join(self._data), [], 0
            return StreamEvent(data, self._id) if data else None
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if name == b"data":
            self._data.append(value)
            self._size += len(value) + 1
            if self._size > self._limit:
                raise failed(Code.FRAME_TOO_LARGE, f"the server sent an event of more than {self._limit:,} bytes")
        elif name == b"id" and b"\0" not in value and len(value) <= 1024:
            self._id = value.decode("utf-8", "replace")
        elif name == b"retry" and value.isdigit() and len(value) <= 9:
            self.retry = int(value) / 1000
        return None
