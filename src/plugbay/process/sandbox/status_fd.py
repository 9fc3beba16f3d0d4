"""What bubblewrap reports while it sets up a sandbox, and the moment at which the plugin's program runs in it.

Owns the descriptors that bubblewrap reports to and waits on. Refuses to know what is done while it waits.

bubblewrap starts a monitor, the process we know, whose child is the first process of the new pid namespace; that one
sets everything up, waits, and then forks the plugin. It says `child-pid` when the first process exists, and
`exit-code` at the end if the plugin's program was run at all. It does not say when the program begins to run; that
shows in the command line of the process, which is the monitor's until then.

Reports come through a pair of datagram sockets, because nobody listens any more when the plugin ends: writing to a pipe
would then kill the monitor. The monitor waits on a pipe that it can also write to, so that our death is not taken for
the word to go on.
"""

from __future__ import annotations

import os
import re
import select
import socket
import time

from plugbay.process import pidfd

READY_SECONDS = 5.0
"""For the first process to exist; milliseconds, unless the machine is overloaded."""

RUN_SECONDS = 15.0
"""For the program to be run: as long as a slow file system may take."""

FIRST_LOOK_MS, LONGEST_LOOK_MS = 1, 16
"""Between two looks for the program, doubled each time; it usually runs after one millisecond."""

REST_SECONDS = 0.0005
"""For the rest of a report that has begun. It comes in nine pieces, and to be woken by each would take the processor
from whoever sends them."""

_CHILD_PID = re.compile(rb'"child-pid": (\d+).*\}\n', re.DOTALL)
_EXIT_CODE = b'"exit-code"'


class Reports:
    """Our ends and bubblewrap's ends of what it reports to and waits on."""

    __slots__ = ("_gate", "_hear", "_heard", "block", "status")

    def __init__(self) -> None:
        self._hear, told = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._hear.setblocking(False)
        self._heard = b""
        self.status = told.detach()
        self.block = self._gate = -1
        try:
            reading, self._gate = os.pipe()
            try:
                self.block = os.open(f"/proc/self/fd/{reading}", os.O_RDWR | os.O_CLOEXEC)
            finally:
                os.close(reading)
        except BaseException:
            self.close()
            raise

    def let_go(self) -> None:
        """Close bubblewrap's ends, once it has them."""
        for fd in (self.status, self.block):
            if fd >= 0:
                os.close(fd)
        self.status = self.block = -1

    def close(self) -> None:
        self.let_go()
        self._hear.close()
        if self._gate >= 0:
            os.close(self._gate)
            self._gate = -1

    def first_process(self, monitor: int, watch: int | None) -> int | None:
        """The pid of the first process inside; None when the monitor ended without one, or it took too long."""
        deadline = time.monotonic() + READY_SECONDS
        while (found := _CHILD_PID.search(self._heard)) is None:
            if self._heard:
                time.sleep(REST_SECONDS)
            ended = pidfd.has_ended(monitor)
            if self._listen():
                continue
            if ended or time.monotonic() >= deadline:
                return None
            self._pause(watch, LONGEST_LOOK_MS)
        return int(found[1])

    def release(self) -> None:
        """Let bubblewrap go on and run the program."""
        os.write(self._gate, b"!")

    def program(self, monitor: int, first: int, watch: int | None) -> int | None:
        """The pid of the program, once it runs; 0 when it ran and is gone; None when it was never run."""
        deadline = time.monotonic() + RUN_SECONDS
        before = _read(f"/proc/{monitor}/cmdline")
        pause = FIRST_LOOK_MS
        while time.monotonic() < deadline:
            ended = pidfd.has_ended(monitor)
            self._listen()
            pid = first_child(first)
            # A dead process has an empty command line, whether it ran the program or not.
            if pid and _read(f"/proc/{pid}/cmdline") not in (b"", before):
                return pid
            if ended:
                return 0 if _EXIT_CODE in self._heard else None
            self._pause(watch, pause)
            pause = min(pause * 2, LONGEST_LOOK_MS)
        return None

    def _listen(self) -> bool:
        """Take in what was reported; whether there was anything."""
        heard = len(self._heard)
        while (piece := _attempt(self._hear)) is not None:
            self._heard += piece
        return len(self._heard) > heard

    def _pause(self, watch: int | None, milliseconds: int) -> None:
        """Wait for a report or for the monitor's end, but no longer than this."""
        poll = select.poll()
        for fd in (self._hear.fileno(), *(() if watch is None else (watch,))):
            poll.register(fd, select.POLLIN)
        poll.poll(milliseconds)


def first_child(pid: int) -> int:
    """The oldest child of a process; 0 when there is none. The monitor has the first process, that has the plugin."""
    return int((_read(f"/proc/{pid}/task/{pid}/children").split() or [b"0"])[0])


def status_of(pid: int) -> dict[str, bytes]:
    """What the kernel says of a process, line by line; empty when there is no such process."""
    lines = (line.partition(b":") for line in _read(f"/proc/{pid}/status").splitlines())
    return {name.decode(): value.strip() for name, _, value in lines}


def parent_of(pid: int) -> int:
    """The pid of a process's parent; 0 when there is no such process."""
    fields = _read(f"/proc/{pid}/stat").rpartition(b")")[2].split()
    return int(fields[1]) if fields else 0


def _attempt(sock: socket.socket) -> bytes | None:
    try:
        return sock.recv(4096) or None
    except OSError:
        return None


def _read(path: str) -> bytes:
    try:
        with open(path, "rb", buffering=0) as file:
            return file.read()
    except OSError:
        return b""
