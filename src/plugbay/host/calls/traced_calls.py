"""`TracedCalls`: calls of which each is a span of OpenTelemetry, in the trace of whoever asked.

Owns what a span is called and what it says: whose export, which call, how it ended. Never what went in or came out, nor
a message: those may be secret. Hands the trace on where a contract has a place for it: in `_meta` to MCP servers, as
the `trace_id` of an invocation. Refuses to know where spans go.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from opentelemetry import context as contexts
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import NonRecordingSpan, Span, SpanContext, SpanKind, Status, StatusCode, TraceFlags, Tracer
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from plugbay.contracts.mcp.requests import CONTEXT
from plugbay.host.calls.calls import CallResult, Calls
from plugbay.host.catalog.catalog import Entry
from plugbay.host.catalog.runtime_exports import TELLERS
from plugbay.host.invocations.context import TRACE_PREFIX, Order, trace_digits
from plugbay.host.ports import CallRecord
from plugbay.model.errors import Failure
from plugbay.model.operations import GetPrompt, InvokeTool, ReadResource

if TYPE_CHECKING:
    from plugbay.host.calls.calls import Ask
    from plugbay.model.operations import PluginOp

LONGEST_NAME = 200
"""Characters of a name in a span: servers of MCP choose their names themselves."""

LONGEST_PARENT = 512
"""Characters of a `traceparent` or `tracestate`: those of today have 55, and W3C asks for no more of the other."""

METHODS = {"tool": "tools/call", "prompt": "prompts/get", "resource": "resources/read"}
"""How MCP asks for an export of a kind, which is what its spans are called by."""

_W3C = TraceContextTextMapPropagator()
_PARENT, _STATE = "traceparent", "tracestate"


class TracedCalls(Calls):
    """`Calls`, each in a span. The span is the current one while the call lasts."""

    def __init__(self, tracer: Tracer, *parts: Any) -> None:
        super().__init__(*parts)
        self._tracer = tracer

    async def attempt(
        self,
        name: str,
        ask: Ask,
        timeout: float | None = None,
        on_progress: Callable[[Any], None] | None = None,
        kind: str = "",
        order: Order | None = None,
    ) -> CallResult:
        """One call, within its span."""
        entry = self.catalog.resolve(name, kind)
        title, facts = _described(entry)
        span = self._tracer.start_span(title, _of_order(order), SpanKind.CLIENT, facts)
        token = contexts.attach(trace.set_span_in_context(span))
        try:
            return await super().attempt(name, _handing_on(ask), timeout, on_progress, kind, order)
        finally:
            contexts.detach(token)
            if isinstance(entry, Failure):  # who is met on the way is known only now
                title, facts = _described(self.catalog.resolve(name, kind))
                span.update_name(title)
                span.set_attributes(facts)
            if order is not None and order.records:
                span.set_attribute("plugbay.invocation.ids", [each.invocation_id for each in order.records])
            span.end()

    @contextmanager
    def following(self, carrier: Mapping[str, Any]) -> Iterator[None]:
        """Calls within have the span for a parent that `carrier` names in its `traceparent`, if it does."""
        token = contexts.attach(parent_in(carrier))
        try:
            yield
        finally:
            contexts.detach(token)

    def new_trace(self) -> str:
        """The trace of the current call."""
        current = trace.get_current_span().get_span_context()
        return f"{TRACE_PREFIX}{current.trace_id:032x}" if current.is_valid else super().new_trace()

    def _record(
        self, name: str, entry: Entry | Failure, started_at: float, milliseconds: float, failure: Failure | None
    ) -> CallRecord:
        record = super()._record(name, entry, started_at, milliseconds, failure)
        _conclude(trace.get_current_span(), record)
        return record


def parent_in(carrier: Mapping[str, Any]) -> Context:
    """The current context with the parent that a caller named; what is no trace context is ignored, as W3C says."""
    said = {key: carrier.get(key) for key in (_PARENT, _STATE)}
    texts = {key: text for key, text in said.items() if isinstance(text, str) and len(text) <= LONGEST_PARENT}
    return _W3C.extract(texts, contexts.get_current())


def carrier_of(span: Span) -> dict[str, str]:
    """How somebody else is told that this span is its parent; empty when there is nothing to tell."""
    carrier: dict[str, str] = {}
    _W3C.inject(carrier, trace.set_span_in_context(span))
    return carrier


def _described(entry: Entry | Failure) -> tuple[str, dict[str, str]]:
    """The name of a span, and what it says of the export, in the words of OpenTelemetry where it has some."""
    if isinstance(entry, Failure):
        return "call", {}
    spec, export = entry.spec, entry.export
    name = _safe(export.name)
    facts = {
        "plugbay.plugin.id": spec.id,
        "plugbay.plugin.version": _safe(spec.version),
        "plugbay.contract": spec.contract,
        "plugbay.export.kind": export.kind,
        "plugbay.export.name": name,
        "network.transport": "pipe",
    }
    if export.kind == "tool":
        facts |= {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": name}
    if spec.contract not in TELLERS:
        return f"{'execute_tool' if export.kind == 'tool' else export.kind} {name}", facts
    method = METHODS.get(export.kind, export.kind)
    return method if export.kind == "resource" else f"{method} {name}", {**facts, "mcp.method.name": method}


def _conclude(span: Span, record: CallRecord) -> None:
    span.set_attributes({"plugbay.call.id": record.call_id, "plugbay.outcome": record.status})
    if record.failure is not None:
        span.set_attribute("error.type", record.failure.code)
        span.set_status(Status(StatusCode.ERROR))  # without its message, which may quote what went in


def _of_order(order: Order | None) -> Context | None:
    """Where the span of ordered work belongs when that is not the current trace, such as after a restart.

    Who asked is over by then and only its trace is known, so the parent is one that nobody has: the same for all work
    of the trace. None: the current context.
    """
    digits = trace_digits((order and order.trace_id) or "")
    if digits is None or int(digits, 16) == trace.get_current_span().get_span_context().trace_id:
        return None
    span_id = int(hashlib.sha256(digits.encode()).hexdigest()[:16], 16)
    parent = SpanContext(int(digits, 16), span_id, is_remote=True, trace_flags=TraceFlags(TraceFlags.SAMPLED))
    return trace.set_span_in_context(NonRecordingSpan(parent))


def _handing_on(ask: Ask) -> Ask:
    """The same question, with the current span in `_meta` where the plugin is an MCP server."""

    def asked(entry: Entry) -> PluginOp | Failure:
        op = ask(entry)
        if isinstance(op, InvokeTool | ReadResource | GetPrompt) and entry.spec.contract in TELLERS:
            # Not a copy: whoever asks may know its operation by identity.
            op.context = _with_parent(op.context, carrier_of(trace.get_current_span()))
        return op

    return asked


def _with_parent(context: Mapping[str, Any], carrier: dict[str, str]) -> Mapping[str, Any]:
    """Our span in place of the caller's, unless the caller named one of another trace."""
    meta = context.get(CONTEXT, {})
    if not carrier or not isinstance(meta, dict):
        return context
    given = meta.get(_PARENT)
    if isinstance(given, str) and given[:35] != carrier[_PARENT][:35]:  # version and trace
        return context
    rest = {key: value for key, value in meta.items() if key not in (_PARENT, _STATE)}
    return {**context, CONTEXT: {**rest, **carrier}}


def _safe(text: str) -> str:
    """A plugin's word as a collector takes it: half a character would spoil all spans that are sent with it."""
    return text[:LONGEST_NAME].encode("utf-8", "replace").decode()
