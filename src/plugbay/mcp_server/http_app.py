"""`ResponseStream`: the way back of one HTTP request: a single answer, or a stream of events that ends with it.

Owns which of the two it is: an answer that is all there is to say goes as JSON; as soon as something is said before it,
or it takes long, a stream is opened. Refuses to know the protocol beyond what is an answer and what is not.

Clients over HTTP: sessions of the handshake era, and single requests of the modern one.

Owns which of a client's connections a message goes out on, how long somebody who says nothing is remembered, and how
many there are at most. Refuses to know headers and statuses.

`McpApp`: a bridge as an ASGI application: MCP's streamable HTTP, in both of its eras, at one address.

Owns the way of a request: who asks, what is asked, which session it belongs to, what becomes of it when the client
leaves. Whoever mounts it chooses the address. Refuses to know what is behind the protocol.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping, MutableMapping
from typing import Any, NamedTuple

import msgspec

from plugbay.contracts.mcp import errors
from plugbay.contracts.mcp.messages import CALL_TOOL, INITIALIZE, MAX_LINE, as_object
from plugbay.mcp_server import http_checks
from plugbay.mcp_server.connection import ANSWER_SECONDS
from plugbay.mcp_server.http_checks import Guard, Refused
from plugbay.mcp_server.server import McpServer
from plugbay.wire.fast_json import MsgspecCodec
from plugbay.wire.json_gate import Malformed

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

STREAM_AFTER = 5.0
"""Seconds without an answer after which a stream is opened: proxies close what says nothing, after some thirty."""

KEEP_ALIVE = 15.0
"""Seconds of silence on a stream, after which it carries a comment."""

MAX_UNREAD = 8 << 20
"""Bytes that wait for a client to read; past this it is told only what it must know."""

MAX_WAITING = 256
"""Messages that wait for a client which has no stream open for them; here and past those bytes the oldest give way."""

_STREAM_HEADERS = (
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-cache, no-transform"),
    (b"x-accel-buffering", b"no"),
)


class _Error(msgspec.Struct):
    code: int = 0


class _Head(msgspec.Struct):
    """As much of a message as says what it is."""

    method: str | msgspec.UnsetType = msgspec.UNSET
    error: _Error | msgspec.UnsetType | None = msgspec.UNSET


_head = msgspec.json.Decoder(_Head).decode


def frames(data: bytes) -> list[bytes]:
    """The messages in what a machine writes, one a line."""
    return data.split(b"\n")[:-1]


def is_answer(frame: bytes) -> bool:
    """Whether a message answers a request, as opposed to a request or a notification of ours."""
    return _head(frame).method is msgspec.UNSET


def error_code(frame: bytes) -> int | None:
    """The code of an answer that is an error."""
    error = _head(frame).error
    return error.code if isinstance(error, _Error) else None


class ResponseStream:
    """One request of a client, and what goes back."""

    def __init__(self, expected: int, statuses: Mapping[int, int] | None = None, *, lossy: bool = False) -> None:
        """`expected`: answers after which it is over, 0 for a stream that somebody else ends. `statuses`: by error.

        A stream that is `lossy` carries what may get lost: the oldest gives way when nobody reads.
        """
        self._left = expected
        self._endless = expected == 0
        self._statuses = statuses or {}
        self._lossy = lossy
        self._queue: deque[bytes] = deque()
        self._changed = asyncio.Event()
        self._bytes = 0
        self.over = False
        """Nothing more will be said."""
        self.gone = False
        """The client has left before the end."""

    @property
    def has_room(self) -> bool:
        return self._bytes <= MAX_UNREAD and not self.gone

    def push(self, frame: bytes) -> None:
        """One message for the client."""
        if self.over or self.gone:
            return
        while self._lossy and (len(self._queue) >= MAX_WAITING or self._bytes > MAX_UNREAD):
            self._taken()
        self._queue.append(frame)
        self._bytes += len(frame)
        if not self._endless and is_answer(frame):
            self._answered()
        self._changed.set()

    def drop(self) -> None:
        """One of the answers will not come: its request was called off."""
        self._answered()
        self._changed.set()

    def _answered(self) -> None:
        self._left -= 1
        self.over = self._left <= 0

    def end(self) -> None:
        """Nothing more will be said; what is there still goes."""
        self.over = True
        self._changed.set()

    def continued(self) -> ResponseStream:
        """The same for another connection: what nobody has read yet is on it."""
        after = ResponseStream(0, lossy=self._lossy)
        after._queue, after._bytes = self._queue, self._bytes
        return after

    def left(self) -> None:
        """The client has closed its end."""
        self.gone = True
        self._changed.set()

    # Writing.

    async def respond(self, send: Send, headers: Iterable[tuple[str, str]] = ()) -> None:
        """Write everything, until it is over or the client has left."""
        await self._wait(STREAM_AFTER)
        if self.gone:
            return
        if self.over and len(self._queue) == 1 and not self._endless:
            frame = self._taken()
            status = self._statuses.get(error_code(frame) or 0, 200)
            await _respond(send, status, frame, (*headers, ("content-type", "application/json")))
        elif self.over and not self._queue:
            await _respond(send, 202, b"", headers)
        else:
            await self._stream(send, headers)

    async def stream(self, send: Send) -> None:
        """The same, where it is a stream in any case."""
        await self._stream(send, ())

    async def _stream(self, send: Send, headers: Iterable[tuple[str, str]]) -> None:
        written = [(name.encode(), value.encode()) for name, value in headers]
        await send({"type": "http.response.start", "status": 200, "headers": [*written, *_STREAM_HEADERS]})
        while not self.gone:
            while self._queue and not self.gone:
                await _chunk(send, b"event: message\ndata: %b\n\n" % self._taken())
            if self.over and not self._queue:
                break
            if not await self._wait(KEEP_ALIVE):
                await _chunk(send, b":\n\n")
        if not self.gone:
            await send({"type": "http.response.body", "body": b"", "more_body": False})

    def _taken(self) -> bytes:
        frame = self._queue.popleft()
        self._bytes -= len(frame)
        return frame

    async def _wait(self, seconds: float) -> bool:
        """Until there is something to do; False when that takes too long."""
        if self._queue or self.over or self.gone:
            return True
        self._changed.clear()
        try:
            async with asyncio.timeout(seconds):
                await self._changed.wait()
        except TimeoutError:
            return False
        return True


async def _chunk(send: Send, data: bytes) -> None:
    await send({"type": "http.response.body", "body": data, "more_body": True})


async def _respond(send: Send, status: int, body: bytes, headers: Iterable[tuple[str, str]] = ()) -> None:
    written = [(name.encode(), value.encode("latin-1", "replace")) for name, value in headers]
    length = (b"content-length", str(len(body)).encode())
    await send({"type": "http.response.start", "status": status, "headers": [*written, length]})
    await send({"type": "http.response.body", "body": body, "more_body": False})


async def refuse(send: Send, refused: Refused, id: Any = None) -> None:
    """Answer with an error of the protocol, and the status that goes with it."""
    error = {"code": refused.code, "message": refused.message}
    if refused.data is not None:
        error["data"] = refused.data
    body = msgspec.json.encode({"jsonrpc": "2.0", "id": id if isinstance(id, int | str) else None, "error": error})
    await _respond(send, refused.status, body, (*refused.headers, ("content-type", "application/json")))


async def accept(send: Send, status: int = 202) -> None:
    """Answer that there is nothing to answer."""
    await _respond(send, status, b"")


MAX_SESSIONS = 128
"""Sessions at a time; the one that was idle for longest gives way to a new one."""

IDLE_SECONDS = 1800.0
"""After which a session that nobody uses is over; its client is told so with its next request, and begins anew."""

MAX_PARKED = 64
"""Requests of the modern era that wait for their clients to come back with answers; the oldest gives way."""

ID_BYTES = 32
"""Random bytes of a session's id, which is as good as a password."""


