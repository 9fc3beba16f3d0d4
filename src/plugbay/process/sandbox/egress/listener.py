"""Makes the sockets that listen inside a plugin's network namespace and belong to the host.

The namespace has no other way out. Only the host holds the sockets that accept there, so no process stands between, and
when the host is gone, no process accepts.

Root enters the namespace with a thread made for this, which ends there: no thread that is used again is ever inside
together with a plugin. Without root it takes a process of its own, because only a process with a single thread can join
the user namespace that owns the network: this file, run as a program, which passes the sockets back. As a program it
runs without site-packages, so this file imports the standard library alone; it gets the messages for the kernel, which
`netlink` makes, on its stdin.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack

PORT = 3128
"""Where a plugin finds the proxy, as custom has it."""
DIRECT_PORT = 3129
"""Where the kernel hands over connections to other addresses."""
DNS_PORT = 53
"""Where the host gets questions for names."""

IP_PKTINFO = 8
"""The option of a socket, and the kind of a message, that tell which address a datagram was sent to."""

HERE = "127.0.0.1"
BACKLOG = 128
"""Connections that wait in the kernel while the proxy is at its limit."""

LOOPBACK_SECONDS = 4.0
"""Until loopback is there; it usually is already."""

HELPER_SECONDS = 5.0
"""For the process that goes inside; it needs some 20 ms."""

KERNEL_SECONDS = 4.0
"""For the kernel to take a setting; it needs less than a millisecond, or waits for a module that it loads."""

ENVIRONMENT: dict[str, str] = {
    **dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"), f"http://{HERE}:{PORT}"),
    **dict.fromkeys(("NO_PROXY", "no_proxy"), ""),
}
"""Variables that name the proxy to HTTP libraries. Libraries that ignore them connect directly."""

_NEWUSER = 0x1000_0000
_NEWNET = 0x4000_0000
_NS_GET_USERNS = 0xB701
_IP_TRANSPARENT, _IPV6_TRANSPARENT = 19, 75
_NLMSG = struct.Struct("=IHHII")
_NLMSG_ERROR = 2
_MAX_WHY = 512

Settings = Sequence[tuple[int, bytes, int, bool]]
"""Protocol, data, number of replies, required: each a `netlink.Batch`."""


class Sockets:
    """The sockets of the host inside one namespace."""

    __slots__ = ("direct", "dns", "proxy", "why")

    def __init__(
        self,
        proxy: socket.socket,
        direct: socket.socket | None = None,
        dns: socket.socket | None = None,
        why: str = "",
    ) -> None:
        self.proxy = proxy
        """Accepts requests to the proxy."""
        self.direct = direct
        """Accepts connections to any other address; None: there is no way but the proxy."""
        self.dns = dns
        """Gets questions for names; None as `direct`."""
        self.why = why
        """Why connections are not forwarded."""

    def all(self) -> list[socket.socket]:
        return [each for each in (self.proxy, self.direct, self.dns) if each is not None]

    def close(self) -> None:
        for each in self.all():
            each.close()


def open_inside(child_pid: int, settings: Settings = (), port: int = PORT) -> Sockets:
    """Open the sockets in the network namespace of a process, and apply these settings there. Blocks; raises OSError.

    Without settings, or where the kernel does not take them, there is the proxy alone. A process that shares the host's
    network is refused: the sockets would be open to every process of the machine.
    """
    namespace = os.open(f"/proc/{child_pid}/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    try:
        if _is_inside(namespace):
            raise OSError(f"process {child_pid} has no network namespace of its own")
        return (_by_thread if os.geteuid() == 0 else _by_helper)(namespace, port, settings)
    finally:
        os.close(namespace)


def _by_thread(namespace: int, port: int, settings: Settings) -> Sockets:
    found: list[Sockets | Exception] = []

    def inside() -> None:
        try:
            found.append(_open(namespace, port, settings))
        except Exception as error:
            found.append(error)

    thread = threading.Thread(target=inside, name="plugbay-listen")
    thread.start()
    thread.join()
    result = found[0]
    if isinstance(result, Exception):
        raise result
    return result


def _by_helper(namespace: int, port: int, settings: Settings) -> Sockets:
    ours, theirs = socket.socketpair()
    lines = [f"{protocol} {data.hex()} {replies} {int(required)}" for protocol, data, replies, required in settings]
    with ours:
        with theirs:
            helper = subprocess.Popen(
                [sys.executable, "-I", "-S", __file__, str(namespace), str(theirs.fileno()), str(port)],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                cwd="/",
                env={"LC_ALL": "C.UTF-8"},
                pass_fds=(namespace, theirs.fileno()),
            )
        try:
            _, said = helper.communicate("\n".join(lines).encode(), timeout=HELPER_SECONDS)
        except subprocess.TimeoutExpired:
            helper.kill()
            helper.communicate()
            raise OSError("the helper that opens the network did not answer") from None
        if helper.returncode != 0:
            raise OSError(f"the network cannot be opened: {said.decode(errors='replace').strip()[-200:]}")
        return _received(ours)


def _received(ours: socket.socket) -> Sockets:
    why, fds, _, _ = socket.recv_fds(ours, _MAX_WHY, 3)
    opened = [socket.socket(fileno=fd) for fd in fds]
    if len(opened) not in (1, 3):
        for each in opened:
            each.close()
        raise OSError("the helper that opens the network returned no sockets")
    for each in opened:
        each.set_inheritable(False)
    if len(opened) == 3:
        return Sockets(opened[0], opened[1], opened[2])
    return Sockets(opened[0], why=why[1:].decode(errors="replace"))


def _open(namespace: int, port: int, settings: Settings) -> Sockets:
    """Enter the namespace for good, and open the sockets there."""
    _enter(namespace, _NEWNET)
    if not _is_inside(namespace):
        raise OSError("the network namespace was not entered")
    with ExitStack() as opened:
        proxy = opened.enter_context(socket.socket(socket.AF_INET, socket.SOCK_STREAM))
        _bind(proxy, port)
        proxy.listen(BACKLOG)
        found = Sockets(proxy)
        if settings:
            found = _open_direct(proxy, settings)
        opened.pop_all()
    return found


def _open_direct(proxy: socket.socket, settings: Settings) -> Sockets:
    """With the sockets that the settings lead to, or why there are none."""
    with ExitStack() as opened:
        try:
            direct = opened.enter_context(_direct_socket())
            dns = opened.enter_context(_dns_socket())
            for setting in settings:
                _configure(*setting)
        except OSError as error:
            return Sockets(proxy, why=f"the kernel cannot forward connections (nf_tables with tproxy): {error}")
        opened.pop_all()
    return Sockets(proxy, direct, dns)


def _dns_socket() -> socket.socket:
    """Gets questions to every name server; each with the address that was asked."""
    asked = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    try:
        asked.setsockopt(socket.IPPROTO_IP, IP_PKTINFO, 1)
        asked.bind(("0.0.0.0", DNS_PORT))
    except BaseException:
        asked.close()
        raise
    return asked


def _direct_socket() -> socket.socket:
    """Listens for connections to every address. IPv6 is left out where the kernel has none."""
    try:
        listening, every = socket.socket(socket.AF_INET6, socket.SOCK_STREAM), "::"
    except OSError:
        listening, every = socket.socket(socket.AF_INET, socket.SOCK_STREAM), "0.0.0.0"
    try:
        if listening.family == socket.AF_INET6:
            listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
            listening.setsockopt(socket.IPPROTO_IPV6, _IPV6_TRANSPARENT, 1)
        listening.setsockopt(socket.IPPROTO_IP, _IP_TRANSPARENT, 1)
        listening.bind((every, DIRECT_PORT))
        listening.listen(BACKLOG)
    except BaseException:
        listening.close()
        raise
    return listening


def _configure(protocol: int, data: bytes, replies: int, required: bool) -> None:
    """Send messages to the kernel and wait for so many replies. Raises OSError if a required one is refused."""
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, protocol) as kernel:
        kernel.settimeout(KERNEL_SECONDS)
        kernel.sendto(data, (0, 0))
        while replies > 0:
            codes = list(_reply_codes(kernel.recv(1 << 16)))
            failed = next(filter(None, codes), 0)
            if failed and required:
                raise OSError(-failed, os.strerror(-failed))
            replies -= len(codes)


def _reply_codes(data: bytes) -> Iterator[int]:
    """The codes of the replies in one datagram of the kernel; 0: done, else a negative number of an error."""
    at = 0
    while at < len(data):
        size, kind, _, _, _ = _NLMSG.unpack_from(data, at)
        if kind == _NLMSG_ERROR:
            yield struct.unpack_from("=i", data, at + _NLMSG.size)[0]
        at += (size + 3) & ~3


def _bind(listening: socket.socket, port: int) -> None:
    """bubblewrap tells of its first process before that has brought loopback up: until then there is no address."""
    deadline = time.monotonic() + LOOPBACK_SECONDS
    while True:
        try:
            return listening.bind((HERE, port))
        except OSError as error:
            if error.errno != errno.EADDRNOTAVAIL or time.monotonic() > deadline:
                raise
        time.sleep(0.0005)


def _enter(namespace: int, kind: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.setns(namespace, kind) != 0:
        code = ctypes.get_errno()
        raise OSError(code, f"a namespace cannot be entered: {os.strerror(code)}")


def _is_inside(namespace: int) -> bool:
    """Whether this very thread is in that network namespace."""
    return os.path.samestat(os.fstat(namespace), os.stat("/proc/thread-self/ns/net"))


def main(namespace: int, answer: int, port: int, lines: Sequence[str]) -> None:
    """The helper: join the user namespace that owns the network, then the network, and send the sockets back."""
    settings = [
        (int(protocol), bytes.fromhex(data), int(replies), required == "1")
        for protocol, data, replies, required in map(str.split, lines)
    ]
    owner = fcntl.ioctl(namespace, _NS_GET_USERNS)
    _enter(owner, _NEWUSER)
    found = _open(namespace, port, settings)
    with socket.socket(fileno=answer) as back:
        socket.send_fds(back, [b"." + found.why.encode()[: _MAX_WHY - 1]], [each.fileno() for each in found.all()])


if __name__ == "__main__":
    try:
        main(int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.stdin.read().splitlines())
    except OSError as error:
        sys.exit(str(error))
