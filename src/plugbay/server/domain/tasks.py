"""`Tasks`: background work that goes on whatever happens to it. One that crashes is started again, later each time.

Owns the life of such work and what is known of it. Refuses to know what the work is.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable

LOG = logging.getLogger("plugbay.server.domain")

FIRST_PAUSE = 0.1
LONGEST_PAUSE = 30.0
"""Seconds before work that crashed is started again: doubled each time it did so without a calm while in between."""

CALM = 60.0
"""Seconds that work must go on before an earlier crash is forgotten."""

AGAIN = 0.5
"""Seconds after which work that goes on although it was cancelled is cancelled again."""

Work = Callable[[], Awaitable[None]]


class Tasks:
    """All background work of one gateway."""

    def __init__(self, first_pause: float = FIRST_PAUSE) -> None:
        self._first_pause = first_pause
        self._running: dict[str, asyncio.Task[None]] = {}
        self.crashes: Counter[str] = Counter()
        """How often each has been started again."""

    def start(self, name: str, work: Work) -> None:
        """Have this done until `stop`; work that returns is done."""
        if name in self._running:
            raise ValueError(f"{name} is already running")
        self._running[name] = asyncio.get_running_loop().create_task(self._keep(name, work), name=f"plugbay {name}")

    @property
    def names(self) -> tuple[str, ...]:
        """What is going on."""
        return tuple(name for name, task in self._running.items() if not task.done())

    async def stop(self) -> None:
        """Cancel everything and wait until it is over. The last that was started goes first."""
        while self._running:
            _, task = self._running.popitem()
            while not task.done():
                # More than once: `wait_for` of Python 3.11 swallows a cancellation that meets what it waited for.
                task.cancel()
                await asyncio.wait({task}, timeout=AGAIN)

    async def _keep(self, name: str, work: Work) -> None:
        loop, pause = asyncio.get_running_loop(), self._first_pause
        while True:
            began = loop.time()
            try:
                return await work()
            except Exception:
                self.crashes[name] += 1
                LOG.exception("background work %s crashed; it is started again", name)
            if loop.time() - began >= CALM:
                pause = self._first_pause
            await asyncio.sleep(pause)
            pause = min(pause * 2, LONGEST_PAUSE)
