"""Trace ids of invocations, and W3C's `traceparent`, from which they come and in which they go on.

Pure but for the randomness of new ones. `tr_` and 32 hex digits are one trace; what is no trace context is ignored, as
W3C says.
"""

from __future__ import annotations

import hashlib
import os
import re

from plugbay.host.invocations.context import TRACE_PREFIX, w3c_trace_id

TRACE_BYTES = 16

_PARENT = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?", re.ASCII)


def from_parent(header: str | None) -> str | None:
    """The trace id in a `traceparent`; None: there is none in it."""
    found = _PARENT.fullmatch(header or "")
    if found is None:
        return None
    version, trace, span, _, more = found.groups()
    if version == "ff" or (version == "00" and more) or set(trace) == {"0"} or set(span) == {"0"}:
        return None
    return f"{TRACE_PREFIX}{trace}"


def new_trace() -> str:
    """A trace that begins here."""
    return TRACE_PREFIX + os.urandom(TRACE_BYTES).hex()


def parent(trace_id: str, invocation_id: str) -> str | None:
    """The `traceparent` for whoever follows an invocation; None: its trace id is somebody else's kind of id."""
    digits = w3c_trace_id(trace_id)
    if digits is None:
        return None
    span = hashlib.sha256(invocation_id.encode()).hexdigest()[:16]
    return f"00-{digits}-{span}-01"
