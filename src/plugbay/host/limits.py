"""`Turns`: how many calls of one plugin may run at once; more wait in line, each no longer than its own deadline.

Taking a turn that is free costs no await, because that is every call of a plugin that keeps up.
"""

from __future__ import annotations

import asyncio
import os
from collections import deque

from plugbay.model.errors import Code, Failure


class Turns:
    """A fair, bounded number of turns."""

    __slots__ = ("_line", "limit", "taken")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.taken = 0
        """Calls that run now."""
        self._line: deque[asyncio.Future[None]] = deque()

    def take(self) -> bool:
        """Take a turn if one is free and nobody waits for it."""
        if self.taken >= self.limit or self._line:
            return False
        self.taken += 1
        return True

    async def wait(self, seconds: float | None) -> Failure | None:
        """Take a turn when one is free; a `Failure` when that is not in time."""
        if self.take():
            return None
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._line.append(turn)
        try:
            await asyncio.wait({turn}, timeout=seconds)
        except BaseException:
            self._leave(turn)
            raise
        if turn.done():
            return None
        self._leave(turn)
        text = f"{self.limit} calls of this plugin run already, and none ended in time"
        hint = "raise concurrency in plugbay.toml, or ask less at once"
        return Failure(Code.OVERLOADED, text, detail={"hint": hint}, retryable=True)

    def give(self) -> None:
        """A call is over: whoever waits longest is next."""
        while self._line:
            turn = self._line.popleft()
            if not turn.done():
                turn.set_result(None)
                return
        self.taken -= 1

    async def drain(self) -> None:
        """Take every turn, after whoever is in line now; nobody gets one afterwards."""
        for _ in range(self.limit):
            await self.wait(None)

    def _leave(self, turn: asyncio.Future[None]) -> None:
        """Out of the line; a turn that was given in the same moment goes on to the next."""
        if turn.done() and not turn.cancelled():
            self.give()
        elif turn in self._line:
            self._line.remove(turn)


AT_LEAST = 4
"""However few processors there are: a program also waits for its files."""

PER_CORE = 2

LONGEST = 2.0
"""Seconds that a place is taken: a program that hangs must not keep the others from starting."""


def usual_places() -> int:
    """For the processors that this process may use."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(AT_LEAST, PER_CORE * cores)


class Place:
    """One of the places, taken until it is freed or was taken for long enough."""

    __slots__ = ("_places", "_timer")

    def __init__(self, places: asyncio.Semaphore, seconds: float) -> None:
        self._places: asyncio.Semaphore | None = places
        self._timer = asyncio.get_running_loop().call_later(seconds, self.free)

    def free(self) -> None:
        """Whoever waits longest is next; only the first time counts."""
        self._timer.cancel()
        if self._places is not None:
            self._places.release()
            self._places = None


class Arrivals:
    """The places of one host, given in the order in which they are asked for."""

    __slots__ = ("_longest", "_places")

    def __init__(self, places: int | None = None, longest: float = LONGEST) -> None:
        self._places = asyncio.Semaphore(usual_places() if places is None else places)
        self._longest = longest

    async def place(self) -> Place:
        """Wait for one."""
        await self._places.acquire()
        return Place(self._places, self._longest)
