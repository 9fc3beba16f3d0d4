"""Spans for tests: a tracer of the real SDK that keeps what it is given, and what a test wants to know of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

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
