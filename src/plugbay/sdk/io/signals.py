"""SIGTERM and SIGINT as a call of a function, at once and on a thread of its own.

A signal that arrives just before the main thread blocks is not heard there until something else wakes it; so it is
written to a pipe, by the interpreter and whatever any thread is doing, and a thread waits for that. A copy of the
process has the same pipe, and lets go of it: a signal for the copy is none for us. Uses `_signal`: `signal` adds
nothing that is needed here and 7 ms of start-up.
"""

from __future__ import annotations

import os
from _signal import (  # type: ignore[import-not-found]
    SIG_DFL,
    SIGINT,
    SIGTERM,
    default_int_handler,
    getsignal,
    set_wakeup_fd,
    signal,
)
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
    os.register_at_fork(after_in_child=_let_go)
    start_new_thread(_wait, (hear, call))


def _wait(hear: int, call: Callable[[], None]) -> None:
    """Every signal that Python handles is a byte here, the author's own too."""
    while os.read(hear, 1)[0] not in (SIGTERM, SIGINT):
        pass
    call()


def _let_go() -> None:
    """What a process does that nobody has arranged anything for; what the author has arranged stays."""
    set_wakeup_fd(-1)
    for number, usual in ((SIGTERM, SIG_DFL), (SIGINT, default_int_handler)):
        if getsignal(number) is _nothing_more:
            signal(number, usual)


def _nothing_more(number: int, frame: object) -> None:
    """The byte in the pipe says it all."""
