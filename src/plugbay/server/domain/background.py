"""Background work of a gateway.

`Tasks` runs endless work and restarts it with backoff when it crashes, or when its database is away; a `Poller` is
endless work in rounds, which can be woken. `BackgroundJobs` runs work that outlives its request and records its end
exactly once; the work can be cancelled, recording its end cannot. `retry_until_stored` repeats a database step until
the database accepts it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Generic, TypeVar

from plugbay.link.cancellation import end_tasks
from plugbay.store.failures import StoreUnavailable
from plugbay.store.leases import LeaseLost

LOG = logging.getLogger("plugbay.server.domain")

FIRST_PAUSE = 0.1
LONGEST_PAUSE = 30.0
"""Seconds before crashed work is restarted: doubled after each crash, reset after `CALM` seconds."""

CALM = 60.0
"""Seconds without a crash after which the pause is reset."""


class Tasks:
    """All background work of one gateway."""

    def __init__(self, first_pause: float = FIRST_PAUSE) -> None:
        self._first_pause = first_pause
        self._running: dict[str, asyncio.Task[None]] = {}
        self.crashes: Counter[str] = Counter()
        """Restarts by name."""

    def start(self, name: str, work: Callable[[], Awaitable[None]]) -> None:
        """Run `work` until `stop`; work that returns is not restarted."""
        if name in self._running:
            raise ValueError(f"{name} is already running")
        self._running[name] = asyncio.get_running_loop().create_task(self._keep(name, work), name=f"plugbay {name}")

    @property
    def names(self) -> tuple[str, ...]:
        """Names of running work."""
        return tuple(name for name, task in self._running.items() if not task.done())

    async def stop(self) -> None:
        """Cancel all work, last started first, and wait for its end."""
        while self._running:
            _, task = self._running.popitem()
            await end_tasks([task])

    async def _keep(self, name: str, work: Callable[[], Awaitable[None]]) -> None:
        loop, pause = asyncio.get_running_loop(), self._first_pause
        while True:
            began = loop.time()
            try:
                return await work()
            except StoreUnavailable as error:
                LOG.warning("background work %s waits for the database: %s", name, error)
            except Exception:
                self.crashes[name] += 1
                LOG.exception("background work %s crashed; it is restarted", name)
            if loop.time() - began >= CALM:
                pause = self._first_pause
            await asyncio.sleep(pause)
            pause = min(pause * 2, LONGEST_PAUSE)


class Poller:
    """Runs `poll` until cancelled: when it is woken, and after the seconds that the last poll returned.

    A wake during a poll starts another poll: none is lost.
    """

    def __init__(self, poll: Callable[[], Awaitable[float | None]], first: float | None = 0.0) -> None:
        """`first` is the wait before the first poll; a wait of None lasts until `wake`."""
        self._poll = poll
        self._first = first
        self._awake = asyncio.Event()

    def wake(self) -> None:
        """Poll now."""
        self._awake.set()

    async def run(self) -> None:
        wait = self._first
        while True:
            # Not `wait_for`: before Python 3.12 it can swallow a cancellation.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait):
                    await self._awake.wait()
            self._awake.clear()
            wait = await self._poll()


T = TypeVar("T")

PAUSES = (0.1, 0.5, 2.0, 5.0)
"""Seconds between attempts while the database is unavailable; the last value repeats."""


async def retry_until_stored(step: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run a database step until it succeeds, however long the database is unavailable.

    When cancelled it stops retrying, but a step that has started runs to its end first: otherwise it would be unknown
    whether it was committed.
    """
    attempts = 0
    while True:
        try:
            return await _run_to_end(step())
        except LeaseLost:
            raise  # another gateway closes this work
        except StoreUnavailable:
            await asyncio.sleep(PAUSES[min(attempts, len(PAUSES) - 1)])
            attempts += 1


