"""ASGI middleware around every request: request id, Host and Origin checks, body limits, metrics, log, error answers.

JSON bodies are read and validated completely before a handler runs; uploads are streamed and counted.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
from collections.abc import Generator, Mapping
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import msgspec
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from plugbay.mcp_server.http_checks import accepts_host, accepts_origin, media_type
from plugbay.server.api.direct import DirectRoutes
from plugbay.server.api.errors import as_gateway_error, error_response
from plugbay.server.domain.clock import Clock
from plugbay.server.domain.errors import INVALID, NOT_FOUND, GatewayError, denied, invalid, too_large
from plugbay.server.domain.ids import REQUEST_ID, new_id
from plugbay.server.domain.meters import Meters
from plugbay.store.connections import EVERY_ORG, ORG
from plugbay.wire.fast_json import MsgspecCodec
from plugbay.wire.json_gate import Malformed

if TYPE_CHECKING:
    from plugbay.server.api.request_spans import RequestSpans

T = TypeVar("T")

LOOPBACK = ("127.0.0.1", "localhost", "[::1]", "::1")

MAX_JSON = 1 << 20
"""Bytes of a JSON body."""

MAX_UPLOAD = 52 << 20
"""Bytes of any other body: a package has 50 MiB at most."""


BODY_SECONDS = 30.0
"""Seconds to wait for the next chunk of a body."""


class HttpSettings(msgspec.Struct, frozen=True):
    """Settings of the HTTP layer."""

    hosts: tuple[str, ...] = LOOPBACK
    """Names under which the server may be asked, without a port; `*`: any. A page that has its own name resolve to us
    is turned away by this."""
    max_json: int = MAX_JSON
    max_upload: int = MAX_UPLOAD
    body_seconds: float = BODY_SECONDS


LOG = logging.getLogger("plugbay.access")

_LOGIN = "/login/"
"""The path before a code that logs in."""

VERSION = "1"
"""The API version in `X-VAI-Version`."""

_DEFAULTS = ((b"cache-control", b"no-store"), (b"x-content-type-options", b"nosniff"))
"""Headers of every response that does not set them itself."""

_REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,128}", re.ASCII)

_POLLED_PATHS = frozenset(
    {
        "/livez",
        "/readyz",
        "/metrics",
        "/api/v1/plugins",
        "/api/v1/plugins/{plugin_id:path}",
        "/api/v1/plugins/{plugin_id:path}/logs",
        "/api/v1/screens",
        "/api/v1/screens:render",
        "/api/v1/screens:input",
    }
)
"""Paths of probes, and of `plugbay tui`, which requests them several times a second; logged only on errors."""


class HttpMiddleware:
    """Wraps the whole application."""

    def __init__(
        self,
        app: ASGIApp,
        settings: HttpSettings,
        meters: Meters,
        clock: Clock,
        direct: DirectRoutes,
        spans: RequestSpans | None = None,
    ) -> None:
        self._direct = direct
        self._spans = spans
        self._app = app
        self._settings = settings
        self._meters = meters
        self._clock = clock

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        headers, began = _first_headers(scope), self._clock.monotonic()
        reply = _ResponseSender(send, _request_id(headers))
        token, org = REQUEST_ID.set(reply.request_id), ORG.set(EVERY_ORG)
        span = None if self._spans is None else self._spans.begin(scope)
        reply.traceparent = None if span is None else span.traceparent
        try:
            self._check_request(scope, headers)
            body = await read_body(headers, receive, self._settings)
            if not await self._direct.answer(scope, body, reply):
                await self._app(scope, body, reply)
        except ClientDisconnect:
            pass  # the client is gone
        except Exception as error:
            await self._answer_error(scope, error, reply)
        finally:
            REQUEST_ID.reset(token)
            ORG.reset(org)
            route, status = self._record(scope, reply, self._clock.monotonic() - began)
            if span is not None:
                span.end(_method_label(scope), route, status)

    def _check_request(self, scope: Scope, headers: Mapping[str, str]) -> None:
        """Reject requests with a wrong Host, Origin, version or path."""
        if not accepts_host(headers.get("host", ""), self._settings.hosts):
            raise GatewayError(INVALID, "request.host_denied", 421, "this server does not have this host name")
        if "origin" in headers:
            origins = [value.decode("latin-1") for name, value in scope["headers"] if name == b"origin"]
            if not all(accepts_origin(origin, self._settings.hosts) for origin in origins):
                raise denied("auth.origin_denied", "requests from pages of other sites are not allowed")
        version = headers.get("x-vai-version", VERSION)
        if version != VERSION:
            text = f"this server supports version {VERSION} of the API"
            raise invalid("protocol.unsupported_version", text, "X-VAI-Version", supported=[VERSION])
        if "\0" in scope["path"]:
            raise GatewayError(NOT_FOUND, "route.not_found", 404, "there is no route with this path")
        if b"%00" in scope["query_string"]:
            raise invalid("request.invalid", "the query contains U+0000, which cannot be stored")

    async def _answer_error(self, scope: Scope, error: Exception, reply: _ResponseSender) -> None:
        refusal = as_gateway_error(error)
        if refusal.status == 500:
            facts = {"request_id": reply.request_id, "path": _loggable_path(scope["path"])}
            LOG.exception("a request failed", extra=facts)
        if not reply.status:
            await error_response(refusal)(scope, _receive_disconnect, reply)

    def _record(self, scope: Scope, reply: _ResponseSender, seconds: float) -> tuple[str, int]:
        """Count and log the request; returns its route and status."""
        route = getattr(scope.get("route"), "path", "none")
        status = reply.status or 499  # the client disconnected before the answer
        self._meters.count("http_requests", method=_method_label(scope), route=route, status=str(status))
        self._meters.observe("http_request_seconds", seconds, route=route)
        level = logging.DEBUG if route in _POLLED_PATHS and status < 400 else logging.INFO
        facts: dict[str, Any] = {
            "request_id": reply.request_id,
            "method": scope["method"],
            "path": _loggable_path(scope["path"]),
            "status": status,
            "duration_ms": round(seconds * 1000, 3),
            "caller": getattr(scope.get("state", {}).get("principal"), "id", None),
        }
        LOG.log(level, "request", extra=facts)
        return route, status


class _ResponseSender:
    """Sends the response with the headers of every response."""

    def __init__(self, send: Send, request_id: str) -> None:
        self._send = send
        self.request_id = request_id
        self.status = 0
        self.traceparent: str | None = None
        """The span of the request, if it is traced."""

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            ours = {b"x-request-id": self.request_id.encode(), b"x-vai-version": VERSION.encode()}
            given = {name for name, _ in message["headers"]}
            if self.traceparent is not None and b"traceparent" in given:
                ours[b"traceparent"] = self.traceparent.encode()
            headers = [header for header in message["headers"] if header[0] not in ours]
            headers += ours.items()
            headers += [header for header in _DEFAULTS if header[0] not in given]
            message["headers"] = headers
        await self._send(message)


def _first_headers(scope: Scope) -> dict[str, str]:
    """The headers of a request by name; of those that are sent twice, the first."""
    return {name.decode("latin-1"): value.decode("latin-1") for name, value in reversed(scope["headers"])}


def _request_id(headers: Mapping[str, str]) -> str:
    """The caller's request id if it is safe to show and store, else a new one."""
    given = headers.get("x-request-id", "")
    return given if _REQUEST_ID.fullmatch(given) else new_id("req_")