class Session:
    """One client of the handshake era."""

    def __init__(self, bridge: McpServer, now: float) -> None:
        self.id = secrets.token_urlsafe(ID_BYTES)
        self.used = now
        self.mail = ResponseStream(0, lossy=True)
        """What belongs to no request of the client's: it is read by whoever opens a stream for it."""
        self.is_read = False
        """Whether somebody has that stream open."""
        self.open = 0
        """Requests that are being answered."""
        self._bridge = bridge
        self.conversation = bridge.converse(self)

    @property
    def is_idle(self) -> bool:
        return not self.open and not self.is_read

    def close(self) -> None:
        self._bridge.leave(self.conversation)
        self.conversation.close()
        self.mail.end()

    def read_again(self) -> ResponseStream:
        """A fresh stream for what belongs to no request; what waits already is on it."""
        self.mail = self.mail.continued()
        return self.mail

    # The conversation's transport.

    def has_room(self, origin: Any) -> bool:
        return not isinstance(origin, ResponseStream) or origin.has_room

    def send(self, data: bytes, origin: Any) -> None:
        """What is about a request goes back with it; if its client has left, only what is no answer is kept."""
        direct = origin if isinstance(origin, ResponseStream) and not (origin.over or origin.gone) else None
        for frame in frames(data):
            if direct is not None:
                direct.push(frame)
            elif not is_answer(frame):
                self.mail.push(frame)

    def unanswered(self, origin: Any) -> None:
        if isinstance(origin, ResponseStream):
            origin.drop()


