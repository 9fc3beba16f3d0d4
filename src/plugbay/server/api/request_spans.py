"""`RequestSpans`: one OpenTelemetry span per mutating request, parent of the spans of plugin calls.

A span carries method, route and status; never a path, a query or a body. The answer has the span in `traceparent`.
Requests that only read have no span.
"""

from __future__ import annotations

from typing import Any

from opentelemetry import context as contexts
from opentelemetry import trace
from opentelemetry.trace import Span, SpanKind, Status, StatusCode, Tracer
from starlette.datastructures import Headers
from starlette.types import Scope

from plugbay.host.calls.tracing import carrier_of, parent_in
from plugbay.server.api.idempotency import MUTATING

TRACE_HEADERS = (b"traceparent", b"tracestate")


class RequestSpans:
    """Creates the spans of one server."""

    def __init__(self, tracer: Tracer) -> None:
        self._tracer = tracer

    def begin(self, scope: Scope) -> RequestSpan | None:
        """Start the span of a request in the trace it names; None if it is not traced."""
        if scope["method"] not in MUTATING:
            return None
        facts = {"http.request.method": scope["method"], "url.scheme": scope.get("scheme", "http")}
        parent = parent_in(_trace_headers(Headers(scope=scope)))
        span = self._tracer.start_span(scope["method"], parent, SpanKind.SERVER, facts)
        return RequestSpan(span, scope)


class RequestSpan:
    """The span of one request, from its first byte to its answer."""

    def __init__(self, span: Span, scope: Scope) -> None:
        self._span = span
        self._token = contexts.attach(trace.set_span_in_context(span))
        carrier = carrier_of(span)
        self.traceparent = carrier.get("traceparent")
        """The `traceparent` of the answer; None if the trace is not sampled."""
        if carrier:
            others = [pair for pair in scope["headers"] if pair[0] not in TRACE_HEADERS]
            scope["headers"] = [*others, *((key.encode(), value.encode()) for key, value in carrier.items())]

    def end(self, method: str, route: str, status: int) -> None:
        """End the span with its response."""
        contexts.detach(self._token)
        self._span.update_name(f"{method} {route}")
        self._span.set_attributes({"http.route": route, "http.response.status_code": status})
        if status >= 500:
            self._span.set_attribute("error.type", str(status))
            self._span.set_status(Status(StatusCode.ERROR))
        self._span.end()


def _trace_headers(headers: Headers) -> dict[str, Any]:
    """The trace headers of a request; none if there are several parents, as W3C requires."""
    parents = headers.getlist("traceparent")
    if len(parents) != 1:
        return {}
    return {"traceparent": parents[0], "tracestate": ",".join(headers.getlist("tracestate"))}
