"""`Errands`: work that goes on after its request was answered, until its end is written down.

Owns the tasks: each has one that does the work, which can be cancelled, and one that sees to its end, which cannot.
What the work is and what an end looks like is others' business.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any, Generic, TypeVar

from plugbay.server.domain.durable import durably

LOG = logging.getLogger("plugbay.server.domain")

USER, SHUTDOWN, INTERNAL = "user_cancelled", "host_shutdown", "internal"
"""Why work has no end of its own."""

PATIENCE = 20.0
"""Seconds that a stop waits for ends to be written: plugins have theirs to leave, and a database may just be restarted.
What is still open then is closed when the gateway starts again."""

E = TypeVar("E")


def settle(future: asyncio.Future[E], value: E) -> None:
    """The first value counts; whoever waited may have gone."""
    if not future.done():
        future.set_result(value)


class Errands(Generic[E]):
    """Work of one kind, by its id."""

    def __init__(self, cut_off: Callable[[str], E], patience: float = PATIENCE) -> None:
        """`cut_off` is the end of work that has none of its own, for one of the reasons above."""
        self._patience = patience
        self._cut_off = cut_off
        self._driving: dict[str, asyncio.Task[E]] = {}
        self._reasons: dict[str, str] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        """Who sees each of them to its end."""
        self._stopping = False

    @property
    def running(self) -> frozenset[str]:
        """What is being worked on here."""
        return frozenset(self._driving)

    def launch(
        self,
        id: str,
        drive: Callable[[], Coroutine[Any, Any, E]],
        finish: Callable[[E], Coroutine[Any, Any, None]],
    ) -> None:
        """Do the work, then `finish` it with its end; one that is being done already is not begun twice."""
        if id in self._driving:
            return
        loop = asyncio.get_running_loop()
        driving = self._driving[id] = loop.create_task(drive())
        self._tasks[id] = loop.create_task(self._perform(id, driving, finish))
        if self._stopping:
            self.cancel(id, SHUTDOWN)

    def cancel(self, id: str, reason: str = USER) -> None:
        """Cut it off; what is not being done here is left alone."""
        task = self._driving.get(id)
        if task is not None:
            self._reasons.setdefault(id, reason)
            task.cancel()

    async def closed(self, id: str) -> None:
        """Wait while the end of something that is over is being written; whoever reads it is sooner than we are."""
        driving = self._driving.get(id)
        if driving is not None and driving.done():
            await asyncio.wait({self._tasks[id]}, timeout=self._patience)

    async def stop(self) -> None:
        """Cut everything off, and wait until every end is written; not for ever where the database is away."""
        self._stopping = True
        for id in self.running:
            self.cancel(id, SHUTDOWN)
        if self._tasks:
            _, late = await asyncio.wait(set(self._tasks.values()), timeout=self._patience)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)

    async def _perform(
        self, id: str, driving: asyncio.Task[E], finish: Callable[[E], Coroutine[Any, Any, None]]
    ) -> None:
        try:
            await asyncio.wait({driving})
            end = self._end(id, driving)
            try:
                await durably(lambda: finish(end))
            except Exception:
                LOG.exception("%s: its end cannot be written as it is", id)
                await durably(lambda: finish(self._cut_off(INTERNAL)))
        except Exception:
            LOG.exception("%s could not be closed; it is closed when the gateway starts again", id)
        finally:
            del self._driving[id], self._tasks[id]
            self._reasons.pop(id, None)

    def _end(self, id: str, driven: asyncio.Task[E]) -> E:
        if driven.cancelled():
            return self._cut_off(self._reasons.get(id, SHUTDOWN))
        error = driven.exception()
        if error is not None:
            LOG.error("%s: a bug in plugbay", id, exc_info=error)
            return self._cut_off(INTERNAL)
        return driven.result()
