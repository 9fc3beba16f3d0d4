"""What happens to every request before anybody looks at it, and to every answer after: one ASGI layer.

Owns the id of a request, the names under which we may be asked, what is counted and logged of each request, and that a
bug is answered with its id and nothing else. For what comes by the thousands it knows a straight way to the handler:
FastAPI would look for it among a hundred routes, behind six layers, and find out anew what it wants to be given, which
is a quarter of the time that an invocation takes.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from plugbay.server.api.errors import answer, as_gateway_error
from plugbay.server.domain.clock import Clock
from plugbay.server.domain.errors import INVALID, NOT_FOUND, GatewayError, denied, invalid, too_large
from plugbay.server.domain.ids import REQUEST_ID, new_id
from plugbay.server.domain.meters import Meters
from plugbay.wire.fast_json import MsgspecCodec
from plugbay.wire.json_gate import Malformed

if TYPE_CHECKING:
    from plugbay.server.api.request_spans import RequestSpans

LOOPBACK = ("127.0.0.1", "localhost", "[::1]", "::1")

MAX_JSON = 1 << 20
"""Bytes of a body that is JSON: no record of ours is as large."""

MAX_UPLOAD = 52 << 20
"""Bytes of any other body: a package, which has 50 MiB at most."""


BODY_SECONDS = 30.0
"""For the next piece of a body: whoever sends nothing for as long only holds a place."""


@dataclass(frozen=True, slots=True)
class EdgeSettings:
    """What the HTTP edge is started with."""

    hosts: tuple[str, ...] = LOOPBACK
    """Names under which the server may be asked, without a port; `*`: any. A page that has its own name resolve to us
    is turned away by this."""
    max_json: int = MAX_JSON
    max_upload: int = MAX_UPLOAD
    body_seconds: float = BODY_SECONDS


LOG = logging.getLogger("plugbay.access")

VERSION = "1"
"""Of the API, in `X-VAI-Version`."""

_REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,128}", re.ASCII)

Straight = Callable[[Request, Any], Awaitable[Response | None]]
"""Answers a request, whose body is this JSON; None: something about it is unusual, so FastAPI is asked after all."""

_QUIET = frozenset({"/livez", "/readyz", "/metrics"})
"""Asked every few seconds by machines; logged only when the answer is an error."""


class Edge:
    """Around the whole application."""

    def __init__(
        self,
        app: ASGIApp,
        settings: EdgeSettings,
        meters: Meters,
        clock: Clock,
        straight: Mapping[tuple[str, str], Straight],
        spans: RequestSpans | None = None,
    ) -> None:
        """`straight` has what answers some methods and paths, beside their routes."""
        self._spans = spans
        self._app = app
        self._straight = straight
        self._settings = settings
        self._meters = meters
        self._clock = clock

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        headers, began = Headers(scope=scope), self._clock.monotonic()
        reply = _Reply(send, _request_id(headers))
        token = REQUEST_ID.set(reply.request_id)
        span = None if self._spans is None else self._spans.begin(scope)
        reply.traceparent = None if span is None else span.traceparent
        try:
            self._admit(scope, headers)
            body = await read_body(headers, receive, self._settings)
            if not await self._answered(scope, body, reply):
                await self._app(scope, body, reply)
        except ClientDisconnect:
            pass  # nobody is left to be told
        except Exception as error:
            await self._failed(scope, error, reply)
        finally:
            REQUEST_ID.reset(token)
            route, status = self._noted(scope, reply, self._clock.monotonic() - began)
            if span is not None:
                span.end(_method(scope), route, status)

    async def _answered(self, scope: Scope, body: Receive, reply: _Reply) -> bool:
        """Whether there was a straight way to the answer."""
        straight = self._straight.get((scope["method"], scope["path"]))
        if straight is None or not isinstance(body, JsonBody):
            return False
        response = await straight(Request(scope, body), body.value)
        if response is not None:
            await response(scope, body, reply)
        return response is not None

    def _admit(self, scope: Scope, headers: Headers) -> None:
        """Raises for what nobody should look at."""
        if not self._known(headers.get("host", "").lower()):
            raise GatewayError(INVALID, "request.host_denied", 421, "this server does not answer under this name")
        if not all(self._known(_site(origin)) for origin in headers.getlist("origin")):
            raise denied("auth.origin_denied", "no page of another site may ask this server")
        version = headers.get("x-vai-version", VERSION)
        if version != VERSION:
            text = f"this server speaks version {VERSION} of the API"
            raise invalid("protocol.unsupported_version", text, "X-VAI-Version", supported=[VERSION])
        if "\0" in scope["path"]:
            raise GatewayError(NOT_FOUND, "route.not_found", 404, "there is nothing under this path")
        if b"%00" in scope["query_string"]:
            raise invalid("request.invalid", "U+0000 is in the query, which no database keeps")

    def _known(self, netloc: str) -> bool:
        name = netloc.rpartition(":")[0] if re.search(r":\d*$", netloc) and not netloc.endswith("]") else netloc
        return "*" in self._settings.hosts or name in self._settings.hosts

    async def _failed(self, scope: Scope, error: Exception, reply: _Reply) -> None:
        refusal = as_gateway_error(error)
        if refusal.status == 500:
            LOG.exception("a request failed", extra={"request_id": reply.request_id, "path": scope["path"]})
        if not reply.status:
            await answer(refusal)(scope, _nothing, reply)

    def _noted(self, scope: Scope, reply: _Reply, seconds: float) -> tuple[str, int]:
        """The route that was taken, and the status that was answered."""
        straight = (scope["method"], scope["path"]) in self._straight
        route = scope["path"] if straight else getattr(scope.get("route"), "path", "none")
        status = reply.status or 499  # whoever asked went away before there was an answer
        self._meters.count("http_requests", method=_method(scope), route=route, status=str(status))
        self._meters.observe("http_request_seconds", seconds, route=route)
        level = logging.DEBUG if route in _QUIET and status < 400 else logging.INFO
        facts: dict[str, Any] = {
            "request_id": reply.request_id,
            "method": scope["method"],
            "path": scope["path"],
            "status": status,
            "duration_ms": round(seconds * 1000, 3),
            "caller": getattr(scope.get("state", {}).get("principal"), "id", None),
        }
        LOG.log(level, "request", extra=facts)
        return route, status


class _Reply:
    """Sends the answer, with what every answer says."""

    def __init__(self, send: Send, request_id: str) -> None:
        self._send = send
        self.request_id = request_id
        self.status = 0
        self.traceparent: str | None = None
        """Of the span that the request is, where it is one."""

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            headers = MutableHeaders(scope=message)
            headers["x-request-id"] = self.request_id
            headers["x-vai-version"] = VERSION
            headers.setdefault("cache-control", "no-store")
            headers.setdefault("x-content-type-options", "nosniff")
            if self.traceparent is not None and "traceparent" in headers:
                headers["traceparent"] = self.traceparent
        await self._send(message)


def _request_id(headers: Headers) -> str:
    """The caller's, if it can be shown and stored as it is; else one of ours."""
    given = headers.get("x-request-id", "")
    return given if _REQUEST_ID.fullmatch(given) else new_id("req_")


