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


class Relay:
    """The baton, and whoever sees to it that it is never down for long."""

    __slots__ = ("_away", "_baton", "_bell", "_laid_down", "_lead", "_rests")

    def __init__(self, lead: Callable[[], None]) -> None:
        """`lead` reads until `aside` says that somebody else does."""
        self._lead = lead
        self._baton = allocate_lock()
        self._laid_down = 0
        """How often; only whoever holds the baton counts."""
        self._away = 0
        """The thread that laid it down the last time."""
        self._rests = False
        """Whether whoever sees to it is asleep, until the baton is laid down again."""
        self._bell: SimpleQueue[BaseException | None] = SimpleQueue()

    def run(self) -> NoReturn:
        """Have other threads read, and see to it that one always does. Raises whatever reading ends with."""
        self._baton.acquire()
        start_new_thread(self._carry, ())
        seen = 0
        while True:
            self._rests = True
            if self._laid_down == seen and (error := self._bell.get()) is not None:
                raise error
            self._rests = False
            while self._laid_down != seen:
                seen = self._laid_down
                sleep(MOMENT)
            while not self._pass_on():
                sleep(MOMENT)

    def aside(self, job: Callable[..., object], *arguments: Any) -> bool:
        """Do something that may take long, and raises nothing; False when somebody else reads by now."""
        self._laid_down += 1
        self._away = get_ident()
        self._baton.release()
        if self._rests:
            self._rests = False
            self._bell.put(None)
        job(*arguments)
        return self._baton.acquire(blocking=False)

    def make_way(self) -> None:
        """This thread is about to wait for what the host says: if it should be reading, another one does."""
        if self._away == get_ident():
            self._pass_on()

    def _pass_on(self) -> bool:
        """Give the baton to a new thread if it is down; False when the system has no thread to give."""
        if self._baton.acquire(blocking=False):
            try:
                start_new_thread(self._carry, ())
            except RuntimeError:
                self._baton.release()
                return False
        return True

    def _carry(self) -> None:
        try:
            self._lead()
        except BaseException as error:
            self._bell.put(error)