async def _run_to_end(step: Coroutine[Any, Any, T]) -> T:
    task = asyncio.get_running_loop().create_task(step)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        while not task.done():
            # In a loop: we may be cancelled again before the commit is known.
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.wait({task})
        if not task.cancelled():
            task.exception()  # retrieved, so asyncio does not log it
        raise


USER, SHUTDOWN, INTERNAL = "user_cancelled", "host_shutdown", "internal"
"""Reasons for which a job is cut off."""

STOP_TIMEOUT = 20.0
"""Seconds that a stop waits for ends to be recorded: plugins need time to end, and a database may be restarting. Jobs
that are still open then are closed at the next start."""

E = TypeVar("E")


def settle(future: asyncio.Future[E], value: E) -> None:
    """Set the result unless it is set already, or the waiter has gone."""
    if not future.done():
        future.set_result(value)


class BackgroundJobs(Generic[E]):
    """Jobs of one kind, by id."""

    def __init__(self, cut_off: Callable[[str], E], stop_timeout: float = STOP_TIMEOUT) -> None:
        """`cut_off` makes the end of a job that was cut off for one of the reasons above."""
        self._stop_timeout = stop_timeout
        self._cut_off = cut_off
        self._working: dict[str, asyncio.Task[E]] = {}
        self._reasons: dict[str, str] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        """The tasks that record the ends."""
        self._stopping = False

    @property
    def running(self) -> frozenset[str]:
        """Ids of jobs that run here."""
        return frozenset(self._working)

    def launch(
        self,
        id: str,
        drive: Callable[[], Coroutine[Any, Any, E]],
        finish: Callable[[E], Coroutine[Any, Any, None]],
    ) -> None:
        """Run a job, then record its end with `finish`; a running job is not started twice."""
        if id in self._working:
            return
        loop = asyncio.get_running_loop()
        working = self._working[id] = loop.create_task(drive())
        self._tasks[id] = loop.create_task(self._record_end(id, working, finish))
        if self._stopping:
            self.cancel(id, SHUTDOWN)

    def cancel(self, id: str, reason: str = USER) -> None:
        """Cancel a job; unknown ids are ignored."""
        task = self._working.get(id)
        if task is not None:
            self._reasons.setdefault(id, reason)
            task.cancel()

    async def wait_closed(self, id: str) -> None:
        """Wait until the end of a finished job is recorded: a client may see the end earlier than we do."""
        working = self._working.get(id)
        if working is not None and working.done():
            await asyncio.wait({self._tasks[id]}, timeout=self._stop_timeout)

    async def stop(self) -> None:
        """Cancel all jobs and wait, up to the timeout, until their ends are recorded."""
        self._stopping = True
        for id in self.running:
            self.cancel(id, SHUTDOWN)
        if self._tasks:
            _, late = await asyncio.wait(set(self._tasks.values()), timeout=self._stop_timeout)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)

    async def _record_end(
        self, id: str, working: asyncio.Task[E], finish: Callable[[E], Coroutine[Any, Any, None]]
    ) -> None:
        try:
            await asyncio.wait({working})
            end = self._end(id, working)
            try:
                await retry_until_stored(lambda: finish(end))
            except LeaseLost:
                raise
            except Exception:
                LOG.exception("%s: its end cannot be recorded; it is recorded as an internal error", id)
                await retry_until_stored(lambda: finish(self._cut_off(INTERNAL)))
        except LeaseLost as error:
            LOG.warning("%s: %s; another gateway closes it", id, error)
        except Exception:
            LOG.exception("%s could not be closed; the next start closes it", id)
        finally:
            del self._working[id], self._tasks[id]
            self._reasons.pop(id, None)

    def _end(self, id: str, worked: asyncio.Task[E]) -> E:
        if worked.cancelled():
            return self._cut_off(self._reasons.get(id, SHUTDOWN))
        error = worked.exception()
        if error is not None:
            if not isinstance(error, LeaseLost):
                LOG.error("%s: a bug in plugbay", id, exc_info=error)
            return self._cut_off(INTERNAL)
        return worked.result()