class Solo:
    """One request of the modern era, with those that bring the answers it asked for."""

    def __init__(self, bridge: McpServer, exchange: ResponseStream) -> None:
        self.exchange = exchange
        self.state: str | None = None
        """What the client has to bring to go on, after it was asked something."""
        self.parked_at = 0.0
        self._bridge = bridge
        self.conversation = bridge.converse(self)

    def close(self) -> None:
        self._bridge.leave(self.conversation)
        self.conversation.close()
        self.exchange.end()

    # The conversation's transport.

    def has_room(self, origin: Any) -> bool:
        return self.exchange.has_room

    def send(self, data: bytes, origin: Any) -> None:
        for frame in frames(data):
            self.state = _state(frame) if is_answer(frame) else self.state
            self.exchange.push(frame)

    def unanswered(self, origin: Any) -> None:
        self.exchange.drop()


class _Asking(msgspec.Struct):
    resultType: str = ""  # noqa: N815  # as it stands on the wire
    requestState: str | None = None  # noqa: N815


class _Answer(msgspec.Struct):
    result: _Asking | None = None


_read_state = msgspec.json.Decoder(_Answer).decode


def _state(frame: bytes) -> str | None:
    """What has to come back with the answers, where an answer is a question."""
    if frame.find(b'"input_required"') < 0:
        return None
    result = _read_state(frame).result
    return result.requestState if result is not None and result.resultType == "input_required" else None


class Clients:
    """Everybody who is connected."""

    def __init__(self, bridge: McpServer, clock: Callable[[], float] = time.monotonic) -> None:
        self._bridge = bridge
        self._clock = clock
        self._sessions: dict[str, Session] = {}
        self._solos: set[Solo] = set()
        """Requests that are being answered."""
        self._parked: dict[str, Solo] = {}

    def close(self) -> None:
        """Let everybody go."""
        everybody: list[Session | Solo] = [*self._sessions.values(), *self._solos, *self._parked.values()]
        self._sessions.clear()
        self._parked.clear()
        for client in everybody:
            client.close()

    # Sessions.

    def new_session(self) -> Session | None:
        """A session for a client that introduces itself; None when there are too many that are not idle."""
        self._sweep()
        if len(self._sessions) >= MAX_SESSIONS:
            idle = [session for session in self._sessions.values() if session.is_idle]
            if not idle:
                return None
            self.end_session(min(idle, key=lambda session: session.used))
        session = Session(self._bridge, self._clock())
        self._sessions[session.id] = session
        return session

    def session(self, id: str) -> Session | None:
        """The session of this id, which is being used; None when it is over or never was."""
        self._sweep()
        session = self._sessions.get(id)
        if session is not None:
            session.used = self._clock()
        return session

    def end_session(self, session: Session) -> None:
        """The client, or its time, is over."""
        self._sessions.pop(session.id, None)
        session.close()

    def _sweep(self) -> None:
        now = self._clock()
        for session in list(self._sessions.values()):
            if session.is_idle and now - session.used > IDLE_SECONDS:
                self.end_session(session)

    # Requests that go on later.

    def solo(self, state: Any, exchange: ResponseStream) -> Solo:
        """The request that goes on with this state, or a new one."""
        solo = self._parked.pop(state, None) if isinstance(state, str) else None
        if solo is None:
            solo = Solo(self._bridge, exchange)
        solo.exchange, solo.state = exchange, None
        self._solos.add(solo)
        return solo

    def finished(self, solo: Solo) -> None:
        """The exchange is over; where the client was asked something, the request waits for it to come back."""
        self._solos.discard(solo)
        now = self._clock()
        for state in [state for state, other in self._parked.items() if now - other.parked_at > ANSWER_SECONDS]:
            self._parked.pop(state).close()
        if solo.state is None or solo.exchange.gone:
            solo.close()
            return
        solo.parked_at = now
        self._parked[solo.state] = solo
        while len(self._parked) > MAX_PARKED:
            self._parked.pop(next(iter(self._parked))).close()


