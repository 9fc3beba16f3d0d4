"""The blocking half of a start: pipes, exec, limits, sandbox. Runs on a pool thread and touches no event loop.

If a step fails, everything before it is undone.

Popen without `preexec_fn` uses vfork: 0.2 ms, however large the host is. CPython releases its global lock until exec is
done, so a program on a slow file system stops this thread and no other.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Mapping

from plugbay.process import diagnose, limits, pidfd, usage
from plugbay.process.command import Launch
from plugbay.process.diagnose import LaunchFailed, SandboxUnavailable
from plugbay.process.sandbox.jail import Jail
from plugbay.process.sandbox.launcher import Program, Sandbox
from plugbay.process.sandbox.policy import Policy

Popen = Callable[..., "subprocess.Popen[bytes]"]


class StartedProcess:
    """A running process without a watch: its pid, and the host's non-blocking ends of its pipes."""

    __slots__ = ("jail", "oom_kills", "pid", "pidfd", "stderr", "stdin", "stdout")

    def __init__(
        self, pid: int, pidfd: int | None, stdin: int, stdout: int, stderr: int, jail: Jail | None = None
    ) -> None:
        self.pid = pid
        self.jail = jail
        """Its confinement; None: unconfined."""
        self.pidfd = pidfd
        self.stdin = stdin
        self.stdout = stdout
        self.stderr = stderr
        self.oom_kills = usage.oom_kills()
        """Kills for lack of memory before it ran, on the whole machine."""

    def release_stderr(self) -> int:
        """Hand over the reading end of stderr; it is the receiver's to close, whatever happens next."""
        fd, self.stderr = self.stderr, -1
        return fd

    def release_pidfd(self) -> int | None:
        """Hand over the pidfd in the same way; None where there are no pidfds."""
        fd, self.pidfd = self.pidfd, None
        return fd

    def discard(self) -> None:
        """Kill it, wait until it is dead, close the descriptors that were not handed over."""
        destroy(self.pid)
        fds = (self.pidfd, self.stdin, self.stdout, self.stderr)
        close_all([fd for fd in fds if fd is not None and fd >= 0])
        if self.jail is not None:
            self.jail.close()


def start(launch: Launch, marks: Mapping[str, str], popen: Popen, sandbox: Sandbox | None = None) -> StartedProcess:
    """Run the command with its environment and `marks`. Raises LaunchFailed, and then nothing is left.

    A command with a policy needs a sandbox to run in.
    """
    opened: list[int] = []
    jail: Jail | None = None
    try:
        for _ in range(3):
            opened += os.pipe()  # close-on-exec from the first moment
        if launch.policy is None:
            if launch.verify is not None:
                launch.verify(None)
        else:
            jail = _prepare_jail(launch, launch.policy, marks, sandbox)
        return _start(launch, marks, popen, jail, opened)
    except BaseException as error:
        if jail is not None:
            jail.close()
        if isinstance(error, OSError):
            raise _failed(launch, error) from error
        if isinstance(error, ValueError):  # Popen raises it for a NUL in an argument or '=' in a variable's name
            raise LaunchFailed(f"the command or its environment is not valid: {error}", "", _detail(launch)) from error
        raise
    finally:
        close_all(opened)


def _prepare_jail(launch: Launch, policy: Policy, marks: Mapping[str, str], sandbox: Sandbox | None) -> Jail:
    if sandbox is None:
        raise SandboxUnavailable(f"{launch.argv[0]} must be confined, but there is no sandbox", "", _detail(launch))
    program = Program(launch.argv, launch.cwd, launch.env, launch.label, launch.verify)
    return sandbox.prepare(program, policy, launch.limits, marks)


def _start(
    launch: Launch, marks: Mapping[str, str], popen: Popen, jail: Jail | None, opened: list[int]
) -> StartedProcess:
    """`opened` holds the pipes, and every descriptor that is not handed over; the caller closes those."""
    child_stdin, stdin, stdout, child_stdout, stderr, child_stderr = opened
    process = popen(
        list(launch.argv if jail is None else jail.argv),
        stdin=child_stdin,
        stdout=child_stdout,
        stderr=child_stderr,
        cwd=launch.cwd if jail is None else "/",
        env={**launch.env, **marks} if jail is None else jail.env,
        close_fds=True,
        pass_fds=() if jail is None else jail.pass_fds,
        start_new_session=True,
        restore_signals=True,
    )
    pid = process.pid
    process.returncode = 0  # we collect the status; without this, Popen would collect it behind our back
    try:
        if jail is None:
            _limit(pid, launch)
        watch = pidfd.open_pidfd(pid)
        opened += [] if watch is None else [watch]
        if jail is not None:
            jail.admit(pid, watch, stderr)
        for fd in (stdin, stdout, stderr):
            os.set_blocking(fd, False)
    except BaseException:
        destroy(pid)
        raise
    opened[:] = [child_stdin, child_stdout, child_stderr]
    return StartedProcess(pid, watch, stdin, stdout, stderr, jail)


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
    limits.prefer_for_oom(pid)
    try:
        limits.apply(pid, launch.limits)
    except PermissionError as error:
        raise LaunchFailed(
            f"{launch.argv[0]} changed its user, so its limits cannot be set",
            "do not use a set-uid program as a plugin",
            _detail(launch, error),
        ) from error


def _failed(launch: Launch, error: OSError) -> LaunchFailed:
    detail = _detail(launch, error)
    if launch.policy is None or error.errno in diagnose.SHORTAGES:
        return LaunchFailed(*diagnose.launch_failure(launch.argv, launch.cwd, error), detail)
    return SandboxUnavailable(f"the sandbox cannot be set up: {error}", "run plugbay doctor", detail)


def _detail(launch: Launch, error: OSError | None = None) -> dict[str, object]:
    detail: dict[str, object] = {"command": list(launch.argv), "cwd": str(launch.cwd)}
    if error is not None and error.errno is not None:
        detail["errno"] = diagnose.error_name(error)
    return detail
