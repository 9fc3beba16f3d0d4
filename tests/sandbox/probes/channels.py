"""Ways to talk to somebody outside: sockets, shared memory, terminals, descriptors."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import socket
import termios

from .tools import World, check, found, libc, read


def _unix(address: str) -> None:
    with socket.socket(socket.AF_UNIX) as ours:
        ours.connect(address)


def abstract_socket(world: World) -> None:
    """A service of the machine that listens under a name without a file."""
    _unix(f"\0{world['abstract']}")


def path_socket(world: World) -> None:
    """A service that listens in a folder which is not shown, as docker's does."""
    _unix(f"{world['services']}/docker.sock")


def granted_socket(world: World) -> None:
    """A service that listens in a folder which may be written."""
    _unix(f"{world['written']}/service.sock")


def datagram_pair_reconnected(world: World) -> None:
    """The same, without asking for a socket: one end of a pair is connected once more."""
    ours, _ = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    ours.connect(f"{world['written']}/datagrams.sock")


def loopback(world: World) -> None:
    """A service of the machine that trusts whoever reaches its loopback."""
    socket.create_connection(("127.0.0.1", int(world["tcp"]))).close()


def loopback_6(world: World) -> None:
    socket.create_connection(("::1", int(world["tcp6"]))).close()


def loopback_by_any_address(world: World) -> None:
    """The same as 0.0.0.0, which means this machine too."""
    socket.create_connection(("0.0.0.0", int(world["tcp"]))).close()


def udp(world: World) -> str | None:
    """A question without a connection, as to a name server; something must come back."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as ours:
        ours.settimeout(5)
        ours.connect(("127.0.0.1", int(world["udp"])))
        ours.send(b"?")
        return found("!", ours.recv(10))


def network_card(world: World) -> str | None:
    """A way to anything but oneself: an interface beside loopback."""
    return None if any(line.split(b":")[0].strip() != b"lo" for line in _interfaces()) else "only loopback"


def _interfaces() -> list[bytes]:
    return read("/proc/net/dev", 65536).splitlines()[2:]


def shared_memory(world: World) -> None:
    """System V shared memory that somebody else made."""
    check(libc.shmget(int(world["ipc"]), 1, 0))


def semaphores(world: World) -> None:
    check(libc.semget(int(world["ipc"]), 1, 0))


def message_queue(world: World) -> None:
    check(libc.msgget(int(world["ipc"]), 0))


def posix_shared_memory(world: World) -> str | None:
    return found(world["canary"], read(f"/dev/shm/{world['shared']}"))


def posix_message_queue(world: World) -> None:
    check(libc.mq_open(f"/{world['shared']}".encode(), os.O_RDONLY))


def type_into_terminal(world: World) -> str | None:
    """TIOCSTI: put a command into the input of a terminal; here of one's own, which is the least that is allowed."""
    theirs, ours = os.openpty()
    os.setsid()
    fcntl.ioctl(ours, termios.TIOCSCTTY, 0)
    fcntl.ioctl(ours, termios.TIOCSTI, b"x")
    os.write(theirs, b"\n")
    return found("x", os.read(ours, 10))


def type_with_high_bits(world: World) -> None:
    """The same, with bits that the kernel drops and a careless filter compares."""
    _, ours = os.openpty()
    os.setsid()
    fcntl.ioctl(ours, termios.TIOCSCTTY, 0)
    check(libc.ioctl(ours, ctypes.c_ulong(termios.TIOCSTI | 1 << 32), b"x"))


def open_terminal_of_host(world: World) -> None:
    """The terminal of whoever started the host, by its number."""
    os.close(os.open(world["terminal"], os.O_WRONLY | os.O_NOCTTY))


def paste_on_console(world: World) -> None:
    """TIOCLINUX on whatever there is: the filter answers before the device."""
    theirs, _ = os.openpty()
    try:
        fcntl.ioctl(theirs, 0x541C, b"\x02")
    except OSError as error:
        if error.errno not in (errno.ENOTTY, errno.EINVAL):
            raise


def swap_line_discipline(world: World) -> None:
    """TIOCSETD: have the kernel load another driver for a terminal."""
    _, ours = os.openpty()
    fcntl.ioctl(ours, 0x5423, (0).to_bytes(4, "little"))


def inherited_descriptors(world: World) -> str | None:
    """Open files of the host: it left one open for everything it starts."""
    seen = b""
    for name in os.listdir("/proc/self/fd"):
        try:
            seen += os.pread(int(name), 100, 0)
        except OSError:
            continue
    return found(world["canary"], seen)


def environment(world: World) -> str | None:
    """Secrets of the host in the environment."""
    return found(world["canary"], " ".join(os.environ.values()).encode())
