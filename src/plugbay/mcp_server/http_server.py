"""`BoundedHttp`: uvicorn's HTTP/1.1 for clients that take their time, bring too many connections, or smuggle requests.

Owns how long a request may be on its way, how many connections there are, and which framing is refused. Without it a
few hundred sockets that send nothing, or a byte now and then, hold a server for as long as they like. Whatever is
refused here ends its connection: bytes that follow a request of unclear length are never read as another request.
Refuses to know what is asked, and leaves alone who waits for an answer, and the rest between two requests, which is
uvicorn's (5 s).

`HttpServer`: the application behind a port of this machine, with a token that nobody has unless they are told.

Owns the address, the token and the server's life. Only loopback, unless the operator says by which names others know
us. Needs the extra `serve`.
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
from plugbay.mcp_server.http_checks import LOOPBACK, Guard, Refused
from plugbay.mcp_server.server import McpServer
from plugbay.model.errors import PlugbayError

HEAD_SECONDS = 10.0
"""From a connection, or the first byte of a further request, to the end of the head: seconds even on a bad line."""

BODY_SECONDS = 90.0
"""Without a byte of the body. More than any application here waits, so that its own word comes first."""

MAX_CONNECTIONS = 512
"""Half of the 1,024 files that a process usually may have open: plugins and the database need theirs."""

_TURNS = itertools.count()
"""No clock: a loop tells all connections of one moment the same time."""


_BARE_LF = re.compile(rb"(?<!\r)\n")
_FOLDED = re.compile(rb"\n[ \t]")
_LENGTHS = re.compile(rb"\n(?:content-length:([^\r\n]*)|transfer-encoding:)", re.IGNORECASE)


def ambiguity(head: bytes) -> str | None:
    """Why a proxy may see another end of the request than h11 does, which accepts all of these; None: it may not."""
    if _BARE_LF.search(head):
        return "a line of the head ends with LF alone; lines end with CR LF"
    if _FOLDED.search(head):
        return "a header goes on in the next line; write it in one"
    lengths = _LENGTHS.findall(head)
    if len(lengths) > 1 or any(b"," in length for length in lengths):
        return "the length of the body is given twice; send one Content-Length, or Transfer-Encoding: chunked"
    return None


class _StrictConnection(h11.Connection):
    """h11 without its leniency about where a request ends."""

    refusal = ""
    """Why the last request was refused, where that was our decision."""

    def next_event(self) -> Any:
        before = self.trailing_data[0]
        event = super().next_event()
        if type(event) in (h11.Request, h11.EndOfMessage):  # the head, or the trailers, as h11 has just read them
            problem = ambiguity(before[: len(before) - len(self.trailing_data[0])])
            if problem is not None:
                self.refusal = problem
                raise h11.RemoteProtocolError(problem)
        return event


class BoundedHttp(H11Protocol):
    """One connection. Where there are too many, one makes room that is not served, the one for longest so."""

    head_seconds: ClassVar[float] = HEAD_SECONDS
    body_seconds: ClassVar[float] = BODY_SECONDS
    max_connections: ClassVar[int] = MAX_CONNECTIONS

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.conn: _StrictConnection = _StrictConnection(h11.SERVER)
        self._late: asyncio.TimerHandle | None = None
        """Ends the connection when the part of a request that is on its way has not come by then."""
        self._expects: Any = None
        """The state of h11 in which it was set: which part that is."""
        self._turn = next(_TURNS)
        """Grows with every request that comes to its end: who has the lowest has been without one for longest."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > self.max_connections and not self._make_room():
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
            if not self.cycle.response_complete:  # who has an answer already gains no time with what nobody reads
                self._expect_nothing()
            self._expect(state, self.body_seconds)
        else:
            self._expect_nothing()

    def send_400_response(self, msg: str) -> None:
        """What uvicorn calls for whatever h11 refuses."""
        self._end(b"400 Bad Request", self.conn.refusal or msg)

    def on_response_complete(self) -> None:
        self._turn = next(_TURNS)
        super().on_response_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        self._expect_nothing()
        super().connection_lost(exc)

    def _expect(self, part: Any, seconds: float) -> None:
        """Begin to wait for a part; bytes of it that come meanwhile buy it no time."""
        if self._expects is not part:
            self._expect_nothing()
            self._expects = part
            self._late = self.loop.call_later(seconds, self._waited, part, seconds)

    def _waited(self, part: Any, seconds: float) -> None:
        self._expect_nothing()
        if part is h11.SEND_BODY and self.flow.read_paused:  # it is us: the application does not read it
            self._expect(part, seconds)
        else:
            self._end(b"408 Request Timeout")

    def _expect_nothing(self) -> None:
        self._expects = None
        if self._late is not None:
            self._late.cancel()
            self._late = None

    def _make_room(self) -> bool:
        """Whether somebody had to go: of those without a request, else of those whose body is still on its way."""
        others = [other for other in self.connections if other is not self and isinstance(other, BoundedHttp)]
        for state in (h11.IDLE, h11.SEND_BODY):
            found = [other for other in others if other.conn.their_state is state and not other.transport.is_closing()]
            if found:
                min(found, key=lambda other: other._turn)._end(b"503 Service Unavailable")
                return True
        return False

    def _end(self, status: bytes, why: str = "") -> None:
        """Say why, unless the request has an answer, or the beginning of one, and hang up."""
        self._expect_nothing()
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            body = why.encode("ascii")
            head = b"connection: close\r\ncontent-type: text/plain\r\ncontent-length: %d" % len(body)
            self.transport.write(b"HTTP/1.1 %b\r\n%b\r\n\r\n%b" % (status, head, body))
        self.connections.discard(self)
        self.transport.close()


