"""`TracedCalls`: calls that are OpenTelemetry spans, in the trace of the caller.

A span has the export, the call id and the outcome, never input, output or messages: those may be secret. The trace is
passed on in `_meta` to MCP servers and as the `trace_id` of invocations. Only a host with a tracer imports this module,
because it loads OpenTelemetry.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from opentelemetry import context as contexts
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import NonRecordingSpan, Span, SpanContext, SpanKind, Status, StatusCode, TraceFlags, Tracer
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from plugbay.contracts.mcp.requests import CONTEXT
from plugbay.host.calls.calls import Calls
from plugbay.host.catalog.catalog import Entry
from plugbay.host.catalog.runtime_exports import RUNTIME_CONTRACTS
from plugbay.host.invocations.context import TRACE_PREFIX, w3c_trace_id
from plugbay.host.ports import CallRecord, InvocationRecord
from plugbay.host.request import CallRequest, CallResult
from plugbay.model.errors import Failure
from plugbay.model.operations import GetPrompt, InvokeTool, ReadResource

if TYPE_CHECKING:
    from plugbay.model.operations import PluginOp

LONGEST_NAME = 200
"""Characters of a name in a span: MCP servers choose their own names."""

LONGEST_PARENT = 512
"""Characters of a `traceparent`, which has 55 today, or a `tracestate`, which W3C limits to 512."""

METHODS = {"tool": "tools/call", "prompt": "prompts/get", "resource": "resources/read"}
"""The MCP method of each kind of export; it names the span."""

_W3C = TraceContextTextMapPropagator()
_PARENT, _STATE = "traceparent", "tracestate"


class TracedCalls(Calls):
    """`Calls`, each in a span. The span is the current one while the call lasts."""

    def __init__(self, tracer: Tracer, *parts: Any) -> None:
        super().__init__(*parts)
        self._tracer = tracer

    async def run(self, request: CallRequest) -> CallResult:
        """One call, within its span."""
        entry = self.catalog.resolve(request.name, request.kind)
        title, facts = _describe(entry)
        span = self._tracer.start_span(title, _parent_of(request), SpanKind.CLIENT, facts)
        token = contexts.attach(trace.set_span_in_context(span))
        try:
            return await super().run(request)
        finally:
            contexts.detach(token)
            if isinstance(entry, Failure):  # the export became known during the call
                title, facts = _describe(self.catalog.resolve(request.name, request.kind))
                span.update_name(title)
                span.set_attributes(facts)
            span.end()

    @contextmanager
    def with_parent(self, carrier: Mapping[str, Any]) -> Iterator[None]:
        """Calls inside have the span in the `traceparent` of `carrier` as parent, if there is one."""
        token = contexts.attach(parent_in(carrier))
        try:
            yield
        finally:
            contexts.detach(token)

    def new_trace(self) -> str:
        """The trace of the current call."""
        current = trace.get_current_span().get_span_context()
        return f"{TRACE_PREFIX}{current.trace_id:032x}" if current.is_valid else super().new_trace()

    def _make_operation(self, request: CallRequest, entry: Entry) -> PluginOp | Failure:
        """The same operation, with the current span in `_meta` where the plugin is an MCP server."""
        op = super()._make_operation(request, entry)
        if isinstance(op, InvokeTool | ReadResource | GetPrompt) and entry.spec.contract in RUNTIME_CONTRACTS:
            # Not a copy: the caller may know its operation by identity.
            op.context = _with_parent(op.context, carrier_of(trace.get_current_span()))
        return op

    def _record(
        self,
        name: str,
        entry: Entry | Failure,
        started_at: float,
        milliseconds: float,
        failure: Failure | None,
        attempts: list[InvocationRecord],
    ) -> CallRecord:
        record = super()._record(name, entry, started_at, milliseconds, failure, attempts)
        span = trace.get_current_span()
        _conclude(span, record)
        if attempts:
            span.set_attribute("plugbay.invocation.ids", [each.invocation_id for each in attempts])
        return record


def parent_in(carrier: Mapping[str, Any]) -> Context:
    """The current context with the parent in `carrier`; an invalid trace context is ignored, as W3C requires."""
    given = {key: carrier.get(key) for key in (_PARENT, _STATE)}
    texts = {key: text for key, text in given.items() if isinstance(text, str) and len(text) <= LONGEST_PARENT}
    return _W3C.extract(texts, contexts.get_current())


def carrier_of(span: Span) -> dict[str, str]:
    """The trace context that makes this span the parent of a remote one; empty for an invalid span."""
    carrier: dict[str, str] = {}
    _W3C.inject(carrier, trace.set_span_in_context(span))
    return carrier


def _describe(entry: Entry | Failure) -> tuple[str, dict[str, str]]:
    """The name and the attributes of a span, by the semantic conventions of OpenTelemetry where they exist."""
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
    if spec.contract not in RUNTIME_CONTRACTS:
        return f"{'execute_tool' if export.kind == 'tool' else export.kind} {name}", facts
    method = METHODS.get(export.kind, export.kind)
    return method if export.kind == "resource" else f"{method} {name}", {**facts, "mcp.method.name": method}


def _conclude(span: Span, record: CallRecord) -> None:
    span.set_attributes({"plugbay.call.id": record.call_id, "plugbay.outcome": record.status})
    if record.failure is not None:
        span.set_attribute("error.type", record.failure.code)
        span.set_status(Status(StatusCode.ERROR))  # without the message, which may quote the input


def _parent_of(request: CallRequest) -> Context | None:
    """The parent of an invocation's span when it is not in the current trace, such as after a restart of the server.

    The original parent has ended by then and only its trace id is known, so the parent is a made-up span id, the same
    for all invocations of the trace. None: the current context.
    """
    digits = w3c_trace_id(request.trace_id or "")
    if digits is None or int(digits, 16) == trace.get_current_span().get_span_context().trace_id:
        return None
    span_id = int(hashlib.sha256(digits.encode()).hexdigest()[:16], 16)
    parent = SpanContext(int(digits, 16), span_id, is_remote=True, trace_flags=TraceFlags(TraceFlags.SAMPLED))
    return trace.set_span_in_context(NonRecordingSpan(parent))


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
    """A plugin's text as valid UTF-8: a lone surrogate would make the exporter drop the whole batch."""
    return text[:LONGEST_NAME].encode("utf-8", "replace").decode()
