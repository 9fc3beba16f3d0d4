"""`HealthWatch`: asks a resident child at intervals whether it is there, where its contract has a question for that.

Any answer proves life. While a call is in flight nothing is asked: many plugins do one thing at a time, and a slow call
is no illness. Owns the interval and the count of missed answers; what to do about a plugin that is gone is its owner's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from plugbay.link.link import Link
from plugbay.model.errors import Code
from plugbay.model.operations import CheckHealth

ANSWER_SECONDS = 5.0
"""Within which a probe must be answered."""

MISSES = 3
"""Unanswered probes in a row that make a plugin count as hung."""


class HealthWatch:
    """Probes of one child."""

    def __init__(
        self, link: Link, interval: float, hung: Callable[[int], object], patience: float = ANSWER_SECONDS
    ) -> None:
        self._link = link
        self._interval = interval
        self._hung = hung
        self._patience = patience
        self.missed = 0
        self.answered = 0
        self._task = asyncio.get_running_loop().create_task(self._watch())

    def stop(self) -> None:
        self._task.cancel()

    async def _watch(self) -> None:
        while self._link.fault is None:
            await asyncio.sleep(self._interval)
            if self._link.waiting or self._link.fault is not None:
                continue
            answer = await self._link.call(CheckHealth(), self._patience)
            if answer.failure is None or answer.failure.code != Code.TIMEOUT:
                self.missed = 0
                self.answered += 1
            else:
                self.missed += 1
            if self.missed >= MISSES:
                self._hung(self.missed)
                return
