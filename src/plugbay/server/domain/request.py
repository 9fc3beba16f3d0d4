"""Which request is being answered. Set at the edge, read by whoever keeps records."""

from __future__ import annotations

from contextvars import ContextVar

REQUEST_ID: ContextVar[str | None] = ContextVar("plugbay_request_id", default=None)
"""The request that the running task answers; None for work that nobody asked for just now."""
