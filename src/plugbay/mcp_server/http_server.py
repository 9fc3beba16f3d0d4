"""`HttpServer`: the MCP application on a port, with a bearer token; and `BoundedHttp`, uvicorn's HTTP/1.1 with limits.

`BoundedHttp` limits connections, the size of heads, and the time for heads and bodies. It refuses ambiguous framing. A
refused request always closes its connection, so bytes after a request of unclear length are never read as another
request. It does not limit the time for an answer; the pause between two requests is uvicorn's (5 s).

The server listens on loopback only, unless the operator names the hosts it is reached by. Needs the extra `serve`.
"""

from __future__ import annotations

import asyncio
import contextlib
import enum
import ipaddress
import itertools
import secrets
import socket
from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar, NoReturn

import httptools
import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from plugbay.mcp_server.http_app import McpApp, Receive, Scope, Send, refuse
from plugbay.mcp_server.http_checks import LOOPBACK, Guard, Refusal
from plugbay.mcp_server.server import McpServer
from plugbay.model.errors import PlugbayError

HEAD_SECONDS = 10.0
"""From the start of a connection, or the first byte of a further request, to the end of the head."""

BODY_SECONDS = 90.0
"""Without a byte of the body. Longer than the timeouts of applications, so that their own error comes first."""

MAX_CONNECTIONS = 512
"""Half of the usual limit of 1,024 open files: plugins and the database need theirs."""

MAX_HEAD = 16 << 10
"""Bytes of the request line and all headers."""

MAX_AHEAD = 16
"""Requests of one connection that wait for the answer to an earlier one."""

TOO_LARGE = f"the head of the request has more than {MAX_HEAD:,} bytes; send fewer or shorter headers"

_SEQUENCE = itertools.count()
"""A counter instead of a clock: the event loop has one time for everything within a tick."""


PATH = "/mcp"

TOKEN_BYTES = 32
"""Random bytes of a generated token."""

MIN_TOKEN_LENGTH = 16
"""Minimum length of a chosen token."""

STOP_SECONDS = 3
"""Grace for open connections at shutdown."""


class _Part(enum.Enum):
    """The part of a request that arrives."""

    NONE = enum.auto()
    """Nothing of a request has arrived, or all of it."""
    HEAD = enum.auto()
    BODY = enum.auto()


class _Refused(Exception):
    """Ends the parser's work on a request; the reason is in `BoundedHttp.refusal`."""


