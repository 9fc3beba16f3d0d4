"""Steps that are written down whatever happens to whoever takes them: a cancelled task, a database that is away."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from plugbay.store.failures import StoreUnavailable

T = TypeVar("T")

PAUSES = (0.1, 0.5, 2.0, 5.0)
"""Seconds before a step that the database could not take is tried again; the last one again and again."""


async def durably(step: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Have a step written, however long the database takes to come back.

    Cancelled, it gives up waiting for the database, but a step that has begun comes to its end first: nobody can tell
    otherwise whether it was committed.
    """
    attempts = 0
    while True:
        try:
            return await _to_the_end(step())
        except StoreUnavailable:
            await asyncio.sleep(PAUSES[min(attempts, len(PAUSES) - 1)])
            attempts += 1


async def _to_the_end(step: Coroutine[Any, Any, T]) -> T:
    task = asyncio.get_running_loop().create_task(step)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        while not task.done():
            # More than once: whoever cancelled us may become impatient, and still cannot tell what was committed.
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.wait({task})
        if not task.cancelled():
            task.exception()  # whoever cancelled us does not ask any more
        raise
