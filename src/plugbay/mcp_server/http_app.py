"""`McpApp`: MCP's streamable HTTP as an ASGI application, for both eras of the protocol.

A request passes the guard, is read, and goes to its session (handshake era) or to a connection of its own (modern era).
Its `ResponseStream` answers with plain JSON if the answer is all there is, or with server-sent events. A client that
disconnects cancels a modern request; within a session, requests go on.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping, MutableMapping
from typing import Any, NamedTuple

import msgspec

from plugbay.contracts.mcp import errors, http_headers
from plugbay.contracts.mcp.messages import CALL_TOOL, INITIALIZE, MAX_LINE, as_object
from plugbay.mcp_server import http_checks
from plugbay.mcp_server.connection import ANSWER_SECONDS
from plugbay.mcp_server.http_checks import Guard, Refusal
from plugbay.mcp_server.server import McpServer
from plugbay.wire.fast_json import MsgspecCodec
from plugbay.wire.json_gate import Malformed

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

STREAM_AFTER = 5.0
"""Seconds without an answer after which a stream is opened: proxies close silent connections after about thirty."""

KEEP_ALIVE = 15.0
"""Seconds of silence on a stream before a keep-alive comment."""

MAX_UNREAD = 8 << 20
"""Unread bytes of one client; beyond this, optional messages are dropped."""

MAX_WAITING = 256
"""Messages kept for a session without an open stream; beyond this, or beyond `MAX_UNREAD`, the oldest are dropped."""

_STREAM_HEADERS = (
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-cache, no-transform"),
    (b"x-accel-buffering", b"no"),
)

MAX_SESSIONS = 128
"""Concurrent sessions; a new one replaces the session that was idle longest."""

IDLE_SECONDS = 1800.0
"""Idle time after which a session ends; the next request of its client gets 404, and the client initializes again."""

MAX_PARKED = 64
"""Modern requests that wait for input of their clients; the oldest is dropped."""

ID_BYTES = 32
"""Random bytes of a session id, which is as good as a password."""

BODY_SECONDS = 60.0
"""Time for a body to arrive; slow senders would hold a place."""

MAX_REQUESTS = 1024
"""Concurrent requests of all clients, streams included."""

NO_SESSION = "there is no such session; start a new one with initialize"
SESSION_GONE = -32001
"""JSON-RPC error code for status 404."""


class _Error(msgspec.Struct):
    code: int = 0


class _Head(msgspec.Struct):
    """The fields of a message that tell its kind."""

    method: str | msgspec.UnsetType = msgspec.UNSET
    error: _Error | msgspec.UnsetType | None = msgspec.UNSET


_head = msgspec.json.Decoder(_Head).decode


def frames(data: bytes) -> list[bytes]:
    """Split the output of a machine into messages, one per line."""
    return data.split(b"\n")[:-1]


def is_answer(frame: bytes) -> bool:
    """Whether a message is a response, not a request or a notification."""
    return _head(frame).method is msgspec.UNSET


def error_code(frame: bytes) -> int | None:
    """The code of an error response."""
    error = _head(frame).error
    return error.code if isinstance(error, _Error) else None


class ResponseStream:
    """The HTTP response to one request of a client."""

    def __init__(self, expected: int, statuses: Mapping[int, int] | None = None, *, lossy: bool = False) -> None:
        """`expected`: number of answers after which the stream ends; 0: until `end`. `statuses`: HTTP status by error
        code.

        A `lossy` stream drops its oldest messages if it is not read.
        """
        self._left = expected
        self._endless = expected == 0
        self._statuses = statuses or {}
        self._lossy = lossy
        self._queue: deque[bytes] = deque()
        self._changed = asyncio.Event()
        self._bytes = 0
        self.over = False
        """No more messages will follow."""
        self.disconnected = False
        """The client disconnected before the end."""

    @property
    def has_room(self) -> bool:
        return self._bytes <= MAX_UNREAD and not self.disconnected

    def push(self, frame: bytes) -> None:
        """Queue one message."""
        if self.over or self.disconnected:
            return
        while self._lossy and (len(self._queue) >= MAX_WAITING or self._bytes > MAX_UNREAD):
            self._pop()
        self._queue.append(frame)
        self._bytes += len(frame)
        if not self._endless and is_answer(frame):
            self._count_answer()
        self._changed.set()

    def drop_answer(self) -> None:
        """Expect one answer less: its request was cancelled."""
        self._count_answer()
        self._changed.set()

    def _count_answer(self) -> None:
        self._left -= 1
        self.over = self._left <= 0

    def end(self) -> None:
        """End the stream after the queued messages."""
        self.over = True
        self._changed.set()

    def reopen(self) -> ResponseStream:
        """A new stream with the unread messages of this one, for the next connection."""
        after = ResponseStream(0, lossy=self._lossy)
        after._queue, after._bytes = self._queue, self._bytes
        return after

    def disconnect(self) -> None:
        """The client disconnected."""
        self.disconnected = True
        self._changed.set()

    # Writing.

    async def respond(self, send: Send, headers: Iterable[tuple[str, str]] = ()) -> None:
        """Write the response until it ends or the client disconnects."""
        await self._wait(STREAM_AFTER)
        if self.disconnected:
            return
        if self.over and len(self._queue) == 1 and not self._endless:
            frame = self._pop()
            status = self._statuses.get(error_code(frame) or 0, 200)
            await _respond(send, status, frame, (*headers, ("content-type", "application/json")))
        elif self.over and not self._queue:
            await _respond(send, 202, b"", headers)
        else:
            await self._stream(send, headers)

    async def stream(self, send: Send) -> None:
        """Write the response as a stream in any case."""
        await self._stream(send, ())

    async def _stream(self, send: Send, headers: Iterable[tuple[str, str]]) -> None:
        written = [(name.encode(), value.encode()) for name, value in headers]
        await send({"type": "http.response.start", "status": 200, "headers": [*written, *_STREAM_HEADERS]})
        while not self.disconnected:
            while self._queue and not self.disconnected:
                await _chunk(send, b"event: message\ndata: %b\n\n" % self._pop())
            if self.over and not self._queue:
                break
            if not await self._wait(KEEP_ALIVE):
                await _chunk(send, b":\n\n")
        if not self.disconnected:
            await send({"type": "http.response.body", "body": b"", "more_body": False})

    def _pop(self) -> bytes:
        frame = self._queue.popleft()
        self._bytes -= len(frame)
        return frame

    async def _wait(self, seconds: float) -> bool:
        """Wait until there is something to write; False on timeout."""
        if self._queue or self.over or self.disconnected:
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


async def refuse(send: Send, refused: Refusal, id: Any = None) -> None:
    """Respond with a JSON-RPC error and its HTTP status."""
    error = {"code": refused.code, "message": refused.message}
    if refused.data is not None:
        error["data"] = refused.data
    body = msgspec.json.encode({"jsonrpc": "2.0", "id": id if isinstance(id, int | str) else None, "error": error})
    await _respond(send, refused.status, body, (*refused.headers, ("content-type", "application/json")))


async def accept(send: Send, status: int = 202) -> None:
    """Respond with an empty body."""
    await _respond(send, status, b"")


class Session:
    """One client that did the handshake."""

    def __init__(self, server: McpServer, now: float) -> None:
        self.id = secrets.token_urlsafe(ID_BYTES)
        self.used = now
        self.mailbox = ResponseStream(0, lossy=True)
        """Messages that belong to no request, for the GET stream."""
        self.has_reader = False
        """Whether a GET stream is open."""
        self.open = 0
        """Number of open requests."""
        self._server = server
        self.connection = server.connect(self)

    @property
    def is_idle(self) -> bool:
        return not self.open and not self.has_reader

    def close(self) -> None:
        self._server.disconnect(self.connection)
        self.connection.close()
        self.mailbox.end()

    def reopen_mailbox(self) -> ResponseStream:
        """A new GET stream, with the messages that wait."""
        self.mailbox = self.mailbox.reopen()
        return self.mailbox

    # The transport of the connection.

    def has_room(self, origin: Any) -> bool:
        return not isinstance(origin, ResponseStream) or origin.has_room

    def send(self, data: bytes, origin: Any) -> None:
        """Send frames on the response of their request. If its client disconnected, keep everything but answers."""
        direct = origin if isinstance(origin, ResponseStream) and not (origin.over or origin.disconnected) else None
        for frame in frames(data):
            if direct is not None:
                direct.push(frame)
            elif not is_answer(frame):
                self.mailbox.push(frame)

    def drop_answer(self, origin: Any) -> None:
        if isinstance(origin, ResponseStream):
            origin.drop_answer()


class ModernRequest:
    """One modern request, and the requests that continue it with input."""

    def __init__(self, server: McpServer, response: ResponseStream) -> None:
        self.response = response
        self.state: str | None = None
        """The `requestState` that continues this request, after it asked for input."""
        self.parked_at = 0.0
        self._server = server
        self.connection = server.connect(self)

    def close(self) -> None:
        self._server.disconnect(self.connection)
        self.connection.close()
        self.response.end()

    # The transport of the connection.

    def has_room(self, origin: Any) -> bool:
        return self.response.has_room

    def send(self, data: bytes, origin: Any) -> None:
        for frame in frames(data):
            self.state = _state(frame) if is_answer(frame) else self.state
            self.response.push(frame)

    def drop_answer(self, origin: Any) -> None:
        self.response.drop_answer()


class _Asking(msgspec.Struct):
    resultType: str = ""  # noqa: N815  # as it stands on the wire
    requestState: str | None = None  # noqa: N815


class _Answer(msgspec.Struct):
    result: _Asking | None = None


_read_state = msgspec.json.Decoder(_Answer).decode


def _state(frame: bytes) -> str | None:
    """The `requestState` of a response that asks for input."""
    if frame.find(b'"input_required"') < 0:
        return None
    result = _read_state(frame).result
    return result.requestState if result is not None and result.resultType == "input_required" else None


class HttpClients:
    """All connected clients."""

    def __init__(self, server: McpServer, clock: Callable[[], float] = time.monotonic) -> None:
        self._server = server
        self._clock = clock
        self._sessions: dict[str, Session] = {}
        self._requests: set[ModernRequest] = set()
        """Open requests."""
        self._parked: dict[str, ModernRequest] = {}

    def close(self) -> None:
        """Disconnect all clients."""
        clients: list[Session | ModernRequest] = [*self._sessions.values(), *self._requests, *self._parked.values()]
        self._sessions.clear()
        self._parked.clear()
        for client in clients:
            client.close()

    # Sessions.

    def new_session(self) -> Session | None:
        """Start a session; None when all places are taken by sessions that are not idle."""
        self._sweep()
        if len(self._sessions) >= MAX_SESSIONS:
            idle = [session for session in self._sessions.values() if session.is_idle]
            if not idle:
                return None
            self.end_session(min(idle, key=lambda session: session.used))
        session = Session(self._server, self._clock())
        self._sessions[session.id] = session
        return session

    def session(self, id: str) -> Session | None:
        """Find a session and mark it used; None when it ended or never existed."""
        self._sweep()
        session = self._sessions.get(id)
        if session is not None:
            session.used = self._clock()
        return session

    def end_session(self, session: Session) -> None:
        """End a session."""
        self._sessions.pop(session.id, None)
        session.close()

    def _sweep(self) -> None:
        now = self._clock()
        for session in list(self._sessions.values()):
            if session.is_idle and now - session.used > IDLE_SECONDS:
                self.end_session(session)

    # Modern requests.

    def request(self, state: Any, response: ResponseStream) -> ModernRequest:
        """The request that continues from `state`, or a new one."""
        request = self._parked.pop(state, None) if isinstance(state, str) else None
        if request is None:
            request = ModernRequest(self._server, response)
        request.response, request.state = response, None
        self._requests.add(request)
        return request

    def finished(self, request: ModernRequest) -> None:
        """The response is complete. A request that asked for input is parked until its client continues it."""
        self._requests.discard(request)
        now = self._clock()
        for state in [state for state, other in self._parked.items() if now - other.parked_at > ANSWER_SECONDS]:
            self._parked.pop(state).close()
        if request.state is None or request.response.disconnected:
            request.close()
            return
        request.parked_at = now
        self._parked[request.state] = request
        while len(self._parked) > MAX_PARKED:
            self._parked.pop(next(iter(self._parked))).close()


Scope = MutableMapping[str, Any]


class PostedMessage(NamedTuple):
    """A message that a client posted."""

    message: Any
    line: bytes
    """The message, encoded again: duplicate keys and other ambiguities do not reach the machine."""
    requests: int
    """Number of answers to wait for."""


class McpApp:
    """The ASGI application. `close` disconnects all clients."""

    def __init__(self, server: McpServer, guard: Guard) -> None:
        self._server = server
        self._guard = guard
        self._clients = HttpClients(server)
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
        headers = http_headers.join_headers(scope["headers"])
        answer = self._methods.get(scope["method"])
        refused = self._guard.refusal(headers)
        if refused is None and answer is None:
            refused = Refusal(405, "only POST, GET and DELETE are supported", headers=(("allow", "POST, GET, DELETE"),))
        elif refused is None and self._requests >= MAX_REQUESTS:
            refused = Refusal(503, f"{MAX_REQUESTS} requests are already in progress", errors.INTERNAL_ERROR)
        if refused is not None or answer is None:
            assert refused is not None
            await refuse(send, refused)
            return
        self._requests += 1
        try:
            await answer(headers, receive, send)
        finally:
            self._requests -= 1

    # POST.

    async def _post(self, headers: dict[str, str], receive: Receive, send: Send) -> None:
        refused = http_checks.check_post(headers)
        body = refused or await _body(receive)
        if body is None:
            return
        posted = body if isinstance(body, Refusal) else self._read(body)
        if isinstance(posted, Refusal):
            await refuse(send, posted)
        elif http_checks.is_modern(headers, posted.message):
            await self._modern(headers, posted, receive, send)
        else:
            await self._handshake(headers, posted, receive, send)

    def _read(self, body: bytes) -> PostedMessage | Refusal:
        try:
            message = self._codec.decode(body)
        except Malformed as error:
            return Refusal(400, f"the body cannot be read: {error}", errors.PARSE_ERROR)
        requests, line = http_checks.count_requests(message), self._codec.encode(message)
        if isinstance(requests, Refusal):
            return requests
        if len(line) > MAX_LINE:
            return Refusal(413, f"the message has more than {MAX_LINE:,} bytes")
        return PostedMessage(message, line + b"\n", requests)

    async def _modern(self, headers: dict[str, str], posted: PostedMessage, receive: Receive, send: Send) -> None:
        """Answer one modern request; a disconnect cancels it."""
        message = as_object(posted.message)
        refused = http_checks.check_modern(headers, posted.message, self._schema_of(message))
        if refused is not None:
            await refuse(send, refused, message.get("id"))
            return
        if not posted.requests:
            await accept(send)
            return
        response = ResponseStream(1, http_checks.STATUSES)
        request = self._clients.request(as_object(message.get("params")).get("requestState"), response)
        request.connection.receive(posted.line)
        try:
            await _write_until_disconnect(response, receive, response.respond(send))
        finally:
            self._clients.finished(request)

    def _schema_of(self, message: dict[str, Any]) -> Any:
        """Input schema of the called tool; None for other methods."""
        name = as_object(message.get("params")).get("name") if message.get("method") == CALL_TOOL else None
        entry = self._server.listing.tools.get(name) if isinstance(name, str) else None
        return None if entry is None else entry.export.input_schema

    async def _handshake(self, headers: dict[str, str], posted: PostedMessage, receive: Receive, send: Send) -> None:
        """Answer within a session, which starts with `initialize`."""
        message = as_object(posted.message)
        begins = message.get("method") == INITIALIZE and posted.requests
        session = self._clients.new_session() if begins else self._session(headers)
        if session is None:
            session = Refusal(503, "there are too many sessions", errors.INTERNAL_ERROR)
        if isinstance(session, Refusal):
            await refuse(send, session, message.get("id"))
            return
        response = ResponseStream(posted.requests)
        session.connection.receive(posted.line, response)
        if not posted.requests:
            await accept(send)
            return
        session.open += 1
        try:
            about = [("mcp-session-id", session.id)]
            await _write_until_disconnect(response, receive, response.respond(send, about))
        finally:
            session.open -= 1
            response.disconnect()

    def _session(self, headers: dict[str, str]) -> Session | Refusal:
        id = headers.get("mcp-session-id")
        if id is None:
            return Refusal(400, "Mcp-Session-Id is missing; a session begins with initialize")
        return self._clients.session(id) or Refusal(404, NO_SESSION, SESSION_GONE)

    # GET and DELETE.

    async def _get(self, headers: dict[str, str], receive: Receive, send: Send) -> None:
        """Open the stream for messages that belong to no request; one per session."""
        if "mcp-session-id" not in headers:
            await refuse(send, Refusal(405, "a stream needs a session", headers=(("allow", "POST"),)))
            return
        session = self._session(headers)
        if isinstance(session, Session) and not http_checks.accepts(headers.get("accept", ""), "text/event-stream"):
            session = Refusal(406, "Accept must contain text/event-stream")
        if isinstance(session, Session) and session.has_reader:
            session = Refusal(409, "this session already has an open stream")
        if isinstance(session, Refusal):
            await refuse(send, session)
            return
        mailbox = session.reopen_mailbox()
        session.has_reader = True
        try:
            await _write_until_disconnect(mailbox, receive, mailbox.stream(send))
        finally:
            session.has_reader = False
            session.reopen_mailbox()

    async def _delete(self, headers: dict[str, str], receive: Receive, send: Send) -> None:
        session = self._session(headers)
        if isinstance(session, Refusal):
            await refuse(send, session)
            return
        self._clients.end_session(session)
        await accept(send, 204)


async def _body(receive: Receive) -> bytes | Refusal | None:
    """Read the whole body; None when the client disconnected."""
    try:
        async with asyncio.timeout(BODY_SECONDS):
            return await _read_body(receive)
    except TimeoutError:
        return Refusal(408, f"the body did not arrive within {BODY_SECONDS:g} s")


async def _read_body(receive: Receive) -> bytes | Refusal | None:
    body = bytearray()
    while (event := await receive())["type"] != "http.disconnect":
        body += event.get("body", b"")
        if len(body) > MAX_LINE:
            return Refusal(413, f"the body has more than {MAX_LINE:,} bytes")
        if not event.get("more_body"):
            return bytes(body)
    return None


async def _write_until_disconnect(response: ResponseStream, receive: Receive, writing: Awaitable[None]) -> None:
    """Write the response; stop when the client disconnects."""
    watch = asyncio.ensure_future(_wait_for_disconnect(response, receive))
    try:
        await writing
    finally:
        watch.cancel()


async def _wait_for_disconnect(response: ResponseStream, receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    response.disconnect()
