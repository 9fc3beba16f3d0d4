"""`BoundedHttp`: uvicorn's HTTP/1.1 for clients that take their time, bring too many connections, or smuggle requests.

Owns how long a request may be on its way, how many connections there are, and which framing is refused. Without it a
few hundred sockets that send nothing, or a byte now and then, hold a server for as long as they like. Whatever is
refused here ends its connection: bytes that follow a request of unclear length are never read as another request.
Refuses to know what is asked, and leaves alone who waits for an answer, and the rest between two requests, which is
uvicorn's (5 s).
"""

from __future__ import annotations

import asyncio
import itertools
import re
from typing import Any, ClassVar

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

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
