"""`end_tasks`: cancels tasks until they have ended."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

AGAIN_SECONDS = 3.0
"""Longer than a task takes to clean up: SQLAlchemy gives a connection two seconds to close."""


async def end_tasks(tasks: Iterable[asyncio.Task[Any]]) -> None:
    """Cancel them, and once more those that go on: `wait_for` of Python 3.11 can swallow a cancellation."""
    pending = set(tasks)
    while pending:
        for task in pending:
            task.cancel()
        _, pending = await asyncio.wait(pending, timeout=AGAIN_SECONDS)
