"""How long tests wait: until a condition holds, and far longer than it ever takes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

PATIENCE = 240.0
"""Seconds until a condition that does not come true is a failure. No assertion depends on it: on an idle machine the
longest wait of a test is a fraction of a second, on a busy one it is as long as the others take."""


async def until(condition: Callable[[], bool], seconds: float = PATIENCE) -> None:
    """Wait for a condition, and say so when it never comes."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "the condition never came true"
        await asyncio.sleep(0.002)


def until_blocking(condition: Callable[[], bool], seconds: float = PATIENCE) -> None:
    """The same without a loop."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "the condition never came true"
        time.sleep(0.002)
