"""SIGTERM and SIGINT as a call of a function, at once and on a thread of its own.

A signal that arrives just before the main thread blocks is not heard there until something else wakes it; so it is
written to a pipe, by the interpreter and whatever any thread is doing, and a thread waits for that. Uses `_signal`:
`signal` adds nothing that is needed here and 7 ms of start-up.
"""

from __future__ import annotations

import os
from _signal import SIGINT, SIGTERM, set_wakeup_fd, signal  # type: ignore[import-not-found]
from _thread import start_new_thread

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable


def on_signals(call: Callable[[], None]) -> None:
    """Have the function called when the process is asked to end, instead of ending it."""
    hear, ring = os.pipe()
    os.set_blocking(ring, False)
    try:
        set_wakeup_fd(ring)
    except ValueError:  # not on the main thread, where alone signals can be arranged
        os.close(hear)
        os.close(ring)
        return
    for number in (SIGTERM, SIGINT):
        signal(number, _nothing_more)
    start_new_thread(_wait, (hear, call))


def _wait(hear: int, call: Callable[[], None]) -> None:
    """Every signal that Python handles is a byte here, the author's own too."""
    while os.read(hear, 1)[0] not in (SIGTERM, SIGINT):
        pass
    call()


def _nothing_more(number: int, frame: object) -> None:
    """The byte in the pipe says it all."""
