"""`McpApp`: a bridge as an ASGI application: MCP's streamable HTTP, in both of its eras, at one address.

Owns the way of a request: who asks, what is asked, which session it belongs to, what becomes of it when the client
leaves. Whoever mounts it chooses the address. Refuses to know what is behind the protocol.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from plugbay.bridge import http_rules
from plugbay.bridge.bridge import Bridge
from plugbay.bridge.exchange import Exchange, Receive, Send, accept, refuse
from plugbay.bridge.http_rules import Guard, Refused
from plugbay.bridge.sessions import Clients, Session
from plugbay.contracts.mcp import errors
from plugbay.contracts.mcp.messages import CALL_TOOL, INITIALIZE, MAX_LINE, as_object
from plugbay.wire.fast_json import MsgspecCodec
from plugbay.wire.json_gate import Malformed

BODY_SECONDS = 60.0
"""For a body to arrive; whoever sends slower holds a place that others need."""

MAX_REQUESTS = 1024
"""Requests at a time, streams included, over all clients."""

NO_SESSION = "the session is over or never was; begin again with initialize"
SESSION_GONE = -32001
"""The error for it; the status says the same."""

Scope = dict[str, Any]


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
        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
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
        message = body if isinstance(body, Refused) else self._read(body)
        if isinstance(message, Refused):
            await refuse(send, message)
            return
        line = self._codec.encode(message) + b"\n"
        if http_rules.is_modern(headers, message):
            await self._modern(headers, message, line, receive, send)
        else:
            await self._handshake(headers, message, line, receive, send)

    def _read(self, body: bytes) -> Any:
        try:
            message = self._codec.decode(body)
        except Malformed as error:
            return Refused(400, f"the body cannot be read: {error}", errors.PARSE_ERROR)
        return message if isinstance(message, dict | list) else Refused(400, "the body is no message")

    async def _modern(self, headers: dict[str, str], message: Any, line: bytes, receive: Receive, send: Send) -> None:
        """Each request by itself; whoever leaves before its answer has called it off."""
        params = as_object(as_object(message).get("params"))
        refused = http_rules.modern(headers, message, self._schema_of(message))
        if refused is not None:
            await refuse(send, refused, as_object(message).get("id"))
            return
        if "id" not in message:
            await accept(send)
            return
        exchange = Exchange(1, http_rules.STATUSES)
        solo = self._clients.solo(params.get("requestState"), exchange)
        solo.conversation.receive(line)
        try:
            await _until_left(exchange, receive, exchange.respond(send))
        finally:
            self._clients.finished(solo)

    def _schema_of(self, message: Any) -> Any:
        """The schema of the tool that is called; None when none is."""
        name = as_object(as_object(message).get("params")).get("name") if _method(message) == CALL_TOOL else None
        entry = self._bridge.offering.tools.get(name) if isinstance(name, str) else None
        return None if entry is None else entry.export.input_schema

    async def _handshake(
        self, headers: dict[str, str], message: Any, line: bytes, receive: Receive, send: Send
    ) -> None:
        """Within a session, which begins with `initialize`."""
        begins = _method(message) == INITIALIZE
        session = self._clients.new_session() if begins else self._session(headers)
        if session is None and begins:
            session = Refused(503, "there are too many sessions", errors.INTERNAL_ERROR)
        if not isinstance(session, Session):
            assert session is not None
            await refuse(send, session, as_object(message).get("id"))
            return
        exchange = Exchange(_requests_in(message))
        session.conversation.receive(line, exchange)
        if not _requests_in(message):
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


def _method(message: Any) -> Any:
    return as_object(message).get("method")


def _requests_in(message: Any) -> int:
    """How many answers a body waits for; a batch may hold several requests."""
    items = message if isinstance(message, list) else [message]
    return sum(isinstance(item, dict) and "method" in item and "id" in item for item in items)


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