def _loggable_path(path: str) -> str:
    """The path for the log: without the code of a login link, also if the link is damaged."""
    at = path.lower().find(_LOGIN)
    return path if at < 0 else f"{path[:at]}{_LOGIN}{{code}}"


def _method_label(scope: Scope) -> str:
    known = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
    return scope["method"] if scope["method"] in known else "other"


async def _receive_disconnect() -> Message:
    return {"type": "http.disconnect"}


UPLOADS = frozenset(
    {
        "application/gzip",
        "application/octet-stream",
        "application/vnd.vai.plugin.package.v1.tar+gzip",
        "multipart/form-data",
    }
)
"""Media types of uploads. A form with a file is one too; only the page for uploads reads it."""

_CODEC = MsgspecCodec()


def is_json(kind: str) -> bool:
    return kind == "application/json" or (kind.startswith("application/") and kind.endswith("+json"))


async def read_body(headers: Mapping[str, str], receive: Receive, settings: HttpSettings) -> Receive:
    """The `receive` for a handler; raises for a body that is too large or invalid JSON."""
    kind = media_type(headers.get("content-type", ""))
    most = settings.max_upload if kind in UPLOADS else settings.max_json
    length = headers.get("content-length", "")
    if length.isdecimal() and int(length.lstrip("0")[:20] or "0") > most:  # Python refuses to read very many digits
        raise _too_large(most)
    pieces = _with_timeout(receive, settings.body_seconds)
    if not is_json(kind):
        return _with_limit(pieces, most)
    body = await _read_all(pieces, most)
    if body is None:
        return receive
    return JsonBody(body, parse_json(body) if body else None, receive)


