"""`TapStream`: what passes between the host and one plugin, as an async iterator with a bound.

Owns what waits for somebody who does not keep up: the oldest gives way and is counted. Refuses to know what passes.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from typing import Self

from plugbay.link.recording import Frame, Item

SHOWN_BYTES = 64 << 10
"""A longer frame is shown by its beginning, its length and its digest: pictures and files are not read on a screen."""

WAITING_ITEMS = 1024
WAITING_BYTES = 4 << 20
"""What waits to be taken: some screens full, and at least sixty of the longest frames."""

LINE_WEIGHT = 256
"""Bytes that everything but a frame counts as."""


class TapStream:
    """Iterate over it on the host's own loop, and close it: `with host.tap("weather") as frames:`."""

    largest = SHOWN_BYTES

    def __init__(
        self, left: Callable[[TapStream], None], items: int = WAITING_ITEMS, most: int = WAITING_BYTES
    ) -> None:
        """`left`: told when nobody wants more; `items` and `most` bytes may wait."""
        self.dropped = 0
        """Items that were lost because nobody took them in time."""
        self._left = left
        self._items = items
        self._most = most
        self._waiting: deque[Item] = deque()
        self._weight = 0
        self._over = False
        self._changed = asyncio.Event()

    def take(self, item: Item) -> None:
        self._waiting.append(item)
        self._weight += _weight(item)
        while len(self._waiting) > self._items or self._weight > self._most:
            self._weight -= _weight(self._waiting.popleft())
            self.dropped += 1
        self._changed.set()

    def close(self) -> None:
        """Nothing more comes; what waits can still be taken. May be called twice."""
        if not self._over:
            self._over = True
            self._left(self)
            self._changed.set()

    def rest(self) -> list[Item]:
        """Take everything that waits, without waiting for more."""
        items, self._weight = list(self._waiting), 0
        self._waiting.clear()
        return items

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __aiter__(self) -> AsyncIterator[Item]:
        return self

    async def __anext__(self) -> Item:
        while not self._waiting:
            if self._over:
                raise StopAsyncIteration
            self._changed.clear()
            await self._changed.wait()
        item = self._waiting.popleft()
        self._weight -= _weight(item)
        return item


def _weight(item: Item) -> int:
    return LINE_WEIGHT + (item.size if isinstance(item, Frame) and not item.cut else 0)
