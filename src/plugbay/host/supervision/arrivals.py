"""`Arrivals`: how many plugins are on their way at a time, from their start to their greeting.

A program that starts needs the processor more than it ever will again. Where two hundred start at once, each takes so
long that the patience of its greeting is over for many of them; a few at a time, none waits longer for the last.
Refuses to know what arrives.
"""

from __future__ import annotations

import asyncio
import os

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
