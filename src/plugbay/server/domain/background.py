"""`Tasks`: background work that goes on whatever happens to it. One that crashes is started again, later each time.

Owns the life of such work and what is known of it. Refuses to know what the work is.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Generic, TypeVar

from plugbay.store.failures import StoreUnavailable

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


T = TypeVar("T")

PAUSES = (0.1, 0.5, 2.0, 5.0)
"""Seconds before a step that the database could not take is tried again; the last one again and again."""


async def durably(step: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Have a step written, however long the database takes to come back.

    Cancelled, it gives up waiting for the database, but a step that has begun comes to its end first: nobody can tell
    otherwise whether it was committed.
    """
    attempts = 0
    while True:
        try:
            return await _to_the_end(step())
        except StoreUnavailable:
            await asyncio.sleep(PAUSES[min(attempts, len(PAUSES) - 1)])
            attempts += 1


async def _to_the_end(step: Coroutine[Any, Any, T]) -> T:
    task = asyncio.get_running_loop().create_task(step)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        while not task.done():
            # More than once: whoever cancelled us may become impatient, and still cannot tell what was committed.
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.wait({task})
        if not task.cancelled():
            task.exception()  # whoever cancelled us does not ask any more
        raise


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


class BackgroundJobs(Generic[E]):
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