PATH = "/mcp"

TOKEN_BYTES = 32
"""Random bytes of a token that is made up."""

FEWEST_CHARACTERS = 16
"""Of a token that somebody chose; shorter ones are guessed."""

STOP_SECONDS = 3
"""For connections to be closed when we stop."""


class NotAllowed(PlugbayError):
    """The address, the token or the names cannot be used."""


class HttpServer:
    """Where clients come in. Made before anything is started, so that mistakes cost nothing."""

    def __init__(
        self,
        address: str,
        token: str | None = None,
        hosts: Sequence[str] = (),
        origins: Sequence[str] = (),
        *,
        say: Callable[[str], object] = lambda text: None,
    ) -> None:
        """`say` is told where clients find us, and the token if it was made up: once, and nowhere else."""
        self._host, self._port = _address(address)
        is_loopback = _is_loopback(self._host)
        if not is_loopback and not hosts:
            why = f"{self._host} is reached from other machines; name what they call this one with --allow-host"
            raise NotAllowed(why)
        if token is not None and (len(token) < FEWEST_CHARACTERS or not token.isascii() or not token.isprintable()):
            raise NotAllowed(f"a token needs {FEWEST_CHARACTERS} printable ASCII characters at least")
        self._made_up = token is None
        self.token = token or secrets.token_urlsafe(TOKEN_BYTES)
        names = {name.lower() for name in hosts} | (LOOPBACK if is_loopback else set())
        self._guard = Guard(self.token, frozenset(names), frozenset(origins))
        self._say = say

    async def serve(self, bridge: McpServer) -> None:
        """Answer until this is cancelled."""
        listening = self._listen()
        app = McpApp(bridge, self._guard)
        server = _Server(
            uvicorn.Config(
                only_at(PATH, app),
                http=BoundedHttp,
                lifespan="off",
                access_log=False,
                log_config=None,
                server_header=False,
                timeout_graceful_shutdown=STOP_SECONDS,
                ws="none",
            )
        )
        self._tell(listening)
        running = asyncio.ensure_future(server.serve(sockets=[listening]))
        try:
            await asyncio.shield(running)
        finally:
            app.close()
            server.should_exit = True
            await asyncio.wait({running})
            listening.close()

    def _listen(self) -> socket.socket:
        family = socket.AF_INET6 if ":" in self._host else socket.AF_INET
        try:
            listening = socket.create_server((self._host, self._port), family=family, backlog=128)
        except OSError as error:
            raise NotAllowed(f"{self._host}:{self._port} cannot be listened at: {error.strerror}") from None
        # Its connections inherit it. asyncio does not set it for them, and an answer in two pieces waits 40 ms.
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return listening

    def _tell(self, listening: socket.socket) -> None:
        host = f"[{self._host}]" if ":" in self._host else self._host
        self._say(f"listening at http://{host}:{listening.getsockname()[1]}{PATH}")
        if self._made_up:
            self._say(f"token    {self.token}")


class _Server(uvicorn.Server):
    """Signals are its owner's business."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def only_at(path: str, app: Any) -> Any:
    """The application at this address, and nothing anywhere else."""

    async def routed(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"].rstrip("/") == path:
            await app(scope, receive, send)
        elif scope["type"] == "http":
            await refuse(send, Refused(404, f"there is nothing here; MCP is at {path}"))

    return routed


def _address(text: str) -> tuple[str, int]:
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
