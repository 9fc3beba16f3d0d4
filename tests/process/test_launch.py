"""The blocking half of a start: what a child gets, what it does not get, and what is left when it fails."""

from __future__ import annotations

import errno
import os
import resource
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from plugbay.process import limits, pidfd
from plugbay.process.command import Launch, LaunchFailed
from plugbay.process.launch import StartedProcess, start
from plugbay.process.limits import Rlimits
from tests.process.helpers import PYTHON, SHELL, carrying, exists, launch, open_fds
from tests.support.patience import until_blocking

MARKS = {"PLUGBAY_HOST": "1.2.test-launch", "PLUGBAY_CHILD": "test-launch"}


@pytest.fixture
def processes() -> Iterator[list[StartedProcess]]:
    """Children to be discarded after the test; afterwards everything is as it was."""
    before = open_fds()
    children: list[StartedProcess] = []
    yield children
    for child in children:
        child.discard()
    assert open_fds() == before


def born(processes: list[StartedProcess], *argv: str, popen: Any = subprocess.Popen, **options: Any) -> StartedProcess:
    child = start(launch(*argv, **options), MARKS, popen)
    processes.append(child)
    return child


def read(fd: int) -> bytes:
    """Everything until the end of the file."""
    os.set_blocking(fd, True)
    data = b""
    while piece := os.read(fd, 65536):
        data += piece
    return data


def settled(child: StartedProcess) -> None:
    """Wait until `cat` answers: its program loader has then closed what it had opened."""
    os.set_blocking(child.stdout, True)
    os.write(child.stdin, b"hello\n")
    assert os.read(child.stdout, 100) == b"hello\n"


def failure(launch: Launch, popen: Any = subprocess.Popen) -> LaunchFailed:
    """The error of a start that must fail and leave nothing open."""
    before = open_fds()
    with pytest.raises(LaunchFailed) as caught:
        start(launch, MARKS, popen)
    assert open_fds() == before
    return caught.value


def test_the_environment_is_exactly_the_given_one(
    processes: list[StartedProcess], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CANARY", "host secret")
    assert b"CANARY=host secret\n" in subprocess.run(["/usr/bin/env"], capture_output=True, check=True).stdout

    said = read(born(processes, "/usr/bin/env", env={"ALPHA": "1", "PLUGBAY_HOST": "forged"}).stdout).decode()
    variables = dict(line.split("=", 1) for line in said.splitlines())
    assert variables == {"PATH": os.environ["PATH"], "ALPHA": "1", **MARKS}


def inheritable_fds(count: int) -> list[int]:
    fds = [os.open("/dev/null", os.O_RDONLY) for _ in range(count)]
    for fd in fds:
        os.set_inheritable(fd, True)
    return fds


def test_a_child_has_three_descriptors_and_no_others(processes: list[StartedProcess]) -> None:
    leaked = inheritable_fds(5)
    try:
        child = born(processes, "/bin/cat")
        settled(child)
        assert set(os.listdir(f"/proc/{child.pid}/fd")) == {"0", "1", "2"}
    finally:
        for fd in leaked:
            os.close(fd)


def test_without_the_guard_a_child_would_have_the_hosts_descriptors(processes: list[StartedProcess]) -> None:
    def leaky(*args: Any, **options: Any) -> subprocess.Popen[bytes]:
        return subprocess.Popen(*args, **{**options, "close_fds": False})

    leaked = inheritable_fds(5)
    try:
        child = born(processes, "/bin/cat", popen=leaky)
        settled(child)
        assert {str(fd) for fd in leaked} <= set(os.listdir(f"/proc/{child.pid}/fd"))
    finally:
        for fd in leaked:
            os.close(fd)


def test_a_child_leads_its_own_session_and_group(processes: list[StartedProcess]) -> None:
    child = born(processes, "/bin/cat")
    assert os.getsid(child.pid) == os.getpgid(child.pid) == child.pid
    assert os.getsid(0) != child.pid


def test_the_working_directory_is_the_one_asked_for(processes: list[StartedProcess], tmp_path: Path) -> None:
    child = born(processes, "/bin/pwd", cwd=tmp_path)
    assert read(child.stdout).decode().strip() == str(tmp_path)


def test_the_limits_hold_inside(processes: list[StartedProcess]) -> None:
    script = "read go; ulimit -n; ulimit -c; ulimit -f; ulimit -t"
    wanted = Rlimits(open_files=77, file_size=512 * 100, cpu_seconds=9)
    child = born(processes, *SHELL, script, limits=wanted)
    os.write(child.stdin, b"go\n")
    assert read(child.stdout).decode().split() == ["77", "0", "100", "9"]
    assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] != 77


