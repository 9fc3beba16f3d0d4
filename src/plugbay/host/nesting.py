"""Calls within calls: a plugin asks the host, and the host calls a plugin to answer. Bounds depth, number and time.

A `Cause` is the request of a plugin that leads to calls. It follows the work through the host by a context variable, so
every call finds the cause that led to it, also behind services, streams and actions of an application. Contracts do not
say for which call a plugin asks. So a request has the depth of the deepest call that its plugin works on, and its calls
end with the last of them.
"""

from __future__ import annotations

import asyncio
from contextvars import ContextVar

from plugbay.model.errors import Code, Failure

MAX_DEPTH = 4
"""Calls that wait for one another, the outermost included."""

MAX_CALLS = 64
"""Calls that one request of a plugin leads to, at all depths together."""


class Spent:
    """The number of calls that one request has led to."""

    __slots__ = ("calls",)

    def __init__(self) -> None:
        self.calls = 0


class Cause:
    """The request that led to a call: its depth, its end and its budget of calls."""

    __slots__ = ("depth", "spent", "until")

    def __init__(self, depth: int = 0, until: float | None = None, spent: Spent | None = None) -> None:
        self.depth = depth
        """Of the call that the plugin works on; 0: none, the request is the plugin's own."""
        self.until = until
        """The end of that call, on the clock of the loop; None: no end is known."""
        self.spent = spent or Spent()

    def left(self) -> float:
        """Seconds that a call has because of this."""
        return float("inf") if self.until is None else max(0.0, self.until - asyncio.get_running_loop().time())

    def nest(self) -> Cause | Failure:
        """The cause of requests that a plugin makes during the next call; a `Failure` when there is none."""
        if self.depth >= MAX_DEPTH:
            return _refused(f"{MAX_DEPTH} calls are already waiting for one another", "max_depth", MAX_DEPTH)
        if self.spent.calls >= MAX_CALLS:
            return _refused(f"one request of a plugin has led to {MAX_CALLS} calls", "max_calls", MAX_CALLS)
        self.spent.calls += 1
        return Cause(self.depth + 1, self.until, self.spent)


CAUSE: ContextVar[Cause | None] = ContextVar("plugbay_cause", default=None)
"""The request that the current work answers; None: the work of an application."""


def _refused(why: str, limit: str, most: int) -> Failure:
    hint = "check whether plugins call each other in a circle; a plugin must not use a service that it provides"
    return Failure(Code.OVERLOADED, f"too many calls within calls: {why}", detail={limit: most, "hint": hint})
