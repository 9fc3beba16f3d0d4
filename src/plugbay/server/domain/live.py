"""`Live`: what is going on in invocations right now, for whoever watches. Nothing of it is kept.

Owns that a watcher who is too slow loses the oldest of what it has not seen, and is told how much. Refuses to know who
may see what: whoever subscribes says which events are meant.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Self

from plugbay.host.ports import InvocationRecord

STARTED, EVENT, ENDED, LOST = "started", "event", "ended", "lost"

DEPTH = 256
"""Events that wait for one watcher."""

MAX_WATCHERS = 1_000


@dataclass(frozen=True, slots=True)
class LiveEvent:
    """Something that just happened."""

    type: str
    """`started`, `event` (the plugin said something), `ended`, or `lost` (events that came too fast)."""
    record: InvocationRecord | None
    """The invocation as it is known now."""
    data: Any = field(default=None)
    """What the plugin said, secrets taken out; or how many events were lost."""


class Watch:
    """One watcher's events, as an async iterator; ends when `Live` does."""

    def __init__(self, live: Live, wanted: Callable[[LiveEvent], bool]) -> None:
        self._live = live
        self.wanted = wanted
        self._waiting: deque[LiveEvent] = deque()
        self._lost = 0
        self._more = asyncio.Event()
        self._over = False

    def put(self, event: LiveEvent) -> None:
        if len(self._waiting) >= DEPTH:
            self._waiting.popleft()
            self._lost += 1
        self._waiting.append(event)
        self._more.set()

    def close(self) -> None:
        """No more events."""
        self._over = True
        self._more.set()
        self._live.leave(self)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> LiveEvent:
        while not self._waiting:
            if self._over:
                raise StopAsyncIteration
            self._more.clear()
            await self._more.wait()
        if self._lost:
            lost, self._lost = self._lost, 0
            return LiveEvent(LOST, None, lost)
        return self._waiting.popleft()


class Live:
    """All watchers."""

    def __init__(self) -> None:
        self._watchers: set[Watch] = set()

    def watch(self, wanted: Callable[[LiveEvent], bool]) -> Watch | None:
        """Watch from now on; None: too many do already. Whoever watches closes the watch."""
        if len(self._watchers) >= MAX_WATCHERS:
            return None
        watch = Watch(self, wanted)
        self._watchers.add(watch)
        return watch

    def leave(self, watch: Watch) -> None:
        self._watchers.discard(watch)

    def tell(self, event: LiveEvent) -> None:
        """Tell all who want to know."""
        for watch in self._watchers:
            if watch.wanted(event):
                watch.put(event)

    def close(self) -> None:
        """Nothing happens any more."""
        for watch in list(self._watchers):
            watch.close()
