"""Limits a confined plugin's inotify instances and watches, which the kernel counts for each user.

A plugin of a host without root runs as the host's user, so without these limits it could use up all that the user has.
They belong to the plugin's user namespace and are set before its program runs. Only a process with a single thread can
join a user namespace, and it cannot leave again: so a helper process, this file run as a program, forks for each start.
As a program it runs without site-packages, so this file imports the standard library alone. Plugins of a host that is
root have users of their own and need no limits.
"""

from __future__ import annotations

import ctypes
import os
import select
import subprocess
import sys
import threading

SHARE = 4
"""A plugin gets one part in so many of what the machine gives the host's user."""

REPLY_SECONDS = 5.0
"""For a reply of the helper; it needs a millisecond, and the first one 50."""

LIMITS = {"max_inotify_instances": "max_user_instances", "max_inotify_watches": "max_user_watches"}
"""Each limit of a user namespace, and the machine's limit for each user."""

_NEWUSER = 0x1000_0000
_REPLY_BYTES = 4096


class UserLimits:
    """The helper of one host, started when it is first needed; used by several threads at a time."""

    __slots__ = ("_helper", "_lock")

    def __init__(self) -> None:
        self._helper: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()

    def apply(self, pid: int) -> str:
        """Set the limits in the user namespace of a process. Returns why they cannot be set; empty if they are."""
        with self._lock:
            try:
                reply = self._ask(pid)
            except OSError as error:
                reply = str(error)
            if not reply.endswith("\n"):  # it is gone, or does not answer: the next start gets another
                self._end()
                return reply or "the helper that sets them does not respond"
            return reply.strip()

    def close(self) -> None:
        """End the helper."""
        with self._lock:
            self._end()

    def _ask(self, pid: int) -> str:
        if self._helper is None:
            self._helper = subprocess.Popen(
                [sys.executable, "-I", "-S", __file__],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                cwd="/",
                env={"LC_ALL": "C.UTF-8"},
                bufsize=0,
                start_new_session=True,
            )
        assert self._helper.stdin is not None and self._helper.stdout is not None
        self._helper.stdin.write(b"%d\n" % pid)
        poll = select.poll()
        poll.register(self._helper.stdout, select.POLLIN)
        if not poll.poll(REPLY_SECONDS * 1000):
            return ""
        return os.read(self._helper.stdout.fileno(), _REPLY_BYTES).decode(errors="replace")

    def _end(self) -> None:
        helper, self._helper = self._helper, None
        if helper is not None:
            helper.kill()
            with helper:  # closes its pipes and waits
                pass


def main() -> None:
    """The helper: for each pid on stdin, one line on stdout: empty, or why its limits cannot be set."""
    libc = ctypes.CDLL(None, use_errno=True)
    for line in sys.stdin:
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                _limit(libc, int(line))
            except OSError as error:
                os.write(writing, str(error).encode())
            os._exit(0)
        os.close(writing)
        with os.fdopen(reading) as said:
            os.write(1, " ".join(said.read().split()).encode() + b"\n")
        os.waitpid(child, 0)


def _limit(libc: ctypes.CDLL, pid: int) -> None:
    """Join the user namespace of a process for good, and set the limits there. Raises OSError."""
    values = {name: int(_read(f"/proc/sys/fs/inotify/{machine}")) // SHARE for name, machine in LIMITS.items()}
    namespace = os.open(f"/proc/{pid}/ns/user", os.O_RDONLY)
    if libc.setns(namespace, _NEWUSER) != 0:
        code = ctypes.get_errno()
        raise OSError(code, f"its user namespace cannot be entered: {os.strerror(code)}")
    for name, value in values.items():  # the kernel shows each process the limits of its own namespace
        with open(f"/proc/sys/user/{name}", "w") as file:
            file.write(str(value))


def _read(path: str) -> str:
    with open(path) as file:
        return file.read()


if __name__ == "__main__":
    main()
