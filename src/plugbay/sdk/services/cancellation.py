"""Cancellation of a call: by the host, by shutdown, or by the deadline of the host or of the author.

Owns the flag that a handler checks and the callbacks that wait for it. Uses `_thread`, because `threading` is slow to
import.
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
"""The reason on the wire."""

LONGEST_WAIT = 3_600.0
"""Seconds that a lock waits at a time: a deadline of the year 9999 is more than it can."""


class Cancellation:
    """The cancellation state and deadline of one call; safe from any thread."""

    __slots__ = ("_calls", "_gate", "_lock", "_why", "deadline", "over")

    def __init__(self, deadline: float | None = None) -> None:
        """`deadline` is a time of the monotonic clock."""
        self.deadline = deadline
        self.over = False
        """Whether the call has ended."""
        self._why = ""
        self._calls: list[Callable[[], object]] = []
        self._lock = allocate_lock()
        self._gate: LockType | None = None
        """Locked until the call is cancelled; created by the first waiter."""

    @property
    def why(self) -> str:
        """The reason; empty while the call is not cancelled. A passed deadline is a reason."""
        if not self._why and self.deadline is not None and monotonic() >= self.deadline:
            self.cancel(DEADLINE)
        return self._why

    def remaining(self) -> float | None:
        """Seconds until the deadline, at least 0; None when there is none."""
        return None if self.deadline is None else max(self.deadline - monotonic(), 0.0)

    def cancel(self, why: str) -> None:
        """Cancel the call; only the first reason counts."""
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
        """Call the function on cancellation, or now if that has happened. A deadline alone does not call it."""
        with self._lock:
            if not self._why:
                self._calls.append(call)
                return
        call()

    def end(self) -> None:
        """The call has ended: later cancellations do nothing."""
        self.over = True
        if self._calls:
            with self._lock:  # a cancellation may be taking them at this moment
                self._calls.clear()

    def check(self) -> None:
        if (self._why or self.deadline is not None) and self.why:
            raise cancelled_error(self.why)

    def wait(self, seconds: float) -> bool:
        """Return True as soon as the call is cancelled, False after `seconds`."""
        until = monotonic() + max(seconds, 0.0)
        end = until if self.deadline is None else min(until, self.deadline)
        gate = self._locked_gate()
        while not self.why:
            left = min(max(end - monotonic(), 0.0), LONGEST_WAIT)
            if gate.acquire(timeout=left):
                gate.release()
            elif monotonic() >= until:
                return bool(self.why)
        return True

    def _locked_gate(self) -> LockType:
        with self._lock:
            if self._gate is None:
                self._gate = allocate_lock()
                self._gate.acquire()
            return self._gate

    def meant(self, error: BaseException) -> BaseException:
        """The error of a handler; after a cancellation, a cancelled asyncio task means `Cancelled`."""
        is_task_end = type(error).__name__ == "CancelledError" and not isinstance(error, Exception)
        return cancelled_error(self.why) if is_task_end and self.why else error


def cancelled_error(why: str) -> Cancelled:
    """The error of a cancelled call."""
    return Cancelled(why, DEADLINE_CODE) if why == DEADLINE else Cancelled(why)
