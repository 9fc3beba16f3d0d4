"""What happens to every request before anybody looks at it, and to every answer after: one ASGI layer.

Owns the id of a request, the names under which we may be asked, what is counted and logged of each request, and that a
bug is answered with its id and nothing else. For what comes by the thousands it knows a straight way to the handler:
FastAPI would look for it among a hundred routes, behind six layers, and find out anew what it wants to be given, which
is a quarter of the time that an invocation takes.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from plugbay.server.api.bodies import Whole, received
from plugbay.server.api.errors import answer, as_gateway_error
from plugbay.server.domain.clock import Clock
from plugbay.server.domain.errors import INVALID, NOT_FOUND, GatewayError, denied, invalid
from plugbay.server.domain.ids import new_id
from plugbay.server.domain.meters import Meters
from plugbay.server.domain.request import REQUEST_ID
from plugbay.server.settings import EdgeSettings

if TYPE_CHECKING:
    from plugbay.server.api.request_spans import RequestSpans

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
            body = await received(headers, receive, self._settings)
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
        if straight is None or not isinstance(body, Whole):
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
