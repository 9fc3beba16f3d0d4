"""`McpApp`: a bridge as an ASGI application: MCP's streamable HTTP, in both of its eras, at one address.

Owns the way of a request: who asks, what is asked, which session it belongs to, what becomes of it when the client
leaves. Whoever mounts it chooses the address. Refuses to know what is behind the protocol.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, NamedTuple

from plugbay.contracts.mcp import errors
from plugbay.contracts.mcp.messages import CALL_TOOL, INITIALIZE, MAX_LINE, as_object
from plugbay.mcp_server import http_rules
from plugbay.mcp_server.bridge import Bridge
from plugbay.mcp_server.exchange import Exchange, Receive, Send, accept, refuse
from plugbay.mcp_server.http_rules import Guard, Refused
from plugbay.mcp_server.sessions import Clients, Session
from plugbay.wire.fast_json import MsgspecCodec
from plugbay.wire.json_gate import Malformed

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

    def __init__(self, bridge: Bridge, guard: Guard) -> None:
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
        headers = http_rules.by_name(scope["headers"])
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
        refused = http_rules.posted(headers)
        body = refused or await _body(receive)
        if body is None:
            return
        posted = body if isinstance(body, Refused) else self._read(body)
        if isinstance(posted, Refused):
            await refuse(send, posted)
        elif http_rules.is_modern(headers, posted.message):
            await self._modern(headers, posted, receive, send)
        else:
            await self._handshake(headers, posted, receive, send)

    def _read(self, body: bytes) -> Posted | Refused:
        try:
            message = self._codec.decode(body)
        except Malformed as error:
            return Refused(400, f"the body cannot be read: {error}", errors.PARSE_ERROR)
        requests, line = http_rules.requests_in(message), self._codec.encode(message)
        if isinstance(requests, Refused):
            return requests
        if len(line) > MAX_LINE:
            return Refused(413, f"the message has more than {MAX_LINE:,} bytes")
        return Posted(message, line + b"\n", requests)

    async def _modern(self, headers: dict[str, str], posted: Posted, receive: Receive, send: Send) -> None:
        """Each request by itself; whoever leaves before its answer has called it off."""
        said = as_object(posted.message)
        refused = http_rules.modern(headers, posted.message, self._schema_of(said))
        if refused is not None:
            await refuse(send, refused, said.get("id"))
            return
        if not posted.requests:
            await accept(send)
            return
        exchange = Exchange(1, http_rules.STATUSES)
        solo = self._clients.solo(as_object(said.get("params")).get("requestState"), exchange)
        solo.conversation.receive(posted.line)
        try:
            await _until_left(exchange, receive, exchange.respond(send))
        finally:
            self._clients.finished(solo)

    def _schema_of(self, message: dict[str, Any]) -> Any:
        """The schema of the tool that is called; None when none is."""
        name = as_object(message.get("params")).get("name") if message.get("method") == CALL_TOOL else None
        entry = self._bridge.offering.tools.get(name) if isinstance(name, str) else None
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
        exchange = Exchange(posted.requests)
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
        if isinstance(session, Session) and not http_rules.accepts(headers.get("accept", ""), "text/event-stream"):
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


async def _until_left(exchange: Exchange, receive: Receive, writing: Awaitable[None]) -> None:
    """Write, and stop when the client closes its end."""
    watch = asyncio.ensure_future(_watch(exchange, receive))
    try:
        await writing
    finally:
        watch.cancel()


async def _watch(exchange: Exchange, receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    exchange.left()
