"""Makes a socket that listens inside a plugin's network namespace and belongs to the host.

The namespace has no other way out. Only the host holds the socket that accepts there, so no process stands between, and
when the host is gone, no process accepts.

Root enters the namespace with a thread made for this, which ends there: no thread that is used again is ever inside
together with a plugin. Without root it takes a process of its own, because only a process with a single thread can join
the user namespace that owns the network: this file, run as a program, which passes the socket back. Needs nothing but
the standard library; as a program it runs without site-packages.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import socket
import subprocess
import sys
import threading
import time

PORT = 3128
"""Where a plugin finds the proxy, as custom has it."""

HERE = "127.0.0.1"
BACKLOG = 128
"""Connections that wait in the kernel while the proxy is at its limit."""

LOOPBACK_SECONDS = 4.0
"""Until loopback is there; it usually is already."""

HELPER_SECONDS = 5.0
"""For the process that goes inside; it needs some 20 ms."""

ENVIRONMENT: dict[str, str] = {
    **dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"), f"http://{HERE}:{PORT}"),
    **dict.fromkeys(("NO_PROXY", "no_proxy"), ""),
}
"""Variables that name the proxy to HTTP libraries. Some ignore them: `fetch` of Node.js reads them only if it is
told to (`NODE_USE_ENV_PROXY=1`, from Node.js 24 on), and then has no network, which is the safe side."""

_NEWUSER = 0x1000_0000
_NEWNET = 0x4000_0000
_NS_GET_USERNS = 0xB701


def listen_inside(child_pid: int, port: int = PORT) -> socket.socket:
    """A socket that listens on loopback in the network namespace of a process. Blocks; raises OSError.

    A process that shares the host's network is refused: the socket would be open to every process of the machine.
    """
    namespace = os.open(f"/proc/{child_pid}/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    try:
        if _is_inside(namespace):
            raise OSError(f"process {child_pid} has no network namespace of its own")
        return _by_thread(namespace, port) if os.geteuid() == 0 else _by_helper(namespace, port)
    finally:
        os.close(namespace)


def _by_thread(namespace: int, port: int) -> socket.socket:
    found: list[socket.socket | Exception] = []

    def inside() -> None:
        try:
            found.append(_listen(namespace, port))
        except Exception as error:
            found.append(error)

    thread = threading.Thread(target=inside, name="plugbay-listen")
    thread.start()
    thread.join()
    result = found[0]
    if isinstance(result, Exception):
        raise result
    return result


def _by_helper(namespace: int, port: int) -> socket.socket:
    ours, theirs = socket.socketpair()
    with ours:
        with theirs:
            helper = subprocess.Popen(
                [sys.executable, "-I", "-S", __file__, str(namespace), str(theirs.fileno()), str(port)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                cwd="/",
                env={"LC_ALL": "C.UTF-8"},
                pass_fds=(namespace, theirs.fileno()),
            )
        try:
            _, said = helper.communicate(timeout=HELPER_SECONDS)
        except subprocess.TimeoutExpired:
            helper.kill()
            helper.communicate()
            raise OSError("the helper that opens the way out did not come back") from None
        if helper.returncode != 0:
            raise OSError(f"the way out cannot be opened: {said.decode(errors='replace').strip()[-200:]}")
        return _received(ours)


def _received(ours: socket.socket) -> socket.socket:
    _, fds, _, _ = socket.recv_fds(ours, 1, 1)
    if len(fds) != 1:
        raise OSError("the helper that opens the way out brought nothing back")
    listening = socket.socket(fileno=fds[0])
    listening.set_inheritable(False)
    return listening


def _listen(namespace: int, port: int) -> socket.socket:
    """Enter the namespace for good, and listen there."""
    _enter(namespace, _NEWNET)
    if not _is_inside(namespace):
        raise OSError("the network namespace was not entered")
    listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        _bind(listening, port)
        listening.listen(BACKLOG)
    except BaseException:
        listening.close()
        raise
    return listening


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


def main(namespace: int, answer: int, port: int) -> None:
    """The helper: join the user namespace that owns the network, then the network, and send the socket back."""
    owner = fcntl.ioctl(namespace, _NS_GET_USERNS)
    _enter(owner, _NEWUSER)
    with socket.socket(fileno=answer) as back, _listen(namespace, port) as listening:
        socket.send_fds(back, [b"."], [listening.fileno()])


if __name__ == "__main__":
    try:
        main(*map(int, sys.argv[1:]))
    except OSError as error:
        sys.exit(str(error))