class JsonBody:
    """A JSON body that was read completely: its bytes for the handler, and its parsed value."""

    def __init__(self, body: bytes, value: Any, receive: Receive) -> None:
        self._body: bytes | None = body
        self._receive = receive
        self.value = value

    async def __call__(self) -> Message:
        body, self._body = self._body, None
        if body is None:
            return await self._receive()
        return {"type": "http.request", "body": body, "more_body": False}


class _Started(Generic[T]):
    """A coroutine that has run until its first wait. Most bodies have arrived before, and then no timer is needed."""

    def __init__(self, steps: Generator[Any, Any, T]) -> None:
        self._steps = steps
        self.result: T | None = None
        """Its result, if it did not have to wait."""
        self._waits_for: Any = None
        try:
            self._waits_for = next(steps)
        except StopIteration as done:
            self.result = done.value

    def __await__(self) -> Generator[Any, Any, T]:
        try:
            yield self._waits_for
        except BaseException:  # a cancellation: it ends here, and so does the coroutine
            self._steps.close()
            raise
        return (yield from self._steps)


def _with_timeout(receive: Receive, seconds: float) -> Receive:
    """Limit the wait for each chunk; after the last one, wait without limit for the disconnect."""
    more = True

    async def receive_in_time() -> Message:
        nonlocal more
        started = _Started(receive().__await__())
        message = started.result
        if message is None:
            try:
                async with asyncio.timeout(seconds if more else None):
                    message = await started
            except TimeoutError:
                text = f"the rest of the body did not arrive for {seconds:g} seconds"
                raise GatewayError(INVALID, "request.timeout", 408, text, retryable=True) from None
        more = message.get("more_body", False)
        return message

    return receive_in_time


def _with_limit(receive: Receive, most: int) -> Receive:
    seen = 0

    async def receive_counted() -> Message:
        nonlocal seen
        message = await receive()
        seen += len(message.get("body", b""))
        if seen > most:
            raise _too_large(most)
        return message

    return receive_counted


async def _read_all(receive: Receive, most: int) -> bytes | None:
    """The whole body; None if the client disconnected."""
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


def parse_json(body: bytes) -> Any:
    """The value of a JSON document from outside; raises `request.invalid_json`."""
    try:
        _CODEC.decode(body)
        value = _STRICT_DECODER.decode(body.decode())
    except Malformed as error:
        raise invalid("request.invalid_json", str(error)) from None
    if b"\\u0000" in body and _has_nul(value):
        raise invalid("request.invalid_json", "a text contains U+0000, which cannot be stored")
    return value


def _reject_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Reject duplicate keys: another parser in front of us may read the other value."""
    found = dict(pairs)
    if len(found) < len(pairs):
        raise Malformed("an object has a key twice")
    return found


_STRICT_DECODER = json.JSONDecoder(object_pairs_hook=_reject_duplicates)


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
