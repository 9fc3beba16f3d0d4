"""Stopping what is being done: whether somebody asked for it, and deadlines that ask by themselves.

Owns the flag that a handler looks at, whatever waits on it, and one thread for the deadlines of all calls. Knows no
handlers and no wire. Uses `_thread`, as the workers do.
"""

from __future__ import annotations

from _heapq import heapify, heappop, heappush
from _queue import Empty, SimpleQueue
from _thread import allocate_lock, start_new_thread
from time import monotonic

from plugbay.sdk.errors import Cancelled

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

DEADLINE = "the deadline has passed"
DEADLINE_CODE = "deadline_exceeded"
"""The word for that on the wire."""

LONGEST_WAIT = 3_600.0
"""Seconds between two looks at the clock: a deadline of the year 9999 is more than a lock can wait for."""

KEPT = 64
"""Deadlines of calls that have ended which are kept before the first clearing."""


class Cancellation:
    """Whether one call is to stop. May be asked and told from any thread."""

    __slots__ = ("_calls", "_gate", "_lock", "over", "why")

    def __init__(self) -> None:
        self.why = ""
        """Empty until somebody asked."""
        self.over = False
        """Whether it has ended, so that there is nothing left to stop."""
        self._calls: list[Callable[[], object]] = []
        self._lock = allocate_lock()
        self._gate = allocate_lock()
        self._gate.acquire()

    def cancel(self, why: str) -> None:
        """Ask for it to stop; only the first time counts."""
        with self._lock:
            if self.over or self.why:
                return
            self.why = why
            calls, self._calls = self._calls, []
        self._gate.release()
        for call in calls:
            call()

    def then(self, call: Callable[[], object]) -> None:
        """Have the function called when it is to stop, or now."""
        with self._lock:
            if not self.why:
                self._calls.append(call)
                return
        call()

    def end(self) -> None:
        """There is nothing to stop any more."""
        with self._lock:
            self.over = True
            self._calls.clear()

    def check(self) -> None:
        if self.why:
            raise stopped(self.why)

    def wait(self, seconds: float) -> bool:
        """Return True as soon as it is to stop, or False after so many seconds."""
        if not self._gate.acquire(timeout=max(seconds, 0.0)):
            return False
        self._gate.release()
        return True


def stopped(why: str) -> Cancelled:
    """The error of what was stopped."""
    return Cancelled(why, DEADLINE_CODE) if why == DEADLINE else Cancelled(why)


class Deadlines:
    """A thread that cancels what is not over in time; started for the first deadline."""

    __slots__ = ("_bell", "_count", "_lock", "_most", "_started", "_waiting")

    def __init__(self) -> None:
        self._waiting: list[tuple[float, int, Cancellation]] = []
        self._most = KEPT
        self._count = 0
        self._bell: SimpleQueue[None] = SimpleQueue()
        self._lock = allocate_lock()
        self._started = False

    def add(self, at: float, cancellation: Cancellation) -> None:
        """Cancel it at that time of the monotonic clock."""
        with self._lock:
            self._count += 1  # what is due at the same time is not compared any further
            heappush(self._waiting, (at, self._count, cancellation))
            if len(self._waiting) > self._most:
                self._clear()
            first = self._waiting[0][2] is cancellation
            if not self._started:
                self._start()
        if first:
            self._bell.put(None)

    def _clear(self) -> None:
        """Let go of what has ended; as rarely as there is much of it."""
        self._waiting = [entry for entry in self._waiting if not entry[2].over]
        heapify(self._waiting)
        self._most = max(KEPT, 2 * len(self._waiting))

    def _start(self) -> None:
        try:
            start_new_thread(self._work, ())
        except RuntimeError:  # the system has no thread to give; the host looks at the clock, too
            return
        self._started = True

    def _work(self) -> None:
        while True:
            due, seconds = self._due(monotonic())
            for cancellation in due:
                cancellation.cancel(DEADLINE)
            try:
                self._bell.get(timeout=seconds)
            except Empty:
                pass

    def _due(self, now: float) -> tuple[list[Cancellation], float]:
        """What has to stop now, and the seconds until something else might have to."""
        due: list[Cancellation] = []
        with self._lock:
            while self._waiting and self._waiting[0][0] <= now:
                due.append(heappop(self._waiting)[2])
            return due, min(self._waiting[0][0] - now, LONGEST_WAIT) if self._waiting else LONGEST_WAIT