def test_a_file_larger_than_the_limit_ends_the_child(processes: list[StartedProcess], tmp_path: Path) -> None:
    script = "read go; head -c 102400 /dev/zero > big; true"
    for wanted, size in ((Rlimits(file_size=4096), 4096), (Rlimits(file_size=None), 102_400)):
        child = born(processes, *SHELL, script, limits=wanted, cwd=tmp_path)
        os.write(child.stdin, b"go\n")
        read(child.stdout)
        assert (tmp_path / "big").stat().st_size == size


def test_signals_that_python_ignores_are_restored(processes: list[StartedProcess]) -> None:
    assert signal.getsignal(signal.SIGPIPE) == signal.SIG_IGN
    child = born(processes, "/bin/cat")
    status = Path(f"/proc/{child.pid}/status").read_text()
    ignored = next(line.split()[1] for line in status.splitlines() if line.startswith("SigIgn:"))
    assert not int(ignored, 16) & (1 << (signal.SIGPIPE - 1))


def test_the_hosts_ends_do_not_block_and_the_childs_do(processes: list[StartedProcess]) -> None:
    child = born(processes, *PYTHON, "import os; print([os.get_blocking(fd) for fd in (0, 1, 2)], flush=True)")
    assert not any(os.get_blocking(fd) for fd in (child.stdin, child.stdout, child.stderr))
    assert not any(os.get_inheritable(fd) for fd in (child.stdin, child.stdout, child.stderr))
    assert read(child.stdout) == b"[True, True, True]\n"


def test_a_discarded_child_is_dead_with_its_group(processes: list[StartedProcess]) -> None:
    child = start(launch(*SHELL, "sleep 600 & echo $!; read line"), MARKS, subprocess.Popen)
    os.set_blocking(child.stdout, True)
    sleeper = int(os.read(child.stdout, 100))
    assert exists(sleeper)
    child.discard()
    until_blocking(lambda: not exists(sleeper))
    with pytest.raises(ChildProcessError):
        os.waitpid(child.pid, os.WNOHANG)


def test_a_program_that_is_missing_says_so() -> None:
    error = failure(launch("/no/such/program"))
    assert error.message == "/no/such/program does not exist"
    assert error.hint
    assert error.detail == {"command": ["/no/such/program"], "cwd": "/", "errno": "ENOENT"}


def test_a_working_directory_that_is_missing_or_a_file_says_so(tmp_path: Path) -> None:
    assert "working directory" in failure(launch("/bin/true", cwd=tmp_path / "absent")).message
    assert "is not a directory" in failure(launch("/bin/true", cwd=Path("/etc/passwd"))).message


@pytest.mark.parametrize("bad", [{"env": {"A": "b\0c"}}, {"env": {"A=B": "c"}}])
def test_an_environment_the_system_cannot_take_is_a_failed_launch(bad: dict[str, Any]) -> None:
    assert "not valid" in failure(launch("/bin/true", **bad)).message


@pytest.mark.parametrize(
    ("code", "message"),
    [
        (errno.EMFILE, "too many open files"),
        (errno.EAGAIN, "too many processes"),
        (errno.ENOMEM, "too little free memory"),
    ],
)
def test_a_shortage_at_the_start_is_a_clear_error(code: int, message: str) -> None:
    def refuse(*args: Any, **options: Any) -> subprocess.Popen[bytes]:
        raise OSError(code, os.strerror(code))

    assert message in failure(launch("/bin/true"), refuse).message


def test_every_number_of_free_descriptors_is_either_enough_or_a_clean_error() -> None:
    """Run out of descriptors at the first, the second, every one that a start opens."""
    base = open_fds()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    highest = max(int(fd) for fd in os.listdir("/proc/self/fd"))
    outcomes = []
    for spare in range(14):
        fillers = [os.open("/dev/null", os.O_RDONLY) for _ in range(highest + 1 - base)]
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (highest + 1 + spare, hard))
            outcomes.append(_attempt())
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
            for fd in fillers:
                os.close(fd)
        assert open_fds() == base
        assert carrying(MARKS["PLUGBAY_HOST"]) == set()
    assert outcomes[0] == "too many"
    assert outcomes[-1] == "started"
    assert outcomes == sorted(outcomes, reverse=True)


def _attempt() -> str:
    try:
        child = start(launch("/bin/cat"), MARKS, subprocess.Popen)
    except LaunchFailed as error:
        assert "too many open files" in error.message
        return "too many"
    child.discard()
    return "started"


def test_a_child_that_cannot_be_watched_or_limited_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    def too_many(pid: int) -> int:
        raise OSError(errno.EMFILE, "no descriptor")

    def refuse(pid: int, wanted: Rlimits) -> None:
        raise PermissionError(errno.EPERM, "not yours")

    with monkeypatch.context() as patch:
        patch.setattr(pidfd, "open_pidfd", too_many)
        assert "too many open files" in failure(launch("/bin/cat")).message
    with monkeypatch.context() as patch:
        patch.setattr(limits, "apply", refuse)
        assert "limits cannot be set" in failure(launch("/bin/cat")).message
    assert carrying(MARKS["PLUGBAY_HOST"]) == set()
