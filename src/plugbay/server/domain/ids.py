"""Ids: a prefix that says what it is, and 80 random bits. Opaque to everybody, and never with `/` or `:` in them."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable
from contextvars import ContextVar

from plugbay.host.invocations.context import TRACE_PREFIX, trace_digits

REQUEST_ID: ContextVar[str | None] = ContextVar("plugbay_request_id", default=None)
"""The request that the running task answers; None for work that nobody asked for just now."""


RANDOM_BYTES = 10
"""Of each id: nobody guesses another tenant's."""

LONGEST = 64
"""Characters of an id that others may choose; the columns that hold ids are as wide."""

_ID = re.compile(rf"[A-Za-z0-9][A-Za-z0-9_.-]{{0,{LONGEST - 1}}}", re.ASCII)

Ids = Callable[[str], str]
"""Makes an id with a prefix; passed in where a test wants to know them beforehand."""


def new_id(prefix: str) -> str:
    """`new_id("bind_")` → `bind_5f0c…`, 20 hexadecimal digits behind the prefix."""
    return prefix + os.urandom(RANDOM_BYTES).hex()


def is_id(text: str) -> bool:
    """Whether a text can be an id at all."""
    return _ID.fullmatch(text) is not None


TRACE_BYTES = 16

_PARENT = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?", re.ASCII)


def parse_traceparent(header: str | None) -> str | None:
    """The trace id in a `traceparent`; None: there is none in it."""
    found = _PARENT.fullmatch(header or "")
    if found is None:
        return None
    version, trace, span, _, more = found.groups()
    if version == "ff" or (version == "00" and more) or set(trace) == {"0"} or set(span) == {"0"}:
        return None
    return f"{TRACE_PREFIX}{trace}"


def new_trace_id() -> str:
    """A trace that begins here."""
    return TRACE_PREFIX + os.urandom(TRACE_BYTES).hex()


def format_traceparent(trace_id: str, invocation_id: str) -> str | None:
    """The `traceparent` for whoever follows an invocation; None: its trace id is somebody else's kind of id."""
    digits = trace_digits(trace_id)
    if digits is None:
        return None
    span = hashlib.sha256(invocation_id.encode()).hexdigest()[:16]
    return f"00-{digits}-{span}-01"
