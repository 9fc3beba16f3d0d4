"""Stopping what is being done: whether somebody asked for it, or the time for it is over.

Owns the flag that a handler looks at, whatever waits on it, and the deadline that asks by itself: of the host, or of
the author where a host has no word for it. Knows no handlers and no wire. Uses `_thread`, as the workers do.
"""

from __future__ import annotations

from _thread import allocate_lock
from time import monotonic

from plugbay.sdk.errors import Cancelled

TYPE_CHECKING = False
if TYPE_CHECKING:
    from _thread import LockType
    from collections.abc import Callable

DEADLINE = "the deadline has passed"
DEADLINE_CODE = "deadline_exceeded"
"""The word for that on the wire."""

LONGEST_WAIT = 3_600.0
"""Seconds that a lock waits at a time: a deadline of the year 9999 is more than it can."""


class Cancellation:
    """Whether one call is to stop, and by when. May be asked and told from any thread."""

    __slots__ = ("_calls", "_gate", "_lock", "_why", "deadline", "over")

    def __init__(self, deadline: float | None = None) -> None:
        """`deadline` is a time of the monotonic clock."""
        self.deadline = deadline
        self.over = False
        """Whether it has ended, so that there is nothing left to stop."""
        self._why = ""
        self._calls: list[Callable[[], object]] = []
        self._lock = allocate_lock()
        self._gate: LockType | None = None
        """Closed until somebody asks; made by the first who waits."""

    @property
    def why(self) -> str:
        """Empty until somebody asked. Whoever looks after the deadline sees that it has passed."""
        if not self._why and self.deadline is not None and monotonic() >= self.deadline:
            self.cancel(DEADLINE)
        return self._why

    def remaining(self) -> float | None:
        """Seconds until the deadline, at least 0; None when there is none."""
        return None if self.deadline is None else max(self.deadline - monotonic(), 0.0)

    def cancel(self, why: str) -> None:
        """Ask for it to stop; only the first time counts."""
        with self._lock:
            if self.over or self._why:
                return
            self._why = why
            calls, self._calls = self._calls, []
            if self._gate is not None:
                self._gate.release()
        for call in calls:
            call()

    def then(self, call: Callable[[], object]) -> None:
        """Have the function called when somebody asks, or now. Whoever wants to hear of the deadline has a clock."""
        with self._lock:
            if not self._why:
                self._calls.append(call)
                return
        call()

    def end(self) -> None:
        """There is nothing to stop any more."""
        with self._lock:
            self.over = True
            self._calls.clear()

    def check(self) -> None:
        if (self._why or self.deadline is not None) and self.why:
            raise stopped(self.why)

    def wait(self, seconds: float) -> bool:
        """Return True as soon as it is to stop, or False after so many seconds."""
        until = monotonic() + max(seconds, 0.0)
        end = until if self.deadline is None else min(until, self.deadline)
        gate = self._closed_gate()
        while not self.why:
            left = min(max(end - monotonic(), 0.0), LONGEST_WAIT)
            if gate.acquire(timeout=left):
                gate.release()
            elif monotonic() >= until:
                return bool(self.why)
        return True

    def _closed_gate(self) -> LockType:
        with self._lock:
            if self._gate is None:
                self._gate = allocate_lock()
                self._gate.acquire()
            return self._gate

    def meant(self, error: BaseException) -> BaseException:
        """What a handler raised. That its task was cancelled was our doing, if we asked for it."""
        is_task_end = type(error).__name__ == "CancelledError" and not isinstance(error, Exception)
        return stopped(self.why) if is_task_end and self.why else error


def stopped(why: str) -> Cancelled:
    """The error of what was stopped."""
    return Cancelled(why, DEADLINE_CODE) if why == DEADLINE else Cancelled(why)
