"""The process's protocol streams, its signals, and its exit.

Moves the protocol to private descriptors and points stdout at stderr: a stray `print`, a library or a child process
then cannot corrupt a frame. This happens once per process: when a script that is the plugin imports the SDK with pipes
on both sides, otherwise in `run()`; importing a plugin from a test moves nothing. Signals arrive through a pipe, as
a signal just before the main thread blocks would wait. Uses `_signal`: `signal` costs 7 ms of start-up.
"""

from __future__ import annotations

import os
import stat
import sys
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
from time import sleep

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import NoReturn, Protocol

    class Attended(Protocol):
        """A conversation that can be asked to end."""

        def shut_down(self, why: str) -> None: ...


READ_SIZE = 65_536

ATTACH = "PLUGBAY_ATTACH"
"""The variable of a plugin that its author has started: where `plugbay dev --attach` waits for it."""

LOOK_SECONDS = 2.0
"""Seconds between two checks whether the host is still there: soon enough for orphans, rare enough to cost nothing."""


class Wire:
    """The two private descriptors of the conversation."""

    __slots__ = ("_in", "_out")

    def __init__(self, in_fd: int, out_fd: int) -> None:
        self._in = in_fd
        self._out = out_fd

    def read(self) -> bytes:
        """Bytes that have arrived, at least one; b"" at the end of input."""
        return os.read(self._in, READ_SIZE)

    def write(self, data: bytes) -> None:
        """Write all bytes, in as many writes as the pipe needs."""
        self.exit_if_forked()
        while data:
            data = data[os.write(self._out, data) :]

    def has_reader(self) -> bool:
        """Whether the other end of the output is still open."""
        from select import POLLERR, POLLHUP, POLLNVAL, poll

        broken = poll()
        broken.register(self._out, 0)
        return not any(event & (POLLERR | POLLHUP | POLLNVAL) for _, event in broken.poll(0))

    def attend(self, conversation: Attended) -> None:
        """Shut the plugin down on a signal, or when the host is gone."""
        on_signals(lambda: conversation.shut_down("this process was asked to end"))
        when_host_gone(self, lambda: conversation.shut_down("the host is gone"))

    def leave(self, status: int, let_go: Callable[[], None]) -> NoReturn:
        """End the process; its threads end with it."""
        leave(status)

    def leave_after(self, seconds: float) -> None:
        """End the process after `seconds`, even if threads are blocked."""
        try:
            start_new_thread(_leave_anyway, (seconds,))
        except RuntimeError:
            pass  # no thread available; the host has to kill the process

    def exit_if_forked(self) -> None:
        """Exit if this is a fork made by a handler: it must not answer, and its locks may never be released.

        That of a stream may be one of them, so nothing is flushed.
        """
        if self._out < 0:
            os._exit(1)

    def drop(self) -> None:
        """Close both descriptors: in a fork, the conversation belongs to the original process."""
        os.close(self._in)
        os.close(self._out)
        self._in = self._out = -1


_claimed: Wire | None = None

_PARENT = os.getppid()
"""The parent at import: a host may be gone before its plugin serves."""


def claim() -> Wire:
    """Take stdin and stdout for the protocol; afterwards descriptor 0 is empty and descriptor 1 is stderr."""
    global _claimed
    if _claimed is None:
        nothing = _nothing()
        _claimed = Wire(os.dup(0), os.dup(1))
        drop_in_forks(_claimed.drop)
        os.dup2(nothing, 0)
        os.close(nothing)
        os.dup2(2, 1)
        if hasattr(sys.stdout, "reconfigure"):
            # A killed plugin flushes nothing, and its last prints are the ones that matter.
            sys.stdout.reconfigure(line_buffering=True)
    return _claimed


_is_copy = False
"""Whether this process is a fork of one that had a wire."""


def drop_in_forks(drop: Callable[[], object]) -> None:
    """Call `drop` in every fork of this process, and mark the fork as one."""

    def forked() -> None:
        global _is_copy
        _is_copy = True
        drop()

    os.register_at_fork(after_in_child=forked)


