"""The blocking half of a start: pipes, exec, limits. Runs on a pool thread and touches no event loop.

Owns a process from its first moment until it is handed over, and takes it back completely when anything fails
on the way. Refuses to know who waits for it.

Popen without `preexec_fn` uses vfork: 0.2 ms, however large the host is. CPython releases its global lock until
exec is done, so a program on a slow file system stops this thread and no other.
"""

from __future__ import annotations

import errno
import os
import signal
import subprocess
from collections.abc import Callable, Mapping

from plugbay.process import diagnose, limits, pidfd
from plugbay.process.command import Launch, LaunchFailed

Popen = Callable[..., "subprocess.Popen[bytes]"]


class Newborn:
    """A running process that nobody watches yet: its pid, and the host's non-blocking ends of its pipes."""

    __slots__ = ("pid", "pidfd", "stderr", "stdin", "stdout")

    def __init__(self, pid: int, pidfd: int | None, stdin: int, stdout: int, stderr: int) -> None:
        self.pid = pid
        self.pidfd = pidfd
        self.stdin = stdin
        self.stdout = stdout
        self.stderr = stderr

    def release_stderr(self) -> int:
        """Hand over the reading end of stderr; it is the receiver's to close, whatever happens next."""
        fd, self.stderr = self.stderr, -1
        return fd

    def release_pidfd(self) -> int | None:
        """Hand over the pidfd in the same way; None where there are no pidfds."""
        fd, self.pidfd = self.pidfd, None
        return fd

    def discard(self) -> None:
        """Kill it, wait until it is dead, close what was not handed over."""
        destroy(self.pid)
        fds = (self.pidfd, self.stdin, self.stdout, self.stderr)
        close_all([fd for fd in fds if fd is not None and fd >= 0])


def start(launch: Launch, marks: Mapping[str, str], popen: Popen) -> Newborn:
    """Run the command with its environment and `marks`. Raises LaunchFailed, and then nothing is left."""
    opened: list[int] = []
    try:
        return _start(launch, marks, popen, opened)
    except OSError as error:
        words = diagnose.launch_failure(launch.argv, launch.cwd, error)
        raise LaunchFailed(*words, _detail(launch, error)) from error
    except ValueError as error:  # what Popen says to a NUL in an argument or '=' in a variable's name
        raise LaunchFailed(f"the command or its environment is not valid: {error}", "", _detail(launch)) from error
    finally:
        close_all(opened)


def _start(launch: Launch, marks: Mapping[str, str], popen: Popen, opened: list[int]) -> Newborn:
    """`opened` holds every descriptor that is not handed over; the caller closes those."""
    for _ in range(3):
        opened += os.pipe()  # close-on-exec from the first moment
    child_stdin, stdin, stdout, child_stdout, stderr, child_stderr = opened
    for fd in (stdin, stdout, stderr):
        os.set_blocking(fd, False)
    process = popen(
        list(launch.argv),
        stdin=child_stdin,
        stdout=child_stdout,
        stderr=child_stderr,
        cwd=launch.cwd,
        env={**launch.env, **marks},
        close_fds=True,
        start_new_session=True,
        restore_signals=True,
    )
    pid = process.pid
    process.returncode = 0  # we collect the status; without this, Popen would collect it behind our back
    try:
        _limit(pid, launch)
        newborn = Newborn(pid, pidfd.open_pidfd(pid), stdin, stdout, stderr)
    except BaseException:
        destroy(pid)
        raise
    opened[:] = [child_stdin, child_stdout, child_stderr]
    return newborn


def destroy(pid: int) -> None:
    """SIGKILL to the group of an unwatched child; waits until it is collected."""
    pidfd.signal_group(pid, signal.SIGKILL)
    try:
        os.waitpid(pid, 0)
    except ChildProcessError:
        return


def close_all(fds: list[int]) -> None:
    while fds:
        os.close(fds.pop())


def _limit(pid: int, launch: Launch) -> None:
    try:
        limits.apply(pid, launch.limits)
    except PermissionError as error:
        raise LaunchFailed(
            f"{launch.argv[0]} changed its user, so its limits cannot be set",
            "do not use a set-uid program as a plugin",
            _detail(launch, error),
        ) from error


def _detail(launch: Launch, error: OSError | None = None) -> dict[str, object]:
    detail: dict[str, object] = {"command": list(launch.argv), "cwd": str(launch.cwd)}
    if error is not None and error.errno is not None:
        detail["errno"] = errno.errorcode.get(error.errno, str(error.errno))
    return detail