BODY_SECONDS = 60.0
"""For a body to arrive; whoever sends slower holds a place that others need."""

MAX_REQUESTS = 1024
"""Requests at a time, streams included, over all clients."""

NO_SESSION = "the session is over or never was; begin again with initialize"
SESSION_GONE = -32001
"""The error for it; the status says the same."""

Scope = MutableMapping[str, Any]


class Posted(NamedTuple):
    """What a client has posted."""

    message: Any
    line: bytes
    """The message for a machine, as it was understood here: nobody means two things with one body."""
    requests: int
    """How many answers it waits for."""


class McpApp:
    """The application. `close` lets every client go."""

    def __init__(self, bridge: McpServer, guard: Guard) -> None:
        self._bridge = bridge
        self._guard = guard
        self._clients = Clients(bridge)
        self._codec = MsgspecCodec()
        self._requests = 0
        self._methods: dict[str, Callable[[dict[str, str], Receive, Send], Awaitable[None]]] = {
            "POST": self._post,
            "GET": self._get,
            "DELETE": self._delete,
        }

    def close(self) -> None:
        self._clients.close()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            raise ValueError(f"this application speaks HTTP, not {scope['type']}")
        headers = http_checks.by_name(scope["headers"])
        answer = self._methods.get(scope["method"])
        refused = self._guard.refusal(headers)
        if refused is None and answer is None:
            refused = Refused(405, "POST, GET and DELETE are what there is", headers=(("allow", "POST, GET, DELETE"),))
        elif refused is None and self._requests >= MAX_REQUESTS:
            refused = Refused(503, f"{MAX_REQUESTS} requests are being answered already", errors.INTERNAL_ERROR)
        if refused is not None or answer is None:
            assert refused is not None
            await refuse(send, refused)
            return
        self._requests += 1
        try:
            await answer(headers, receive, send)
        finally:
            self._requests -= 1

    # A message of the client's.

    async def _post(self, headers: dict[str, str], receive: Receive, send: Send) -> None:
        refused = http_checks.posted(headers)
        body = refused or await _body(receive)
        if body is None:
            return
        posted = body if isinstance(body, Refused) else self._read(body)
        if isinstance(posted, Refused):
            await refuse(send, posted)
        elif http_checks.is_modern(headers, posted.message):
            await self._modern(headers, posted, receive, send)
        else:
            await self._handshake(headers, posted, receive, send)

    def _read(self, body: bytes) -> Posted | Refused:
        try:
            message = self._codec.decode(body)
        except Malformed as error:
            return Refused(400, f"the body cannot be read: {error}", errors.PARSE_ERROR)
        requests, line = http_checks.requests_in(message), self._codec.encode(message)
        if isinstance(requests, Refused):
            return requests
        if len(line) > MAX_LINE:
            return Refused(413, f"the message has more than {MAX_LINE:,} bytes")
        return Posted(message, line + b"\n", requests)

    async def _modern(self, headers: dict[str, str], posted: Posted, receive: Receive, send: Send) -> None:
        """Each request by itself; whoever leaves before its answer has called it off."""
        said = as_object(posted.message)
        refused = http_checks.modern(headers, posted.message, self._schema_of(said))
        if refused is not None:
            await refuse(send, refused, said.get("id"))
            return
        if not posted.requests:
            await accept(send)
            return
        exchange = ResponseStream(1, http_checks.STATUSES)
        solo = self._clients.solo(as_object(said.get("params")).get("requestState"), exchange)
        solo.conversation.receive(posted.line)
        try:
            await _until_left(exchange, receive, exchange.respond(send))
        finally:
            self._clients.finished(solo)

    def _schema_of(self, message: dict[str, Any]) -> Any:
        """The schema of the tool that is called; None when none is."""
        name = as_object(message.get("params")).get("name") if message.get("method") == CALL_TOOL else None
        entry = self._bridge.listing.tools.get(name) if isinstance(name, str) else None
        return None if entry is None else entry.export.input_schema

    async def _handshake(self, headers: dict[str, str], posted: Posted, receive: Receive, send: Send) -> None:
        """Within a session, which begins with `initialize`."""
        said = as_object(posted.message)
        begins = said.get("method") == INITIALIZE and posted.requests
        session = self._clients.new_session() if begins else self._session(headers)
        if session is None:
            session = Refused(503, "there are too many sessions", errors.INTERNAL_ERROR)
        if isinstance(session, Refused):
            await refuse(send, session, said.get("id"))
            return
        exchange = ResponseStream(posted.requests)
        session.conversation.receive(posted.line, exchange)
        if not posted.requests:
            await accept(send)
            return
        session.open += 1
        try:
            about = [("mcp-session-id", session.id)]
            await _until_left(exchange, receive, exchange.respond(send, about))
        finally:
            session.open -= 1
            exchange.left()

    def _session(self, headers: dict[str, str]) -> Session | Refused:
        id = headers.get("mcp-session-id")
        if id is None:
            return Refused(400, "Mcp-Session-Id is missing; a session begins with initialize")
        return self._clients.session(id) or Refused(404, NO_SESSION, SESSION_GONE)

    # The rest of a session.

    async def _get(self, headers: dict[str, str], receive: Receive, send: Send) -> None:
        """A stream for what belongs to no request; a session has one at a time."""
        if "mcp-session-id" not in headers:
            await refuse(send, Refused(405, "there is a stream only within a session", headers=(("allow", "POST"),)))
            return
        session = self._session(headers)
        if isinstance(session, Session) and not http_checks.accepts(headers.get("accept", ""), "text/event-stream"):
            session = Refused(406, "the answer is a text/event-stream; Accept must name it")
        if isinstance(session, Session) and session.is_read:
            session = Refused(409, "this session has a stream open already")
        if isinstance(session, Refused):
            await refuse(send, session)
            return
        mail = session.read_again()
        session.is_read = True
        try:
            await _until_left(mail, receive, mail.stream(send))
        finally:
            session.is_read = False
            session.read_again()

    async def _delete(self, headers: dict[str, str], receive: Receive, send: Send) -> None:
        session = self._session(headers)
        if isinstance(session, Refused):
            await refuse(send, session)
            return
        self._clients.end_session(session)
        await accept(send, 204)


async def _body(receive: Receive) -> bytes | Refused | None:
    """The whole body; None when the client has left."""
    try:
        async with asyncio.timeout(BODY_SECONDS):
            return await _read_all(receive)
    except TimeoutError:
        return Refused(408, f"the body did not arrive within {BODY_SECONDS:g} s")


async def _read_all(receive: Receive) -> bytes | Refused | None:
    body = bytearray()
    while (event := await receive())["type"] != "http.disconnect":
        body += event.get("body", b"")
        if len(body) > MAX_LINE:
            return Refused(413, f"the body has more than {MAX_LINE:,} bytes")
        if not event.get("more_body"):
            return bytes(body)
    return None


async def _until_left(exchange: ResponseStream, receive: Receive, writing: Awaitable[None]) -> None:
    """Write, and stop when the client closes its end."""
    watch = asyncio.ensure_future(_watch(exchange, receive))
    try:
        await writing
    finally:
        watch.cancel()


async def _watch(exchange: ResponseStream, receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    exchange.left()