class BoundedHttp(HttpToolsProtocol):
    """One connection. Above the limit, the connection that was unused longest is closed.

    The parser (llhttp) refuses line ends other than CR LF, folded headers, lengths that are no number, and a length
    beside chunks. It does not limit what it keeps of a head, and it takes further codings and several hosts: the checks
    are here.
    """

    head_seconds: ClassVar[float] = HEAD_SECONDS
    body_seconds: ClassVar[float] = BODY_SECONDS
    max_connections: ClassVar[int] = MAX_CONNECTIONS

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._timer: asyncio.TimerHandle | None = None
        """Closes the connection when the expected part of a request is late."""
        self._expects = _Part.NONE
        """The part that the timer belongs to."""
        self._sequence = next(_SEQUENCE)
        """Sequence number of the last completed request: the lowest was unused longest."""
        self._part = _Part.NONE
        self._unread = 0
        """Bytes that the parser took without passing anything on."""
        self._trailers = 0
        """Bytes of headers after the body."""
        self._answering: RequestResponseCycle | None = None
        """The request whose answer is due next; further ones may wait behind it."""
        self._deaf = False
        """Whether the connection is closed after the next answer, and bytes that arrive do not count."""
        self.refusal = ""
        """Why we refuse a request; empty if the parser does."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > self.max_connections and not self._evict_other():
            self._end(b"503 Service Unavailable")
            return
        self._expect(_Part.HEAD, self.head_seconds)

    def data_received(self, data: bytes) -> None:
        if self._deaf:
            return
        self._unset_keepalive_if_required()
        self._unread += len(data)
        try:
            self._parse(data)
        except httptools.HttpParserInvalidMethodError:
            self._answer_refused(b"405 Method Not Allowed", "this is not an HTTP method")
        except httptools.HttpParserError as error:
            self._answer_refused(b"400 Bad Request", str(error))
        if self._unread > MAX_HEAD:
            self.refusal = TOO_LARGE
            self._answer_refused()
        if self.transport.is_closing():
            return
        if self._part is _Part.BODY:
            if not self.cycle.response_complete:  # a client that has its answer gains no time by sending more
                self._expect_nothing()
            self._expect(_Part.BODY, self.body_seconds)
        elif self._part is _Part.HEAD or self._unread:
            self._expect(_Part.HEAD, self.head_seconds)
        else:
            self._expect_nothing()

    def _parse(self, data: bytes) -> None:
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            # A request for another protocol, whose body the parser has left out: once more, without asking for that.
            self.parser = httptools.HttpRequestParser(self)
            self._parse(_write_head(self.scope["method"], self.url, self.headers) + data[upgrade.args[0] :])

    def connection_lost(self, exc: Exception | None) -> None:
        self._expect_nothing()
        if self._answering is not None and self._answering is not self.cycle:  # uvicorn tells the newest alone
            self._answering.disconnected = not self._answering.response_complete
            self._answering.message_event.set()
        super().connection_lost(exc)

    # Called by the parser.

    def on_message_begin(self) -> None:
        self._part = _Part.HEAD
        super().on_message_begin()

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._part is _Part.HEAD:
            return super().on_header(name, value)
        self._trailers += len(name) + len(value) + len(": \r\n")  # dropped: the application has its headers already
        if self._trailers > MAX_HEAD:
            self._refuse(TOO_LARGE)

    def on_headers_complete(self) -> None:
        method = self.parser.get_method()
        problem = find_problem(method, self.parser.get_http_version(), self.url, self.headers)
        if problem is not None:
            self._refuse(problem)
        if self.parser.should_upgrade():
            self.scope["method"] = method.decode()
            return
        if not self.url.startswith(b"/"):  # a URL, as proxies are asked: no path of this server
            self.url = b"/" + self.url
        if len(self.pipeline) >= MAX_AHEAD:
            self._refuse(f"more than {MAX_AHEAD} requests were sent ahead; wait for answers")
        self._part, self._unread, self._trailers = _Part.BODY, 0, 0
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._unread = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        if self._part is _Part.BODY:  # else it was a head that asks for another protocol
            self._part, self._unread = _Part.NONE, 0
            super().on_message_complete()

    def _refuse(self, problem: str) -> NoReturn:
        self.refusal = problem
        raise _Refused

    def _answer_refused(self, status: bytes = b"", why: str = "") -> None:
        if self._is_busy() and not (self._part is _Part.BODY and self._answering is self.cycle):
            self._close_after_answer()  # a complete request came before the refused one
            return
        if self.refusal == TOO_LARGE:
            status = b"431 Request Header Fields Too Large"
        self._end(status, self.refusal or why)

    # Called by uvicorn.

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        self._answering = cycle
        super()._start_asgi_task(cycle, app)

    def on_response_complete(self) -> None:
        self._sequence = next(_SEQUENCE)
        super().on_response_complete()

    # Limits.

    def _is_busy(self) -> bool:
        return self._answering is not None and not self._answering.response_complete

    def _close_after_answer(self) -> None:
        """Close the connection after the last complete request."""
        self._deaf = True
        self._expect_nothing()
        last = self.pipeline[0][0] if self.pipeline else self._answering
        if last is not None:
            last.keep_alive = False

    def _expect(self, part: _Part, seconds: float) -> None:
        """Start the timer for a part of the request; further bytes of the same part do not extend it."""
        if self._expects is not part and not self._deaf:
            self._expect_nothing()
            self._expects = part
            self._timer = self.loop.call_later(seconds, self._timed_out, part, seconds)

    def _timed_out(self, part: _Part, seconds: float) -> None:
        self._expect_nothing()
        # Our side is slow: the application does not read, or has not answered the request before.
        slow = self.flow.read_paused if part is _Part.BODY else self._is_busy()
        if slow:
            self._expect(part, seconds)
        else:
            self._end(b"408 Request Timeout")

    def _expect_nothing(self) -> None:
        self._expects = _Part.NONE
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _evict_other(self) -> bool:
        """Close one other connection: an idle one, else one whose body is still arriving. False when there is none."""
        others = [other for other in self.connections if other is not self and isinstance(other, BoundedHttp)]
        open_ = [other for other in others if not other.transport.is_closing()]
        idle = [other for other in open_ if not other._is_busy() and other._part is not _Part.BODY]
        found = idle or [other for other in open_ if other._part is _Part.BODY]
        if found:
            min(found, key=lambda other: other._sequence)._end(b"503 Service Unavailable")
        return bool(found)

    def _end(self, status: bytes, why: str = "") -> None:
        """Close the connection, with an error response if none was started."""
        self._expect_nothing()
        self._deaf = True
        answered = self._answering is not None and self._answering.response_started
        if not answered or (not self._is_busy() and self._part is not _Part.BODY):
            body = why.encode("ascii")
            head = b"connection: close\r\ncontent-type: text/plain\r\ncontent-length: %d" % len(body)
            self.transport.write(b"HTTP/1.1 %b\r\n%b\r\n\r\n%b" % (status, head, body))
        self.connections.discard(self)
        self.transport.close()


def _write_head(method: str, target: bytes, headers: Sequence[tuple[bytes, bytes]]) -> bytes:
    """The head of a request, without the wish for another protocol."""
    lines = [b"%b %b HTTP/1.1" % (method.encode(), target)]
    for name, value in headers:
        if name == b"connection":
            value = b",".join(token for token in value.split(b",") if token.strip().lower() != b"upgrade").strip()
        if name != b"upgrade":
            lines.append(b"%b: %b" % (name, value))
    return b"\r\n".join([*lines, b"", b""])


def find_problem(method: bytes, version: str, target: bytes, headers: Sequence[tuple[bytes, bytes]]) -> str | None:
    """Why a request is refused that the parser takes; None when it is not. A proxy may disagree about its end."""
    size = len(method) + len(target) + len("  HTTP/1.1\r\n\r\n")
    size += sum(len(name) + len(value) + len(": \r\n") for name, value in headers)
    names = [name for name, _ in headers]
    hosts, codings = names.count(b"host"), names.count(b"transfer-encoding")
    if size > MAX_HEAD:
        return TOO_LARGE
    if version not in ("1.0", "1.1") or method == b"CONNECT":
        return "this server speaks version 1.1 of HTTP and is not a proxy"
    if hosts > 1 or (hosts == 0 and version == "1.1"):
        return "a request must have exactly one Host header"
    if names.count(b"content-length") + codings > 1:
        return "the length of the body is given twice; send one Content-Length, or Transfer-Encoding: chunked"
    if codings and (version == "1.0" or dict(headers)[b"transfer-encoding"].lower() != b"chunked"):
        return "the only supported Transfer-Encoding is chunked, in version 1.1 of HTTP"
    return None if b"#" not in target else "a path must not contain a #"


class NotAllowed(PlugbayError):
    """The address, the token or the host names cannot be used."""


class HttpServer:
    """Listens for clients. The constructor checks all settings before anything starts."""

    def __init__(
        self,
        address: str,
        token: str | None = None,
        hosts: Sequence[str] = (),
        origins: Sequence[str] = (),
        *,
        say: Callable[[str], object] = lambda text: None,
    ) -> None:
        """`say` receives the URL, and the token if it was generated: the only place where it is shown."""
        self._host, self._port = _parse_address(address)
        is_loopback = _is_loopback(self._host)
        if not is_loopback and not hosts:
            why = f"{self._host} is open to other machines; give the host name that they use with --allow-host"
            raise NotAllowed(why)
        if token is not None and (len(token) < MIN_TOKEN_LENGTH or not token.isascii() or not token.isprintable()):
            raise NotAllowed(f"a token needs at least {MIN_TOKEN_LENGTH} printable ASCII characters")
        self._generated = token is None
        self.token = token or secrets.token_urlsafe(TOKEN_BYTES)
        names = {name.lower() for name in hosts} | (LOOPBACK if is_loopback else set())
        self._guard = Guard(self.token, frozenset(names), frozenset(origins))
        self._say = say

    async def serve(self, server: McpServer) -> None:
        """Serve until cancelled."""
        listening = self._listen()
        app = McpApp(server, self._guard)
        http = _Server(
            uvicorn.Config(
                serve_at(PATH, app),
                http=BoundedHttp,
                lifespan="off",
                access_log=False,
                log_config=None,
                server_header=False,
                timeout_graceful_shutdown=STOP_SECONDS,
                ws="none",
            )
        )
        self._announce(listening)
        running = asyncio.ensure_future(http.serve(sockets=[listening]))
        try:
            await asyncio.shield(running)
        finally:
            app.close()
            http.should_exit = True
            await asyncio.wait({running})
            listening.close()

    def _listen(self) -> socket.socket:
        family = socket.AF_INET6 if ":" in self._host else socket.AF_INET
        try:
            listening = socket.create_server((self._host, self._port), family=family, backlog=128)
        except OSError as error:
            raise NotAllowed(f"{self._host}:{self._port} cannot be used for listening: {error.strerror}") from None
        # Accepted connections inherit this. asyncio does not set it for them, and Nagle's algorithm delays a response
        # in two parts by 40 ms.
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return listening

    def _announce(self, listening: socket.socket) -> None:
        host = f"[{self._host}]" if ":" in self._host else self._host
        self._say(f"listening at http://{host}:{listening.getsockname()[1]}{PATH}")
        if self._generated:
            self._say(f"token    {self.token}")


class _Server(uvicorn.Server):
    """Leaves signals to the owner of the process."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def serve_at(path: str, app: Any) -> Any:
    """Serve the application at one path, and 404 elsewhere."""

    async def routed(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"].rstrip("/") == path:
            await app(scope, receive, send)
        elif scope["type"] == "http":
            await refuse(send, Refusal(404, f"there is nothing here; MCP is at {path}"))

    return routed


def _parse_address(text: str) -> tuple[str, int]:
    host, colon, port = text.rpartition(":")
    if not colon or not (port.isascii() and port.isdigit()) or int(port) > 65_535:
        raise NotAllowed(f"{text!r} is not a HOST:PORT, like 127.0.0.1:8765")
    return host.strip("[]") or "127.0.0.1", int(port)


def _is_loopback(host: str) -> bool:
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