def _site(origin: str) -> str:
    """The name in an origin, with its port; empty when it has none."""
    try:
        return urlsplit(origin).netloc.lower()
    except ValueError:
        return ""


def _method(scope: Scope) -> str:
    known = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
    return scope["method"] if scope["method"] in known else "other"


async def _nothing() -> Message:
    return {"type": "http.disconnect"}


UPLOADS = frozenset({"application/gzip", "application/octet-stream", "application/vnd.vai.plugin.package.v1.tar+gzip"})
"""The only kinds that may be large."""

_CODEC = MsgspecCodec()


def media_type(headers: Headers) -> str:
    """The media type of a body, without its parameters; empty when it is not said."""
    return headers.get("content-type", "").partition(";")[0].strip().lower()


def is_json(kind: str) -> bool:
    return kind == "application/json" or (kind.startswith("application/") and kind.endswith("+json"))


async def read_body(headers: Headers, receive: Receive, settings: EdgeSettings) -> Receive:
    """What a handler reads the body with; raises for one that is too large, or JSON that is none."""
    kind = media_type(headers)
    most = settings.max_upload if kind in UPLOADS else settings.max_json
    length = headers.get("content-length", "")
    if length.isdecimal() and int(length) > most:
        raise _too_large(most)
    pieces = _with_timeout(receive, settings.body_seconds)
    if not is_json(kind):
        return _with_limit(pieces, most)
    body = await _read_all(pieces, most)
    if body is None:
        return receive
    return JsonBody(body, _parse(body) if body else None, receive)


class JsonBody:
    """JSON that is all here: what a handler reads its bytes with, and what they say."""

    def __init__(self, body: bytes, value: Any, receive: Receive) -> None:
        self._body: bytes | None = body
        self._receive = receive
        self.value = value

    async def __call__(self) -> Message:
        body, self._body = self._body, None
        if body is None:
            return await self._receive()
        return {"type": "http.request", "body": body, "more_body": False}


def _with_timeout(receive: Receive, seconds: float) -> Receive:
    """Waits only so long for each piece; after the last, for ever: what comes then is that the sender goes."""
    more = True

    async def timed() -> Message:
        nonlocal more
        try:
            async with asyncio.timeout(seconds if more else None):
                message = await receive()
        except TimeoutError:
            text = f"nothing more of the body came for {seconds:g} seconds"
            raise GatewayError(INVALID, "request.timeout", 408, text, retryable=True) from None
        more = message.get("more_body", False)
        return message

    return timed


def _with_limit(receive: Receive, most: int) -> Receive:
    seen = 0

    async def counted() -> Message:
        nonlocal seen
        message = await receive()
        seen += len(message.get("body", b""))
        if seen > most:
            raise _too_large(most)
        return message

    return counted


async def _read_all(receive: Receive, most: int) -> bytes | None:
    """All of the body; None when whoever sent it went away."""
    pieces, size, more = [], 0, True
    while more:
        message = await receive()
        if message["type"] != "http.request":
            return None
        pieces.append(message.get("body", b""))
        size += len(pieces[-1])
        if size > most:
            raise _too_large(most)
        more = message.get("more_body", False)
    return b"".join(pieces)


def _parse(body: bytes) -> Any:
    try:
        _CODEC.decode(body)
        value = _DISTINCT.decode(body.decode())
    except Malformed as error:
        raise invalid("request.invalid_json", str(error)) from None
    if b"\\u0000" in body and _has_nul(value):
        raise invalid("request.invalid_json", "U+0000 is in a text, which no database keeps")
    return value


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """What has a key twice means one thing to us and may mean another to whoever let it through."""
    found = dict(pairs)
    if len(found) < len(pairs):
        raise Malformed("a key is there twice in one object")
    return found


_DISTINCT = json.JSONDecoder(object_pairs_hook=_distinct)


def _has_nul(value: Any) -> bool:
    todo = [value]
    for item in todo:
        if isinstance(item, str) and "\0" in item:
            return True
        if isinstance(item, dict):
            todo += [*item.keys(), *item.values()]
        elif isinstance(item, list):
            todo += item
    return False


def _too_large(most: int) -> GatewayError:
    return too_large("request.too_large", f"the body has more than {most:,} bytes", max_bytes=most)
