"""`HttpServer`: the MCP application on a port, with a bearer token; and `BoundedHttp`, uvicorn's HTTP/1.1 with limits.

`BoundedHttp` limits connections, the size of heads, and the time for heads and bodies. It refuses ambiguous framing. A
refused request always closes its connection, so bytes after a request of unclear length are never read as another
request. It does not limit the time for an answer; the pause between two requests is uvicorn's (5 s).

The server listens on loopback only, unless the operator names the hosts it is reached by. Needs the extra `serve`.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import itertools
import re
import secrets
import socket
from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

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

TOO_LARGE = f"the head of the request has more than {MAX_HEAD:,} bytes; send fewer or shorter headers"

_SEQUENCE = itertools.count()
"""A counter instead of a clock: the event loop has one time for everything within a tick."""


_BARE_LF = re.compile(rb"(?<!\r)\n")
_FOLDED = re.compile(rb"\n[ \t]")
_LENGTHS = re.compile(rb"\n(?:content-length:([^\r\n]*)|transfer-encoding:)", re.IGNORECASE)

PATH = "/mcp"

TOKEN_BYTES = 32
"""Random bytes of a generated token."""

MIN_TOKEN_LENGTH = 16
"""Minimum length of a chosen token."""

STOP_SECONDS = 3
"""Grace for open connections at shutdown."""


def find_ambiguity(head: bytes) -> str | None:
    """Why a proxy may disagree with h11 about the end of a request; None when it cannot. h11 accepts all of these."""
    if _BARE_LF.search(head):
        return "a line of the head ends with LF alone; lines end with CR LF"
    if _FOLDED.search(head):
        return "a header goes on in the next line; write it in one"
    lengths = _LENGTHS.findall(head)
    if len(lengths) > 1 or any(b"," in length for length in lengths):
        return "the length of the body is given twice; send one Content-Length, or Transfer-Encoding: chunked"
    return None


class _StrictConnection(h11.Connection):
    """h11 that refuses large heads and ambiguous framing."""

    refusal = ""
    """Why we refused the last request; empty if h11 did."""

    def next_event(self) -> Any:
        before = self.trailing_data[0]
        try:
            event = super().next_event()
        except h11.RemoteProtocolError as error:
            if error.error_status_hint == 431:  # incomplete, and already too long
                self.refusal = TOO_LARGE
            raise
        if type(event) in (h11.Request, h11.EndOfMessage):  # the head or trailers that h11 has just parsed
            head = before[: len(before) - len(self.trailing_data[0])]
            problem = TOO_LARGE if len(head) > MAX_HEAD else find_ambiguity(head)
            if problem is not None:
                self.refusal = problem
                raise h11.RemoteProtocolError(problem)
        return event


class BoundedHttp(H11Protocol):
    """One connection. Above the limit, the connection that was unused longest is closed."""

    head_seconds: ClassVar[float] = HEAD_SECONDS
    body_seconds: ClassVar[float] = BODY_SECONDS
    max_connections: ClassVar[int] = MAX_CONNECTIONS

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.conn: _StrictConnection = _StrictConnection(h11.SERVER, MAX_HEAD)
        self._timer: asyncio.TimerHandle | None = None
        """Closes the connection when the expected part of a request is late."""
        self._expects: Any = None
        """The h11 state that the timer belongs to."""
        self._sequence = next(_SEQUENCE)
        """Sequence number of the last completed request: the lowest was unused longest."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > self.max_connections and not self._evict_other():
            self._end(b"503 Service Unavailable")
            return
        self._expect(h11.IDLE, self.head_seconds)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.transport.is_closing():
            return
        state = self.conn.their_state
        if state is h11.IDLE:
            self._expect(state, self.head_seconds)
        elif state is h11.SEND_BODY:
            if not self.cycle.response_complete:  # a client that has its answer gains no time by sending more
                self._expect_nothing()
            self._expect(state, self.body_seconds)
        else:
            self._expect_nothing()

    def send_400_response(self, msg: str) -> None:
        """Called by uvicorn when h11 refuses a request."""
        status = b"431 Request Header Fields Too Large" if self.conn.refusal == TOO_LARGE else b"400 Bad Request"
        self._end(status, self.conn.refusal or msg)

    def on_response_complete(self) -> None:
        self._sequence = next(_SEQUENCE)
        super().on_response_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        self._expect_nothing()
        super().connection_lost(exc)

    def _expect(self, part: Any, seconds: float) -> None:
        """Start the timer for a part of the request; further bytes of the same part do not extend it."""
        if self._expects is not part:
            self._expect_nothing()
            self._expects = part
            self._timer = self.loop.call_later(seconds, self._timed_out, part, seconds)

    def _timed_out(self, part: Any, seconds: float) -> None:
        self._expect_nothing()
        if part is h11.SEND_BODY and self.flow.read_paused:  # our side is slow: the application does not read
            self._expect(part, seconds)
        else:
            self._end(b"408 Request Timeout")

    def _expect_nothing(self) -> None:
        self._expects = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _evict_other(self) -> bool:
        """Close one other connection: an idle one, else one whose body is still arriving. False when there is none."""
        others = [other for other in self.connections if other is not self and isinstance(other, BoundedHttp)]
        for state in (h11.IDLE, h11.SEND_BODY):
            found = [other for other in others if other.conn.their_state is state and not other.transport.is_closing()]
            if found:
                min(found, key=lambda other: other._sequence)._end(b"503 Service Unavailable")
                return True
        return False

    def _end(self, status: bytes, why: str = "") -> None:
        """Close the connection, with an error response if none was started."""
        self._expect_nothing()
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            body = why.encode("ascii")
            head = b"connection: close\r\ncontent-type: text/plain\r\ncontent-length: %d" % len(body)
            self.transport.write(b"HTTP/1.1 %b\r\n%b\r\n\r\n%b" % (status, head, body))
        self.connections.discard(self)
        self.transport.close()


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
            why = f"{self._host} is reached from other machines; name what they call this one with --allow-host"
            raise NotAllowed(why)
        if token is not None and (len(token) < MIN_TOKEN_LENGTH or not token.isascii() or not token.isprintable()):
            raise NotAllowed(f"a token needs {MIN_TOKEN_LENGTH} printable ASCII characters at least")
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
            raise NotAllowed(f"{self._host}:{self._port} cannot be listened at: {error.strerror}") from None
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
        raise NotAllowed(f"{text!r} is no HOST:PORT, like 127.0.0.1:8765")
    return host.strip("[]") or "127.0.0.1", int(port)


def _is_loopback(host: str) -> bool:
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
