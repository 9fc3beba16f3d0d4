"""Which thread reads from the host: one at a time, and it may run quick handlers itself.

A hand-over to another thread costs two wake-ups, more than a small call takes. So the reading thread releases the read
lock, runs the handler, and takes the lock again. If that takes longer than `MOMENT`, a new thread takes the lock and
reads on, and the old one ends when it finds the lock taken.
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
"""Seconds without a reading thread; the interpreter's switch interval."""


class Reader:
    """The read lock, and the watch that it is never free for long."""

    __slots__ = ("_idle", "_lock", "_read_loop", "_released_by", "_releases", "_wake")

    def __init__(self, lead: Callable[[], None]) -> None:
        """`lead` reads until `run_inline` returns False: another thread reads."""
        self._read_loop = lead
        self._lock = allocate_lock()
        self._releases = 0
        """How often the lock was released; written by its holder only."""
        self._released_by = 0
        """The thread that released the lock last."""
        self._idle = False
        """Whether the watch sleeps until the next release."""
        self._wake: SimpleQueue[BaseException | None] = SimpleQueue()

    def run(self) -> NoReturn:
        """Start the first reading thread, then watch that there is always one. Raises the error that ends reading."""
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
        """Run a job that raises nothing, with the lock released; False when another thread reads by now."""
        self._releases += 1
        self._released_by = get_ident()
        self._lock.release()
        if self._idle:
            self._idle = False
            self._wake.put(None)
        job(*arguments)
        return self._lock.acquire(False)

    def release_reader(self) -> None:
        """This thread will wait for a reply: if it was the reading one, start another."""
        if self._released_by == get_ident():
            self._start_reader()

    def _start_reader(self) -> bool:
        """Start a reading thread if there is none; False when no thread can be started."""
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
