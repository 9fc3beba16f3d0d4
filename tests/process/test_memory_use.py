"""The memory of real processes, counted once in whatever form they hold it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from plugbay.process.memory_use import FEW_SOCKETS, SOCKET_BYTES, of_sockets, of_tree
from tests.process.sandbox.drivers import ENVIRONMENT, IDENTITIES
from tests.process.sandbox.drivers import PYTHON as ANYBODYS_PYTHON

MIB = 1 << 20

OWN = "x = b'x' * (20 << 20)"
SHARED_BY_FORK = "x = b'x' * (20 << 20)\nfor _ in range(3):\n  if os.fork() == 0: sys.stdin.read(); os._exit(0)"
IN_A_CHILD = (
    "r, w = os.pipe()\nif os.fork() == 0:\n  x = b'x' * (20 << 20); os.close(w); sys.stdin.read(); os._exit(0)\n"
)
IN_A_CHILD += "os.close(w); os.read(r, 1)"
SHARED = "x = mmap.mmap(-1, 20 << 20); x.write(b'x' * (20 << 20))"
FILE = "x = os.memfd_create('x')\nfor _ in range(20): os.write(x, b'x' * (1 << 20))"
MAPPED_FILE = FILE + "\ny = mmap.mmap(x, 20 << 20); sum(y[at] for at in range(0, 20 << 20, 4096))"
TOUCHED_NOT = "x = mmap.mmap(-1, 20 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)"


@contextmanager
def holding(script: str) -> Iterator[int]:
    """A process that holds something until the end of its input."""
    text = f"import mmap, os, sys\n{script}\nprint('ready', flush=True); sys.stdin.read()"
    argv = [sys.executable, "-I", "-S", "-c", text]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None and process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        yield process.pid
        process.stdin.close()


@pytest.fixture(scope="module")
def nothing() -> int:
    """What an interpreter uses by itself."""
    with holding("") as pid:
        return of_tree(pid)


@pytest.mark.parametrize(
    "script",
    [OWN, SHARED_BY_FORK, IN_A_CHILD, SHARED, FILE, MAPPED_FILE],
    ids=["own", "shared by fork", "in a child", "shared", "file in memory", "mapped file in memory"],
)
def test_memory_counts_once_in_whatever_form(script: str, nothing: int) -> None:
    with holding(script) as pid:
        assert 20 * MIB <= of_tree(pid) - nothing + 2 * MIB < 40 * MIB


def test_what_is_mapped_and_not_touched_does_not_count(nothing: int) -> None:
    with holding(TOUCHED_NOT) as pid:
        assert of_tree(pid) - nothing < 10 * MIB


def test_a_process_that_only_its_owner_may_look_at_still_counts() -> None:
    with holding(OWN) as pid:
        asked = f"from plugbay.process.memory_use import of_tree; print(of_tree({pid}))"
        argv = [*IDENTITIES["rootless"], ANYBODYS_PYTHON, "-B", "-c", asked]
        done = subprocess.run(argv, capture_output=True, text=True, env=ENVIRONMENT, timeout=50, check=True)
        assert 20 * MIB <= int(done.stdout) < 40 * MIB


def test_who_is_gone_uses_nothing() -> None:
    with holding("") as pid:
        pass
    assert (of_tree(pid), of_sockets(pid)) == (0, 0)


CONNECTED = """
import fcntl, socket, struct
with socket.socket() as asking:
    fcntl.ioctl(asking, 0x8914, struct.pack("16sh22x", b"lo", 1))
listening = socket.create_server(("127.0.0.1", 0), backlog=200)
kept = [socket.create_connection(listening.getsockname()) for _ in range({count})]
if {count}:
    kept[0].send(bytes(50_000))
"""


@contextmanager
def connected(count: int) -> Iterator[int]:
    """A process in a network of its own, with connections of which it has accepted none."""
    text = CONNECTED.format(count=count) + "\nprint('ready', flush=True); input()"
    argv = ["unshare", "--user", "--map-root-user", "--net", sys.executable, "-I", "-S", "-c", text]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None and process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        yield process.pid
        process.kill()


def test_each_socket_counts_with_the_data_that_waits_in_it() -> None:
    few, many = FEW_SOCKETS // 2 - 1, FEW_SOCKETS
    with connected(few) as pid:
        assert of_sockets(pid) == 0
    with connected(many) as pid:
        least = 2 * many * SOCKET_BYTES + 50_000
        assert least <= of_sockets(pid) < least + 50_000  # what is not acknowledged yet is at both ends


def test_the_sockets_of_another_network_do_not_count() -> None:
    with connected(FEW_SOCKETS), connected(0) as other:
        assert of_sockets(other) == 0