def exit_copy(error: BaseException | None = None) -> None:
    """End this process, if it is a fork that returns from the author's code: its answer is not awaited.

    Its error goes past the stream: a thread that the copy does not have may hold the stream's lock.
    """
    if _is_copy:
        status, words = _exit_report(error)
        try:
            os.write(2, words.encode("utf-8", "backslashreplace"))
        except OSError:
            pass  # stderr is closed
        os._exit(status)


def _exit_report(error: BaseException | None) -> tuple[int, str]:
    """Exit status and stderr text for an error, as Python has them."""
    if error is None:
        return 1, ""
    if not isinstance(error, SystemExit):
        from traceback import format_exception

        return 1, "".join(format_exception(error))
    if error.code is None or isinstance(error.code, int):
        return (error.code or 0) & 0xFF, ""
    return 1, f"{error.code}\n"


def _nothing() -> int:
    """A descriptor of the empty file, above the three standard ones, of which a host may have closed some."""
    while (nothing := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(nothing, True)
    return nothing


def claim_early() -> None:
    """Claim at import, so that prints at module level are harmless too; only in a script that a host has started."""
    if _imported_by_main() and _is_pipe(0) and _is_pipe(1) and ATTACH not in os.environ:
        claim()


def when_host_gone(wire: Wire, call: Callable[[], object]) -> None:
    """Call the function once, on its own thread, when the host is gone.

    The end of input does not always tell: another process may hold it open, and a plugin that serves one call reads
    nothing while its handler runs.
    """
    try:
        start_new_thread(_watch, (wire, call, _PARENT))
    except RuntimeError:
        pass  # no thread available; the end of input has to do


def _watch(wire: Wire, call: Callable[[], object], parent: int) -> None:
    sleep(LOOK_SECONDS)
    while os.getppid() == parent and wire.has_reader():
        sleep(LOOK_SECONDS)
    call()


def note(text: str) -> None:
    """Write one line to stderr in one write; a closed stderr is ignored."""
    try:
        sys.stderr.write(f"{text}\n")
    except (OSError, ValueError, AttributeError):
        pass


def leave(status: int) -> NoReturn:
    """End the process at once, without the interpreter's finalization."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError, AttributeError):  # None, when the descriptor was closed before we started
            pass
    os._exit(status)


def _leave_anyway(after: float) -> NoReturn:
    sleep(after)
    os._exit(1)


def _imported_by_main() -> bool:
    """Whether the code that imports the SDK is the script itself, not a test or a library."""
    frame = sys._getframe(1)
    while frame is not None:
        name = frame.f_globals.get("__name__", "")
        if not name.startswith(("importlib.", "_frozen_importlib", "plugbay.sdk")):
            return bool(name == "__main__")
        frame = frame.f_back  # type: ignore[assignment]
    return False


def _is_pipe(fd: int) -> bool:
    try:
        mode = os.fstat(fd).st_mode
    except OSError:
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)


def on_signals(call: Callable[[], None]) -> None:
    """Call the function on SIGTERM or SIGINT, on its own thread, instead of ending the process."""
    hear, ring = os.pipe()
    os.set_blocking(ring, False)
    try:
        set_wakeup_fd(ring)
    except ValueError:  # signals can be set on the main thread only
        os.close(hear)
        os.close(ring)
        return
    for number in (SIGTERM, SIGINT):
        signal(number, _ignore_signal)
    try:
        start_new_thread(_wait, (hear, call))
    except RuntimeError:  # no thread to be had: the signals keep their default effect
        _restore_signals()
        os.close(hear)
        os.close(ring)
        return
    os.register_at_fork(after_in_child=_restore_signals)


def _wait(hear: int, call: Callable[[], None]) -> None:
    """Each handled signal is one byte in the pipe, also those that the author handles."""
    while os.read(hear, 1)[0] not in (SIGTERM, SIGINT):
        pass
    call()


def _restore_signals() -> None:
    """Restore the default effect of our signals, not of the author's handlers. Forks call this: they share the pipe."""
    set_wakeup_fd(-1)
    for number, usual in ((SIGTERM, SIG_DFL), (SIGINT, default_int_handler)):
        if getsignal(number) is _ignore_signal:
            signal(number, usual)


def _ignore_signal(number: int, frame: object) -> None:
    """The signal is handled through the pipe."""
