"""`Lines`: where work waits that may only be done so many times at once, each kind of it in its own line.

A line is there for as long as anybody is in it or at work; one that is free for all needs no memory.
"""

from __future__ import annotations

from plugbay.host.limits import ConcurrencyLimit
from plugbay.model.errors import Code, Failure

MAX_FREE = 1_024
"""Lines that are remembered although nobody needs them."""


class Lines:
    """Every line of one host, by a key of its owner's."""

    def __init__(self) -> None:
        self._lines: dict[tuple[str, ...], ConcurrencyLimit] = {}

    async def enter(self, key: tuple[str, ...], limit: int, seconds: float) -> ConcurrencyLimit | Failure:
        """Wait for a turn, no longer than `seconds`; give it back with `give`. The limit of a busy line stays."""
        line = self._lines.get(key)
        if line is None or (line.limit != limit and not line.in_use):
            if len(self._lines) >= MAX_FREE:
                self._lines = {known: line for known, line in self._lines.items() if line.in_use}
            line = self._lines[key] = ConcurrencyLimit(limit)
        if await line.acquire(seconds) is None:
            return line
        text = f"{line.limit} of the same run already, which is as many as may, and none ended in time"
        return Failure(Code.OVERLOADED, text, retryable=True)
