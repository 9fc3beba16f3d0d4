"""Whether calls become spans: OpenTelemetry is loaded only where somebody brings a tracer, and costs only there.

Owns that choice. What a span says is `traced_calls`'s; where spans go is whoever made the tracer's.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING

from plugbay.host.calls.calls import Calls
from plugbay.model.errors import PlugbayError

if TYPE_CHECKING:
    from opentelemetry.trace import Tracer

INSTALL = "pip install 'plugbay[otel]'"


def calls_with(tracer: Tracer | None) -> Callable[..., Calls]:
    """What makes the `Calls` of a host; raises `PlugbayError` when spans are wanted and cannot be made."""
    if tracer is None:
        return Calls
    try:
        from opentelemetry.trace import Tracer

        from plugbay.host.calls.traced_calls import TracedCalls
    except ImportError as error:
        raise PlugbayError(f"traces need the extra otel, for {error.name}; {INSTALL}") from None
    if not isinstance(tracer, Tracer):
        raise TypeError(f"tracer is what opentelemetry.trace.get_tracer(...) gives, not {tracer!r:.100}")
    return functools.partial(TracedCalls, tracer)
