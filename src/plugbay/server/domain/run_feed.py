"""`Feeds`: what happens in a run, for whoever watches it just now.

Owns who watches. Nothing is kept here: what stays is in the run's timeline. A watcher that does not keep up is left
behind and told so, and never makes the run wait.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import Any

DEPTH = 1024
"""Pieces that a watcher may be behind: a long reply at full speed while its connection stalls for seconds."""

Piece = dict[str, Any]

LAGGED: Piece = {"type": "feed.lagged"}
"""The last piece for a watcher that did not keep up; the timeline has what it missed."""


class Feed:
    """The pieces of one run for one watcher, to be iterated over; ends when the run does."""

    def __init__(self) -> None:
        self._pieces: asyncio.Queue[Piece | None] = asyncio.Queue(DEPTH + 2)
        self._over = False

    def put(self, piece: Piece) -> None:
        if self._over:
            return
        if self._pieces.qsize() >= DEPTH:
            self.end(LAGGED)
        else:
            self._pieces.put_nowait(piece)

    def end(self, last: Piece | None = None) -> None:
        """Nothing follows."""
        if self._over:
            return
        self._over = True
        if last is not None:
            self._pieces.put_nowait(last)
        self._pieces.put_nowait(None)

    async def __aiter__(self) -> AsyncIterator[Piece]:
        while (piece := await self._pieces.get()) is not None:
            yield piece


class Feeds:
    """The feeds of all runs."""

    def __init__(self) -> None:
        self._watched: dict[str, list[Feed]] = {}

    @contextmanager
    def watch(self, run_id: str) -> Iterator[Feed]:
        """A feed of what happens in a run from now on."""
        feed = Feed()
        self._watched.setdefault(run_id, []).append(feed)
        try:
            yield feed
        finally:
            feeds = self._watched.get(run_id, [])
            if feed in feeds:
                feeds.remove(feed)
            if not feeds:
                self._watched.pop(run_id, None)

    def tell(self, run_id: str, type: str, /, **data: Any) -> None:
        """Something happened."""
        for feed in self._watched.get(run_id, ()):
            feed.put({"type": type, **data})

    def end(self, run_id: str) -> None:
        """The run is over."""
        for feed in self._watched.pop(run_id, ()):
            feed.end()
