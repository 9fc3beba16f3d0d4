"""How long tests wait: until a condition holds, and far longer than it ever takes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator

PATIENCE = 240.0
"""Seconds until a condition that does not come true is a failure. No assertion depends on it: on an idle machine the
longest wait of a test is a fraction of a second, on a busy one it is as long as the others take."""


def pauses(seconds: float = PATIENCE, why: str = "the condition never came true") -> Iterator[float]:
    """How long to sleep before each next look at a condition; an AssertionError when it has taken too long.

    A tenth of the time so far, at most: to look all the time would take the CPU from the process that is waited for.
    """
    begun = time.monotonic()
    while (passed := time.monotonic() - begun) < seconds:
        yield min(max(passed / 10, 0.002), 0.05)
    raise AssertionError(why)


async def until(condition: Callable[[], bool], seconds: float = PATIENCE) -> None:
    """Wait for a condition, and say so when it never comes."""
    for pause in pauses(seconds):
        if condition():
            return
        await asyncio.sleep(pause)


def until_blocking(condition: Callable[[], bool], seconds: float = PATIENCE) -> None:
    """The same without a loop."""
    for pause in pauses(seconds):
        if condition():
            return
        time.sleep(pause)
