"""Threads for plain handlers: started when there is work for them, never more than a fixed number, never in the way.

Built on `_thread`, which every plugin has loaded already; `threading` costs 6 ms of start-up. Such threads end with the
process and hold nothing up. Knows nothing of calls: a job is a function without arguments that raises nothing.
"""

from __future__ import annotations

from _queue import Empty, SimpleQueue
from _thread import allocate_lock, start_new_thread

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    Job = Callable[[], None]

MAX_THREADS = 32
"""Handlers that run at once. Plain handlers mostly wait for something; more than these wait for a thread."""

MAX_WAITING = 1_024
"""Jobs that wait for a thread. A host that is further ahead than that is told so, at once."""


class Workers:
    """A bounded pool."""

    __slots__ = ("_jobs", "_lock", "_open", "_size", "_threads", "_waiting")

    def __init__(self, size: int = MAX_THREADS, waiting: int = MAX_WAITING) -> None:
        self._size = size
        self._waiting = waiting
        self._jobs: SimpleQueue[Job | None] = SimpleQueue()
        self._lock = allocate_lock()
        self._threads = 0
        self._open = 0

    def submit(self, job: Job) -> bool:
        """Have the job done soon; False when too much is waiting already."""
        with self._lock:
            if self._open >= self._size + self._waiting:
                return False
            if self._open >= self._threads and self._threads < self._size and not self._start():
                return False
            self._open += 1
        self._jobs.put(job)
        return True

    def _start(self) -> bool:
        """One thread more; without it the job still gets done if there is any thread at all."""
        try:
            start_new_thread(self._work, ())
        except RuntimeError:  # the system has no more to give
            return self._threads > 0
        self._threads += 1
        return True

    def stop(self) -> None:
        """Have every thread end after what it does; for processes that go on."""
        for _ in range(self._threads):
            self._jobs.put(None)

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            job()
            with self._lock:
                self._open -= 1


class Tally:
    """How much is being done, for whoever wants to wait until nothing is."""

    __slots__ = ("_calm", "_count", "_lock")

    def __init__(self) -> None:
        self._lock = allocate_lock()
        self._count = 0
        self._calm: SimpleQueue[None] | None = None

    def begin(self) -> None:
        with self._lock:
            self._count += 1

    def end(self) -> None:
        with self._lock:
            self._count -= 1
            if self._count == 0 and self._calm is not None:
                self._calm.put(None)

    def wait(self, seconds: float) -> int:
        """Return when nothing is being done, or after so many seconds; how much still is. For one waiter."""
        with self._lock:
            if self._count == 0:
                return 0
            calm = self._calm = SimpleQueue()
        try:
            calm.get(timeout=max(seconds, 0.0))
        except Empty:
            pass
        with self._lock:
            return self._count
