"""Who reads what the host says: one thread at a time, and it also does what is done in a moment.

To have another thread do something takes two wake-ups, which is more than a small call takes otherwise. So whoever
reads may do it here, and lays the baton down for so long. As a rule the same thread picks it up again. When that takes
longer than a moment, the baton goes to a new thread, which reads on; whoever comes back and finds it gone is done.
Knows no handlers and no wire.
"""

from __future__ import annotations

from _queue import SimpleQueue
from _thread import allocate_lock, get_ident, start_new_thread
from time import sleep

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, NoReturn

MOMENT = 0.005
"""Seconds for which nobody may be reading; as long as Python lets a thread run before another one has its turn."""


class Reader:
    """The baton, and whoever sees to it that it is never down for long."""

    __slots__ = ("_idle", "_lock", "_read_loop", "_released_by", "_releases", "_wake")

    def __init__(self, lead: Callable[[], None]) -> None:
        """`lead` reads until `run_inline` says that somebody else does."""
        self._read_loop = lead
        self._lock = allocate_lock()
        self._releases = 0
        """How often; only whoever holds the baton counts."""
        self._released_by = 0
        """The thread that laid it down the last time."""
        self._idle = False
        """Whether whoever sees to it is asleep, until the baton is laid down again."""
        self._wake: SimpleQueue[BaseException | None] = SimpleQueue()

    def run(self) -> NoReturn:
        """Have other threads read, and see to it that one always does. Raises whatever reading ends with."""
        self._lock.acquire()
        start_new_thread(self._read, ())
        seen = 0
        while True:
            self._idle = True
            if self._releases == seen and (error := self._wake.get()) is not None:
                raise error
            self._idle = False
            while self._releases != seen:
                seen = self._releases
                sleep(MOMENT)
            while not self._start_reader():
                sleep(MOMENT)

    def run_inline(self, job: Callable[..., object], *arguments: Any) -> bool:
        """Do something that may take long, and raises nothing; False when somebody else reads by now."""
        self._releases += 1
        self._released_by = get_ident()
        self._lock.release()
        if self._idle:
            self._idle = False
            self._wake.put(None)
        job(*arguments)
        return self._lock.acquire(blocking=False)

    def release_reader(self) -> None:
        """This thread is about to wait for what the host says: if it should be reading, another one does."""
        if self._released_by == get_ident():
            self._start_reader()

    def _start_reader(self) -> bool:
        """Give the baton to a new thread if it is down; False when the system has no thread to give."""
        if self._lock.acquire(blocking=False):
            try:
                start_new_thread(self._read, ())
            except RuntimeError:
                self._lock.release()
                return False
        return True

    def _read(self) -> None:
        try:
            self._read_loop()
        except BaseException as error:
            self._wake.put(error)
