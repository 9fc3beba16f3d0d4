"""Memory, sockets and unlinked files of real processes, as /proc shows them."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from plugbay.process import usage
from plugbay.process.usage import (
    FEW_SOCKETS,
    SOCKET_BYTES,
    cpu_of_tree,
    memory_limit,
    memory_of_sockets,
    memory_of_tree,
    oom_kills,
    unlinked,
)
from tests.process.sandbox.drivers import ENVIRONMENT, IDENTITIES
from tests.process.sandbox.drivers import PYTHON as ANYBODYS_PYTHON
from tests.support.machine import AS_ROOT, needs_root
from tests.support.patience import PATIENCE
from tests.support.requirements import requirement

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
        return memory_of_tree(pid)


@pytest.mark.parametrize(
    "script",
    [OWN, SHARED_BY_FORK, IN_A_CHILD, SHARED, FILE, MAPPED_FILE],
    ids=["own", "shared by fork", "in a child", "shared", "file in memory", "mapped file in memory"],
)
def test_memory_counts_once_in_whatever_form(script: str, nothing: int) -> None:
    with holding(script) as pid:
        assert 20 * MIB <= memory_of_tree(pid) - nothing + 2 * MIB < 40 * MIB


def test_what_is_mapped_and_not_touched_does_not_count(nothing: int) -> None:
    with holding(TOUCHED_NOT) as pid:
        assert memory_of_tree(pid) - nothing < 10 * MIB


def test_a_process_that_only_its_owner_may_look_at_still_counts() -> None:
    with holding(OWN) as pid:
        asked = f"from plugbay.process.usage import memory_of_tree; print(memory_of_tree({pid}))"
        argv = [*IDENTITIES["rootless"], ANYBODYS_PYTHON, "-B", "-c", asked]
        done = subprocess.run(argv, capture_output=True, text=True, env=ENVIRONMENT, timeout=PATIENCE, check=True)
        assert 20 * MIB <= int(done.stdout) < 40 * MIB


def test_who_is_gone_uses_nothing() -> None:
    with holding("") as pid:
        pass
    assert (memory_of_tree(pid), memory_of_sockets(pid)) == (0, 0)


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
        assert memory_of_sockets(pid) == 0
    with connected(many) as pid:
        least = 2 * many * SOCKET_BYTES + 50_000
        assert least <= memory_of_sockets(pid) < least + 50_000  # what is not acknowledged yet is at both ends


def test_the_sockets_of_another_network_do_not_count() -> None:
    with connected(FEW_SOCKETS), connected(0) as other:
        assert memory_of_sockets(other) == 0


WRITE = "import os, sys, mmap; f = open(sys.argv[1], 'w+b'); f.write(b'x' * 4194304); f.flush(); "
WAIT = "print('ready', flush=True); sys.stdin.read()"

NAMED = WRITE + WAIT
OPEN = WRITE + "os.unlink(sys.argv[1]); " + WAIT
TWICE = WRITE + "os.unlink(sys.argv[1]); g = os.dup(f.fileno()); m = mmap.mmap(g, 0); " + WAIT
MAPPED = WRITE + "m = mmap.mmap(f.fileno(), 0); f.close(); os.unlink(sys.argv[1]); " + WAIT
GRANDCHILD = (
    "import os, sys\n"
    "if os.fork() == 0:\n"
    "    f = open(sys.argv[1], 'w+b'); f.write(b'x' * 4194304); f.flush(); os.unlink(sys.argv[1])\n"
    "    print('ready', flush=True)\n"
    "sys.stdin.read()"
)


@contextmanager
def running(script: str, path: Path) -> Iterator[int]:
    """A process that has said that it is ready; the end of its input ends it."""
    argv = [sys.executable, "-c", script, str(path)]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None and process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        yield process.pid
        process.stdin.close()


@pytest.mark.parametrize("script", [OPEN, TWICE, MAPPED, GRANDCHILD], ids=["open", "twice", "mapped", "grandchild"])
def test_an_unlinked_file_counts_once_for_as_long_as_a_process_has_it(script: str, tmp_path: Path) -> None:
    with running(script, tmp_path / "big") as pid:
        assert os.listdir(tmp_path) == []
        assert 4 * MIB <= unlinked(pid, tmp_path).bytes < 5 * MIB


def test_a_file_with_a_name_is_found_by_its_name_and_does_not_count(tmp_path: Path) -> None:
    with running(NAMED, tmp_path / "big") as pid:
        assert unlinked(pid, tmp_path).bytes == 0


def test_a_file_that_was_elsewhere_does_not_count(tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    (tmp_path / "state2").mkdir()
    with running(OPEN, tmp_path / "state2" / "big") as pid:
        assert unlinked(pid, tmp_path / "state").bytes == 0
        assert unlinked(pid, tmp_path / "state2").bytes >= 4 * MIB


def test_a_folder_may_be_named_by_a_link(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    with running(OPEN, tmp_path / "real" / "big") as pid:
        assert unlinked(pid, tmp_path / "link").bytes >= 4 * MIB


MAP_A_PAGE = (
    "import ctypes; number = ctypes.c_long; mapping = ctypes.CDLL(None).mmap; "  # the module mmap keeps a descriptor
    "mapping(None, number(4096), 1, 1, f.fileno(), number(0)); "
)
PAGE = WRITE + MAP_A_PAGE + "f.close(); os.unlink(sys.argv[1]); " + WAIT
PAGE_AND_OPEN = WRITE + MAP_A_PAGE + "os.unlink(sys.argv[1]); " + WAIT
SENT = "import socket; a, b = socket.socketpair(); socket.send_fds(a, [b'.'], [f.fileno()]); f.close(); "
IN_FLIGHT = WRITE + SENT + "os.unlink(sys.argv[1]); " + WAIT
RECEIVED = WRITE + SENT + "os.unlink(sys.argv[1]); g = socket.recv_fds(b, 1, 1)[1]; " + WAIT
LISTEN = "l = socket.socket(socket.AF_UNIX); l.bind(chr(0) + 'plugbay-%d' % os.getpid()); l.listen(); "
CONNECT = "a = socket.socket(socket.AF_UNIX); a.connect(l.getsockname()); "
UNACCEPTED = IN_FLIGHT.replace("a, b = socket.socketpair(); ", LISTEN + CONNECT)


@requirement("host:state-hidden")
@pytest.mark.parametrize(
    ("script", "counted", "hidden"),
    [
        (PAGE, AS_ROOT, not AS_ROOT),
        (PAGE_AND_OPEN, True, False),
        (IN_FLIGHT, False, True),
        (UNACCEPTED, False, True),
        (RECEIVED, True, False),
    ],
    ids=["one page", "one page and open", "in flight", "not accepted", "received"],
)
def test_an_unlinked_file_that_cannot_be_measured_is_noticed(
    script: str, counted: bool, hidden: bool, tmp_path: Path
) -> None:
    with running(script, tmp_path / "big") as pid:
        kept = unlinked(pid, tmp_path)
        assert (kept.bytes >= 4 * MIB, kept.hidden) == (counted, hidden)


@requirement("host:state-hidden")
@needs_root
def test_without_root_a_mapped_page_of_an_unlinked_file_is_noticed() -> None:
    with tempfile.TemporaryDirectory(prefix="plugbay-") as folder:
        os.chmod(folder, 0o777)
        asked = (
            "import subprocess, sys, pathlib; from plugbay.process.usage import unlinked\n"
            "p = subprocess.Popen([sys.executable, '-c', sys.argv[1], sys.argv[2] + '/big'], "
            "stdin=subprocess.PIPE, stdout=subprocess.PIPE)\n"
            "p.stdout.readline(); print(unlinked(p.pid, pathlib.Path(sys.argv[2]))); p.kill()"
        )
        argv = [*IDENTITIES["rootless"], ANYBODYS_PYTHON, "-B", "-c", asked, PAGE, folder]
        done = subprocess.run(argv, capture_output=True, text=True, env=ENVIRONMENT, timeout=PATIENCE, check=True)
        assert done.stdout.strip() == "Unlinked(bytes=4096, hidden=True)"


def test_a_process_that_is_gone_holds_nothing(tmp_path: Path) -> None:
    with running(OPEN, tmp_path / "big") as pid:
        pass
    assert unlinked(pid, tmp_path).bytes == 0


def test_kills_for_lack_of_memory_are_counted_where_the_kernel_tells(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert oom_kills() is not None
    monkeypatch.setattr(usage, "OOM_KILLS", tmp_path / "vmstat")
    assert oom_kills() is None
    (tmp_path / "vmstat").write_text("nr_free_pages 7\noom_kill 3\ncompact_stall 1\n")
    assert oom_kills() == 3


@pytest.mark.parametrize(
    ("own", "files", "limit"),
    [
        ("0::/a/b", {}, None),
        ("0::/a/b", {"a/b/memory.max": "max", "a/memory.max": "300", "memory.max": "max"}, 300),
        ("0::/a/b", {"a/b/memory.max": "200", "a/memory.max": "300"}, 200),
        ("0::/../b", {"memory.max": "100"}, 100),
        ("4:memory:/c\n0::/a", {"memory/c/memory.limit_in_bytes": "500"}, 500),
        ("4:cpu,memory:/c", {"memory/c/memory.limit_in_bytes": "500", "memory/memory.limit_in_bytes": "400"}, 400),
        ("4:memory:/c", {"memory/c/memory.limit_in_bytes": str((1 << 63) - 4096)}, None),
        ("4:cpu:/c", {"memory/c/memory.limit_in_bytes": "500"}, None),
    ],
)
def test_the_memory_of_a_process_is_limited_by_the_least_of_its_control_groups(
    tmp_path: Path, own: str, files: dict[str, str], limit: int | None
) -> None:
    (tmp_path / "own").write_text(f"{own}\n")
    for name, text in files.items():
        path = tmp_path / "groups" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{text}\n")
    assert memory_limit(tmp_path / "own", tmp_path / "groups") == limit
    assert memory_limit(tmp_path / "none", tmp_path / "groups") is None


BUSY = "import time\nend = time.process_time() + 0.32\nwhile time.process_time() < end: pass"
"""Longer than the tests demand: the kernel counts whole hundredths of a second."""
BUSY_IN_A_CHILD = f"if os.fork() == 0:\n  exec({BUSY!r}); os._exit(0)\nos.wait()"


@pytest.mark.parametrize("script", [BUSY, BUSY_IN_A_CHILD], ids=["own", "of an ended child"])
def test_cpu_time_is_that_of_a_process_and_its_children(script: str) -> None:
    with holding(script) as pid:
        assert cpu_of_tree(pid) >= 0.3
    assert cpu_of_tree(pid) == 0, "it is gone"
