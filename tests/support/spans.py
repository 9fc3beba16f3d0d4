"""Spans for tests: a tracer of the real SDK that keeps its spans, and a small OTLP server that decodes them."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
SPAN = "00f067aa0ba902b7"
PARENT = f"00-{TRACE}-{SPAN}-01"
"""Of somebody outside."""


class Spans:
    """What a tracer was given."""

    def __init__(self) -> None:
        self._kept = InMemorySpanExporter()
        self.provider = TracerProvider(shutdown_on_exit=False)
        self.provider.add_span_processor(SimpleSpanProcessor(self._kept))
        self.tracer = self.provider.get_tracer("tests")

    def all(self) -> tuple[ReadableSpan, ...]:
        """Those that have ended, in that order."""
        return self._kept.get_finished_spans()

    def only(self) -> ReadableSpan:
        (span,) = self.all()
        return span

    def named(self, name: str) -> ReadableSpan:
        (span,) = [span for span in self.all() if span.name == name]
        return span


def facts(span: ReadableSpan) -> Mapping[str, Any]:
    """What a span says."""
    return span.attributes or {}


def trace_of(span: ReadableSpan) -> str:
    return f"{span.context.trace_id:032x}"


def id_of(span: ReadableSpan) -> str:
    return f"{span.context.span_id:016x}"


def parent_of(span: ReadableSpan) -> str | None:
    """The span id of its parent."""
    return None if span.parent is None else f"{span.parent.span_id:016x}"


class Collector:
    """What arrived. While `open` is not set, it takes requests and answers none."""

    def __init__(self) -> None:
        self.open = threading.Event()
        self.open.set()
        self.asked = threading.Event()
        self.url = ""
        self.requests: list[ExportTraceServiceRequest] = []
        self.headers: list[dict[str, str]] = []

    def spans(self) -> dict[str, Span]:
        """By name; of several with one name the last."""
        return {
            span.name: span
            for request in self.requests
            for resource in request.resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        }

    def resource(self) -> dict[str, str]:
        """Who says it all."""
        (resource,) = self.requests[0].resource_spans
        return said(resource.resource.attributes)


def said(attributes: Any) -> dict[str, str]:
    """The attributes that are text."""
    return {pair.key: pair.value.string_value for pair in attributes if pair.value.HasField("string_value")}


@contextmanager
def collecting() -> Iterator[Collector]:
    """A collector on a free port of this machine."""
    collector = Collector()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            collector.asked.set()
            collector.open.wait()
            assert self.path == "/v1/traces"
            collector.headers.append(dict(self.headers))
            collector.requests.append(ExportTraceServiceRequest.FromString(body))
            self.send_response(200)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        collector.url = f"http://127.0.0.1:{server.server_port}"
        serving = threading.Thread(target=server.serve_forever)
        serving.start()
        try:
            yield collector
        finally:
            collector.open.set()
            server.shutdown()
            serving.join()
