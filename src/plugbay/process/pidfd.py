"""Reports the end of a process to an event loop, collects exit statuses, and signals process groups.

A pidfd becomes readable when its process ends, so one `add_reader` per child replaces the thread per child that Python
3.11 starts. Where pidfds are missing, one timer per loop asks for all watched processes in turn; it needs `os.waitid`,
which Linux and the BSDs have, and macOS from Python 3.13 on. Neither way collects the exit status: until `reap`, the
dead process keeps its pid, so a signal to it or to its group reaches no other process.
"""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import weakref
from collections.abc import Callable

from plugbay.process.status import ExitStatus

AVAILABLE = hasattr(os, "pidfd_open")
"""False makes every watch use the timer; tests set it, and so do systems without pidfds."""

POLL_SECONDS = 0.02
"""A fifth of the 100 ms in which a call must learn that its plugin died."""

_UNSUPPORTED = frozenset({errno.ENOSYS, errno.EPERM, errno.EINVAL, errno.ESRCH})
"""Errors of pidfd_open on an old kernel or under a container's system call filter; ESRCH when the host ignores
SIGCHLD, so that the kernel itself collects a child that ended at once."""

Callback = Callable[[], object]


def is_stopped(pid: int) -> bool:
    """Whether a signal has stopped the process (state T), so that it does nothing until another lets it go on."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()[0] == b"T"
    except (OSError, IndexError):  # it is gone, or there is no /proc
        return False


class ExitWatch:
    """A running watch; `cancel` ends it and gives back its descriptor."""

    __slots__ = ()

    def cancel(self) -> None:
        raise NotImplementedError

    def forget(self) -> None:
        """Give back its descriptor when the loop is gone."""

    def holds_pid(self) -> bool:
        """Whether the pid still means the watched process, alive or dead but not collected."""
        raise NotImplementedError


def open_pidfd(pid: int) -> int | None:
    """A pidfd for a child of ours; None where there are none. Raises OSError when no descriptor is free."""
    if not AVAILABLE:
        return None
    try:
        return os.pidfd_open(pid)
    except OSError as error:
        if error.errno in _UNSUPPORTED:
            return None
        raise


def watch_exit(loop: asyncio.AbstractEventLoop, pid: int, callback: Callback, *, pidfd: int | None = None) -> ExitWatch:
    """Call `callback` once, in the loop, when the process has ended. The watch owns `pidfd` from here on."""
    if pidfd is None:
        pidfd = open_pidfd(pid)
    if pidfd is None:
        return _poller(loop).add(pid, callback)
    return _PidfdWatch(loop, pidfd, callback)


def has_ended(pid: int) -> bool:
    """True when a child of ours is dead and its status is still to be collected."""
    try:
        return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    except ChildProcessError:
        return False


def reap(pid: int) -> ExitStatus | None:
    """Collect the status of a dead child and free its pid; None while it lives."""
    try:
        done, status = os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:  # a waitpid(-1) somewhere else in this process was faster
        return ExitStatus()
    return ExitStatus.from_wait(status) if done else None


def reap_group(pid: int) -> None:
    """Collect the dead members of a group that were handed down to us."""
    try:
        while os.waitpid(-pid, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return


def signal_group(pid: int, number: int) -> bool:
    """Signal the group that `pid` leads; False if no process is left in it."""
    try:
        os.killpg(pid, number)
    except (ProcessLookupError, PermissionError):
        return False
    return True


class _PidfdWatch(ExitWatch):
    __slots__ = ("_callback", "_fd", "_loop")

    def __init__(self, loop: asyncio.AbstractEventLoop, fd: int, callback: Callback) -> None:
        self._loop = loop
        self._fd = fd
        self._callback: Callback | None = callback
        try:
            loop.add_reader(fd, self._ready)
        except BaseException:
            os.close(fd)
            raise

    def forget(self) -> None:
        if self._callback is not None:
            self._callback = None
            os.close(self._fd)

    def holds_pid(self) -> bool:
        if self._callback is None:
            return False
        try:
            signal.pidfd_send_signal(self._fd, 0)
        except ProcessLookupError:
            return False
        except PermissionError:
            return True
        return True

    def _ready(self) -> None:
        callback = self._callback
        self.cancel()
        if callback is not None:
            callback()

    def cancel(self) -> None:
        if self._callback is None:
            return
        self._callback = None
        self._loop.remove_reader(self._fd)
        os.close(self._fd)


class _PollWatch(ExitWatch):
    __slots__ = ("_callback", "_pid", "_poller")

    def __init__(self, poller: _Poller, pid: int, callback: Callback) -> None:
        self._poller = poller
        self._pid = pid
        self._callback: Callback | None = callback

    def ended(self) -> bool:
        """Dead, or taken away by a waitpid elsewhere: either way there is nothing left to wait for."""
        try:
            return os.waitid(os.P_PID, self._pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
        except ChildProcessError:
            return True

    def holds_pid(self) -> bool:
        try:
            os.waitid(os.P_PID, self._pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return False
        return True

    def fire(self) -> None:
        callback = self._callback
        self.cancel()
        if callback is not None:
            callback()

    def cancel(self) -> None:
        self._callback = None
        self._poller.watches.discard(self)


class _Poller:
    """The one timer of a loop; it runs only while something is watched."""

    __slots__ = ("__weakref__", "_loop", "_timer", "watches")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = weakref.ref(loop)
        self._timer: asyncio.TimerHandle | None = None
        self.watches: set[_PollWatch] = set()

    def add(self, pid: int, callback: Callback) -> ExitWatch:
        watch = _PollWatch(self, pid, callback)
        self.watches.add(watch)
        if self._timer is None:
            self._arm()
        return watch

    def _arm(self) -> None:
        loop = self._loop()
        self._timer = loop.call_later(POLL_SECONDS, self._look) if loop is not None else None

    def _look(self) -> None:
        self._timer = None
        loop = self._loop()
        for watch in [watch for watch in self.watches if watch.ended()]:
            self.watches.discard(watch)
            if loop is not None:
                loop.call_soon(watch.fire)  # each in its own handle: one that raises costs the others nothing
        if self.watches:
            self._arm()


_pollers: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, _Poller] = weakref.WeakKeyDictionary()


def _poller(loop: asyncio.AbstractEventLoop) -> _Poller:
    poller = _pollers.get(loop)
    if poller is None:
        poller = _pollers[loop] = _Poller(loop)
    return poller
