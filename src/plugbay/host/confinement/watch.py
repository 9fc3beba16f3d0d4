"""`Watch`: looks at children again and again, on a thread, until they end or one look finds a reason to act.

Owns the rhythm. Refuses to know what is looked at and what follows: `state_watch` and `memory_watch` do.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from plugbay.process.child import Child

    Look = Callable[[], str | None]
    """Blocks; returns what is wrong, or None."""

    Told = Callable[[str], None]
    """Hears what is wrong, once."""

LONGEST_PAUSE = 30.0

SHARE = 20
"""The time between two looks is at least so many times what one takes: looking must not keep a core busy."""


class Watch:
    """Children of one host; one round of looks at a time."""

    __slots__ = ("_looking", "_seconds", "_watched")

    def __init__(self, seconds: float) -> None:
        """`seconds` lie between two rounds, more where one takes long."""
        self._seconds = seconds
        self._watched: dict[Child, tuple[Look, Told]] = {}
        self._looking: asyncio.Task[None] | None = None

    def begin(self, child: Child, look: Look, told: Told) -> None:
        """Look at a child until it ends."""
        self._watched[child] = (look, told)
        child.on_exit(lambda _: self._end(child))
        if self._looking is None:
            self._looking = asyncio.get_running_loop().create_task(self._look_again_and_again())

    def _end(self, child: Child) -> None:
        self._watched.pop(child, None)
        if not self._watched and self._looking is not None:
            self._looking.cancel()
            self._looking = None

    async def _look_again_and_again(self) -> None:
        pause = self._seconds
        while True:
            await asyncio.sleep(pause)
            began = time.monotonic()
            found = await asyncio.to_thread(_look_at_all, {child: look for child, (look, _) in self._watched.items()})
            pause = min(max(self._seconds, SHARE * (time.monotonic() - began)), LONGEST_PAUSE)
            for child, wrong in found.items():
                if child in self._watched:
                    self._watched.pop(child)[1](wrong)


def _look_at_all(looks: dict[Child, Look]) -> dict[Child, str]:
    found = {child: look() for child, look in looks.items()}
    return {child: wrong for child, wrong in found.items() if wrong is not None}
