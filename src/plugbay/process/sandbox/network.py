"""A network namespace for a confined program, made before the program exists; only if the host is root.

The kernel takes half a millisecond to make one, a tenth of a sandbox, and longer while it takes others down. So a
thread that has started a program makes the next namespace while it waits anyway. Each namespace is for one program: the
thread that starts the program is inside, and is out before the program runs. It belongs to the host's user namespace,
so no process inside can change it, whatever rights it has there. Without root, bubblewrap makes it.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager, suppress

CLONE_NEWNET = 0x4000_0000
SIOCSIFFLAGS, IFF_UP = 0x8914, 1

_libc = ctypes.CDLL(None, use_errno=True)


class Network:
    """One network namespace; it exists as long as this object, or a process in it."""

    __slots__ = ("fd",)

    def __init__(self, fd: int) -> None:
        self.fd = fd

    def __del__(self) -> None:
        os.close(self.fd)

    def enter(self) -> None:
        """Have the calling thread be in it. Raises OSError."""
        _check(_libc.setns(self.fd, CLONE_NEWNET), "setns")


class Networks:
    """Of one host; used by several threads at a time."""

    __slots__ = ("_waiting",)

    def __init__(self) -> None:
        self._waiting: list[Network] = []

    @contextmanager
    def enter_new(self) -> Iterator[None]:
        """Move the calling thread into an unused network; its children stay there.

        Whatever becomes of it, no other program gets this one. Raises OSError.
        """
        network = self._take_prepared() or _create()
        host = _current()
        network.enter()
        try:
            yield
        finally:
            host.enter()

    def prepare_next(self) -> None:
        """Make a network for the next program. A failure is reported when the network is needed."""
        if not self._waiting:
            with suppress(OSError):
                self._waiting.append(_create())

    def close(self) -> None:
        """Nothing waits any more."""
        self._waiting.clear()

    def _take_prepared(self) -> Network | None:
        try:
            return self._waiting.pop()
        except IndexError:
            return None


def namespace_of(pid: int | str) -> int:
    """A number for the network that a process is in; 0 when it is gone, or not ours to look at."""
    try:
        return os.stat(f"/proc/{pid}/ns/net").st_ino
    except OSError:
        return 0


def _create() -> Network:
    """A new one, with nothing in it but loopback; the calling thread stays where it is."""
    host = _current()
    _check(_libc.unshare(CLONE_NEWNET), "unshare")
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
            fcntl.ioctl(asking, SIOCSIFFLAGS, struct.pack("16sh22x", b"lo", IFF_UP))
        return _current()
    finally:
        host.enter()


def _current() -> Network:
    """The one that the calling thread is in."""
    return Network(os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC))


def _check(result: int, what: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
