"""Ids, trace ids with W3C `traceparent`, and the id of the current request.

An id is a prefix and 80 random bits, never with `/` or `:`. A trace id is `tr_` and 32 hex digits.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable
from contextvars import ContextVar

from plugbay.host.invocations.context import TRACE_PREFIX, w3c_trace_id

REQUEST_ID: ContextVar[str | None] = ContextVar("plugbay_request_id", default=None)
"""The id of the request that the current task answers; None for background work."""


RANDOM_BYTES = 10
"""Random bytes of an id: not guessable."""

LONGEST = 64
"""Characters of an id chosen by a client; the column width."""

ID_PATTERN = rf"[A-Za-z0-9][A-Za-z0-9_.-]{{0,{LONGEST - 1}}}"
"""An id can stand in a path, and before a colon."""

Ids = Callable[[str], str]
"""Creates an id with a prefix; tests pass their own."""


def new_id(prefix: str) -> str:
    """`new_id("bind_")` → `bind_5f0c…`, 20 hexadecimal digits behind the prefix."""
    return prefix + os.urandom(RANDOM_BYTES).hex()


TRACE_BYTES = 16

_PARENT = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?", re.ASCII)


def parse_traceparent(header: str | None) -> str | None:
    """The trace id in a `traceparent`; None if it is invalid."""
    found = _PARENT.fullmatch(header or "")
    if found is None:
        return None
    version, trace, span, _, more = found.groups()
    if version == "ff" or (version == "00" and more) or set(trace) == {"0"} or set(span) == {"0"}:
        return None
    return f"{TRACE_PREFIX}{trace}"


def new_trace_id() -> str:
    """A new trace id."""
    return TRACE_PREFIX + os.urandom(TRACE_BYTES).hex()


def format_traceparent(trace_id: str, invocation_id: str) -> str | None:
    """The `traceparent` of an invocation; None if its trace id is not one of ours."""
    digits = w3c_trace_id(trace_id)
    if digits is None:
        return None
    span = hashlib.sha256(invocation_id.encode()).hexdigest()[:16]
    return f"00-{digits}-{span}-01"
